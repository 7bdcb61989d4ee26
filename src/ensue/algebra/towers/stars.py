"""`RETURN a.*` in the layers of a tower: the columns that it stands for."""

from collections.abc import Mapping
from dataclasses import replace

from ensue.algebra.check.stars import fields_by, with_fields
from ensue.algebra.query import Query
from ensue.algebra.tower import Definition, Tower
from ensue.algebra.towers.layers import returned
from ensue.algebra.walk import atoms, kleenes
from ensue.errors import QueryError
from ensue.schema import EventType, Kind, Schema

_OF_DEFINED = ("start", "end", "match_id")  # that a whole event has behind its own fields


def spread_out(tower: Tower, schema: Schema) -> Tower:
    """A tower whose layers name their columns, where they say `a.*`."""
    if not any(column.every for query in tower.queries for column in query.returns):
        return tower
    known: dict[str, Query] = {}

    def spread(query: Query) -> Query:
        types = _types(query, schema, known)
        try:
            columns = with_fields(
                query.returns, fields_by(types, [query.pattern]), kleenes(query.pattern)
            )
        except QueryError as error:
            raise error.at(None, query.text) from None
        return replace(query, returns=columns)

    definitions: list[Definition] = []
    for definition in tower.definitions:
        known[definition.name] = spread(definition.query)
        definitions.append(replace(definition, query=known[definition.name]))
    tops = tuple(replace(top, query=spread(top.query)) for top in tower.tops)
    top = spread(tower.query)
    return replace(tower, definitions=tuple(definitions), query=top, tops=tops)


def _types(query: Query, schema: Schema, known: Mapping[str, Query]) -> dict[str, EventType]:
    """The types of a layer's events; of defined ones, the fields that they return."""
    found: dict[str, EventType] = {}
    for atom in atoms(query.pattern):
        below = known.get(atom.type) if isinstance(atom.type, str) else None
        if below is None:
            found[atom.variable] = schema.event_type(atom.type, atom.span)
        else:
            names = dict.fromkeys([*(r.name for r in returned(below)), *_OF_DEFINED])
            found[atom.variable] = EventType(str(atom.type), dict.fromkeys(names, Kind.OTHER))
    return found
