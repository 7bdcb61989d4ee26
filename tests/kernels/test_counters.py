"""What a matcher counts is what really happened, however the stream is cut, saved and restored."""

import math
from collections import Counter
from random import Random

import pytest

from ensue.engine.engine import Engine
from ensue.parser.pattern_parser import parse
from ensue.planner.planner_options import PlannerOptions
from ensue.planner.statistics import MatcherCounters, PassCount, Statistics, compute_statistics
from ensue.runtime.compiled_query import compile_query
from ensue.vector.event_table import create_schema
from support.streams import PLAIN, random_events, random_slices

pytestmark = [pytest.mark.kernels, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

TEXT = """SEQ(A a, B b, C c)
WHERE [k] and a.x < b.x and b.x <= c.x and a.y != c.y and b.y > 0
WITHIN 6"""
WINDOW = 6


def counted_by(events, pieces, planning, *, saved_at=None, text=TEXT) -> MatcherCounters:
    shape = create_schema(events.schema, time="t", type="type", order=())
    prepared = compile_query(parse(text), shape, planning)
    engine = prepared.engine(counted=True)
    for number, piece in enumerate(pieces):
        if number == saved_at:
            state = engine.snapshot()
            engine = prepared.engine(counted=True)
            engine.restore(state)
        assert isinstance(engine, Engine)
        engine.process(piece)
    engine.on_watermark(math.inf)
    return engine.counters()


def less(one, other):
    return one is not None and other is not None and one < other


def at_most(one, other):
    return one is not None and other is not None and one <= other


def differ(one, other):
    return one is not None and other is not None and one != other


class Truth:
    """Counts by loops over the events what each structure looks at."""

    def __init__(self, events):
        self.rows = [r for r in events.to_pylist() if r["k"] is not None]
        self.by = {t: [r for r in self.rows if r["type"] == t] for t in "ABC"}
        self.by["B"] = [r for r in self.by["B"] if less(0, r["y"])]
        self.tried, self.passed = Counter(), Counter()

    def near(self, one, other):
        return one["k"] == other["k"] and one["row"] < other["row"] and other["t"] - one["t"] <= WINDOW

    def holds(self, label, value):
        self.tried[label] += 1
        self.passed[label] += value
        return value

    def stacks(self):
        pushed = [b for b in self.by["B"] if any(self.near(a, b) for a in self.by["A"])]
        self.passed["a", ""] = len(self.by["A"])
        self.passed["b", ""] = len(pushed)
        for c in self.by["C"]:
            for b in pushed:
                if not self.near(b, c):
                    continue
                self.tried["b", ""] += 1
                if not self.holds(("b", "b.x <= c.x"), at_most(b["x"], c["x"])):
                    continue
                for a in self.by["A"]:
                    if self.near(a, b) and self.near(a, c):
                        self.tried["a", ""] += 1
                        if self.holds(("a", "a.x < b.x"), less(a["x"], b["x"])):
                            self.holds(("a", "a.y != c.y"), differ(a["y"], c["y"]))
        return self

    def runs(self):
        pairs = []
        self.passed["state 1", ""] = len(self.by["A"])
        for b in self.by["B"]:
            for a in self.by["A"]:
                if self.near(a, b):
                    self.tried["state 1", ""] += 1
                    if self.holds(("b from state 1 to 2", "a.x < b.x"), less(a["x"], b["x"])):
                        pairs.append((a, b))
        self.passed["state 2", ""] = len(pairs)
        for c in self.by["C"]:
            for a, b in pairs:
                if self.near(b, c) and self.near(a, c):
                    self.tried["state 2", ""] += 1
                    at = "c from state 2 to 3"
                    if self.holds((at, "b.x <= c.x"), at_most(b["x"], c["x"])):
                        self.holds((at, "a.y != c.y"), differ(a["y"], c["y"]))
        return self


@pytest.mark.parametrize("structure", ["stacks", "runs"])
@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("seed", range(25))
def test_counters_equal_what_loops_count(seed, structure):
    random = Random(seed)
    events = random_events(random, 40, PLAIN)
    pieces = random_slices(random, events)
    planning = PlannerOptions(off=frozenset({"predicate_order"}), structure=structure)
    saved_at = random.choice((None, random.randrange(len(pieces))))
    found = counted_by(events, pieces, planning, saved_at=saved_at)
    truth = getattr(Truth(events), structure)()
    assert {k: v.tried for k, v in found.checks.items() if v.tried} == {k: v for k, v in truth.tried.items() if k[1]}
    assert {k: v.passed for k, v in found.checks.items() if v.passed} == {
        k: v for k, v in truth.passed.items() if k[1] and v
    }
    for place, count in found.places.items():
        assert count == PassCount(truth.tried[place, ""], truth.passed[place, ""]), place


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("seed", range(10))
def test_the_scan_counts_events_types_and_partitions(seed):
    random = Random(seed)
    events = random_events(random, 60, PLAIN)
    found = counted_by(events, random_slices(random, events), PlannerOptions(), saved_at=0)
    rows = events.to_pylist()
    assert found.events == len(rows)
    assert found.seconds == rows[-1]["t"] - rows[0]["t"]
    types = Counter(r["type"] for r in rows)
    passing = sum(r["type"] == "B" and less(0, r["y"]) for r in rows)
    assert found.roles == {
        "a": PassCount(types["A"], types["A"]),
        "b": PassCount(types["B"], passing),
        "c": PassCount(types["C"], types["C"]),
    }
    assert found.conditions == {("b", "b.y > 0"): PassCount(types["B"], passing)}
    assert found.partitions == len({r["k"] for r in rows} - {None})
    assert 1 <= found.effective <= max(1, found.partitions) + 1e-9


def test_negations_and_whole_variables_are_counted():
    events = random_events(Random(3), 60, PLAIN)
    text = "SEQ(A a, !C c, B+ b[]) WHERE b[i].x >= a.x and c.x != a.x WITHIN 4"
    found = counted_by(events, [events], PlannerOptions(), text=text)
    assert sum(count.tried for count in found.absences.values()) > 0
    assert all(count.passed <= count.tried for count in found.absences.values())
    assert found.matches > 0


def test_an_engine_that_does_not_count_says_so():
    events = random_events(Random(1), 5, PLAIN)
    shape = create_schema(events.schema, time="t", type="type", order=())
    engine = compile_query(parse(TEXT), shape).engine()
    assert "T" not in engine.state.tables
    with pytest.raises(ValueError, match="counted=True"):
        engine.counters()


def test_statistics_of_a_running_stream():
    random = Random(5)
    events = random_events(random, 300, PLAIN)
    half = events.num_rows // 2
    shape = create_schema(events.schema, time="t", type="type", order=())
    engine = compile_query(parse(TEXT), shape).engine(counted=True)
    engine.process(events.slice(0, half))
    engine.process(events.slice(half))
    later = engine.counters()
    known = compute_statistics(later)
    assert known.source == "the running stream"
    assert known.rate == later.events / later.seconds
    assert known.share("A") == later.roles["a"].tried / later.events
    texts = dict(known.passes)
    assert set(texts) <= {"a.x < b.x", "b.x <= c.x", "a.y != c.y", "b.y > 0"}
    assert texts["b.y > 0"] == later.conditions["b", "b.y > 0"].share
    before = Statistics.given(passes={"never.x = tried.x": 0.5})
    assert dict(compute_statistics(later, before).passes)["never.x = tried.x"] == 0.5
    assert compute_statistics(MatcherCounters(), before) == before
