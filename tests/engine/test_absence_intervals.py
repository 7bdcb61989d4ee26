"""Absences with intervals of their own are what the semantics says, however a stream is cut."""

import warnings
from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue.codegen import kernel_cache as cache
from ensue.engine import interval_negation as lapsing
from ensue.errors import QueryError
from support.chosen import expected, in_one, in_pieces, written
from support.seeds import scaled
from support.streams import Nature, random_events, random_nature

pytestmark = pytest.mark.filterwarnings("ignore")
PATTERNS = {
    "AND(A a, {})": "a",
    "SEQ(A a, B b, {})": "ab",
    "SEQ(A a, {}, B b)": "ab",
    "AND(A a, B b, {})": "ab",
    "SEQ(A a, B? b, {}, C c)": "ac",
    "SEQ(A a, {}, !C n, B b)": "ab",
    "SEQ(A a, B b, !C n, {})": "ab",
    "OR(AND(A a, {}), SEQ(B b, C c))": "a",
    "SEQ(A a, B+ k[], {}, C c)": "ac",
}
WHERE = ("", "", "[k]", "x1.x > 0", "[k] and x1.x >= a.x")
WITHIN = ("", " WITHIN 3{}", " WITHIN 6{}", " WITHIN 4 EVENTS")
CHOOSE = ("", "", "", " CHOOSE LATEST", " CHOOSE ONCE")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)


def random_end(random: Random, known: str, unit: str) -> str:
    field = f"{random.choice(known)}.{random.choice(('start', 'end', 'end'))}"
    if random.random() < 0.2 and len(known) > 1:
        other = f"{random.choice(known)}.end"
        field = f"{random.choice(('greatest', 'least'))}({field}, {other})"
    if random.random() < 0.1 and not unit:
        return str(random.randint(0, 9))
    return f"{field} {random.choice('+++-')} {random.randint(0, 4)}{unit}"


def random_text(random: Random, unit: str) -> str:
    pattern = random.choice(list(PATTERNS))
    known = PATTERNS[pattern]
    lapses = [
        f"!{random.choice('ABCX')} x{k} FROM {random_end(random, known, unit)} TO {random_end(random, known, unit)}"
        for k in (1, 2)[: random.choice((1, 1, 2))]
    ]
    where = random.choice(WHERE)
    within = " WITHIN 5{}" if "!C n, {}" in pattern else random.choice(WITHIN)
    text = pattern.format(", ".join(lapses)) + (f" WHERE {where}" if where else "")
    return text + within.format(unit) + random.choice(CHOOSE)


def random_case(random: Random) -> int:
    """The number of matches that all of them find; -1: the query is refused."""
    nature = random_nature(random)
    text = random_text(random, "" if nature.time in ("integer", "float") else " seconds")
    events = random_events(random, random.randint(3, 12), nature)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = expected(text, events, nature)
    except QueryError:
        return -1
    assert in_one(text, events, nature) == wanted, (text, events.to_pydict())
    assert in_pieces(text, events, nature, random) == wanted, (text, events.to_pydict())
    return len(wanted)


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("block", range(40))
def test_random_queries(block):
    counts = [random_case(Random(40 * block + k)) for k in range(scaled(40))]
    assert sum(count > 0 for count in counts) > 4
    assert sum(count == 0 for count in counts) > 1


@pytest.mark.parametrize(
    ("text", "structure"),
    [
        ("AND(A a, !C c FROM a.end TO a.end + 4) WITHIN 5", "runs"),
        ("SEQ(A a, B b, !C c FROM a.end TO b.end + 2) WHERE [k] WITHIN 5", "stacks"),
        ("SEQ(A a, B b, !C c FROM a.end TO b.end + 2) WHERE [k] WITHIN 5", "tree"),
        ("SEQ(A+ a[], B b, !C c FROM a[1].end TO b.end + 2) WHERE c.x > 1 WITHIN 5", "runs"),
        ("AND(A a, B b, !A c FROM a.end - 2 TO greatest(a.end, b.end) + 2) WITHIN 5", "tree"),
    ],
)
def test_kernels_find_the_matches(text, structure):
    found = 0
    for seed in range(scaled(12)):
        random = Random(seed)
        nature = Nature(intervals=seed % 3 == 0, nulls_from=0 if seed % 4 == 0 else None)
        events = random_events(random, 14, nature)
        shown = str(
            ensue.explain(
                text, events, time=nature.columns, type="type", options=ensue.PlannerOptions(structure=structure)
            )
        )
        assert "reference: slower" not in shown
        assert "decided when time has passed" in shown
        wanted = expected(text, events, nature)
        assert in_one(text, events, nature, options=ensue.PlannerOptions(structure=structure)) == wanted
        assert in_pieces(text, events, nature, random) == wanted
        found += len(wanted)
    assert found > 5


@pytest.mark.parametrize(
    "text",
    [
        "SEQ(A a, B b, !C c FROM b.end TO b.end + 2) WHERE [k] WITHIN 3",
        "SEQ(A a, B b, !C c FROM a.end - 2 TO b.end + 2) WHERE [k] WITHIN 2 EVENTS",
        "A a THEN NEXT WITHIN 2 SEQ(B b, !C c FROM b.end TO b.end + 2) WHERE [k]",
    ],
)
def test_what_is_out_of_reach_is_forgotten(monkeypatch, text):
    monkeypatch.setattr(lapsing, "FEW", 4)
    schema = pa.schema({"t": pa.int64(), "type": pa.string(), "k": pa.int64()})
    live = ensue.live(text, schema=schema, time="t", type="type")
    sizes, matches = [], 0
    for t in range(600):
        kind = "ABXX"[t % 4]
        row = {"t": t, "type": kind, "k": t // 4}
        matches += live.feed([row]).num_rows
        sizes.append(len(live.save()))
    assert matches > 100
    assert max(sizes[300:]) <= 1.2 * max(sizes[100:300])


def test_beside_other_queries():
    random = Random(3)
    texts = [
        "AND(A a, !C c FROM a.end TO a.end + 2) WITHIN 5",
        "SEQ(A a, B b, !A c FROM a.end TO b.end + 2) WHERE [k] WITHIN 5",
        "SEQ(A a, B b) WITHIN 5",
    ]
    for _ in range(5):
        events = random_events(random, 14)
        found = ensue.match(events, texts, time="t", type="type")
        live = ensue.live(texts, schema=events.schema, time="t", type="type")
        given = [live.feed(events.slice(k, 1)) for k in range(events.num_rows)]
        given.append(live.finish())
        for number, text in enumerate(texts):
            wanted = expected(text, events, Nature())
            assert written(found[number]) == wanted
            assert written(pa.concat_tables(g[number] for g in given)) == wanted
