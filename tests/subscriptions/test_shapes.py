"""Subscriptions in the pattern language: together they find what each finds alone."""

import math
from collections import Counter
from random import Random

import pyarrow as pa
import pytest

import ensue
from engine.test_absence_intervals import random_text
from ensue.codegen import kernel_cache as cache
from ensue.errors import QueryError
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.planner.physical_plan import ReferencePlan
from ensue.runtime.stage import StageInput
from support.queries import random_query, random_repeats
from support.shapes import alone, matcher_of, other_constants, prepared, shape_of_stream, told
from support.streams import PLAIN, random_events, random_nature, random_slices

FLAT = "SEQ(A a, B b) WHERE a.x > {} and b.x < {} WITHIN 5"
KLEENE = "SEQ(A a, B+ b[], C c) WHERE [k] and a.x > {} and b[i].y > {} and sum(b.x) > {} WITHIN 8"


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Every random query has kernels of its own, which would all be compiled."""
    monkeypatch.setattr(cache, "interpreted", True)


def several(random: Random, nature, write=random_query) -> dict[str, str]:
    """A few random queries that fit the events, each with several sets of constants."""
    shape = shape_of_stream(random_events(random, 1, nature), nature)
    found: dict[str, str] = {}
    for _ in range(20):
        text = write(random, nature)
        try:
            prepared(text, shape)
        except QueryError:
            continue
        for text_of in (text, *(other_constants(text, random) for _ in range(2))):
            found[f"s{len(found)}"] = text_of
        if len(found) > 3:
            break
    return found


def random_lapses(random: Random, nature) -> str:
    unit = " seconds" if nature.time.startswith("timestamp") else ""
    return random_text(random, unit)


@pytest.mark.parametrize("write", [random_query, random_repeats, random_lapses])
@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("seed", range(12))
def test_random_queries_find_together_what_they_find_alone(seed, write):
    random = Random(f"shapes {seed}")
    nature = random_nature(random)
    texts = several(random, nature, write)
    events = random_events(random, 16, nature)
    shape = shape_of_stream(events, nature)
    matcher = matcher_of(shape, texts)
    pieces = random_slices(random, events)
    tables = [matcher.process(StageInput.from_events(piece))[0] for piece in pieces] + matcher.on_watermark(math.inf)
    found = told(tables)
    expected = {name: alone(prepared(text, shape), [events]) for name, text in texts.items()}
    for name, text in texts.items():
        assert found.get(name, Counter()) == Counter(list(expected[name])), text
    matches = pa.concat_tables(tables)
    assert len(set(matches["match_id"].to_pylist())) == matches.num_rows
    for match in matches.to_pylist():
        rows = tuple(event["row"] for event in match["members"])
        own = expected[match["subscription"]][rows]
        assert (match["start"], match["end"]) == (own["start"], own["end"])


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("seed", range(12))
def test_the_set_may_change_at_every_event(seed):
    """Each finds what it finds alone in the events between its coming and its going."""
    random = Random(f"changes {seed}")
    texts = several(random, PLAIN, random.choice((random_query, random_repeats)))
    events = random_events(random, 16, PLAIN)
    shape = shape_of_stream(events, PLAIN)
    matcher = matcher_of(shape, {})
    spans = {}
    for name in texts:
        come = random.randint(0, 8)
        spans[name] = come, random.choice((16, random.randint(come, 16)))
    tables, version = [], 1
    for row in range(16):
        for name, (come, gone) in spans.items():
            version += 1
            if come == row < gone:
                change = SubscriptionChange.add(name, texts[name], language="patterns")
                matcher.subscription_set.take(change, version)
            elif gone == row > come:
                matcher.subscription_set.take(SubscriptionChange.cancel(name), version)
        matcher.version = version
        matcher.drop_cancelled()
        tables.append(matcher.process(StageInput.from_events(events.slice(row, 1)))[0])
    found = told([*tables, *matcher.on_watermark(math.inf)])
    for name, (come, gone) in spans.items():
        seen = [events.slice(row, 1) for row in range(come, gone)]
        query = prepared(texts[name], shape)
        most = set(alone(query, seen)) if seen else set()
        own = found.get(name, Counter())
        assert set(own) <= most, texts[name]
        assert max(own.values(), default=1) == 1
        if gone == 16:
            assert set(own) == most, texts[name]
        elif seen and not isinstance(query.plan.structure, ReferencePlan):
            # what waits for time to pass may have been told before it was cancelled, or not
            assert set(own) >= set(alone(query, seen, over=False)), texts[name]


def test_one_that_is_cancelled_loses_its_state():
    events = random_events(Random(3), 40)
    matcher = matcher_of(shape_of_stream(events, PLAIN), {"a": KLEENE.format(-1, -2, -1)})
    matcher.process(StageInput.from_events(events))[0]
    assert matcher.usage.partial_matches > 0
    matcher.subscription_set.take(SubscriptionChange.add("b", KLEENE.format(0, 0, 0)), 2)
    matcher.subscription_set.take(SubscriptionChange.cancel("a"), 3)
    matcher.version = 3
    matcher.drop_cancelled()
    matcher.on_watermark(0)
    assert matcher.usage.partial_matches == 0
    assert not any(len(engine.held_rows) for engine in matcher.engines)
    assert list(matcher.subscription_set.patterns.members) == ["b"]


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(8))
def test_state_is_saved_and_restored(seed):
    random = Random(f"state {seed}")
    nature = random_nature(random)
    texts = several(random, nature, random.choice((random_query, random_repeats)))
    events = random_events(random, 16, nature)
    shape = shape_of_stream(events, nature)
    matcher = matcher_of(shape, texts)
    tables = []
    for piece in random_slices(random, events):
        tables.append(matcher.process(StageInput.from_events(piece))[0])
        saved = matcher.snapshot()
        turned = dict(reversed(texts.items()))  # numbers are others in the next process
        matcher = matcher_of(shape, turned)
        matcher.restore(saved)
    found = told([*tables, *matcher.on_watermark(math.inf)])
    for name, text in texts.items():
        expected = Counter(list(alone(prepared(text, shape), [events])))
        assert found.get(name, Counter()) == expected, text


def test_key_groups_share_the_work():
    random = Random(7)
    events = random_events(random, 60)
    shape = shape_of_stream(events, PLAIN)
    texts = {f"s{k}": KLEENE.format(k % 3 - 1, k % 2 - 2, k % 5) for k in range(12)}
    whole = told([matcher_of(shape, texts).process(StageInput.from_events(events))[0]])
    parts = [
        told([matcher_of(shape, texts, key_group=key_group, key_groups=3).process(StageInput.from_events(events))[0]])
        for key_group in range(3)
    ]
    assert sum(map(len, parts)) == len(whole) > 3
    assert {name: found for part in parts for name, found in part.items()} == whole
    assert sum(1 for part in parts if part) > 1


# ---------------------------------------------------------------------------- which way


def test_constants_make_no_other_shape():
    events = random_events(Random(1), 1)
    texts = {
        "a": FLAT.format(1, 2), "b": FLAT.format(3, -4),
        "c": KLEENE.format(1, 2, 3), "d": KLEENE.format(2, 2.5, 4),
        "e": "SEQ(A a, B b) WHERE a.s = 'p' and b.x = a.x + 2 WITHIN 5",
        "f": "SEQ(A a, B b) WHERE a.s = 'it''s' and b.x = a.x + 3 WITHIN 5",
        "g": "SEQ(A a, B b) WHERE a.s = 'p' and b.x = a.x + 2 WITHIN 6",
    }  # fmt: skip
    fleet = matcher_of(shape_of_stream(events, PLAIN), texts).subscription_set
    numbers = [fleet.patterns.members[name].shape for name in texts]
    assert numbers[0] is numbers[1]
    assert numbers[2] is numbers[3]
    assert numbers[4] is numbers[5]
    assert len(set(map(id, numbers))) == 4
    assert all(shape.mode.alone is None for shape in numbers)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SEQ(A a, B b) WHERE strict_contiguity(a, b) { a.x > 1 }", "strict_contiguity"),
        ("SEQ(A a, B b) WHERE partition_contiguity(a, b) { [k] }", "partition_contiguity"),
        ("SEQ(A a, B b) WHERE a.x > 1 WITHIN 4 EVENTS", "counts every event"),
    ],
)
def test_what_looks_at_all_events_is_on_its_own(text, why):
    events = random_events(Random(1), 1)
    matcher = matcher_of(shape_of_stream(events, PLAIN), {"a": text})
    (shape,) = matcher.subscription_set.patterns.shapes.values()
    assert why in shape.mode.alone
    assert shape.mode.every_event


def test_only_what_is_routed_reaches_the_plan():
    events = random_events(Random(5), 200)
    texts = {f"s{k}": f"SEQ(A a, B+ b[]) WHERE a.x = {k} and b[i].x > {k} WITHIN 3" for k in range(9)}
    matcher = matcher_of(shape_of_stream(events, PLAIN), texts)
    matcher.process(StageInput.from_events(events))[0]
    (running,) = matcher.templates.values()
    kinds, x = events["type"].to_pylist(), events["x"].to_pylist()
    fits = sum(
        (kind == "A" and v == k) or (kind == "B" and v > k) for kind, v in zip(kinds, x, strict=True) for k in range(9)
    )
    assert running.engine.rows == fits < 9 * 200


def test_the_same_events_in_other_roles_are_one_match():
    events = pa.table({"b": [1, 2], "t": [1, 2], "row": [0, 1], "type": ["A", "A"], "x": [1, 1]})
    shape = shape_of_stream(events, PLAIN)
    matcher = matcher_of(shape, {"a": "AND(A a, A b) WITHIN 5"})
    assert told([matcher.process(StageInput.from_events(events))[0]]) == {"a": Counter({(0, 1): 1})}


# ---------------------------------------------------------------------------- public calls

ROWS = pa.schema({"ts": pa.int64(), "kind": pa.string(), "k": pa.int64(), "x": pa.int64()})


def rows(random: Random, count: int) -> pa.Table:
    times = sorted(random.randint(0, 3 * count) for _ in range(count))
    return pa.Table.from_pylist(
        [{"ts": t, "kind": random.choice("AB"), "k": random.randint(0, 2), "x": n} for n, t in enumerate(times)], ROWS
    )


def members(table: pa.Table) -> Counter:
    return Counter((row["subscription"], tuple(e["x"] for e in row["members"])) for row in table.to_pylist())


WRITTEN = {
    "having": "SEQ(A a, B+ b[]) WHERE [k] WITHIN 9 HAVING count(b) > 1",
    "limit": "SEQ(A a, B b) WITHIN 20 LIMIT 2",
    "latest": "SEQ(A a, A b, B c) WHERE a.k >= 1 WITHIN 20 CHOOSE LATEST",
    "later": "SEQ(A a, A b, B c) WHERE a.k >= 0 WITHIN 20 CHOOSE LATEST",
    "once": "SEQ(A a, B b) WHERE [k] WITHIN 20 CHOOSE ONCE",
    "past": "SEQ(A a, B b) WHERE a.x > 3 WITHIN 20 AFTER MATCH SKIP PAST LAST EVENT",
    "further": "SEQ(A a, B b) WHERE a.x > 8 WITHIN 20 AFTER MATCH SKIP PAST LAST EVENT",
    "absent": "SEQ(A a, !B b) WHERE [k] WITHIN 6",
    "no pair": "SEQ(A a, !SEQ(B b, B c), A d) WHERE [k] and b.x > 2 WITHIN 30",
    "quiet": "SEQ(A a, !B n FROM a.end TO a.end + 4) WHERE [k] and n.x > 5",
    "quieter": "SEQ(A a, !B n FROM a.end TO a.end + 4) WHERE [k] and n.x > 9",
    "one": "A a WHERE a.x = 4",
    "texts": "SEQ(A a, B b) WHERE a.kind || b.kind = 'AB' and a.k in (0, 2) WITHIN 4",
}


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(3))
def test_tables_and_live_find_what_queries_find(seed):
    random = Random(f"calls {seed}")
    events = rows(random, 30)
    fleet = ensue.Subscriptions(time="ts", type="kind")
    for name, text in WRITTEN.items():
        fleet.add(name, text)
    fleet.add("opsl", "=|(A; 9)(B), A = (ARITH:x = 4), B = (ARITH:x = 6)")
    whole = ensue.match(events, fleet)
    found = members(whole)
    for name, text in WRITTEN.items():
        expected = Counter()
        for match in ensue.match(events, text, time="ts", type="kind").to_pylist():
            parts = [v for v in match.values() if isinstance(v, dict | list)]
            own = [e for v in parts for e in (v if isinstance(v, list) else [v])]
            expected[name, tuple(sorted(e["x"] for e in own))] += 1
        assert Counter({k: n for k, n in found.items() if k[0] == name}) == expected, text

    live = ensue.live(fleet, schema=ROWS)
    tables, at = [], 0
    while at < events.num_rows:
        size = random.randint(1, 7)
        tables.append(live.feed(events.slice(at, size)))
        at += size
        if random.random() < 0.5:
            live = ensue.live(fleet, schema=ROWS).restore(live.save())
    tables.append(live.finish())
    assert members(pa.concat_tables(tables)) == found
    ids = pa.concat_tables(tables)["match_id"].to_pylist()
    assert sorted(ids) == sorted(whole["match_id"].to_pylist())


def test_one_may_be_replaced_by_one_in_the_other_language():
    fleet = ensue.Subscriptions(time="ts", type="kind")
    fleet.add("a", "SEQ(A a, B b) WITHIN 9")
    live = ensue.live(fleet, schema=ROWS)
    event = {"k": 0, "x": 1}
    live.feed({"ts": 1, "kind": "A", **event})
    fleet.replace("a", "(STRING:kind = 'B')")
    assert len(live.feed({"ts": 2, "kind": "B", **event})["members"][0]) == 1
    fleet.replace("a", "SEQ(A a, B b) WITHIN 9")
    assert live.feed({"ts": 3, "kind": "B", **event}).num_rows == 0  # the A is forgotten
    live.feed({"ts": 4, "kind": "A", **event})
    assert live.feed({"ts": 5, "kind": "B", **event}).num_rows == 1


def test_tables_of_one_type_each():
    a = pa.table({"ts": [1, 5], "x": [1, 2], "own": ["p", "q"]})
    b = pa.table({"ts": [2, 6], "x": [2.5, 3.5], "own": [1, 2]})
    fleet = ensue.Subscriptions(time="ts")
    fleet.add("both", "SEQ(A a, B b) WHERE a.own = 'p' and b.own > 1")
    fleet.add("other", "SEQ(A a, B b) WHERE a.own = 'q' and b.own > 0")
    found = ensue.match({"A": a, "B": b}, fleet)
    assert Counter(found["subscription"].to_pylist()) == Counter(both=1, other=1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SEQ(A a, B b) RETURN COUNT(*)", r"COUNT\(\*\) and EXISTS"),
        ("SEQ(A a, B b) RETURN EXISTS", r"COUNT\(\*\) and EXISTS"),
        ("SEQ(A a, B b) RETURN a.x", "leave out RETURN"),
        ("EVENT Z AS SEQ(A a, B b) WITHIN 3; SEQ(Z z, A a) WITHIN 5", "not support"),
        ("SEQ(A a, B a)", "'a'"),
        ("SEQ(A a, B b) WHERE a.y > 3", "'y'"),
        ("SEQ(A a, B b) WITHIN 3 minutes", "numbers"),
    ],
)
def test_what_a_set_does_not_take_is_refused(text, says):
    fleet = ensue.Subscriptions(time="ts", type="kind")

    def asked():
        fleet.add("wrong", text)
        ensue.match(rows(Random(1), 3), fleet)

    with pytest.raises(ensue.QueryError, match=says):
        asked()


def test_a_stream_needs_a_window():
    events = random_events(Random(1), 1)
    fleet = SubscriptionSet(shape_of_stream(events, PLAIN), streaming=True)
    with pytest.raises(ensue.QueryError, match="window"):
        fleet.take(SubscriptionChange.add("a", "SEQ(A a, B b)"), 1)
    fleet.take(SubscriptionChange.add("a", "SEQ(A a, B b) WHERE b.t - a.t < 4"), 1)
    fleet.take(SubscriptionChange.add("b", "SEQ(A a, B b) WITHIN 4"), 2)
    assert len(fleet) == 2


def test_explain_says_what_runs_how():
    fleet = ensue.Subscriptions(time="ts", type="kind")
    for number in range(3):
        fleet.add(f"many {number}", f"SEQ(A a, B+ b[]) WHERE a.k > {number} WITHIN 9")
    fleet.add("strict", "SEQ(A a, B b) WHERE strict_contiguity(a, b) { a.k > 1 }")
    fleet.add("opsl", "=|(A; 9)(B), A = (ARITH:x = 4), B = (ARITH:x = 6)")
    said = ensue.explain(fleet, rows(Random(1), 3))
    for line in (
        "subscriptions   5, at version 5 of a log in memory",
        "  on nodes      1",
        "  in templates  3, as 1 plan",
        "  separately    1",
        "'opsl' on nodes",
        "    event x = 4",
        "one plan for 3 subscriptions of a template, over the events that are routed to them",
        "  'many 0', 'many 1', 'many 2'",
        "  partition  [__subscription]",
        "  'strict': strict_contiguity looks at every event of the stream",
    ):
        assert line in said.splitlines()
    assert "waits 9" in said
    assert "1 in OPSL, 4 in the pattern language" in ensue.explain(fleet)


def test_events_have_no_columns_of_ours():
    fleet = ensue.Subscriptions(time="ts", type="kind")
    fleet.add("a", "A a WHERE a.x > 1")
    events = rows(Random(1), 3).append_column("__constant.0", pa.array([1, 2, 3]))
    with pytest.raises(ensue.EventError, match=r"__constant\.0"):
        ensue.match(events, fleet)


def test_a_text_that_names_a_file_is_refused_before_it_is_read(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("the password")
    fleet = ensue.Subscriptions(time="ts")
    for text in (f'IMPORT "{secret}"; SEQ(A a, B b)', f"-- (\nimport '{secret}';SEQ(A a)"):
        with pytest.raises(ensue.QueryError, match="IMPORT") as error:
            fleet.add("a", text, language="patterns")
        assert "password" not in str(error.value)
