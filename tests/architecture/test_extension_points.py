"""What `docs/architecture.md` says of adding something, by doing it, and in how many places beside what is new."""

# ruff: noqa: ARG002  the toy operator needs few of its arguments
import math
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from types import GeneratorType

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ensue
from architecture.test_nodes import KNOW_NODES
from ensue import api, functions
from ensue.backends import local
from ensue.engine.memory_budget import Usage
from ensue.functions.record import InlineForm, NumpyForm, define
from ensue.ir.values import to_number
from ensue.operators.match.match_operator import plan_queries
from ensue.options import Limits
from ensue.parser.registry import LANGUAGES, Language
from ensue.printing.pattern_printer import format_query
from ensue.runtime import query_kinds, workload
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.live import LiveWorkload
from ensue.runtime.query_kinds import QueryKind
from ensue.runtime.query_spec import QuerySpec
from ensue.runtime.source_schema import SourceOptions
from ensue.runtime.stage import FinalStage, InputFilter, UnseenTypes, build_output
from ensue.runtime.workload import Workload
from support.key_groups import Stream, workload_of

TABLE = Path(__file__).parents[2] / "docs" / "architecture.md"
EVENTS = pa.table({"t": [1, 2, 3, 4], "type": ["A", "B", "A", "B"], "x": [4, 3, 8, 1]})
COLUMNS = {"time": "t", "type": "type"}


def documented_places() -> dict[str, int]:
    """How many places ask for a change, by the table of `docs/architecture.md`."""
    rows = [line.strip("| ").split(" | ") for line in TABLE.read_text(encoding="utf-8").splitlines() if "|" in line]
    return {row[0]: int(row[1]) for row in rows if len(row) == 3 and row[1].isdecimal()}


class Places:
    """The places of the package that something new asks to be changed; they are as before after the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.changed: set[str] = set()

    def enter(self, table: MutableMapping, key: str, value: object, *, file: str) -> None:
        self.changed.add(file)
        self.monkeypatch.setitem(table, key, value)

    def replace(self, module: object, name: str, value: object, *, file: str) -> None:
        self.changed.add(file)
        self.monkeypatch.setattr(module, name, value)

    def are_those_of(self, what: str) -> None:
        assert all((Path(ensue.__file__).parent / file).is_file() for file in self.changed)
        assert len(self.changed) == documented_places()[what], (what, self.changed)


@pytest.fixture
def places(monkeypatch):
    return Places(monkeypatch)


def test_a_node_of_patterns_asks_for_the_files_that_know_nodes():
    grammar = {"ir/pattern.py", "parser/patterns.lark", "parser/pattern_parser.py"}
    assert len(KNOW_NODES | grammar) == documented_places()["a node of patterns"]


def test_a_scalar_function_is_one_record(places):
    half = define("half(number) -> float", lambda x: float(to_number(x)) / 2, NumpyForm("x / 2"), InlineForm("{x} / 2"))
    places.enter(functions._by_name(), "half", half, file="functions/numeric.py")
    query = "SEQ(A a, B b) WHERE half(a.x) < b.x AND half(b.x + a.x) > 3 RETURN half(a.x) AS h"
    found = ensue.match(EVENTS, query, **COLUMNS)
    assert found["h"].to_pylist() == [2.0]
    live = ensue.live(query, schema=EVENTS.schema, **COLUMNS)
    assert live.feed(EVENTS)["h"].to_pylist() == [2.0]
    places.are_those_of("a scalar function")


def test_a_language_is_one_record(places):
    def parse(text, _folder=None):
        return ensue.parse(f"SEQ({', '.join(f'{name} {name.lower()}' for name in text.split('->'))})")

    arrows = Language("arrows", lambda text: "->" in text and "(" not in text, parse, format_query)
    places.enter(LANGUAGES, "arrows", arrows, file="parser/registry.py")
    assert ensue.match(EVENTS, "A->B", **COLUMNS).num_rows == 3
    assert ensue.show("A->B", "arrows") == "PATTERN SEQ(A a, B b)"
    places.are_those_of("a query language")


# ------------------------------------------------------------------------------- a backend


STREAMING = False  # this module is a backend, too: of generators of batches


def read(batches: Iterator[pa.RecordBatch], options: SourceOptions):
    return local.read(pa.Table.from_batches(batches), options)


def run(workload: Workload, events: pa.Table, options: SourceOptions):
    return local.run(workload, events, options)


def measure(batches: Iterator[pa.RecordBatch], query, options: SourceOptions, *, sample, seed):
    return local.measure(pa.Table.from_batches(batches), query, options, sample=sample, seed=seed)


key_groups = local.key_groups


def test_a_backend_is_one_module_and_its_line(places):
    known = (lambda events: isinstance(events, GeneratorType), __name__)
    places.replace(api, "BACKENDS", (known, *api.BACKENDS), file="api.py")

    def batches():
        yield from EVENTS.to_batches(max_chunksize=3)

    asked = {
        "pairs": "SEQ(A a, B b)",
        "rises": "EVENT P AS SEQ(A a, B b) RETURN b.x AS x; SEQ(P p, A c) WHERE c.x > p.x",
    }
    found = ensue.match(batches(), asked, **COLUMNS)
    wanted = ensue.match(EVENTS, asked, **COLUMNS)
    assert [found[name].num_rows for name in asked] == [3, 1]
    assert all(found[name].equals(wanted[name]) for name in asked)
    assert ensue.statistics(batches(), "SEQ(A a, B b)", **COLUMNS) == ensue.statistics(
        EVENTS, asked["pairs"], **COLUMNS
    )
    places.are_those_of("a backend")


def test_all_backends_have_what_calls_ask_for():
    asked = {name for name in vars(local.Backend) if not name.startswith("_")}
    assert asked == {"STREAMING", "read", "key_groups", "run", "measure"}
    for _, module in (*api.BACKENDS, (None, __name__)):
        assert asked <= vars(resolve_name(module)).keys(), module


# ---------------------------------------------------------------- an operator around another


class Wrapped:
    """What it wraps, but for what it does itself."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


class LaterMatches(Wrapped):
    """Keeps the matches that end after time 2: an operator behind that of matches."""

    def with_outputs(self, outputs):
        return LaterMatches(self.inner.with_outputs(outputs))

    def chains(self):
        return tuple(tuple(map(LaterMatchesStage, stages)) for stages in self.inner.chains())

    def as_single_stage(self):
        return LaterMatchesStage(self.inner.as_single_stage())


class LaterMatchesStage(Wrapped):
    def matcher(self, key_group=0, key_groups=1):
        return LaterMatchesMatcher(self.inner.matcher(key_group, key_groups))

    def table_matcher(self, key_group=0, key_groups=1):
        return LaterMatchesMatcher(self.inner.table_matcher(key_group, key_groups))


class LaterMatchesMatcher(Wrapped):
    def process(self, batch):
        return [table.filter(pc.field("end") > 2) for table in self.inner.process(batch)]

    def on_watermark(self, now):
        return [table.filter(pc.field("end") > 2) for table in self.inner.on_watermark(now)]


def plan_later_matches(specs, workload):
    return map(LaterMatches, plan_queries(specs, workload))


def test_an_operator_around_another_is_one_module_and_the_plan_that_builds_it(places):
    """It filters what the operator of patterns gives, on a table, event by event, and in tasks that are killed."""
    pattern = query_kinds.KINDS[0]
    behind = replace(pattern, plan=f"{__name__}:plan_later_matches")
    places.replace(workload, "KINDS", (behind, *query_kinds.KINDS[1:]), file="runtime/query_kinds.py")
    places.replace(query_kinds, "_BY_NODE", query_kinds._BY_NODE | {behind.node: behind}, file="runtime/query_kinds.py")
    query = "SEQ(A a, B b) WHERE [k] WITHIN 9"
    events = EVENTS.append_column("k", pa.array([1, 1, 1, 1]))
    found = ensue.match(events, {"all": query}, **COLUMNS)["all"]
    assert found["end"].to_pylist() == [4, 4]
    live = ensue.live(query, schema=events.schema, **COLUMNS)
    assert not live.feed(events.slice(0, 3)).num_rows
    again = ensue.live(query, schema=events.schema, **COLUMNS).restore(live.save())
    assert again.feed(events.slice(3)).num_rows == 2
    stream = Stream(workload_of(query, events.schema, "t", "type", key_groups=2), 0, forget=lambda: True)
    for row in range(4):
        stream.feed(events.slice(row, 1))
    assert sorted(stream.finish()["match_id"].to_pylist()) == sorted(found["match_id"].to_pylist())
    places.are_those_of("an operator around another")


# ------------------------------------------------------------------------ a kind of query


@dataclass(frozen=True)
class EventsOfType:
    """A query for all events of a type."""

    type: str
    name: None = None
    whole: None = None  # GROUP BY, ORDER BY and FETCH FIRST
    queries = ()


@dataclass(frozen=True)
class FilterStage(FinalStage):
    type: str
    outputs: tuple
    whole_stream: str | None = None

    @property
    def reads(self):
        return InputFilter(frozenset({self.type}))

    @property
    def limits(self):
        return Limits()

    def matcher(self, key_group=0, key_groups=1):
        return FilterMatcher(self.type)


class FilterMatcher:
    usage = Usage()

    def __init__(self, type):
        self.type = type

    def process(self, batch):
        return [batch.events.filter(pc.equal(batch.events["type"], self.type)).select(["t", "x"])]

    def on_watermark(self, now):
        return [pa.table({"t": pa.array([], pa.int64()), "x": pa.array([], pa.int64())})]

    def next_timer(self):
        return None

    def snapshot(self):
        return b""

    def restore(self, data):
        assert data == b""


@dataclass(frozen=True)
class FilterOperator:
    type: str
    outputs: tuple
    rows: None = None
    of_events: bool = True
    expected: tuple[CompiledQuery, ...] = ()

    @property
    def reads(self):
        return self.as_single_stage().reads

    def with_outputs(self, outputs):
        return replace(self, outputs=tuple(outputs))

    def find_unseen(self, matcher, events, result):
        return UnseenTypes()

    def chains(self):
        return ((self.as_single_stage(),),)

    def as_single_stage(self):
        return FilterStage(self.type, self.outputs)


def plan_filters(specs, workload):
    schema = pa.schema({"t": pa.int64(), "x": pa.int64()})
    return [FilterOperator(spec.query.type, (build_output(spec, schema, None),)) for spec in specs]


def describe_filter(query):
    return {"query": f"EVENTS OF {query.type}"}


@pytest.fixture
def filters(places):
    here = f"{__name__}:"
    kind = QueryKind(
        "filter", f"{__name__}:EventsOfType", "", here + "plan_filters", "", here + "describe_filter", "", ""
    )
    places.replace(workload, "KINDS", (*query_kinds.KINDS, kind), file="runtime/query_kinds.py")
    places.enter(query_kinds._BY_NODE, kind.node, kind, file="runtime/query_kinds.py")
    return places


def test_a_kind_of_query_is_one_record(filters):
    """It runs on a table and event by event, is saved and restored, beside queries of other kinds."""
    options = SourceOptions(**COLUMNS)
    table, source = local.read(EVENTS, options)
    job = Workload((QuerySpec(EventsOfType("B"), "of b", 0), QuerySpec(ensue.parse("A a"), "a", 1)), source)
    found = local.run(job, table, options)
    assert found["of b"]["x"].to_pylist() == [3, 1]
    assert found["a"].num_rows == 2
    live = LiveWorkload(job, None)
    live.process(EVENTS.slice(0, 2))
    again = LiveWorkload(job, None)
    again.restore(live.snapshot())
    assert again.process(EVENTS.slice(2))["of b"]["x"].to_pylist() == [1]
    assert not again.on_watermark(math.inf)["of b"].num_rows
    filters.are_those_of("a kind of query")
