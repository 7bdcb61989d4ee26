"""By what a saved state knows the query, the structure and the events that it belongs to."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from ensue.algebra.canonical_text import query_text
from ensue.columns.arrow_kinds import Unit
from ensue.errors import StateError
from ensue.plan.physical import Plan
from ensue.plan.structure_text import structure_text, structure_texts_before
from ensue.schema import Schema

VERSION = 2  # of the text; states without one have version 1


def stamp(plan: Plan, schema: Schema, unit: Unit) -> dict[str, Any]:
    """What the header of a state says of its meaning."""
    query, structure = query_text(plan.query), structure_text(plan.structure, plan.query.where)
    lines = (f"ensue state {VERSION}", query, structure, _kinds(schema), unit)
    return {"query": _digest("\n".join(lines)), "text": VERSION}


def require_same(header: Mapping[str, Any], plan: Plan, schema: Schema, unit: Unit) -> None:
    """A StateError, unless a state was saved by the same query on events of the same shape."""
    if version_of(header) == VERSION:
        same = header["query"] == stamp(plan, schema, unit)["query"]
    else:
        same = header["query"] in _stamps_before(plan, schema, unit)
    if not same:
        raise StateError(
            "the state belongs to another query, or to events with other columns\n"
            "  hint: restore it with the same query text and columns"
        )


def version_of(header: Mapping[str, Any]) -> int:
    """The version of the text in a header, or a StateError if this release does not know it."""
    version = int(header.get("text", 1))
    if not 1 <= version <= VERSION:
        raise StateError(
            f"the query text in the state has version {version}, and this release reads "
            f"versions 1 to {VERSION}\n"
            "  hint: restore it with the release that saved it, or start from an empty state"
        )
    return version


def _stamps_before(plan: Plan, schema: Schema, unit: Unit) -> Iterator[str]:
    for structure in structure_texts_before(plan.structure, plan.query.where):
        yield _digest(f"{query_text(plan.query)} {structure} {_kinds(schema)} {unit}")


def _kinds(schema: Schema) -> str:
    return str(sorted((name, kind.value) for name, kind in (schema.common or {}).items()))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
