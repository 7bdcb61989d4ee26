"""What tests share: one Spark session, all runners through one call, patterns against strings.

A test that takes `matched` or `runner` runs by the reference semantics, in this process, live in
this process (event by event), and in this process as a stream (the key groups of the Spark runner, cut,
delayed and forgotten), one after the other within one test. The kernels of its queries are
generated and not compiled: that would take a second or two for each query. What keeps no state
between events is marked `stateless` and does without the key groups; other tests run on them with
their first parameters, in `make test-slow` (ENSUE_TESTS=thorough) with all. Marked `@pytest.mark.everywhere`
a test runs on Spark, too, marked `@pytest.mark.streams` also on a streaming DataFrame, which takes
some seconds; with `slow=True` what takes longest is left to `make test-slow`: Spark for the one,
the stream for the other. `pytest --everywhere` runs all of them on Spark, batch and streaming, but
for those that are marked `in_process` with a reason.
"""

import gc
import math
import os
import signal
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.ir.row_pattern import RowPatternQuery
from ensue.runtime.query_kinds import find_kind
from support.seeds import THOROUGH, scaled

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True, max_examples=scaled(100))
hypothesis.settings.load_profile("ci")

# The same matches without seconds of compiling for each query. Tests of machine code take the
# fixture `compiled`; with ENSUE_COMPILE=always in the environment all of them run compiled.
os.environ.setdefault("ENSUE_COMPILE", "never")

HERE = "here"  # all runners of this process, one after the other


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite the golden files")
    parser.addoption("--everywhere", action="store_true", help="every behaviour on Spark too")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[GAPS] = set()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a job in the background, as are its children
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "stateless: needs no run in key groups, which keep state")
    config.addinivalue_line("markers", "everywhere(slow): also runs on Spark")
    config.addinivalue_line("markers", "streams(slow): also on Spark, batch and streaming")
    config.addinivalue_line("markers", "first_rounds(n): of the rounds behind, the rest are slow")
    config.addinivalue_line("markers", "in_process(reason): never runs on Spark")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of tests in many random rounds only the first ones are quick enough for every day."""
    # by value: where tests have more parameters, pytest's own indices number all combinations
    rounds: dict[tuple[Any, str], dict[Any, int]] = {}
    behaviours: set[Any] = set()
    for item in items:
        if isinstance(item, pytest.Function) and "runner" in item.fixturenames:
            item.stash[FIRST] = item.function not in behaviours
            behaviours.add(item.function)
        marker = item.get_closest_marker("first_rounds")
        if marker is None or not isinstance(item, pytest.Function):
            continue
        for name in ("round", "seed", "block", "start"):
            if name in item.callspec.params:
                seen = rounds.setdefault((item.function, name), {})
                if seen.setdefault(item.callspec.params[name], len(seen)) >= marker.args[0]:
                    item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Tests and modules live to the end: no collection of garbage has to look at them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def pytest_unconfigure() -> None:
    """Shells of IPython collect garbage when the process ends, each of them: nothing is left to look at."""
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "runner" not in metafunc.fixturenames:
        return
    test = metafunc.definition
    wanted = metafunc.config.getoption("everywhere") and not test.get_closest_marker("in_process")
    names = [HERE]
    if wanted or test.get_closest_marker("streams"):
        names += ["spark", "stream"]
    elif test.get_closest_marker("everywhere"):
        names += ["spark"]
    slow = {"stream": _slow(test, "streams"), "spark": _slow(test, "everywhere")}
    cases = [_case(name, slow=slow.get(name, False)) for name in names]
    metafunc.parametrize("runner", cases, indirect=True)


def _slow(test: pytest.Item, marker: str) -> bool:
    found = test.get_closest_marker(marker)
    return found is not None and bool(found.kwargs.get("slow", False))


def _case(name: str, *, slow: bool) -> Any:
    marks = [pytest.mark.spark] if name in ("spark", "stream") else []
    return pytest.param(name, marks=[*marks, pytest.mark.slow] if slow else marks)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test of all runners is called once for each; it is skipped if all of them skip it."""
    runner = pyfuncitem.funcargs.get("runner")
    if not isinstance(runner, InTurn):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    skipped = []
    for turn in runner.runners:
        runner.turn = turn
        try:
            pyfuncitem.obj(**arguments)
        except pytest.skip.Exception as reason:
            skipped.append(reason)
            pyfuncitem.config.stash[GAPS].add(f"{runner.name}: {reason}")
        except Exception as error:
            error.add_note(f"on the runner {runner.name!r}")
            raise
    if len(skipped) == len(runner.runners):
        raise skipped[0]
    return True


GAPS = pytest.StashKey[set[str]]()
FIRST = pytest.StashKey[bool]()  # of the tests that one function is, with different parameters


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Says what some runner does not do, as pytest does of tests that are skipped."""
    if config.stash[GAPS]:
        terminalreporter.section("gaps of single runners")
        for gap in sorted(config.stash[GAPS]):
            terminalreporter.line(gap)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel is compiled before it runs."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        pytest.skip("nothing is compiled")
    monkeypatch.setenv("ENSUE_COMPILE", "always")


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("bless"))


# ------------------------------------------------------------------------------- runners


class Runner(Protocol):
    """Matches of a query in Arrow tables, as an Arrow table, wherever it is run."""

    name: str

    def match(self, events: Any, query: str, **options: Any) -> pa.Table: ...


class InTurn:
    """All runners of this process, of which one has its turn."""

    def __init__(self, *runners: Runner) -> None:
        self.runners = runners
        self.turn = runners[0]

    @property
    def name(self) -> str:
        return self.turn.name

    def match(self, events: Any, query: str, **options: Any) -> pa.Table:
        return self.turn.match(events, query, **options)


def take_options(arguments: dict[str, Any]) -> tuple[ensue.StreamOptions, ensue.OutputOptions]:
    """Takes how events are read, and what is returned, out of the arguments of a call."""
    options = arguments.pop("options", ())
    by_class = {type(o): o for o in (options if isinstance(options, list) else [options])}
    return by_class.get(ensue.StreamOptions, ensue.StreamOptions()), by_class.get(
        ensue.OutputOptions, ensue.OutputOptions()
    )


def take_location(arguments: dict[str, Any]) -> tuple[Any, str]:
    """Takes the columns of places, and their space, out of the arguments of a call."""
    location = arguments.pop("location", None)
    if isinstance(location, ensue.Location):
        return location.columns, location.space
    return location, "plane"


class Local:
    name = "local"

    def match(self, events: Any, query: str, **options: Any) -> pa.Table:
        return ensue.match(events, query, **options)


class Semantics:
    """The reference semantics in the place of the engine; all around it is the same."""

    name = "semantics"
    TABLES = {"archive join": "support.past:judged", "row pattern": "support.row_patterns:recognized"}  # noqa: RUF012

    def match(self, events: Any, query: str, **options: Any) -> pa.Table:
        from ensue.analyzer.output_mode import split_result_modifiers
        from ensue.backends.dataframe_libs import read_event_table
        from ensue.planner.physical_plan import PhysicalPlan, ReferencePlan
        from ensue.projection.grouping import ResultFinisher
        from ensue.projection.match_table import flatten_table
        from ensue.runtime.compiled_query import CompiledQuery, compile_with_timeouts
        from ensue.runtime.event_pruning import get_relevant_types
        from ensue.vector.event_table import add_location, sort_events
        from support.matching import match_in_order

        parsed = ensue.parse(query) if isinstance(query, str) else query
        kind = find_kind(parsed)
        if kind.name in self.TABLES:  # what it means, as a table
            return resolve_name(self.TABLES[kind.name])(events, parsed, kind, **options)
        inner, finishing = split_result_modifiers(parsed)
        reading, output = take_options(options)
        location, space = take_location(options)
        order = options.pop("order", ())
        order = (order,) if isinstance(order, str) else tuple(order)
        table, shape = read_event_table(events, **options, order=order)
        shape = add_location(shape, location, space)
        queries = compile_with_timeouts(inner, shape, emit_timeouts=output.emit_timeouts)
        checked = queries.main.query
        physical, _ = shape.physical(checked)
        prepared = CompiledQuery(checked, PhysicalPlan(physical, ReferencePlan("it is the judge")), shape)
        ordered = sort_events(table, shape, reading.bad_events, get_relevant_types(queries.queries))
        found = [match_in_order(prepared, ordered)]
        table = queries.merge([*found, *self.timeouts(queries, ordered)])
        if finishing is not None:
            table = ResultFinisher(finishing, table.schema).finish(table)
        return flatten_table(table) if output.flat else table

    def timeouts(self, queries: Any, events: pa.Table) -> list[pa.Table]:
        """Timed-out partial matches by their definition, one table for each query of theirs."""
        from ensue.engine.reference_engine import bindings_to_matches
        from ensue.engine.reference_events import read_events
        from ensue.ir.traversal import iterate_atoms, iterate_positive_atoms
        from ensue.reference import find_timeouts
        from ensue.runtime.compiled_query import add_plan_keys, build_result

        shape, waiting = queries.main.shape, []
        if len(queries.queries) > 1:
            query, schema = shape.physical(add_plan_keys(queries.main))
            only = next(iterate_atoms(query.pattern)).type
            waiting = find_timeouts(query, read_events(events, schema, shape.unit, untyped=only))
        tables = []
        for number, prepared in enumerate(queries.queries[1:], 1):
            last = [a.variable for a in iterate_positive_atoms(prepared.query.pattern)][-1]
            later = [
                v
                for q in queries.queries[number + 1 :]
                for v in [a.variable for a in iterate_positive_atoms(q.query.pattern)][-1:]
            ]
            # several queries may end in one variable: the last of them then shows them all
            mine = [b for b in waiting if last not in later and last == _last_bound(b)]
            mine = waiting if prepared.query.unfinished else mine  # it finds all of them
            tables.append(build_result(prepared, bindings_to_matches(prepared.plan, mine), events))
        return tables


def _last_bound(binding: Any) -> str:
    return max(binding, key=lambda variable: binding[variable][-1].position)


class Spark:
    name = "spark"

    def __init__(self, session: Any) -> None:
        self.session = session

    def match(self, events: Any, query: str, **options: Any) -> pa.Table:
        from ensue.backends.spark.frames import WholeStreamWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WholeStreamWarning)
            matches = ensue.match(self.frames(events), query, **options)
        return matches.toArrow()

    def frames(self, events: Any) -> Any:
        if isinstance(events, Mapping):
            return {name: self.frames(table) for name, table in events.items()}
        return self.session.createDataFrame(events)


class Live:
    """A live matcher that is given one event after the other."""

    name = "live"

    def match(self, events: Any, query: str, **options: Any) -> pa.Table:
        from ensue.backends.dataframe_libs import read_event_table
        from ensue.vector.event_table import drop_bad_times, get_end_times

        named = {k: options[k] for k in ("time", "type", "order") if k in options}
        if isinstance(named.get("order"), str):
            named["order"] = (named["order"],)
        table, shape = read_event_table(events, **named)
        several = isinstance(events, Mapping)
        usable, _ = drop_bad_times(table, shape, "drop", finite=True)
        watermark: Any = None
        if usable.num_rows and not several:
            ticks = get_end_times(usable, shape)
            watermark = (np.maximum.accumulate(ticks) - ticks).max().item() or None
            if shape.schema.intervals or shape.schema.order:
                watermark = watermark or 0  # what orders events of the same time may come later
        if watermark is not None and shape.schema.time_kind.value in ("timestamp", "date"):
            watermark = f"{watermark} {shape.unit}"
        schema = {n: pa.table(t).schema for n, t in events.items()} if several else table.schema
        live = ensue.live(query, schema=schema, watermark=watermark, **options)
        if several:
            found = [live.feed(events)]
        else:
            # an error counts the bad events of a piece
            count = 1 if usable.num_rows < table.num_rows else min(table.num_rows, 30)
            found = [live.feed(piece) for piece in pieces(table, max(1, count))]
        found.append(live.finish())
        if live.dropped:
            warnings.warn(f"{live.dropped} events without usable time are left out", stacklevel=2)
        assert not live.late
        return pa.concat_tables(found)


class KeyGroups:
    """A stream in this process: cut into pieces, key groups forgotten and built anew between them."""

    name = "key_groups"

    def match(self, events: Any, query: str, **options: Any) -> pa.Table:
        from ensue.backends.dataframe_libs import read_event_table
        from ensue.runtime.query_spec import open_archives
        from ensue.vector.event_table import drop_bad_times
        from support import key_groups

        reading, output = take_options(options)
        location, space = take_location(options)
        order = options.pop("order", ())
        order = (order,) if isinstance(order, str) else tuple(order)
        past = ensue.Archives.wrap(options.pop("archives", None))
        table, shape = read_event_table(events, **options, order=order)
        job = key_groups.workload_of(
            windowed(query, shape), table.schema, options["time"], options.get("type"), order,
            location=location, space=space, by_type=shape.by_type, key_groups=2,
            emit_timeouts=output.emit_timeouts, flat=output.flat,
            archive_set=open_archives(past),
        )  # fmt: skip
        _ = job.chains  # errors of the query come before those of events
        if any(pa.types.is_string_view(f.type) for f in table.schema):
            pytest.skip("streams come from Spark, which has no views of strings")
        usable, dropped = drop_bad_times(table, shape, reading.bad_events, job.types)
        if dropped:
            warnings.warn(f"{dropped} events without usable time are left out", stacklevel=2)
        calls = count()
        stream = key_groups.Stream(job, lateness(usable, shape), forget=lambda: next(calls) % 3 == 1)
        for piece in pieces(usable, 3):
            stream.feed(piece)
            stream.pause()
        return stream.finish()


class Stream(Spark):
    """A streaming DataFrame over files that come one by one, with a watermark that just holds."""

    name = "stream"

    def __init__(self, session: Any, folder: Any) -> None:
        super().__init__(session)
        self.whole_folder = folder
        self.runs = count()

    def match(self, events: Any, query: str, **options: Any) -> pa.Table:
        from ensue.backends.dataframe_libs import read_event_table
        from ensue.backends.spark.frames import WholeStreamWarning
        from ensue.vector.event_table import drop_bad_times

        self.folder = self.whole_folder / str(next(self.runs))
        named = {k: options[k] for k in ("time", "type", "order") if k in options}
        if isinstance(named.get("order"), str):
            named["order"] = (named["order"],)
        table, shape = read_event_table(events, **named)
        usable, _ = drop_bad_times(table, shape, "drop")
        delay = lateness(usable, shape)
        if shape.schema.time_kind.value in ("timestamp", "date"):
            delay = f"{delay} ms"
        found: list[pa.Table] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WholeStreamWarning)
            matches = ensue.match(self.frames(events), windowed(query, shape), **options, watermark=delay)
        ensue.start(
            matches, lambda frame, _: found.append(frame.toArrow()),
            checkpoint=self.folder / "checkpoint", once=True, flush=True,
        )  # fmt: skip
        return pa.concat_tables(found)

    def frames(self, events: Any) -> Any:
        if isinstance(events, Mapping):
            # one file each: then ties between tables come in the order of the tables
            return {n: self._frame(t, self.folder / str(n), 1) for n, t in events.items()}
        return self._frame(events, self.folder / "events", 2)

    def _frame(self, events: Any, folder: Any, files: int) -> Any:
        table = pa.table(events)
        folder.mkdir(parents=True)
        for number, piece in enumerate(pieces(table, files)):
            path = folder / f"{number}.parquet"
            pq.write_table(piece, path, coerce_timestamps="us", allow_truncated_timestamps=True)
            os.utime(path, (number + 1, number + 1))
        schema = self.session.createDataFrame(table.slice(0, 1)).schema
        reader = self.session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(folder))


def windowed(query: Any, shape: Any) -> Any:
    """The query with a window that holds everything, where it needs one: streams do.

    What its own conditions bound needs none.
    """
    from ensue.analyzer.query import check_query
    from ensue.analyzer.time_bounds import compute_window_bound
    from ensue.ir.selection import ByTime, ByUnits

    query = ensue.parse(query) if isinstance(query, str) else query
    if isinstance(query, RowPatternQuery):  # it says itself how long a match may be
        return query
    if isinstance(query, ensue.Query) and query.within is None:
        with suppress(ensue.QueryError):  # said again where the query is run
            if compute_window_bound(check_query(query, shape.schema), shape.schema) is not None:
                return query
    calendar = shape.schema.time_kind.value in ("timestamp", "date")
    everything = ByTime(10**18) if calendar else ByUnits(10**9)
    if isinstance(query, ensue.ArchiveJoinQuery):
        return replace(query, live=_within(query.live, everything))
    return _within(query, everything)


def _within(query: ensue.Query, window: Any) -> ensue.Query:
    return query if query.within is not None else replace(query, within=window)


def pieces(table: pa.Table, count: int) -> list[pa.Table]:
    borders = [k * table.num_rows // count for k in range(count + 1)]
    return [table.slice(low, high - low) for low, high in pairwise(borders)]


def lateness(table: pa.Table, shape: Any) -> int:
    """How late the latest event comes, in milliseconds of the clock of a stream."""
    from ensue.runtime.tasks.watermark import create_clock
    from ensue.vector.event_table import get_end_times

    if not table.num_rows:
        return 0
    times = get_end_times(table, shape) / create_clock(shape).per_ms
    return math.ceil((np.maximum.accumulate(times) - times).max()) + 1


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Any:
    """The one Spark session of a test run, started when the first test asks for it."""
    from ensue.backends.spark.session import get_or_create_session

    warm = {
        # of a few minutes in all, the best machine code for the JVM takes longer than it saves
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.python.daemon.module": "support.warm_workers",
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).parent),
    }
    if not THOROUGH:  # jobs of a few rows take longer to compile and to plan again than to run
        warm |= {
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
        }
    session = get_or_create_session(warm | _kafka_jars(request.session.items))
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


def _kafka_jars(items: Sequence[pytest.Item]) -> dict[str, str]:
    """What a session needs for tests with Kafka: jars are loaded only when Spark starts."""
    from brokers import kafka

    if not any(item.get_closest_marker("kafka") for item in items) or kafka.missing():
        return {}
    return {"spark.jars": ",".join(map(str, kafka.jars()))}


@pytest.fixture
def runner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """What runs the query of a test."""
    match request.param:
        case "spark":
            return Spark(request.getfixturevalue("spark"))
        case "stream":
            return Stream(request.getfixturevalue("spark"), request.getfixturevalue("tmp_path"))
        case _:
            # only what is generated: the loops that all queries share stay compiled
            monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)
            wanted = request.node.stash[FIRST] or THOROUGH
            kept = () if request.node.get_closest_marker("stateless") or not wanted else (KeyGroups(),)
            return InTurn(Semantics(), Local(), Live(), *kept)


# ------------------------------------------------------------------------------- strings

Column = Sequence[Any] | pa.Array


@pytest.fixture
def matched(runner: Runner) -> Callable[..., list[tuple[Any, ...]]]:
    """`matched("SEQ(A a, B b)", "AXB")` is `[(0, 2)]`.

    Each character is an event of that type, at the times 0, 1, 2, ... or at `at`; for events that
    last, `start` and `end`. Other columns are given by name, a text as one character an event. A
    match is the positions of its events, in the order of the variables: a tuple for a Kleene
    variable, None for an unbound one. Results of operators are left out.
    """

    def run(query: str, events: str, *, order: Sequence[str] = (), **columns: Column) -> list[tuple[Any, ...]]:
        time: Any = ("start", "end") if "start" in columns else "at"
        table = {"at": range(len(events))} if time == "at" else {}
        table |= {"type": list(events), "position": range(len(events))}
        table |= {n: list(c) if isinstance(c, str) else c for n, c in columns.items()}
        found = runner.match(pa.table(table), query, time=time, type="type", order=order)
        variables = [f.name for f in found.schema if _holds_events(f.type)]
        matches = [tuple(_positions(row[v]) for v in variables) for row in found.to_pylist()]
        return sorted(matches, key=lambda match: [-1 if v is None else v for v in match])

    return run


@pytest.fixture
def joined(runner: Runner) -> Callable[..., list[tuple[Any, ...]]]:
    """`joined("SEQ(A a) JOIN ARCHIVE old SEQ(B b) RANGE 5 BEFORE START", "A", past="B")`.

    Live events are at the times 100, 101, ... or at `at`, those of the archive `old` at 0, 1, ...
    or at `past_at`; the archive's positions count from 1000. Other columns have the same names on
    both sides, those of the archive in `past_columns`. A row is the positions of its events in the
    order of the variables, as `matched` has them. With `own=True` live events belong to the
    archive, too.
    """

    def run(
        query: str,
        events: str,
        *,
        past: str = "",
        at: Sequence[Any] | None = None,
        past_at: Sequence[Any] | None = None,
        past_columns: Mapping[str, Column] | None = None,
        own: bool = False,
        options: Mapping[str, Any] | None = None,
        **columns: Column,
    ) -> list[tuple[Any, ...]]:
        def table(types: str, first: int, times: Any, others: Mapping[str, Column]) -> pa.Table:
            made = {"at": range(first, first + len(types)) if times is None else times}
            made |= {"type": list(types), "position": range(len(types))}
            made |= {n: list(c) if isinstance(c, str) else c for n, c in others.items()}
            return pa.table(made)

        live = table(events, 100, at, columns)
        old = table(past, 0, past_at, past_columns or {})
        old = old.set_column(2, "position", pa.array([1000 + k for k in range(len(past))], pa.int64()))
        old = pa.concat_tables([live.schema.empty_table(), old], promote_options="permissive")
        key = [name for name in ("k",) if name in old.column_names]
        archives = {"old": ensue.archive(old, time="at", type="type", key=key)}
        if own and runner.name == "stream":  # it writes the archive that its events belong to
            place = runner.whole_folder / f"old {next(runner.runs)}"
            laid_out = {"time": "at", "type": "type", "key": key or ["type"], "day": 100}
            archives = {"old": ensue.create_archive(place, old, **laid_out)}
        given = ensue.Archives(archives, own="old" if own else None, **(options or {}))
        found = runner.match(live, query, time="at", type="type", archives=given)
        variables = [f.name for f in found.schema if _holds_events(f.type)]
        rows = [tuple(_positions(row[v]) for v in variables) for row in found.to_pylist()]
        return sorted(rows, key=lambda row: [-1 if v is None else v for v in row])

    return run


def _holds_events(type: pa.DataType) -> bool:
    """Whether a column is a variable's: not that of a standard column, nor of a result."""
    if pa.types.is_list(type):
        type = type.value_type
    return pa.types.is_struct(type) and type.get_field_index("position") >= 0


def _positions(bound: Any) -> Any:
    match bound:
        case None:
            return None
        case list():
            return tuple(event["position"] for event in bound)
        case _:
            return bound["position"]
