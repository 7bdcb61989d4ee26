"""Events that can play no role are left out before the others are sorted: no match changes."""

import warnings
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue.codegen import kernel_cache as cache
from ensue.runtime import event_pruning as relevance
from ensue.runtime import table_parts
from ensue.vector import event_table
from support.any_types import random_any_types
from support.edges import random_edges
from support.groups import random_groups
from support.negations import random_negations
from support.queries import random_query, random_repeats
from support.seeds import scaled
from support.streams import random_events, random_nature

WRITERS = {
    "queries": random_query,
    "repeats": random_repeats,
    "any types": random_any_types,
    "edges": random_edges,
    "groups": random_groups,
    "negations": random_negations,
}
CASES = scaled(36)


def leave_out(monkeypatch: pytest.MonkeyPatch, *, some: bool) -> None:
    """From any number of events on, or never."""
    monkeypatch.setattr(relevance, "MANY", 8 if some else 10**12)
    monkeypatch.setattr(relevance, "SOME", 8)
    monkeypatch.setattr(relevance, "BLOCK", 5)
    monkeypatch.setattr(table_parts, "BLOCK", 5)
    for share in ("FEW", "MOST"):
        monkeypatch.setattr(relevance, share, 1.0)
    monkeypatch.setattr(event_table, "_MANY", 2 if some else 10**12)


def found(events: pa.Table, text: str, **given: Any) -> list[Any]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        table = ensue.match(events, text, type="type", **given)
    # loops that are not compiled tell of sums that wrap
    said = sorted(str(w.message) for w in told if not issubclass(w.category, RuntimeWarning))
    return [sorted(map(repr, table.to_pylist())), said]


@pytest.mark.parametrize("name", WRITERS)
def test_random_queries_find_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "interpreted", True)
    outcomes: Counter[str] = Counter()
    for seed in range(CASES):
        random = Random(seed)
        nature = random_nature(random)
        text = WRITERS[name](random, nature)
        events = random_events(random, random.randint(8, 14), nature)
        if random.random() < 0.5:
            events = events.take(pa.array(np.random.default_rng(seed).permutation(len(events))))
        given = {"time": nature.columns, "options": ensue.OutputOptions(emit_timeouts=random.random() < 0.2)}
        results = []
        try:
            for some in (False, True):
                leave_out(monkeypatch, some=some)
                results.append(found(events, text, **given))
        except ensue.EnsueError:
            outcomes["refused"] += 1
            continue
        assert results[0] == results[1], f"seed {seed}: {text}\n{events.to_pydict()}"
        outcomes["matches" if results[0][0] else "nothing"] += 1
    assert outcomes["matches"] > CASES / 20, outcomes


def events_of(letters: str, *, shuffled: bool = False) -> pa.Table:
    table = pa.table({"t": range(len(letters)), "type": list(letters), "x": range(len(letters))})
    if shuffled:
        table = table.take(pa.array(np.random.default_rng(1).permutation(len(letters))))
    return table


@pytest.mark.parametrize("shuffled", [False, True])
def test_only_events_with_a_role_are_looked_at(shuffled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, some=True)
    events = events_of("AXXBXXAXXB" * 3, shuffled=shuffled)
    done: list[tuple[int, int]] = []
    given: dict[str, Any] = {"time": "t", "type": "type"}
    result = ensue.match(
        events, "SEQ(A a, B b) WHERE b.x > 3 WITHIN 5", **given,
        progress=lambda now, total: done.append((now, total)),
    )  # fmt: skip
    assert sorted((m["a"]["x"], m["b"]["x"]) for m in result.to_pylist()) == [
        (6, 9), (10, 13), (16, 19), (20, 23), (26, 29)
    ]  # fmt: skip
    assert done[-1] == (30, 30)


def test_a_type_that_is_there_is_not_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, some=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = ensue.match(events_of("AXXBXXAXXB"), "SEQ(A a, B b) WHERE b.x > 99", time="t", type="type")
    assert result.num_rows == 0


def test_no_event_may_have_a_role(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, some=True)
    text = "SEQ(A a, B b) WHERE a.x > 99 AND b.x > 99"
    done: list[int] = []
    for shuffled in (False, True):
        events = events_of("AXXBXXAXXB", shuffled=shuffled)
        result = ensue.match(events, text, time="t", type="type", progress=lambda *now: done.extend(now))
        assert result.num_rows == 0
    assert done == [10, 10] * 2
