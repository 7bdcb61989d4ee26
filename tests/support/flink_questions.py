"""Questions of Flink's users with Flink's answers, and what Ensue answers to them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from benchmarks.peers.flink_cep.notation import rows

import ensue
from ensue import semantics
from ensue.algebra.walk import atoms
from ensue.columns.stream import shape_of
from ensue.engine.reference_events import events_of
from ensue.languages.patterns import parse
from ensue.workload.prepared import prepare

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
    shape = shape_of(events.schema, time="ts", type=_type(question), order=())
    prepared = prepare(parse(question["ensue"]), shape)
    only = next(atoms(prepared.query.pattern)).type
    stream = events_of(events, shape.schema, shape.unit, untyped=only)
    bindings = semantics.matches(prepared.query, stream)
    return {
        _written({v: [e.position for e in es] for v, es in binding.items()})
        for binding in bindings
    }


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
