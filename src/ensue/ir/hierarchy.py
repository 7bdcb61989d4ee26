"""Hierarchies: definitions of complex events, and the queries over them."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from ensue.errors import QueryError, Span, did_you_mean
from ensue.ir.query import Query, ResultModifiers
from ensue.ir.traits import is_interval_negation
from ensue.ir.traversal import iterate_atoms
from ensue.notebook_repr import TextRepr
from ensue.schema import ANY, get_type_names

LAST_POSITION = "__at"  # the column with the position of an event's last member in the stream
FIRST_POSITION = "__from"  # the position of its first member


@dataclass(frozen=True, slots=True)
class Definition(TextRepr):
    """`EVENT Incident AS ...;`: an event type that other patterns may use.

    >>> import ensue
    >>> ensue.define("EVENT Rise AS SEQ(T a, T b) WHERE b.x > a.x")[0].name
    'Rise'
    """

    name: str
    query: Query
    file: str | None = None  # where it was imported from
    span: Span | None = field(default=None, compare=False, repr=False)  # of its name


@dataclass(frozen=True, slots=True)
class TopQuery:
    """One of several top queries of a hierarchy."""

    label: str  # any text
    query: Query
    emit: tuple[str, ...] = ()  # the layers that are delivered with this query

    @property
    def layer(self) -> str:
        """The name of its layer, which differs from all definitions."""
        return get_layer_name(self.label)


@dataclass(frozen=True, slots=True)
class Hierarchy(TextRepr):
    """Layers of complex events, each defined over lower layers, and the query over them.

    `merge_hierarchies` combines several queries; then `tops` has them all.

    >>> import ensue
    >>> hierarchy = ensue.parse("EVENT Pair AS SEQ(A a, B b); SEQ(Pair p, Pair q)")
    >>> [definition.name for definition in hierarchy.definitions]
    ['Pair']
    """

    definitions: tuple[Definition, ...]  # each uses raw events and earlier definitions only
    query: Query  # the first top query
    emit: tuple[str, ...] = ()  # the layers whose events are delivered too
    unused: tuple[str, ...] = field(default=(), compare=False, repr=False)
    tops: tuple[TopQuery, ...] = field(default=(), repr=False)  # empty: `query` is the only one

    @property
    def top_queries(self) -> dict[str, Query]:
        """The top queries by the names of their layers."""
        if not self.tops:
            return {self.query.name or "": self.query}
        return {top.layer: top.query for top in self.tops}

    @property
    def queries(self) -> tuple[Query, ...]:
        """All queries, starting with the definitions."""
        return (*(d.query for d in self.definitions), *self.top_queries.values())

    @property
    def name(self) -> str | None:
        return self.query.name

    @property
    def text(self) -> str | None:
        """The text of its query."""
        return self.query.text

    @property
    def whole(self) -> ResultModifiers | None:
        """GROUP BY, ORDER BY and FETCH FIRST of its query."""
        return self.query.whole

    def alone(self, label: str) -> "Hierarchy":
        """Returns the hierarchy of one top query."""
        top = next(top for top in self.tops if top.label == label)
        needed = set(get_pattern_types(top.query)) | set(top.emit)
        kept: list[Definition] = []
        for definition in reversed(self.definitions):
            if definition.name in needed:
                needed |= set(get_pattern_types(definition.query))
                kept.append(definition)
        return Hierarchy(tuple(reversed(kept)), top.query, top.emit)

    def defined(self, name: str) -> Definition | None:
        """Returns the definition of an event type; None for raw events."""
        return next((d for d in self.definitions if d.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        """All defined event types, including unused ones."""
        return (*(definition.name for definition in self.definitions), *self.unused)


def get_layer_name(label: str) -> str:
    """Returns the layer name of one of several top queries."""
    return f"\0{label}"


def get_pattern_types(query: Query) -> tuple[str, ...]:
    """Returns the event types of a query's pattern, each once."""
    return tuple(dict.fromkeys(name for atom in iterate_atoms(query.pattern) for name in get_type_names(atom.type)))


def build_hierarchy(definitions: Sequence[Definition], query: Query, emit: Sequence[str] = ()) -> Hierarchy:
    """Sorts definitions topologically, otherwise in their given order, and drops unused ones.

    Raises a QueryError for circular, duplicate or unsupported definitions.
    """
    for each in (*(definition.query for definition in definitions), query):
        if each.choose is not None:
            raise QueryError(
                "CHOOSE together with definitions is not supported yet",
                hint="leave it out, or match the raw events",
                span=each.choose.span,
                text=each.text,
            )
        if is_interval_negation(each.pattern):
            raise QueryError(
                "a pattern that is only an absence has no events, and definitions need some",
                hint="name the event that it is measured from: AND(A a, !B b FROM a.end TO ...)",
                span=each.pattern.span,
                text=each.text,
            )
        if each.whole is not None and each is not query:
            raise QueryError(
                "GROUP BY, ORDER BY and FETCH FIRST apply to the result, not to a definition",
                hint="write them in the top query",
                span=each.whole.span,
                text=each.text,
            )
        _check_several(each, {definition.name for definition in definitions})
    known: dict[str, Definition] = {}
    for definition in definitions:
        _check_once(known.get(definition.name), definition)
        known[definition.name] = definition
    for name in emit:
        if name not in known and name != query.name:
            raise QueryError(
                f"EMIT {name}: no such event is defined",
                hint=did_you_mean(name, [*known, *([query.name] if query.name else [])]),
            )
    if query.name in known:
        other = known[query.name]
        raise QueryError(
            f"'{query.name}' is defined twice{_where(other)}: the top query has this name, too",
            hint="give the top query another name",
            span=None if other.file else other.span,
            text=other.query.text,
        )
    ordered: dict[str, Definition] = {}

    def visit(definition: Definition, chain: tuple[str, ...]) -> None:
        if definition.name in chain:
            circle = (*chain[chain.index(definition.name) :], definition.name)
            inside = f"in {definition.file}: " if definition.file else ""
            raise QueryError(
                f"{inside}the definition of {definition.name} is circular: {' -> '.join(circle)}",
                hint="an event cannot be defined in terms of itself; remove one of these",
                span=definition.span,
                text=definition.query.text,
            )
        if definition.name in ordered:
            return
        for name in get_pattern_types(definition.query):
            if name in known:
                visit(known[name], (*chain, definition.name))
        ordered[definition.name] = definition

    for name in (*get_pattern_types(query), *emit):
        if name in known:
            visit(known[name], ())
    used = set(ordered)
    ordered = {}
    for definition in definitions:  # a cycle is an error even if unused
        visit(definition, ())
    unused = tuple(name for name in known if name not in used)
    used_definitions = tuple(definition for name, definition in ordered.items() if name in used)
    return Hierarchy(used_definitions, query, tuple(emit), unused)


def _check_several(query: Query, defined: Set[str]) -> None:
    """Raises a QueryError if a variable with several types includes a defined event."""
    for atom in iterate_atoms(query.pattern):
        if isinstance(atom.type, str):
            continue
        above = sorted(defined & set(atom.type.names or get_pattern_types(query)))
        if above and atom.type == ANY:
            raise QueryError(
                f"ANY means raw events, but the pattern also has defined events: {above[0]}",
                hint="name the types: (A|B) x",
                span=atom.span,
                text=query.text,
            )
        if above:
            raise QueryError(
                f"'{above[0]}' is a defined event: it cannot be an alternative to other types yet",
                hint=f"give it its own variable: OR({above[0]} x, ... y)",
                span=atom.span,
                text=query.text,
            )


def _check_once(other: Definition | None, definition: Definition) -> None:
    if other is not None and (other.query, other.file) != (definition.query, definition.file):
        raise QueryError(
            f"'{definition.name}' is defined twice{_where(other)}",
            hint="give one of them another name",
            span=definition.span,
            text=definition.query.text,
        )


def _where(definition: Definition) -> str:
    return f", the other time in {definition.file}" if definition.file else ""
