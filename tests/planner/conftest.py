"""Random streams that fit a query, what compiled plans find in them, and what the oracle finds."""

import random
import re
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numba
import pyarrow as pa
import pytest

from ensue import reference as semantics
from ensue.analyzer.output_mode import is_summarized
from ensue.analyzer.query import check_query
from ensue.engine.reference_events import read_events
from ensue.ir.expression import Literal
from ensue.ir.query import Query
from ensue.ir.selection import ByTime, ByUnits
from ensue.ir.traversal import iterate_atoms, iterate_nodes
from ensue.parser.pattern_parser import parse
from ensue.planner.planner import choose_plan
from ensue.runtime.compiled_query import compile_query
from ensue.vector.event_table import create_schema
from support.matching import match_in_order
from support.seeds import scaled

ARROW = {"integer": pa.int64(), "float": pa.float64(), "string": pa.string(), "timestamp": pa.timestamp("us", "UTC")}
FIELDS = {"b": "integer", "t": "integer", "x": "integer", "y": "float", "s": "string", "k": "integer"}
KEYS = {"integer": (0, 1), "string": ("p", "q")}
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    """A query with the events it is about; comments at its top may say what they are.

    `-- fields: name kind, ...` (the last one is the time), `-- time: start, end`, `-- off: rule`.
    """

    text: str

    def _said(self, what):
        found = re.search(rf"^-- {what}: (.*)$", self.text, re.MULTILINE)
        return re.split(r",\s*", found[1]) if found else None

    @cached_property
    def query(self):
        return parse(self.text)

    @cached_property
    def off(self):
        return tuple(self._said("off") or ())

    @cached_property
    def fields(self):
        said = self._said("fields")
        return dict(f.split() for f in said) if said else FIELDS

    @cached_property
    def time(self):
        said = self._said("time")
        if said:
            return tuple(said)
        return list(self.fields)[-1] if self._said("fields") else "t"

    @cached_property
    def arrow(self):
        kinds = {name: ARROW[kind] for name, kind in self.fields.items()}
        return pa.schema({"type": pa.string(), **kinds, "row": pa.int64()})

    @cached_property
    def shape(self):
        return create_schema(self.arrow, time=self.time, type="type", order=())

    @cached_property
    def checked(self):
        return check_query(self.query, self.shape.schema)

    @cached_property
    def plan(self):
        return choose_plan(self.checked, self.shape.schema, off=self.off)

    def events(self, seed, count=9):
        """A small stream with values near those that the query names; odd seeds give NULLs."""
        dice = random.Random(seed)
        literals = [n.value for c in self.query.where for n in iterate_nodes(c) if isinstance(n, Literal)]
        numbers = [v for v in literals if isinstance(v, int | float) and not isinstance(v, bool)]
        near = [0, 1, 2, 3, *(round(n) + d for n in numbers for d in (0, 1) if abs(n) > 4)]
        strings = [v for v in literals if isinstance(v, str)] * 2 or ["q"]
        strings.append("p")
        types = [*sorted({a.type for a in iterate_atoms(self.query.pattern)}) * 3, "X"]
        moment, rows = 0, []
        for row in range(count):
            moment += dice.choice((0, 1, 1, 2)) * self._step
            values = {}
            for name, kind in self.fields.items():
                match kind:
                    case "string":
                        values[name] = dice.choice(strings)
                    case "integer":
                        values[name] = dice.choice(near)
                    case "float":
                        values[name] = dice.choice(near) + dice.choice((0.0, 0.5))
            for key in self._keys:
                values[key] = KEYS[self.fields[key]][dice.randint(0, 1)]
            if seed % 2:
                values = {n: None if dice.random() < 0.1 else v for n, v in values.items()}
            values |= self._times(dice, moment)
            rows.append(values | {"type": dice.choice(types), "row": row})
        if isinstance(self.time, tuple):
            rows.sort(key=lambda r: (r[self.time[1]], r[self.time[0]]))
            rows = [r | {"row": n} for n, r in enumerate(rows)]
        return pa.Table.from_pylist(rows, schema=self.arrow)

    @cached_property
    def _keys(self):
        named = {e.field_name for e in self.query.equivalence}
        return [name for name in self.fields if name in named | {"k"}]

    @cached_property
    def _step(self):
        match self.query.within:
            case ByTime(nanoseconds=length):
                return max(1, length // 5_000)
            case ByUnits(amount=amount) if amount > 8:
                return amount // 5
            case _:
                return 1

    def _times(self, dice, moment):
        if isinstance(self.time, tuple):
            start, end = self.time
            return {start: moment - dice.choice((0, 0, 1, 2)), end: moment}
        if self.fields[self.time] == "timestamp":
            return {self.time: EPOCH + timedelta(microseconds=moment)}
        return {self.time: moment}

    def found(self, events):
        """What the plan finds: for each match the rows of each variable."""
        if is_summarized(self.query):
            result = match_in_order(compile_query(self.query, self.shape, off=self.off), events)
            return [(r["start"], r["end"], r.get("n")) for r in result.to_pylist()]
        query = replace(self.query, returns=())
        result = match_in_order(compile_query(query, self.shape, off=self.off), events)
        names = [n for n in result.column_names if n not in ("match_id", "start", "end")]
        return sorted(_rows({n: m[n] for n in names}) for m in result.to_pylist())

    def expected(self, events, query=None):
        """What the semantics says, of this query or of what a rule made of it."""
        query = self.checked if query is None else query
        if is_summarized(query):
            told = read_events(events, self.shape.schema, self.shape.unit)
            return [
                (s.start, s.trigger.end, None if query.exists else s.count)
                for s in semantics.summarize_matches(query, told)
            ]
        found = semantics.find_matches(query, read_events(events, self.shape.schema, self.shape.unit))
        return sorted(tuple(sorted((v, tuple(e.position for e in es)) for v, es in b.items())) for b in found)


def _rows(match):
    found = {}
    for variable, value in match.items():
        events = value if isinstance(value, list) else [value]
        rows = tuple(e["row"] for e in events if e is not None)
        if rows:
            found[variable] = rows
    return tuple(sorted(found.items()))


@pytest.fixture
def case():
    """A query over events of types A, B, C, D with the fields x, y, s, k and the time t."""
    return Case


@pytest.fixture
def keeps_matches(case):
    """Asserts that a rule changes a query, and its matches in no random stream."""

    def assert_kept(rule, text, *, query: Query | None = None):
        told = case(text)
        before = told.checked if query is None else query
        after = rule(before)
        assert after != before
        total = 0
        for seed in range(scaled(60)):
            events = told.events(seed, count=8)
            expected = told.expected(events, before)
            assert told.expected(events, after) == expected
            total += len(expected)
            if seed >= 10 and total > 3:
                break
        assert total, "no stream has a match: the comparison says nothing"
        return after

    return assert_kept


@pytest.fixture
def uncompiled(monkeypatch):
    """Kernels as plain Python: for a few events compiling them would take longer."""
    before = set(sys.modules)

    def plain(*arguments, **options):
        return arguments[0] if arguments and callable(arguments[0]) else lambda function: function

    monkeypatch.setattr(numba, "njit", plain)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("ensue_kernel_"):
            del sys.modules[name]
