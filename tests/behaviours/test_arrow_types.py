"""Every Arrow type with its extreme values, as keys, in conditions, in aggregates and in results.

Each cell is exact, judged by plain Python numbers, or refused by an error that says why.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.behaviours.arrow_types import (
    CASES,
    MAX,
    MIN,
    NESTED,
    Case,
    cases,
    pairs,
    stream,
    that_hold,
    truth,
)

from ensue.errors import EventError, QueryError

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # kernels are not compiled here


def only_where_known(runner: Any, case: Case) -> None:
    if runner.name == "lanes" and pa.types.is_binary_view(case.array.type):
        pytest.skip("streams come from Spark, which has no views")


@cases()
def test_keys_are_exact(name, runner):
    case = CASES[name]
    only_where_known(runner, case)
    if case.refused == NESTED:
        with pytest.raises(QueryError, match=NESTED):
            pairs(runner, stream(case.array), "[x]")
        return
    assert pairs(runner, stream(case.array), "[x]") == that_hold("=", truth(case.array))


@cases()
def test_results_come_out_as_they_went_in(name, runner):
    case = CASES[name]
    only_where_known(runner, case)
    table = stream(case.array)
    query = (
        "SEQ(A a, B b) WHERE a.row = b.row "
        "RETURN a.x AS x, b AS b, first(a.x) AS f, last(b.x) AS l, count(b.x) AS n, a.row AS row, "
        "a.x IS NULL AS missing"
    )
    found = runner.match(table, query, time="t", type="type")
    assert sorted(found["row"].to_pylist()) == list(range(len(case.array)))
    order = np.argsort(found["row"].to_numpy())
    values = shown(case.array)
    for column in (found["x"], found["f"], found["l"], found["b"].combine_chunks().field("x")):
        assert column.type == case.array.type
        assert [shown(column)[k] for k in order] == values
    known = case.array.is_valid().to_pylist()
    assert found["n"].to_numpy()[order].tolist() == [int(v) for v in known]
    assert found["missing"].to_numpy()[order].tolist() == [not v for v in known]
    asked = pairs(runner, table, "a.x IS NOT NULL and a.row = b.row")
    assert asked == {(k, k) for k, there in enumerate(known) if there}


def shown(column: Any) -> list[str]:
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return [str(v) for v in truth(column)]


@cases()
def test_conditions_between_events(name, runner):
    case = CASES[name]
    only_where_known(runner, case)
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
    only_where_known(runner, case)
    values, table = truth(case.array), stream(case.array)
    chain = (
        "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { a[i].x > a[i-1].x and b.row = 0 }"
    )
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


@cases()
def test_least_and_greatest(name, runner):
    case = CASES[name]
    only_where_known(runner, case)
    values, table = truth(case.array), stream(case.array)
    query = AGGREGATES % (len(values), "min(a.x) AS low, max(a.x) AS high, count(a.x) AS n")
    # what is returned is computed alike by all runners
    reason = "does not work on" if case.refused == NESTED else case.refused
    if reason:
        with pytest.raises((EventError, QueryError), match=reason):
            runner.match(table, query, time="t", type="type")
        return
    found = runner.match(table, query, time="t", type="type")
    assert found["low"].type == found["high"].type == case.array.type
    known = [v for v in values if v is not None and v == v]
    low, high = (truth(found[n].combine_chunks())[0] for n in ("low", "high"))
    assert (low, high) == ((min(known), max(known)) if known else (None, None))
    assert found["n"].to_pylist() == [sum(v is not None for v in values)]


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
        assert found["mean"].to_pylist()[0] == pytest.approx(
            float(sum(known) / len(known)), abs=rounding
        )
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
