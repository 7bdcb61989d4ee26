"""Everything that can stand behind something else, at random: every runner gives what the reference semantics say.

A call has queries of any kind with any clauses, which read one stream and the same archives. What is refused is
refused when it is planned, on every runner and whatever the events are.
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.errors import QueryError, SkipError
from ensue.ir.selection import ByUnits
from ensue.ir.subscription import Subscription
from ensue.printing.opsl_printer import format_subscription
from ensue.printing.sql_printer import format_clause
from ensue.reference.subscription_matches import ReferenceStream, find_subscription_matches
from ensue.runtime.query_kinds import find_kind
from ensue.runtime.query_spec import QuerySpec, RunOptions, open_archives
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.tasks import task_state
from ensue.runtime.workload import Workload
from ensue.vector.event_table import create_schema, get_end_times
from support.combinations import PARTS, Example, iterate_pairs
from support.fleets import random_events as subscribed_events
from support.key_groups import Stream, delayed, workload_of
from support.live import fed, rows
from support.pipelines import TYPED, Call, judge, parsed, random_call, random_clause, run_on_table
from support.row_patterns import recognized
from support.seeds import THOROUGH, in_blocks
from support.streams import PLAIN, random_events, random_slices
from support.subscriptions import Bounds, random_subscription

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # uncompiled, scalars warn
    pytest.mark.filterwarnings("ignore:no event is of type"),
]

# why a stream refuses what a table takes; where a query has another mistake, a stream may name either
ONLY_TABLES = (
    "are about a whole result, and that of a stream never ends",
    "the matches of a stream need their ids",
    "a streaming query without a window would have to store every event",
    "and layers above cannot wait for it",
    "ORDER BY begins with",
    "the end of a partition is unknown as long as rows may come",
    "archived matches of a running stream are decided only when it ends",
    "the own archive of a stream",
    "and a stream would keep its rows forever",
)


LIMITS = Path(__file__).parents[2] / "docs" / "limits.md"


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch):
    """Each query has kernels of its own, which would all be compiled."""
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)


def run_live(call: Call, random: Random | None) -> dict[Any, pa.Table]:
    """A live matcher: events out of order, cut, saved and restored into other objects; None: only planned."""
    schema = call.live.schema
    if random is None:
        ensue.live(call.asked, schema=schema, **call.named)
        return {}
    shape = create_schema(schema, time=call.nature.columns, **TYPED)
    events, late = call.live, 0
    if random.random() < 0.5 and events.num_rows:
        most = random.choice((1, 3, 9))
        order = sorted(range(events.num_rows), key=lambda row: row + random.uniform(0, most))
        events = events.take(pa.array(order, pa.int64()))
        ticks = get_end_times(events, shape).tolist()
        late = max(max(ticks[: place + 1]) - tick for place, tick in enumerate(ticks))
    watermark = f"{late} {shape.unit}" if call.nature.time.startswith("timestamp") else late
    return fed(
        random_slices(random, events), call.asked, schema=schema, random=random, watermark=watermark, **call.named
    )


def run_in_tasks(call: Call, random: Random | None) -> dict[Any, pa.Table]:
    """The tasks of a stream: events late, cut, key groups killed and rebuilt from their store; None: only planned."""
    output, archives = call.output, call.named["archives"]
    job = workload_of(
        call.asked, call.live.schema, call.nature.columns, "type", ("row",),
        key_groups=1 if random is None else random.randint(1, 3), emit_timeouts=output.emit_timeouts,
        levels=output.levels, flat=output.flat, ids=output.ids, archive_set=open_archives(archives, streaming=True),
    )  # fmt: skip
    _ = job.chains
    if random is None:
        return {}
    arriving, delay = delayed(random, call.live, job.source)
    stream = Stream(job, delay, forget=lambda: random.random() < 0.3, early=random.random() < 0.5)
    for piece in random_slices(random, arriving):
        stream.feed(piece)
        if random.random() < 0.5:
            stream.pause()
    found = stream.end()
    assert stream.late == 0
    return found


STREAMS = (run_live, run_in_tasks)


def outcome(run: Callable[..., Any], *given: Any) -> Any:
    """What a run gives, or why it is refused."""
    try:
        return run(*given)
    except QueryError as error:
        return str(error)


def only_tables(reason: str) -> bool:
    return any(known in reason for known in ONLY_TABLES)


@dataclass
class Report:
    """What was tried, by kind, and what was refused, by reason."""

    tried: Counter[str] = field(default_factory=Counter)
    matched: Counter[str] = field(default_factory=Counter)
    streamed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def refuse(self, reason: str, *names: str) -> None:
        self.refused[f"{' + '.join(names)}: {reason.splitlines()[0]}"] += 1


def check(seed: int, report: Report) -> None:
    random = Random(seed)
    call = random_call(random, 3)
    alone: dict[str, dict[Any, pa.Table]] = {}
    streamed: list[str] = []
    for name in call.queries:
        one, kind = call.only([name]), type(parsed(call.queries[name])).__name__
        try:
            found = outcome(run_on_table, one)
        except SkipError:  # AFTER MATCH has nowhere to go: a match decides that, not the plan
            continue
        plans = [outcome(run, one, None) for run in STREAMS]
        if isinstance(found, str):
            report.refuse(found, kind)
            assert outcome(run_on_table, one, call.live.slice(0, 0)) == found
            assert all(isinstance(plan, str) for plan in plans), plans
            told = [plan for plan in plans if plan != found and not only_tables(plan)]
            assert all("cannot be combined with MATCH_RECOGNIZE" in plan for plan in told), plans  # two mistakes
            continue
        for plan in plans:
            if isinstance(plan, str):
                report.refuse(plan, "stream", kind)
                assert only_tables(plan), plan
                assert plans[1] == plan or only_tables(plans[1]), plans
        judge(one, name)
        alone[name] = found
        streamed += [name] if {} == plans[0] == plans[1] else []
        report.tried[kind] += 1
        report.matched[kind] += any(table.num_rows for table in found.values())
        report.streamed[kind] += name in streamed
    wanted = {
        name if not level or len(alone) == 1 else f"{name}.{level}": (name, table)
        for name, tables in alone.items()
        for level, table in tables.items()
    }
    for run, names in ((run_on_table, list(alone)), (run_live, streamed), (run_in_tasks, streamed)):
        together = call.only(names)
        if not names or (run is run_on_table and len(names) == 1):
            continue
        found = outcome(run, together) if run is run_on_table else outcome(run, together, random)
        if isinstance(found, str):
            report.refuse(found, *(type(parsed(query)).__name__ for query in together.queries.values()))
            assert only_tables(found), found
            continue
        expected = alone[names[0]] if len(names) == 1 else {o: t for o, (n, t) in wanted.items() if n in names}
        assert list(found) == list(expected), run.__name__
        for output, table in expected.items():
            assert found[output].schema == table.schema, (run.__name__, output)
        assert rows(found) == rows(expected), run.__name__


def test_what_is_refused_is_what_the_page_of_limits_says():
    page = LIMITS.read_text(encoding="utf-8").partition("## What cannot be combined")[2].partition("\n## ")[0]
    cells = [
        line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith(("| `", "| a", "| no", "| the"))
    ]
    pairs = [pair for ones, others, _ in cells for pair in product(ones.split(", "), others.split(", "))]
    listed = set(map(frozenset, pairs))
    assert len(listed) == len(pairs)  # each pair has one reason
    assert set().union(*listed) <= set(PARTS)
    assert not [part for part, (place, value) in PARTS.items() if Example({place: value}).refused]
    planned = {frozenset((one, other)): example for one, other, example in iterate_pairs()}
    assert not [pair for pair in listed if not planned.pop(pair).refused]
    others = list(planned.items())[:: 1 if THOROUGH else 3]
    assert not [(pair, why) for pair, example in others if (why := example.refused)]


@pytest.mark.parametrize("seeds", in_blocks(20, 43, 450))
def test_random_queries_give_the_reference_on_every_runner(seeds, monkeypatch):
    report = Report()
    for seed in seeds:
        monkeypatch.setattr(task_state, "SMALL", seed % 2 * 4_000)  # snapshots, or logs and snapshots
        try:
            check(seed, report)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    print(report.tried, report.matched, report.streamed, sep="\n")
    print(*(f"{count:4} {reason}" for reason, count in report.refused.most_common()), sep="\n")
    for kind in ("Query", "Hierarchy", "ArchiveJoinQuery", "RowPatternQuery"):
        assert report.matched[kind] > 0 < report.streamed[kind], kind
    assert report.matched.total() > report.tried.total() / 4


# ------------------------------------------------------------------------------------ SQL

AROUND = (
    "SELECT * FROM {m} WHERE m0 IS NOT NULL",
    "SELECT count(*) AS n, count(m0) AS known FROM {m}",
    "SELECT m0, count(*) AS n FROM {m} GROUP BY m0 HAVING count(*) > 1",
    "WITH found AS (SELECT m0 AS v FROM {m}) SELECT f.v, e.type FROM found f JOIN events e ON e.row = f.v",
    "SELECT m0 FROM {m} UNION ALL SELECT m0 FROM {m}",
    "SELECT DISTINCT m0 FROM (SELECT * FROM {m}) AS inside ORDER BY m0 LIMIT 3",
)


@pytest.mark.parametrize("seeds", in_blocks(12, 36, 120))
def test_sql_around_a_clause_reads_the_rows_that_the_clause_means(seeds):
    matched = 0
    for seed in seeds:
        random = Random(seed)
        clause, events = random_clause(random), random_events(random, 12, PLAIN)
        around = random.choice(AROUND)
        try:
            meant = recognized(events, clause, find_kind(clause))
        except SkipError:
            continue
        if not clause.defines:  # a text has a DEFINE
            continue
        found = ensue.match(events, clause)
        meant = (
            pa.table({n: meant[n].cast(found.schema.field(n).type) for n in found.column_names[1:]}) if meant else found
        )
        tables = {"events": events, "m": meant}
        wanted = ensue.sql(around.format(m="m"), tables=tables)
        text = around.format(m=f"events {format_clause(clause)}")
        assert rows({0: ensue.sql(text, tables=tables)}) == rows({0: wanted}), (seed, text)
        matched += bool(meant.num_rows)
    assert matched >= len(seeds) / 4


# -------------------------------------------------------------------------- subscriptions


BOUNDED = Bounds(moments=False)
OF_PATTERNS = (
    "SEQ(E a, E+ b[]) WHERE [id] and a.v > 3 and b[i].v > 2 WITHIN 5",
    "SEQ(E a, !E b, E c) WHERE [id] and a.v > 2 and b.v > 6 WITHIN 6",
    "SEQ(E a, E b) WHERE skip_till_next_match(a, b) { a.v > b.v } WITHIN 4",
)


def random_set(random: Random) -> tuple[ensue.Subscriptions, dict[str, Subscription]]:
    """Subscriptions in OPSL, and one that is a pattern."""
    asked = ensue.Subscriptions(time="t", order="n", location=("px", "py"))
    meant: dict[str, Subscription] = {}
    for number in range(random.randint(1, 4)):
        made = random_subscription(random, BOUNDED)
        made = replace(made, within=made.within or ByUnits(6))
        meant[f"s{number}"] = made
        asked.add(f"s{number}", format_subscription(made))
    asked.add("pattern", random.choice(OF_PATTERNS))
    return asked, meant


@pytest.mark.filterwarnings("ignore::ensue.SubscriptionWarning")
@pytest.mark.parametrize("seeds", in_blocks(6, 38, 120))
def test_sets_of_subscriptions_find_the_reference_on_every_runner(seeds):
    matched = 0
    for seed in seeds:
        random = Random(seed)
        asked, meant = random_set(random)
        events = subscribed_events(random, 14)
        corners = {e.position: ((float(random.randint(0, 10)), float(random.randint(0, 10))),) for e in events}
        table = pa.table(
            {"t": pa.array([e.end for e in events], pa.int64()), "n": [e.position for e in events]}
            | {name: [e.values[name] for e in events] for name in ("id", "kind", "v")}
            | {name: [corners[e.position][0][place] for e in events] for place, name in enumerate(("px", "py"))}
        )
        found = ensue.match(table, asked)
        given = Counter((r["subscription"], tuple(m["n"] for m in r["members"])) for r in found.to_pylist())
        reference = Counter(
            (name, match.members)
            for name, one in meant.items()
            for match in find_subscription_matches(one, ReferenceStream(events, corners))
        )
        assert {k: n for k, n in given.items() if k[0] != "pattern"} == reference, seed
        source = SourceSchema(table.schema, "t", order=("n",), location=("px", "py"))
        live = fed(random_slices(random, table), asked, schema=table.schema, random=random, watermark=0)
        assert rows(live) == rows({"": found}), seed
        job = Workload((QuerySpec(asked.subscribed()),), source, RunOptions(streaming=True), random.randint(1, 3))
        arriving, delay = delayed(random, table, job.source)
        stream = Stream(job, delay, forget=lambda chance=random: chance.random() < 0.3)
        for piece in random_slices(random, arriving):
            stream.feed(piece)
            stream.pause()
        assert rows({"": stream.finish()}) == rows({"": found}), seed
        matched += bool(reference) and bool(given.keys() - reference.keys())
    assert matched >= len(seeds) / 3


# ---------------------------------------------------------------------------------- Spark


SPARK_SEEDS = (13, 17, 18, 20)  # calls with matches of each kind


def planned(call: Call) -> tuple[dict[str, dict[Any, pa.Table]], list[str]]:
    """The results of the queries that can be run on a table, and those that a stream takes too."""
    alone: dict[str, dict[Any, pa.Table]] = {}
    streamed = []
    for name in call.queries:
        one = call.only([name])
        try:
            found = outcome(run_on_table, one)
        except SkipError:
            continue
        if not isinstance(found, str):
            alone[name] = found
            streamed += [name] if outcome(run_in_tasks, one, None) == {} else []
    return alone, streamed


def spark_call(seed: int) -> Call:
    call = random_call(Random(seed), 4, PLAIN)
    call = replace(call, own=None, output=replace(call.output, ids=True, flat=False))
    return call.only(call.queries)


def by_names(alone: dict[str, dict[Any, pa.Table]], names: list[str]) -> dict[str, pa.Table]:
    return {f"{n}.{level}" if level else n: table for n in names for level, table in alone[n].items()}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ensue.backends.spark.frames.WholeStreamWarning")
@pytest.mark.parametrize("seed", SPARK_SEEDS)
def test_some_of_them_in_one_job_of_spark(spark, seed):
    call = spark_call(seed)
    alone, _ = planned(call)
    assert any(table.num_rows for table in by_names(alone, list(alone)).values())
    together = call.only(alone)
    found = ensue.match(spark.createDataFrame(call.live), together.asked, **together.named)
    for output, table in by_names(alone, list(alone)).items():
        assert rows({0: found[output].toArrow()}) == rows({0: table}), output


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ensue.backends.spark.frames.WholeStreamWarning")
@pytest.mark.parametrize("seed", SPARK_SEEDS)
def test_some_of_them_in_one_stream_of_spark(spark, tmp_path, seed):
    random, call = Random(seed), spark_call(seed)
    alone, streamed = planned(call)
    assert any(table.num_rows for table in by_names(alone, streamed).values())
    together, source = call.only(streamed), tmp_path / "events"
    source.mkdir()
    for number, piece in enumerate(random_slices(random, call.live)):
        pq.write_table(piece, source / f"{number}.parquet")
        os.utime(source / f"{number}.parquet", (1_700_000_000 + number,) * 2)
    schema = spark.createDataFrame(call.live).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    options = [together.output, ensue.StreamOptions(key_groups=2)]
    found = ensue.match(stream, together.asked, watermark=1, **together.named | {"options": options})
    ensue.start(found, tmp_path / "out", checkpoint=tmp_path / "checkpoint", once=True, flush=True)
    for output, table in by_names(alone, streamed).items():
        written = tmp_path / "out" / output
        delivered = pq.read_table(written) if written.exists() else table.slice(0, 0)
        assert rows({0: delivered}) == rows({0: table}), output
