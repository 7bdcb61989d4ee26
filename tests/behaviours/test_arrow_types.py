"""Every Arrow type with its extreme values, as keys, in conditions, in aggregates and in results.

Each cell is exact, judged by plain Python numbers, or refused by an error that says why.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.behaviours.arrow_types import CASES, MAX, MIN, NESTED, cases, pairs, stream, that_hold, truth

from ensue.errors import EventError, QueryError

pytestmark = [
    pytest.mark.stateless,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # kernels are not compiled here
]


@cases()
def test_keys_are_exact(name, runner):
    case = CASES[name]
    if case.refused == NESTED:
        with pytest.raises(QueryError, match=NESTED):
            pairs(runner, stream(case.array), "[x]")
        return
    assert pairs(runner, stream(case.array), "[x]") == that_hold("=", truth(case.array))


def alike(names: list[str]) -> list[list[str]]:
    """Times of a table are counted in the finest unit of any column: those go by themselves."""
    finest = [name for name in names if "[ns" in str(CASES[name].array.type)]
    return [finest, [name for name in names if name not in finest]]


def all_types(names: list[str]) -> tuple[pa.Table, dict[str, pa.Array]]:
    """A stream with a column for each type, and one that says where it has values."""
    longest = max(len(CASES[name].array) for name in names)
    table, columns = stream(pa.array(range(longest))), {}
    for k, name in enumerate(names):
        array = CASES[name].array
        array = pa.concat_arrays([array, pa.nulls(longest - len(array), array.type)])
        columns[f"x{k}"] = array
        table = table.append_column(f"x{k}", pa.chunked_array([array] * 2))
        table = table.append_column(f"known{k}", pa.chunked_array([array.is_valid()] * 2))
    return table, columns


@pytest.mark.parametrize("names", alike(list(CASES)), ids=["nanoseconds", "others"])
def test_results_come_out_as_they_went_in(runner, names):
    table, columns = all_types(names)
    returned = ", ".join(
        f"a.{x} AS {x}, first(a.{x}) AS f{x}, last(b.{x}) AS l{x}, count(b.{x}) AS n{x}, a.{x} IS NULL AS missing{x}"
        for x in columns
    )
    # conditions hold of all pairs of the same row
    known = " and ".join(f"(a.{x} IS NOT NULL) = b.known{x[1:]}" for x in columns)
    query = f"SEQ(A a, B b) WHERE a.row = b.row and {known} RETURN a.row AS row, b AS b, {returned}"
    found = runner.match(table, query, time="t", type="type")
    assert sorted(found["row"].to_pylist()) == list(range(len(table) // 2))
    order = np.argsort(found["row"].to_numpy())
    for name, array in columns.items():
        inside = found["b"].combine_chunks().field(name)
        for column in (*(found[f"{of}{name}"] for of in ("", "f", "l")), inside):
            assert column.type == array.type
            assert [shown(column)[k] for k in order] == shown(array)
        there = array.is_valid().to_pylist()
        assert found[f"n{name}"].to_numpy()[order].tolist() == [int(v) for v in there]
        assert found[f"missing{name}"].to_numpy()[order].tolist() == [not v for v in there]


def shown(column: Any) -> list[str]:
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return [str(v) for v in truth(column)]


@cases()
def test_conditions_between_events(name, runner):
    case = CASES[name]
    values, table = truth(case.array), stream(case.array)
    for operator in ("<", "="):
        # an equality of all events is a key, which the plan of the semantics does not know
        as_key = operator == "=" and runner.name != "semantics" and case.refused != NESTED
        if case.reason(runner) and not as_key:
            with pytest.raises((EventError, QueryError), match=case.reason(runner)):
                pairs(runner, table, f"a.x {operator} b.x")
            continue
        assert pairs(runner, table, f"a.x {operator} b.x") == that_hold(operator, values)


@cases()
def test_conditions_on_one_event_and_along_a_kleene_variable(name, runner):
    """`x = x` of one event, and a chain of ascending values."""
    case = CASES[name]
    values, table = truth(case.array), stream(case.array)
    chain = "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { a[i].x > a[i-1].x and b.row = 0 }"
    if case.reason(runner):
        with pytest.raises((EventError, QueryError), match=case.reason(runner)):
            pairs(runner, table, "a.x = a.x")
        with pytest.raises((EventError, QueryError), match=case.reason(runner)):
            runner.match(table, chain, time="t", type="type")
        return
    wanted = {k for k, x in enumerate(values) if x is not None and x == x}
    assert {i for i, _ in pairs(runner, table, "a.x = a.x")} == wanted
    found = runner.match(table, f"{chain} RETURN a[].row AS rows", time="t", type="type")
    assert sorted(found["rows"].to_pylist()) == sorted(ascending(values))


def ascending(values: list[Any]) -> list[list[int]]:
    """Of each event the chain of those that are greater than the last one taken."""
    chains = []
    for begin in range(len(values)):
        chain = [begin]
        for k in range(begin + 1, len(values)):
            last = values[chain[-1]]
            if last is not None and values[k] is not None and values[k] > last:
                chain.append(k)
        chains.append(chain)
    return chains


AGGREGATES = "SEQ(A+ a[], B b) WHERE strict_contiguity(a[], b) { a.LEN = %d } RETURN %s"


COMPARED = [name for name, case in CASES.items() if not case.refused]


@pytest.mark.parametrize("names", alike(COMPARED), ids=["nanoseconds", "others"])
def test_least_and_greatest(runner, names):
    table, columns = all_types(names)
    aggregates = ", ".join(f"min(a.{x}) AS l{x}, max(a.{x}) AS h{x}, count(a.{x}) AS n{x}" for x in columns)
    found = runner.match(table, AGGREGATES % (len(table) // 2, aggregates), time="t", type="type")
    for name, array in columns.items():
        assert found[f"l{name}"].type == found[f"h{name}"].type == array.type
        known = [v for v in truth(array) if v is not None and v == v]
        low, high = (truth(found[f"{c}{name}"].combine_chunks())[0] for c in "lh")
        assert (low, high) == ((min(known), max(known)) if known else (None, None))
        assert found[f"n{name}"].to_pylist() == [array.is_valid().sum().as_py()]


def test_least_and_greatest_of_what_is_not_compared(runner):
    for case in CASES.values():
        if case.refused:
            # what is returned is computed alike by all runners
            reason = "does not work on" if case.refused == NESTED else case.refused
            query = AGGREGATES % (len(case.array), "min(a.x) AS low, max(a.x) AS high")
            with pytest.raises((EventError, QueryError), match=reason):
                runner.match(stream(case.array), query, time="t", type="type")


NUMBERS = [n for n in CASES if n.startswith(("int", "uint", "decimal", "duration"))]
NUMBERS = [n for n in NUMBERS if n != "interval"]


@cases(NUMBERS)
def test_sums_and_averages(name, runner):
    """A sum of integers or durations is exact, or NULL beyond 64 bits; of decimals, a float."""
    case = CASES[name]
    values, table = truth(case.array), stream(case.array)
    returned = AGGREGATES % (len(values), "sum(a.x) AS total, avg(a.x) AS mean")
    running = (
        "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) "
        "{ sum(a[..i].x) IS NOT NULL and b.row = 0 } "
        "RETURN a[].row AS rows"
    )
    if case.refused:
        with pytest.raises(EventError, match=case.refused):
            runner.match(table, returned, time="t", type="type")
        with pytest.raises(EventError, match=case.refused):
            runner.match(table, running, time="t", type="type")
        return
    found = runner.match(table, returned, time="t", type="type")
    known = [Fraction(v) for v in values if v is not None]
    total = found["total"].combine_chunks()
    if pa.types.is_decimal(case.array.type):
        rounding = float(max(map(abs, known))) * 2**-52
        assert total.to_pylist()[0] == pytest.approx(float(sum(known)), abs=rounding)
        assert found["mean"].to_pylist()[0] == pytest.approx(float(sum(known) / len(known)), abs=rounding)
        return
    scale = {"s": 10**6, "ms": 1000}.get(getattr(case.array.type, "unit", ""), 1)
    exact = int(sum(known)) * scale
    assert truth(total) == [exact if MIN <= exact <= MAX else None]
    mean = truth(found["mean"].combine_chunks())[0]
    assert mean == pytest.approx(float(Fraction(exact, len(known))), rel=1e-15, abs=1)
    if case.reason(runner):
        with pytest.raises(EventError, match=case.reason(runner)):
            runner.match(table, running, time="t", type="type")
        return
    found = runner.match(table, running, time="t", type="type")
    assert sorted(found["rows"].to_pylist()) == sorted(within_64_bits(values, scale))


def within_64_bits(values: list[int | None], scale: int) -> list[list[int]]:
    """The chains whose sum so far is there."""
    chains = []
    for begin, first in enumerate(values):
        if first is None:
            continue
        chain, total = [begin], first * scale
        for k in range(begin + 1, len(values)):
            more = total + (values[k] or 0) * scale
            if MIN <= more <= MAX:
                chain.append(k)
                total = more
        chains.append(chain)
    return chains
