"""The set changes while a stream runs in key groups: each subscription finds what it finds alone in the
micro-batches from its recorded moment on, and one that is cancelled is silent."""

from random import Random

import pyarrow as pa
import pytest

from ensue.errors import QueryError
from ensue.operators.subscriptions.catalog import catalog_snapshots as snapshots
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.catalog.version_pins import find_version_start
from ensue.operators.subscriptions.subscription_loader import clear_set_cache
from ensue.printing.opsl_printer import format_subscription
from ensue.runtime.query_spec import QuerySpec, RunOptions, SubscriptionsSpec
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.workload import Workload
from support.key_groups import Stream
from support.seeds import some
from support.subscriptions import Bounds, random_subscription

# Events of the same content are told apart by their number among those that came. With a number of
# their own (`n`) a subscription that came between two of them finds matches of the same ids.
EVENTS = pa.schema({"t": pa.int64(), "id": pa.int64(), "kind": pa.string(), "v": pa.int64(), "n": pa.int64()})
BOUNDS = Bounds(places=False, moments=False)


def stream_of(log, key_groups, forget=lambda: False, delay_ms=0):
    source = SourceSchema(EVENTS, "t")
    asked = (QuerySpec(SubscriptionsSpec(log, log.latest())),)
    workload = Workload(asked, source, RunOptions(streaming=True), key_groups)
    return Stream(workload, delay_ms, forget=forget)


def random_rows(random, count, *, disorder):
    times = sorted(random.randint(0, 30) for _ in range(count))
    if disorder:
        times = [t for _, t in sorted((t + random.uniform(0, disorder), t) for t in times)]
    return [
        {
            "t": t, "id": random.randint(1, 3), "kind": random.choice("abc"),
            "v": random.randint(0, 9), "n": number,
        }
        for number, t in enumerate(times)
    ]  # fmt: skip


def delivered(stream):
    """What has come out so far."""
    from support.key_groups import tables_of

    (output,) = stream.workload.outputs
    return sorted(
        (r["subscription"], r["match_id"], r["start"], r["end"])
        for r in tables_of(stream.delivered, 0, output.schema).to_pylist()
    )


def bounded(random, bounds):
    """A text that a stream takes."""
    from dataclasses import replace

    from ensue.ir.selection import ByUnits

    made = random_subscription(random, bounds)
    return format_subscription(replace(made, within=made.within or ByUnits(6)))


@pytest.mark.parametrize("disorder", [pytest.param(0, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize("seed", some(1, 12))
def test_each_finds_what_it_finds_alone(tmp_path, seed, disorder, monkeypatch):
    random = Random(seed)
    monkeypatch.setattr(snapshots, "MIN_CHANGES", Random(seed + 99).choice((2, 5, 10_000)))
    key_groups = random.choice((1, 2, 3))
    forgetful = random.random() < 0.5
    log = CatalogLog(tmp_path / "set")
    batches = []
    rows = random_rows(random, 30, disorder=disorder)
    while rows:
        size = random.randint(1, 4)
        batches.append(pa.Table.from_pylist(rows[:size], schema=EVENTS))
        rows = rows[size:]
    stream = stream_of(log, key_groups, lambda: forgetful and random.random() < 0.4, disorder)
    lives = {}  # name -> (text, version, version that cancels it)
    names = iter(range(1_000))
    for batch in batches:
        changes, version = [], log.latest() + 1
        for _ in range(random.choice((0, 1, 1, 2))):
            alive = [n for n, life in lives.items() if life[2] is None and life[1] < version]
            kind = random.choice(("add", "add", "cancel", "replace")) if alive else "add"
            if kind != "add":
                name = random.choice(alive)
                lives[name] = (*lives[name][:2], version)
                changes.append(SubscriptionChange.cancel(name))
            if kind != "cancel":
                name = f"s{next(names)}"
                known = [life[0] for life in lives.values()]
                text = random.choice(known) if known and random.random() < 0.3 else None
                lives[name] = (text or bounded(random, BOUNDS), version, None)
                changes.append(SubscriptionChange.add(name, lives[name][0]))
        log.append(changes)
        if changes and random.random() < 0.2:
            clear_set_cache()  # as if the process had ended
        stream.feed(batch)
    before_end = delivered(stream)
    stream.end()
    found = delivered(stream)
    for name, (text, since, until) in lives.items():
        first = find_version_start(log, "stream", since).batch
        last = len(batches) if until is None else find_version_start(log, "stream", until).batch
        alone = CatalogLog(tmp_path / name)
        alone.append([SubscriptionChange.add(name, text)])
        separate = stream_of(alone, 1, delay_ms=disorder)
        for number, batch in enumerate(batches[:last]):
            # time passes for it as it does for all
            separate.feed(batch if number >= first else batch.slice(0, 0))
            if number < first:
                separate.batches = number + 1
        if until is None:
            separate.end()
        mine = [row for row in found if row[0] == name]
        assert mine == delivered(separate), (name, text, since, until)
    assert len(before_end) <= len(found)


def test_an_absence_of_no_event_fires_in_one_key_group_and_without_events(tmp_path):
    log = CatalogLog(tmp_path)
    log.append([SubscriptionChange.add(f"quiet {k}", f"!(5;{k})A, A = (ARITH:id = {k})") for k in (1, 2, 3)])
    stream = stream_of(log, 4)
    stream.feed(pa.Table.from_pylist([{"t": 1, "id": 9}], schema=EVENTS))
    stream.feed(pa.Table.from_pylist([{"t": 7, "id": 2}], schema=EVENTS))
    stream.feed(pa.Table.from_pylist([{"t": 20, "id": 9}], schema=EVENTS))
    assert [row[0] for row in delivered(stream)] == ["quiet 1", "quiet 3"]


def test_a_cancelled_absence_is_silent_though_no_event_comes(tmp_path):
    log = CatalogLog(tmp_path)
    text = "!(A;5)B, A = (ARITH:id = 1), B = (ARITH:id = 2)"
    log.append([SubscriptionChange.add("kept", text), SubscriptionChange.add("gone", text)])
    stream = stream_of(log, 2)
    stream.feed(pa.Table.from_pylist([{"t": 1, "id": 1}], schema=EVENTS))
    log.append([SubscriptionChange.cancel("gone")])
    stream.feed(pa.Table.from_pylist([{"t": 20, "id": 9}], schema=EVENTS))
    assert [row[0] for row in delivered(stream)] == ["kept"]


def test_an_interval_that_has_begun_is_not_watched_by_one_that_comes_later(tmp_path):
    log = CatalogLog(tmp_path)
    log.append([SubscriptionChange.add("first", "!(5;3)A, A = (ARITH:id = 1)")])
    stream = stream_of(log, 1)
    stream.feed(pa.Table.from_pylist([{"t": 7, "id": 9}], schema=EVENTS))
    log.append([SubscriptionChange.add("late", "!(6;3)A, A = (ARITH:id = 1)")])
    log.append([SubscriptionChange.add("in time", "!(7;3)A, A = (ARITH:id = 1)")])
    stream.feed(pa.Table.from_pylist([{"t": 30, "id": 9}], schema=EVENTS))
    assert [row[0] for row in delivered(stream)] == ["first", "in time"]


def test_one_that_does_not_fit_the_events_is_left_out(tmp_path):
    log = CatalogLog(tmp_path)
    log.append([SubscriptionChange.add("good", "(ARITH:id = 1)")])
    stream = stream_of(log, 2)
    stream.feed(pa.Table.from_pylist([{"t": 1, "id": 1}], schema=EVENTS))
    log.append([SubscriptionChange.add("bad", "(ARITH:nosuch = 1)"), SubscriptionChange.add("new", "(ARITH:id = 1)")])
    with pytest.warns(UserWarning, match="'bad' cannot be matched here"):
        stream.feed(pa.Table.from_pylist([{"t": 2, "id": 1}], schema=EVENTS))
    stream.end()
    assert [row[0] for row in delivered(stream)] == ["good", "good", "new"]
    clear_set_cache()
    with pytest.raises(QueryError, match="nosuch"):  # who starts anew is told
        stream_of(log, 2)
