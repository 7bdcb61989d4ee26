"""Operators that users add: S = (Q, F, Z), a value that patterns name.

Q decides whether events combine, F gives the start, the end and the attributes of the result, and
Z says what attributes a result has.
"""

import inspect
import keyword
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ensue.algebra.code import (
    attributes_of,
    code_fingerprint,
    keeps_times,
    names_in,
    plain_function,
)
from ensue.algebra.pattern import GROUPS
from ensue.errors import OperatorError, QueryError, did_you_mean
from ensue.schema import Kind
from ensue.span import Span

Function = Callable[..., Any]

KINDS = {
    kind.value: kind
    for kind in (
        Kind.FLOAT, Kind.INTEGER, Kind.BOOLEAN, Kind.TIMESTAMP, Kind.DURATION, Kind.STRING,
    )
}  # fmt: skip
TIMES = ("start", "end")  # what every event and every result has


class Over(Enum):
    """What an operator combines."""

    PAIR = "pair"  # Q(a, b), F(a, b)
    EACH = "each"  # Q(a), F(a)
    REPEAT = "repeat"  # Q(last, a), F(a); `last` is the event before it in the partition

    @property
    def inputs(self) -> int:
        return 2 if self is Over.PAIR else 1


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator S = (Q, F, Z); `operator` makes one.

    `cost` is what one question to Q costs, compared with a test such as `a.x < b.x`; `passes` is
    the share of combinations that pass it, as far as nothing is measured.

    >>> import ensue
    >>> near = ensue.operator("near", q=lambda a, b, most: b.start - a.end <= most, known=False)
    >>> near.name, near.parameters
    ('near', ('most',))
    """

    name: str
    over: Over
    q: Function | None  # None: everything combines
    f: Function | None  # None: from the first start to the last end
    z: tuple[tuple[str, Kind], ...]
    parameters: tuple[str, ...]  # of Q, behind the events
    required: int  # how many of them have no default
    constants_for_f: bool = False  # whether F takes them too
    # whether a result surely starts with its first event, and ends with its last one
    keeps: tuple[bool, bool] = (False, False)
    in_order: bool = True  # of a pair: the first ends before the second starts
    cost: float = 1.0
    passes: float = 0.5
    reads: frozenset[str] = field(default=frozenset(), repr=False)  # names in Q and F
    takes: tuple[frozenset[str], ...] = ()  # by input, fields that it must have
    fingerprint: str = ""  # changes with the code and the constants of Q and F

    def __repr__(self) -> str:
        return f"Operator({self.name!r}, {self.fingerprint!r})"


def operator(
    name: str,
    *,
    q: Function | None = None,
    f: Function | None = None,
    z: Mapping[str, str] | None = None,
    over: str = "pair",
    order: str = "sequence",
    cost: float = 1.0,
    passes: float = 0.5,
    reads: Iterable[str] = (),
) -> Operator:
    """An operator from its functions, or an OperatorError that says what does not fit.

    >>> dedup = operator(
    ...     "dedup", q=lambda last, e, period: e.start - last.start >= period, over="repeat"
    ... )
    >>> dedup.parameters
    ('period',)
    """
    _check_name(name)
    if over not in [o.value for o in Over]:
        raise OperatorError(f"operator {name}: over={over!r} must be 'pair', 'each' or 'repeat'")
    if order not in ("sequence", "any"):
        raise OperatorError(f"operator {name}: order={order!r} must be 'sequence' or 'any'")
    kind = Over(over)
    q, f = plain_function(q), plain_function(f)
    if q is None and kind is Over.REPEAT:
        raise OperatorError(
            f"operator {name}: a repeat needs q(last, e), which says when it fires again"
        )
    asked = 1 if kind is Over.EACH else 2
    parameters, required = _parameters(name, "q", q, asked)
    own, own_required = _parameters(name, "f", f, kind.inputs)
    if q is None:
        parameters, required = own, own_required
    elif own and own != parameters:
        raise OperatorError(
            f"operator {name}: q takes {_listed(parameters)} behind the events and f takes "
            f"{_listed(own)}\n  hint: f takes the same parameters as q, or none"
        )
    if not cost > 0 or not 0 < passes <= 1:
        raise OperatorError(
            f"operator {name}: cost must be positive, and passes above 0 and at most 1"
        )
    ordered = order == "sequence" or kind is not Over.PAIR
    keeps = (True, True) if f is None else (False, False)
    if f is not None and ordered:
        keeps = keeps_times(f, kind.inputs)
    functions = [function for function in (q, f) if function is not None]
    attributes = _attributes(name, z or {}, f)
    named = (reads,) if isinstance(reads, str) else tuple(reads)
    code = code_fingerprint(name, over, order, [(n, k.value) for n, k in attributes], *functions)
    return Operator(
        name, kind, q, f, attributes, parameters, required, bool(own), keeps,
        order == "sequence", cost, passes,
        frozenset(named).union(*map(names_in, functions)), _taken(kind, q, f), code,
    )  # fmt: skip


def _taken(over: Over, q: Function | None, f: Function | None) -> tuple[frozenset[str], ...]:
    """What the functions take of each input, as far as it shows."""
    asked = attributes_of(q) if q is not None else ()
    given = attributes_of(f) if f is not None else ()
    if over is Over.REPEAT:
        asked = asked[1:]  # the event before comes first
    return tuple(
        frozenset(asked[k] if k < len(asked) else ()).union(given[k] if k < len(given) else ())
        for k in range(over.inputs)
    )


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or name.upper() in (*GROUPS, "NOT"):
        raise OperatorError(
            f"{name!r} cannot be the name of an operator: patterns use it as name(A a, B b)"
        )


def _parameters(
    name: str, which: str, function: Function | None, events: int
) -> tuple[tuple[str, ...], int]:
    """The parameters behind the events, and how many of them have no default."""
    if function is None:
        return (), 0
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise OperatorError(f"operator {name}: {which} is not a function: {error}") from None
    plain = all(
        p.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for p in found
    )
    if len(found) < events or not plain:
        wanted = "one event" if events == 1 else "two events"
        raise OperatorError(
            f"operator {name}: {which}({', '.join(map(str, found))}) must take {wanted}, "
            "then its parameters by position"
        )
    rest = found[events:]
    required = sum(p.default is inspect.Parameter.empty for p in rest)
    return tuple(p.name for p in rest), required


def _listed(names: tuple[str, ...]) -> str:
    return f"({', '.join(names)})"


def _attributes(
    name: str, z: Mapping[str, str], f: Function | None
) -> tuple[tuple[str, Kind], ...]:
    found = []
    for attribute, kind in z.items():
        if attribute in TIMES:
            raise OperatorError(
                f"operator {name}: every result has '{attribute}', leave it out of z"
            )
        if kind not in KINDS:
            raise OperatorError(
                f"operator {name}: z[{attribute!r}] is {kind!r}\n"
                f"  hint: {did_you_mean(str(kind), KINDS)}"
            )
        found.append((attribute, KINDS[kind]))
    if found and f is None:
        raise OperatorError(
            f"operator {name}: z names attributes, and there is no f to give them\n"
            "  hint: f=lambda a, b: (a.start, b.end, b.price - a.price)"
        )
    return tuple(found)


# ------------------------------------------------------------------------------- known by name

_KNOWN: dict[str, Operator] = {}


def register(new: Operator) -> Operator:
    """Makes an operator known to every query of this process; one of its name is replaced."""
    _KNOWN[new.name] = new
    return new


def known_operator(name: str, others: Iterable[Operator], span: Span | None) -> Operator:
    """The operator of a name: one of `others`, or a registered one."""
    found = _KNOWN | {other.name: other for other in others}
    if name in found:
        return found[name]
    near = did_you_mean(name, [*found, *(g for g in GROUPS if g != name)])
    if near is not None and not near.startswith("did"):
        *most, last = GROUPS
        near = f"{', '.join(most)} and {last} are known" + "".join(f", {n}" for n in found)
        near += "; ensue.operator(...) adds others"
    raise QueryError(f"unknown operator '{name}'", hint=near, span=span)


def registered() -> tuple[Operator, ...]:
    """The operators that every query of this process knows."""
    return tuple(_KNOWN.values())


def is_registered(name: str) -> bool:
    """Whether an operator of this name is known to every query of this process."""
    return name in _KNOWN
