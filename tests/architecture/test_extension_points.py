"""What `docs/architecture.md` says of adding something, by doing it: one place each, beside the new module."""

# ruff: noqa: ARG002  the toy operator needs few of its arguments
import math
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ensue
from ensue import functions
from ensue.backends import local
from ensue.engine.memory_budget import Usage
from ensue.functions.record import InlineForm, NumpyForm, define
from ensue.ir.values import to_number
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

EVENTS = pa.table({"t": [1, 2, 3, 4], "type": ["A", "B", "A", "B"], "x": [4, 3, 8, 1]})
COLUMNS = {"time": "t", "type": "type"}


def test_a_scalar_function_is_one_record(monkeypatch):
    half = define("half(number) -> float", lambda x: float(to_number(x)) / 2, NumpyForm("x / 2"), InlineForm("{x} / 2"))
    monkeypatch.setitem(functions._by_name(), "half", half)
    query = "SEQ(A a, B b) WHERE half(a.x) < b.x AND half(b.x + a.x) > 3 RETURN half(a.x) AS h"
    found = ensue.match(EVENTS, query, **COLUMNS)
    assert found["h"].to_pylist() == [2.0]
    live = ensue.live(query, schema=EVENTS.schema, **COLUMNS)
    assert live.feed(EVENTS)["h"].to_pylist() == [2.0]


def test_a_language_is_one_record(monkeypatch):
    def parse(text, _folder=None):
        return ensue.parse(f"SEQ({', '.join(f'{name} {name.lower()}' for name in text.split('->'))})")

    arrows = Language("arrows", lambda text: "->" in text and "(" not in text, parse, format_query)
    monkeypatch.setitem(LANGUAGES, "arrows", arrows)
    assert ensue.match(EVENTS, "A->B", **COLUMNS).num_rows == 3
    assert ensue.show("A->B", "arrows") == "PATTERN SEQ(A a, B b)"


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
def filters(monkeypatch):
    here = f"{__name__}:"
    kind = QueryKind(
        "filter", f"{__name__}:EventsOfType", "", here + "plan_filters", "", here + "describe_filter", "", ""
    )
    monkeypatch.setattr(workload, "KINDS", (*query_kinds.KINDS, kind))
    monkeypatch.setitem(query_kinds._BY_NODE, kind.node, kind)


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
