"""What tests share: one Spark session, every runner behind one call, patterns against strings.

A test that takes `matched` or `runner` runs by the reference semantics and in this process, on
generated kernels that are not compiled: that would take a second or two for each query. Marked
`@pytest.mark.everywhere` it runs on compiled kernels, also on Spark and on a streaming DataFrame.
What a runner cannot do yet is in NOT_YET: the test must then fail with that error, so a gap that
is closed shows itself. `pytest --everywhere` runs all of them on Spark, but for those that are
marked `in_process` with a reason.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import hypothesis
import pyarrow as pa
import pytest

import ensue
from ensue.errors import EventError

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.load_profile("ci")

RUNNERS = ("semantics", "local")
EVERYWHERE = (*RUNNERS, "spark", "stream")
NOT_YET = {"stream": (EventError, "streaming DataFrames are not supported yet")}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite the golden files")
    parser.addoption("--everywhere", action="store_true", help="every behaviour on Spark too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "everywhere: also runs on Spark, batch and streaming")
    config.addinivalue_line("markers", "in_process(reason): never runs on Spark")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "runner" not in metafunc.fixturenames:
        return
    test = metafunc.definition
    if test.get_closest_marker("everywhere"):
        names = EVERYWHERE
    elif _compiled(metafunc.config, test) and not test.get_closest_marker("in_process"):
        names = (*RUNNERS, "spark")
    else:
        names = RUNNERS
    metafunc.parametrize("runner", [_case(name) for name in names], indirect=True)


def _compiled(config: pytest.Config, test: pytest.Item) -> bool:
    return config.getoption("everywhere") or test.get_closest_marker("everywhere") is not None


def _case(name: str) -> Any:
    marks = [pytest.mark.spark] if name in ("spark", "stream") else []
    if name in NOT_YET:
        error, reason = NOT_YET[name]
        marks.append(pytest.mark.xfail(raises=error, reason=reason, strict=True))
    return pytest.param(name, marks=marks)


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("bless"))


# ------------------------------------------------------------------------------- runners


class Runner(Protocol):
    """Matches of a query in Arrow tables, as an Arrow table, wherever it is run."""

    name: str

    def match(self, events: Any, query: str, **options: Any) -> pa.Table: ...


class Local:
    name = "local"

    def match(self, events: Any, query: str, **options: Any) -> pa.Table:
        return ensue.match(events, query, **options)


class Semantics:
    """The reference semantics in the place of the engine; all around it is the same."""

    name = "semantics"

    def match(self, events: Any, query: str, **options: Any) -> pa.Table:
        from ensue.compile.matcher import Prepared, prepare
        from ensue.compile.stream import in_order, located
        from ensue.plan.physical import Plan, Reference
        from ensue.runners.local import match_in_order, stream_of

        bad_events = options.pop("bad_events", "raise")
        location = options.pop("location", None)
        order = options.pop("order", ())
        order = (order,) if isinstance(order, str) else tuple(order)
        table, shape = stream_of(events, **options, order=order)
        shape = located(shape, location)
        checked = prepare(ensue.parse(query), shape).query
        physical, _ = shape.physical(checked)
        prepared = Prepared(checked, Plan(physical, Reference("it is the judge")), shape)
        return match_in_order(prepared, in_order(table, shape, bad_events))


class Spark:
    name = "spark"

    def __init__(self, session: Any) -> None:
        self.session = session

    def match(self, events: Any, query: str, **options: Any) -> pa.Table:
        from ensue.runners.spark_batch import WholeStreamWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WholeStreamWarning)
            matches = ensue.match(self.frames(events), query, **options)
        return matches.toArrow()

    def frames(self, events: Any) -> Any:
        if isinstance(events, Mapping):
            return {name: self.frames(table) for name, table in events.items()}
        return self.session.createDataFrame(events)


class Stream(Spark):
    name = "stream"

    def __init__(self, session: Any, folder: Any) -> None:
        super().__init__(session)
        self.folder = folder

    def frames(self, events: Any) -> Any:
        batch = super().frames(events)
        if isinstance(events, Mapping):
            return batch
        self.folder.mkdir(exist_ok=True)
        return self.session.readStream.schema(batch.schema).parquet(str(self.folder))


@pytest.fixture(scope="session")
def spark() -> Any:
    """The one Spark session of a test run, started when the first test asks for it."""
    from ensue.runners.spark_session import embedded

    session = embedded()
    session.conf.set("spark.sql.shuffle.partitions", "4")
    yield session
    session.stop()


@pytest.fixture
def runner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """What runs the query of a test."""
    if not _compiled(request.config, request.node):
        # only what is generated: the loops that all queries share stay compiled
        monkeypatch.setattr("ensue.compile.cache.interpreted", True)
    match request.param:
        case "local":
            return Local()
        case "semantics":
            return Semantics()
        case "spark":
            return Spark(request.getfixturevalue("spark"))
        case _:
            folder = request.getfixturevalue("tmp_path") / "events"
            return Stream(request.getfixturevalue("spark"), folder)


# ------------------------------------------------------------------------------- strings

Column = Sequence[Any] | pa.Array


@pytest.fixture
def matched(runner: Runner) -> Callable[..., list[tuple[Any, ...]]]:
    """`matched("SEQ(A a, B b)", "AXB")` is `[(0, 2)]`.

    Each character is an event of that type, at the times 0, 1, 2, ... or at `at`; for events that
    last, `start` and `end`. Other columns are given by name, a text as one character an event. A
    match is the positions of its events, in the order of the variables: a tuple for a Kleene
    variable, None for an unbound one.
    """

    def run(
        query: str, events: str, *, order: Sequence[str] = (), **columns: Column
    ) -> list[tuple[Any, ...]]:
        time: Any = ("start", "end") if "start" in columns else "at"
        table = {"at": range(len(events))} if time == "at" else {}
        table |= {"type": list(events), "position": range(len(events))}
        table |= {n: list(c) if isinstance(c, str) else c for n, c in columns.items()}
        found = runner.match(pa.table(table), query, time=time, type="type", order=order)
        variables = [c for c in found.column_names if c not in ("match_id", "start", "end")]
        matches = [tuple(_positions(row[v]) for v in variables) for row in found.to_pylist()]
        return sorted(matches, key=lambda match: [-1 if v is None else v for v in match])

    return run


def _positions(bound: Any) -> Any:
    match bound:
        case None:
            return None
        case list():
            return tuple(event["position"] for event in bound)
        case _:
            return bound["position"]
