"""The reference engine: what the semantics says of the whole stream, piece by piece."""

import math
from collections import Counter
from collections.abc import Iterator
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from ensue import reference as semantics
from ensue.codegen import kernel_cache as cache
from ensue.engine.reference_engine import ReferenceEngine
from ensue.engine.reference_events import get_partition_key, read_events
from ensue.errors import QueryError, StateError
from ensue.ir.selection import ByTime, ByUnits
from ensue.parser.pattern_parser import parse
from ensue.planner.capabilities import skips_in_order
from ensue.planner.physical_plan import PhysicalPlan, ReferencePlan
from ensue.reference import is_decided_by_neighbour, must_wait
from ensue.runtime.compiled_query import CompiledQuery, compile_query
from ensue.runtime.stage import Matcher
from ensue.vector import evaluation as vectors
from ensue.vector.event_table import create_schema
from ensue.vector.match_rows import Matches
from support import streams
from support.edges import random_edges
from support.queries import random_query
from support.seeds import of_round, scaled
from support.streams import PLAIN, Nature, random_events, random_nature, random_slices

Match = tuple[tuple[str, tuple[int, ...]], ...]


class Case:
    """A query over a stream, forced onto the reference engine."""

    def __init__(self, text: str, events: pa.Table, nature: Nature = PLAIN) -> None:
        shape = create_schema(events.schema, time=nature.columns, type="type", order=())
        self.text, self.events = text, events
        self.prepared: CompiledQuery = compile_query(parse(text), shape)
        self.plan = PhysicalPlan(self.prepared.plan.query, ReferencePlan("asked for"))
        self.ends = np.asarray(vectors.from_arrow(events.column("t"), shape.unit).values).tolist()

    def engine(self) -> ReferenceEngine:
        shape = self.prepared.shape
        return ReferenceEngine(self.plan, shape.physical(self.prepared.query)[1], shape.unit)

    def expected(self) -> dict[Match, semantics.Binding]:
        shape = self.prepared.shape
        found = semantics.find_matches(self.prepared.query, read_events(self.events, shape.schema, shape.unit))
        return {_written({v: [e.position for e in es] for v, es in b.items()}): b for b in found}

    def decided(self, binding: semantics.Binding, rows: int, now: float) -> bool | None:
        """Whether a match is known once so many events have come and it is `now`."""
        inside = semantics.members(binding)
        if inside[-1].position >= rows:
            return False
        if skips_in_order(self.plan.query):
            return None  # it depends on others that come before it
        if not must_wait(self.plan.query.pattern, binding):
            return True
        if is_decided_by_neighbour(self.plan.query, binding) and self.has_another(inside[-1], rows):
            return True
        scale = 1_000 if self.text_has_stamps and self.prepared.shape.unit == "us" else 1
        match self.plan.query.within:
            case ByTime(nanoseconds=length) | ByUnits(amount=length):
                return now * scale - min(e.start for e in inside) > length
            case _:
                return None  # it depends on how many events of its partition have come

    def has_another(self, last: semantics.Event, rows: int) -> bool:
        """Whether another event of the partition has come behind one."""
        shape, query = self.prepared.shape, self.plan.query
        events = read_events(self.events.slice(0, rows), shape.schema, shape.unit)
        key = get_partition_key(query, last)
        return any(get_partition_key(query, event) == key for event in events[last.position + 1 :])

    @property
    def text_has_stamps(self) -> bool:
        return pa.types.is_timestamp(self.events.schema.field("t").type)


def written(found: Matches) -> Iterator[Match]:
    segments = {v: found.segments(v) for v in found.variables}
    for k in range(found.count):
        yield _written({v: rows[at[k] : at[k + 1]].tolist() for v, (at, rows) in segments.items()})


def _written(binding: dict[str, list[int]]) -> Match:
    return tuple(sorted((v, tuple(rows)) for v, rows in binding.items() if rows))


def assert_exact(case: Case, random: Random) -> str:
    """Feeds the stream in pieces, tells the time, saves and restores, each at random."""
    engine, expected = case.engine(), case.expected()
    given: Counter[Match] = Counter()
    known: set[int] = set()
    for piece in random_slices(random, case.events):
        known = set(engine.get_held_rows().tolist()) | set(range(engine.rows, engine.rows + piece.num_rows))
        steps = [None] * (piece.num_rows > 0) + [told] * random.choice((0, 1, 1, 2))
        for step in steps:
            now = None if step is None else step(random, case, engine)
            found = engine.process(piece) if now is None else engine.on_watermark(now)
            given.update(written(found))
            assert {int(r) for v in found.variables for r in found.elements(v)} <= known
            for match, binding in expected.items():
                is_known = case.decided(binding, engine.rows, engine.now)
                assert is_known is None or given[match] == is_known, (case.text, match, now)
            if random.random() < 0.3:
                data = engine.snapshot()
                engine = case.engine()
                engine.restore(data)
                assert engine.snapshot() == data
        if random.random() < 0.3:
            data = engine.snapshot()
            engine = case.engine()
            engine.restore(data)
            assert engine.snapshot() == data
    given.update(written(engine.on_watermark(math.inf)))
    assert given == Counter(expected.keys()), f"{case.text}\n{case.events.to_pydict()}"
    assert engine.on_watermark(math.inf).count == 0
    return "matches" if expected else "nothing"


def told(random: Random, case: Case, engine: ReferenceEngine) -> float:
    """A time that may be told now: no event that ends before it is still to come."""
    low = engine.now if engine.now is not None else case.ends[0] - 1 if case.ends else 0
    high = case.ends[engine.rows] if engine.rows < len(case.ends) else low + abs(low) + 9
    if isinstance(low, float):
        return random.choice((low, high, (low + high) / 2))
    return random.choice((low, high, random.randint(int(low), int(high))))


# ------------------------------------------------------------------------------- random queries

ROUNDS, SEEDS_AT_ONCE = 16, 60


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("round", range(ROUNDS))
def test_random_queries_are_exact(round):
    outcomes: Counter[str] = Counter()
    for seed in of_round(round, SEEDS_AT_ONCE):
        random = Random(seed)
        nature = random_nature(random)
        text = random_query(random, nature)
        try:
            for _ in range(2):
                events = random_events(random, random.randint(0, 10), nature)
                outcomes[assert_exact(Case(text, events, nature), random)] += 1
        except QueryError:
            outcomes["refused"] += 1
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    # a generator that has lost its bite would make this test pass
    assert outcomes["matches"] > scaled(SEEDS_AT_ONCE) / 5, outcomes


# ------------------------------------------------------------------------------- chosen queries

CHOSEN = {
    "a negation at the end": "SEQ(A a, B b, !C c) WHERE [k] WITHIN 4",
    "negations at both ends": "SEQ(!C c, A a, B b, !C d) WITHIN 3",
    "an absent sequence": "SEQ(A a, !SEQ(B b, C c), A d) WITHIN 5",
    "an absent sequence at the end": "SEQ(A a, !SEQ(B b, C c)) WHERE [k] WITHIN 4",
    "an absence inside AND": "AND(A a, !B b, C c) WITHIN 5",
    "one branch waits": "OR(SEQ(A a, !B b), SEQ(C c, B d)) WITHIN 4",
    "perhaps one behind an absence": "SEQ(A a, !B b, C? c) WITHIN 4",
    "counted, and an absence at the end": "SEQ(A a, B b, !C c) WHERE [k] WITHIN 3 EVENTS",
    "counted, and absences at both ends": "SEQ(!B d, A a, !C c) WITHIN 3 EVENTS",
    "adjacent in the key": ("SEQ(A a, B+ b[], !C c) WHERE partition_contiguity(a, b[]) { [k] } WITHIN 5"),
    "adjacent": "SEQ(!C c, A a, B b) WHERE strict_contiguity(a, b) { [k] } WITHIN 3",
    "the next": "SEQ(A a, B+ b[], !C c) WHERE skip_till_next_match(a, b[]) { [k] } WITHIN 5",
    "skipping past": ("SEQ(A a, !SEQ(C c, C d), B b) WHERE [k] WITHIN 5 AFTER MATCH SKIP PAST LAST EVENT"),
    "skipping to": "SEQ(A+ a[], B b) WHERE [s] WITHIN 5 AFTER MATCH SKIP TO LAST a HAVING b.x > 1",
    "in order of start": (
        "SEQ(A a, B+ b[], C c) WHERE [k] WITHIN 6 AFTER MATCH SKIP PAST LAST EVENT IN ORDER OF START"
    ),
    "in order of start, without a window": (
        "SEQ(A a, B b) WHERE a.x < b.x AFTER MATCH SKIP TO NEXT EVENT IN ORDER OF START"
    ),
    "in order of start, counted": (
        "SEQ(A a, B b, !C c) WITHIN 4 EVENTS AFTER MATCH SKIP PAST LAST EVENT IN ORDER OF START"
    ),
    "in order of start, with what is left": (
        "SEQ(A a, B b) WITHIN 4 AFTER MATCH SKIP PAST LAST EVENT IN ORDER OF START HAVING b.x > 1"
    ),
    "skipping past an absence at the end": ("SEQ(A a, B b, !C c) WHERE [k] WITHIN 4 AFTER MATCH SKIP PAST LAST EVENT"),
    "skipping, and one branch waits": ("OR(SEQ(A a, !B b), SEQ(C c, B d)) WITHIN 4 AFTER MATCH SKIP PAST LAST EVENT"),
    "a greedy loop at the end": "SEQ(A a, B++ b[]) WHERE [k] WITHIN 4",
    "skipping past a greedy loop at the end": ("A a -> (B b THEN)++ WITHIN 5 AFTER MATCH SKIP PAST LAST EVENT"),
    "a greedy loop at the end, in order of start": (
        "SEQ(A a, B++ b[]) WITHIN 5 AFTER MATCH SKIP PAST LAST EVENT IN ORDER OF START"
    ),
    "not the very next": "A a THEN !B b WITHIN 4",
    "not the very next of the key": "SEQ(C c, A a) THEN !B b WHERE [k] WITHIN 4",
    "not the very next, and skipping": ("A a THEN !B b WITHIN 4 AFTER MATCH SKIP PAST LAST EVENT"),
    "a greedy loop, and not the very next": "A a THEN (B b THEN)++ THEN !C c WITHIN 5",
    "without a window": "SEQ(A a, !SEQ(B b, B d), C c) WHERE [k]",
}


@pytest.mark.parametrize("name", CHOSEN)
def test_chosen_queries_are_exact(name, monkeypatch):
    random = Random(name)
    outcomes = Counter()
    for number in range(scaled(40)):
        monkeypatch.setattr("ensue.engine.reference_engine.PIECE", random.choice((1, 2, 5, 64)))
        nature = Nature(intervals=number % 4 == 3, nulls_from=5 if number % 5 == 4 else None)
        events = random_events(random, random.randint(8, 16), nature)
        outcomes[assert_exact(Case(CHOSEN[name], events, nature), random)] += 1
    assert outcomes["matches"] > scaled(5)


@pytest.mark.parametrize("time", streams.TIMES)
def test_every_kind_of_time_is_exact(time):
    unit = " seconds" if time.startswith("timestamp") else ""
    nature, random = Nature(time=time), Random(time)
    for name in ("a negation at the end", "negations at both ends", "one branch waits"):
        for _ in range(12):
            events = random_events(random, 12, nature)
            assert_exact(Case(CHOSEN[name] + unit, events, nature), random)


# ------------------------------------------------------------------------------- when they come


def delivered(engine: Matcher[pa.Table, Matches], events: pa.Table) -> Iterator[list[Match]]:
    """What a live matcher gives with each event: also what only waited for its time."""
    for row in range(events.num_rows):
        found = [*written(engine.process(events.slice(row, 1)))]
        due = engine.next_timer()
        if due is not None and engine.now is not None and due < engine.now:
            found += written(engine.on_watermark(engine.now))
        yield sorted(found)


def decides_elsewhere(prepared: CompiledQuery) -> bool:
    """Whether conditions are left to results, or the order of start to partial matches."""
    after = prepared.plan.query.after
    by_start = after is not None and after.by_start
    return bool(prepared.plan.residual or prepared.plan.query.having or by_start)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # uncompiled, scalars warn
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(4))
def test_a_match_comes_with_the_event_with_which_a_kernel_delivers_it(round, monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)
    matches = 0
    for seed in of_round(round, 60):
        random = Random(f"moments {seed}")
        text = random.choice((random_query, random_edges))(random, PLAIN)
        try:
            case = Case(text, random_events(random, 10))
        except QueryError:
            continue
        kernel = case.prepared.engine()
        if isinstance(kernel, ReferenceEngine) or decides_elsewhere(case.prepared):
            continue
        steps = zip(delivered(case.engine(), case.events), delivered(kernel, case.events), strict=True)
        for row, (found, wanted) in enumerate(steps):
            assert found == wanted, (seed, text, row)
            matches += len(found)
    assert matches > scaled(20)


# ------------------------------------------------------------------------------- what time does


def test_what_waits_is_delivered_when_its_window_has_passed():
    events = pa.table({"t": [1, 2], "type": ["A", "C"]})
    case = Case("OR(SEQ(A a, !B b), C c) WITHIN 3", events)
    engine = case.engine()
    assert list(written(engine.process(events))) == [(("c", (1,)),)]
    assert engine.next_timer() == 4
    assert engine.on_watermark(4).count == 0  # an event at 4 could still forbid it
    assert list(written(engine.on_watermark(5))) == [(("a", (0,)),)]
    assert engine.next_timer() is None
    assert engine.on_watermark(math.inf).count == 0


def test_the_deadline_is_in_the_units_of_the_time_that_is_told():
    events = pa.table({"t": pa.array([1_000_000], pa.timestamp("us")), "type": ["A"]})
    engine = Case("SEQ(A a, !B b) WITHIN 2 seconds", events).engine()
    engine.process(events)
    assert engine.on_watermark(1_000_000).count == 0
    assert engine.next_timer() == 3_000_000
    assert engine.on_watermark(3_000_000).count == 0
    assert engine.on_watermark(3_000_001).count == 1


def test_the_matches_of_a_long_table_do_not_depend_on_the_pieces(monkeypatch):
    random = Random(9)
    events = random_events(random, 300)
    case = Case("SEQ(A a, !SEQ(B b, B d), C c, !A e) WHERE [k] and a.x < c.x WITHIN 4", events)
    found = []
    for piece in (1, 7, 1_000):
        monkeypatch.setattr("ensue.engine.reference_engine.PIECE", piece)
        engine = case.engine()
        found.append([*written(engine.process(events)), *written(engine.on_watermark(math.inf))])
    assert found[0] == found[1] == found[2] == list(case.expected())
    assert found[0]


# ------------------------------------------------------------------------------- what is held


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("SEQ(A a, !SEQ(B b, B d), C c) WITHIN 5", 20),
        ("SEQ(!B b, A a, C c, !B d) WITHIN 5", 40),
        ("SEQ(A a, C c) WHERE [k] WITHIN 5 AFTER MATCH SKIP PAST LAST EVENT", 20),
        ("SEQ(A a, C c, !B b) WHERE [k] WITHIN 4 EVENTS", 20),
    ],
)
def test_only_events_that_may_still_matter_are_held(text, most):
    events = random_events(Random(text), 200)
    case = Case(text, events)
    engine, given = case.engine(), Counter()
    for start in range(0, 200, 20):
        given.update(written(engine.process(events.slice(start, 20))))
        given.update(written(engine.on_watermark(case.ends[engine.rows - 1])))
        assert 0 < engine.usage.partial_matches == len(engine.get_held_rows()) < most
        assert 0 < engine.usage.state_bytes < 60 * most
        assert len(engine.snapshot()) < 6_000
    given.update(written(engine.on_watermark(math.inf)))
    assert given == Counter(case.expected().keys())
    assert engine.usage.partial_matches == 0


def test_time_alone_lets_go_of_events():
    events = random_events(Random(2), 20)
    engine = Case("SEQ(A a, B b) WITHIN 5", events).engine()
    engine.process(events)
    engine.on_watermark(10_000)
    assert engine.get_held_rows().tolist() == []
    assert engine.usage.state_bytes == 0
    assert engine.rows == 20
    assert engine.now == 10_000


def test_columns_of_any_encoding_are_held_and_saved():
    random = Random(6)
    events = random_events(random, 30)
    for type_ in (pa.dictionary(pa.int32(), pa.string()), pa.large_string(), pa.string_view()):
        place = events.column_names.index("s")
        encoded = events.set_column(place, "s", events.column("s").cast(type_))
        assert assert_exact(Case(CHOSEN["skipping to"], encoded), random) == "matches"


# ------------------------------------------------------------------------------- bad state


def test_the_state_of_another_query_is_refused():
    events = random_events(Random(1), 5)
    engine = Case("SEQ(A a, B b) WITHIN 5", events).engine()
    engine.process(events)
    with pytest.raises(StateError, match="another query"):
        Case("SEQ(A a, B b) WITHIN 6", events).engine().restore(engine.snapshot())


def test_a_matcher_without_events_can_be_saved():
    case = Case("SEQ(A a, !B b) WITHIN 5", random_events(Random(1), 5))
    engine = case.engine()
    engine.restore(case.engine().snapshot())
    assert engine.now is None
    assert engine.on_watermark(3).count == 0
    assert engine.on_watermark(math.inf).count == 0
