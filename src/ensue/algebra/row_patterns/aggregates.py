"""Aggregates over the rows of a match, one record each: what they take, what they give."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ensue.algebra.aggregates import most_frequent, product, spread
from ensue.algebra.evaluate import aggregate, percentile
from ensue.algebra.values import number, prefers
from ensue.schema import Kind

Rows = Sequence[tuple[object, ...]]  # of each row, the values of the arguments

_WITHOUT_ORDER = (Kind.OTHER, Kind.PLACE)


@dataclass(frozen=True, slots=True)
class RowFunction:
    """An aggregate.

    `kind` gives the kind of its value from those of its arguments, or None where it does not work
    on them. `meaning` is over the rows in their order, and None stands for NULL.

    >>> RowFunction("count", 1, lambda kinds: Kind.INTEGER, len).kind([Kind.STRING])
    <Kind.INTEGER: 'integer'>
    """

    name: str
    takes: int
    kind: Callable[[Sequence[Kind]], Kind | None]
    meaning: Callable[[Rows], object]
    aliases: tuple[str, ...] = ()
    optional: int = 0
    # The places of arguments that are constants: a separator, a percentage.
    constants: tuple[int, ...] = ()


# -------------------------------------------------------------------------------------- kinds


def _number(kinds: Sequence[Kind]) -> Kind | None:
    return Kind.FLOAT if kinds[0].numeric or kinds[0] is Kind.NULL else None


def _average(kinds: Sequence[Kind]) -> Kind | None:
    return Kind.DURATION if kinds[0] is Kind.DURATION else _number(kinds)


def _sum(kinds: Sequence[Kind]) -> Kind | None:
    if kinds[0] in (Kind.INTEGER, Kind.DURATION, Kind.NULL):
        return kinds[0]
    return _number(kinds)


def _ordered(kinds: Sequence[Kind]) -> Kind | None:
    """That of the first argument, if the last one has an order."""
    return None if kinds[-1] in _WITHOUT_ORDER else kinds[0]


def _same(kinds: Sequence[Kind]) -> Kind | None:
    return kinds[0]


def _truth(kinds: Sequence[Kind]) -> Kind | None:
    return Kind.BOOLEAN if kinds[0] in (Kind.BOOLEAN, Kind.NULL) else None


def _text(kinds: Sequence[Kind]) -> Kind | None:
    return Kind.STRING if all(k in (Kind.STRING, Kind.NULL) for k in kinds) else None


def _percentile(kinds: Sequence[Kind]) -> Kind | None:
    return _number(kinds) if kinds[1].numeric else None


# ----------------------------------------------------------------------------------- meanings


def _known(rows: Rows) -> list[object]:
    """The first arguments that are not NULL."""
    return [row[0] for row in rows if row[0] is not None]


def _floats(rows: Rows) -> list[float]:
    return [float(number(value)) for value in _known(rows)]


def _count(rows: Rows) -> int:
    return sum(not row or row[0] is not None for row in rows)


def _plain(name: str) -> Callable[[Rows], object]:
    return lambda rows: aggregate(name, [row[0] for row in rows])


def _middle(rows: Rows) -> float | None:
    values = _floats(rows)
    return percentile(values, 50.0) if values else None


def _percent(rows: Rows) -> float | None:
    values = _floats(rows)
    return percentile(values, float(number(rows[0][1]))) if values else None


def _mode(rows: Rows) -> object:
    values = _known(rows)
    return values[most_frequent(values)] if values else None


def _product(rows: Rows) -> float | None:
    values = _known(rows)
    return product(values) if values else None


def _joined(rows: Rows) -> str | None:
    known = [str(row[0]) for row in rows if row[0] is not None]
    separator = str(rows[0][1]) if rows and len(rows[0]) > 1 and rows[0][1] is not None else ""
    return separator.join(known) if known else None


def _best_by(side: str) -> Callable[[Rows], object]:
    def best_by(rows: Rows) -> object:
        best: tuple[object, ...] | None = None
        for row in rows:
            if row[1] is not None and (best is None or prefers(side, row[1], best[1])):
                best = row
        return None if best is None else best[0]

    return best_by


def _all_true(rows: Rows) -> bool | None:
    known = _known(rows)
    return all(known) if known else None


def _any_true(rows: Rows) -> bool | None:
    known = _known(rows)
    return any(known) if known else None


def _listed(rows: Rows) -> list[object] | None:
    return [row[0] for row in rows] if rows else None


ROW_AGGREGATES = (
    RowFunction("count", 0, lambda _: Kind.INTEGER, _count, optional=1),
    RowFunction("sum", 1, _sum, _plain("sum")),
    RowFunction("avg", 1, _average, _plain("avg"), ("mean",)),
    RowFunction("min", 1, _ordered, _plain("min")),
    RowFunction("max", 1, _ordered, _plain("max")),
    RowFunction(
        "any_value", 1, _same, lambda rows: next(iter(_known(rows)), None), ("arbitrary",)
    ),
    RowFunction("array_agg", 1, lambda _: Kind.OTHER, _listed, ("collect_list", "list")),
    RowFunction(
        "string_agg",
        1,
        _text,
        _joined,
        ("listagg", "group_concat"),
        optional=1,
        constants=(1,),
    ),
    RowFunction("max_by", 2, _ordered, _best_by("max"), ("arg_max", "argmax")),
    RowFunction("min_by", 2, _ordered, _best_by("min"), ("arg_min", "argmin")),
    RowFunction(
        "stddev",
        1,
        _number,
        lambda rows: spread(_floats(rows), whole=False, root=True),
        ("stddev_samp",),
    ),
    RowFunction(
        "stddev_pop", 1, _number, lambda rows: spread(_floats(rows), whole=True, root=True)
    ),
    RowFunction(
        "variance",
        1,
        _number,
        lambda rows: spread(_floats(rows), whole=False, root=False),
        ("var_samp",),
    ),
    RowFunction("var_pop", 1, _number, lambda rows: spread(_floats(rows), whole=True, root=False)),
    RowFunction("median", 1, _number, _middle),
    RowFunction("percentile", 2, _percentile, _percent, constants=(1,)),
    RowFunction("mode", 1, _ordered, _mode),
    RowFunction("product", 1, _number, _product),
    RowFunction("bool_and", 1, _truth, _all_true, ("every", "logical_and")),
    RowFunction("bool_or", 1, _truth, _any_true, ("some", "logical_or")),
)


_BY_NAME = {name: f for f in ROW_AGGREGATES for name in (f.name, *f.aliases)}


def row_aggregate(written: str) -> RowFunction | None:
    """The aggregate that a query means by a name in lower case; None: there is none.

    >>> row_aggregate("listagg").name, row_aggregate("upper") is None
    ('string_agg', True)
    """
    return _BY_NAME.get(written)


def aggregated(function: str, rows: Rows) -> object:
    """The value of an aggregate over the argument values of its rows, in their order.

    NULLs are passed over, but for array_agg, which keeps them. Over no rows count is 0 and the
    others are NULL.

    >>> aggregated("count", [(), ()]), aggregated("count", [(1,), (None,)])
    (2, 1)
    >>> aggregated("max_by", [("a", 1), ("b", 3), ("c", None)]), aggregated("array_agg", [])
    ('b', None)
    >>> aggregated("string_agg", [("a", ", "), (None, ", "), ("b", ", ")])
    'a, b'
    """
    return _BY_NAME[function].meaning(rows)
