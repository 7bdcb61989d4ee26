"""Definitions of events by events, and a query on top of them."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from ensue.algebra.form import is_lapse
from ensue.algebra.query import Query
from ensue.algebra.walk import atoms
from ensue.errors import QueryError, did_you_mean
from ensue.rendering import ShownAsText
from ensue.schema import ANY, names_of
from ensue.span import Span


@dataclass(frozen=True, slots=True)
class Definition(ShownAsText):
    """`EVENT Incident AS ...;`: a type of events that other patterns may use.

    >>> import ensue
    >>> ensue.define("EVENT Rise AS SEQ(T a, T b) WHERE b.x > a.x", known=False)[0].name
    'Rise'
    """

    name: str
    query: Query
    file: str | None = None  # where it was imported from
    span: Span | None = field(default=None, compare=False, repr=False)  # of its name


@dataclass(frozen=True, slots=True)
class Top:
    """A query on top of a tower that has several."""

    label: str  # any text
    query: Query
    emit: tuple[str, ...] = ()  # the layers that are delivered to whoever asks this query

    @property
    def layer(self) -> str:
        """The name of its layer, which no definition can have."""
        return layer_of(self.label)


@dataclass(frozen=True, slots=True)
class Tower(ShownAsText):
    """Layers of events, each made of those below it, and the query that looks at them.

    `towers.joined` puts several queries on one tower: then `tops` has them all.

    >>> import ensue
    >>> tower = ensue.parse("EVENT Pair AS SEQ(A a, B b); SEQ(Pair p, Pair q)")
    >>> [one.name for one in tower.definitions]
    ['Pair']
    """

    definitions: tuple[Definition, ...]  # each uses raw events and definitions before it only
    query: Query  # the first of those on top
    emit: tuple[str, ...] = ()  # the layers whose events are delivered too
    unused: tuple[str, ...] = field(default=(), compare=False, repr=False)  # defined for nobody
    tops: tuple[Top, ...] = field(default=(), repr=False)  # empty: there is one query on top

    @property
    def on_top(self) -> dict[str, Query]:
        """The queries on top, by the names of their layers."""
        if not self.tops:
            return {self.query.name or "": self.query}
        return {top.layer: top.query for top in self.tops}

    @property
    def queries(self) -> tuple[Query, ...]:
        """All queries, those of the definitions first."""
        return (*(d.query for d in self.definitions), *self.on_top.values())

    def alone(self, label: str) -> "Tower":
        """The tower of one of the queries on top."""
        top = next(top for top in self.tops if top.label == label)
        needed = set(types_of(top.query)) | set(top.emit)
        kept: list[Definition] = []
        for definition in reversed(self.definitions):
            if definition.name in needed:
                needed |= set(types_of(definition.query))
                kept.append(definition)
        return Tower(tuple(reversed(kept)), top.query, top.emit)

    def defined(self, name: str) -> Definition | None:
        """The definition of a type of events; None for events that come in."""
        return next((d for d in self.definitions if d.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        """All defined events, also those that nobody uses."""
        return (*(definition.name for definition in self.definitions), *self.unused)

    def levels(self) -> dict[str, int]:
        """How high each defined event stands above the events that come in, from 1."""
        found: dict[str, int] = {}
        for definition in self.definitions:
            found[definition.name] = 1 + max(
                (found.get(name, 0) for name in types_of(definition.query)), default=0
            )
        return found


def layer_of(label: str) -> str:
    """The name of the layer of a query that is one of several on top."""
    return f"\0{label}"


def types_of(query: Query) -> tuple[str, ...]:
    """The types of events a query speaks of, each once."""
    found = (name for atom in atoms(query.pattern) for name in names_of(atom.type))
    return tuple(dict.fromkeys(found))


def tower(definitions: Sequence[Definition], query: Query, emit: Sequence[str] = ()) -> Tower:
    """Definitions in an order in which each uses earlier ones only, or an error that says why
    there is none. Where they are free to choose they stand as given. What the query does not need
    and nobody subscribes to is left out."""
    for each in (*(definition.query for definition in definitions), query):
        if each.choose is not None:
            raise QueryError(
                "CHOOSE together with definitions is not supported yet",
                hint="leave it out, or match the raw events",
                span=each.choose.span,
                text=each.text,
            )
        if is_lapse(each.pattern):
            raise QueryError(
                "a pattern that is only an absence has no events, and definitions need some",
                hint="name the event that it is measured from: AND(A a, !B b FROM a.end TO ...)",
                span=each.pattern.span,
                text=each.text,
            )
        if each.whole is not None and each is not query:
            raise QueryError(
                "GROUP BY, ORDER BY and FETCH FIRST are of the result, not of a definition",
                hint="say them in the query on top",
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
            f"'{query.name}' is defined twice{_where(other)}: the query at the top has this "
            "name, too",
            hint="give the query at the top another name",
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
        for name in types_of(definition.query):
            if name in known:
                visit(known[name], (*chain, definition.name))
        ordered[definition.name] = definition

    for name in (*types_of(query), *emit):
        if name in known:
            visit(known[name], ())
    used = set(ordered)
    ordered = {}
    for definition in definitions:  # a circle is an error even where nobody uses it
        visit(definition, ())
    unused = tuple(name for name in known if name not in used)
    kept = tuple(definition for name, definition in ordered.items() if name in used)
    return Tower(kept, query, tuple(emit), unused)


def _check_several(query: Query, defined: Set[str]) -> None:
    """Several types of one variable are types of events that come in."""
    for atom in atoms(query.pattern):
        if isinstance(atom.type, str):
            continue
        above = sorted(defined & set(atom.type.names or types_of(query)))
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
