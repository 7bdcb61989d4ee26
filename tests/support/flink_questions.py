"""Questions of Flink's users with Flink's answers, and what Ensue answers to them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from benchmarks.peers.flink_cep.notation import rows

import ensue
from ensue import reference as semantics
from ensue.engine.reference_events import read_events
from ensue.ir.traversal import iterate_atoms
from ensue.parser.pattern_parser import parse
from ensue.runtime.compiled_query import compile_query
from ensue.vector.event_table import create_schema

FOLDER = Path(__file__).parents[1] / "flink"

Question = dict[str, Any]
Matches = set[tuple[tuple[str, tuple[int, ...]], ...]]


def read(name: str) -> list[Question]:
    """The lines of a file of questions or answers."""
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


def flinks(answer: dict[str, Any]) -> Matches:
    """Flink's matches: of a repeated group it may find the same one several times."""
    return {_written(match) for match in answer["matches"]}


def matched(question: Question) -> Matches:
    """What `ensue.match` finds."""
    found = ensue.match(_table(question), question["ensue"], time="ts", type=_type(question))
    names = found.column_names[3:]
    listed = [_written({v: _rows(row[v]) for v in names}) for row in found.to_pylist()]
    assert len(listed) == len(set(listed)), "the same match twice"
    return set(listed)


def meant(question: Question) -> Matches:
    """What the reference semantics says."""
    events = _table(question)
    shape = create_schema(events.schema, time="ts", type=_type(question), order=())
    prepared = compile_query(parse(question["ensue"]), shape)
    only = next(iterate_atoms(prepared.query.pattern)).type
    stream = read_events(events, shape.schema, shape.unit, untyped=only)
    bindings = semantics.find_matches(prepared.query, stream)
    return {_written({v: [e.position for e in es] for v, es in binding.items()}) for binding in bindings}


def _table(question: Question) -> pa.Table:
    events = rows(question["events"])
    numbered = [{**event, "row": number} for number, event in enumerate(events)]
    return pa.Table.from_pylist(numbered)


def _type(question: Question) -> str | None:
    return "type" if question.get("typed", True) else None


def _rows(bound: object) -> list[int]:
    events = bound if isinstance(bound, list) else [] if bound is None else [bound]
    return [event["row"] for event in events]


def _written(match: dict[str, list[int]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(sorted((v, tuple(events)) for v, events in match.items() if events))
