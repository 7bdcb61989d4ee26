"""The layers of a tower: each a query over raw events and the events of the layers below it.

A layer returns what its subscribers see and what layers above read: its fields, and those of its
members that somebody names. `x.a.price` is a field `a.price` of x's type, computed below.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ensue.algebra.answers import summarised
from ensue.algebra.check.column_names import refuse_column
from ensue.algebra.form import Form, form, is_input, optional, parts
from ensue.algebra.lapses import with_interval_ends
from ensue.algebra.operator import TIMES
from ensue.algebra.pattern import Atom, Pattern
from ensue.algebra.predicate import Aggregate, At, Binary, Call, Expr, Field, Literal
from ensue.algebra.query import Query, Returned
from ensue.algebra.text import show_expr
from ensue.algebra.tower import Definition, Tower, types_of
from ensue.algebra.walk import (
    atoms,
    bound_variables,
    kleenes,
    operands,
    origins,
    positives,
    results,
    with_operands,
)
from ensue.errors import QueryError, did_you_mean

MEMBERS = "members"
STANDARD = ("match_id", "start", "end", "location")  # that every complex event has
_STEP = re.compile(r"(?P<name>[^.\[]+)(?:\[(?P<index>\d+|last)\])?(?:\.(?P<rest>.+))?")


@dataclass(frozen=True, slots=True)
class Layer:
    """One level of a tower."""

    name: str  # of the events it defines, or as `Tower.on_top` calls it
    query: Query  # RETURN has all that anybody needs, under the names of `column_of`
    meaning: Query  # as the user wrote it
    uses: tuple[str, ...]  # the defined events it is made of
    fields: tuple[str, ...]  # of its events: RETURN, or else its variables
    delivered: bool
    members: bool = False  # somebody asks for the members of its events
    on_top: bool = False
    below: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # fields of what it uses

    @property
    def called(self) -> str:
        """Its name as the user wrote it, "" for none."""
        return (self.meaning.name or "") if self.on_top else self.name

    @property
    def key(self) -> tuple[str, ...]:
        """The fields whose values its events share."""
        return tuple(e.field_name for e in self.query.equivalence)

    @property
    def shown(self) -> tuple[str, ...]:
        """The fields that a whole event shows beside its times and its members."""
        return () if self.members and not self.meaning.returns else self.fields

    @property
    def reads_raw(self) -> bool:
        """Whether it is also made of events that come in."""
        return not self.uses or set(types_of(self.query)) != set(self.uses)


def column_of(name: str) -> str:
    """The column of a layer's result that holds a field."""
    return f"{name}@own" if name in STANDARD or name.startswith("__") else name


def layers(tower: Tower, *, trace: bool = False, all_levels: bool = False) -> tuple[Layer, ...]:
    """The layers, lower ones first, the queries on top last.

    `trace`: the members of every event are asked for. Raises a QueryError where a layer names
    what the events of another do not have.
    """
    return _Layering(tower, trace, all_levels).layers()


class _Layering:
    """Goes from the top down: what a layer names, the layers below must return."""

    def __init__(self, tower: Tower, trace: bool, all_levels: bool) -> None:
        self.tower = tower
        self.trace = trace
        self.all_levels = all_levels
        self.known = {d.name: d for d in tower.definitions}
        self.needed: dict[str, dict[str, Expr]] = {name: {} for name in self.known}
        self.opened = set(self.known) if trace else set()

    def layers(self) -> tuple[Layer, ...]:
        found = [
            self._layer(Definition(name, query), delivered=True, on_top=True)
            for name, query in reversed(self.tower.on_top.items())
        ]
        for definition in reversed(self.tower.definitions):
            delivered = self.all_levels or definition.name in self.tower.emit
            found.append(self._layer(definition, delivered=delivered))
        return tuple(reversed(found))

    def _layer(self, definition: Definition, *, delivered: bool, on_top: bool = False) -> Layer:
        query = definition.query
        if summarised(query):
            if not on_top:
                raise _pointing(
                    "COUNT(*) and EXISTS count matches and produce no events for other layers",
                    "define the matches, and count them in the query at the top",
                    definition,
                )
            visible: dict[str, Expr] = {}
        elif query.all_events:
            if not on_top or self.trace:
                raise _pointing(
                    "ALL EVENTS gives rows for the events of a match, and makes no events"
                    if not on_top
                    else "trace=True cannot be combined with ALL EVENTS",
                    "leave out ALL EVENTS",
                    definition,
                )
            visible = {r.name: r.expr for r in query.returns}
        else:
            visible = {r.name: r.expr for r in returned(query)}
        called = replace(definition, name=query.name or "") if on_top else definition
        scope = _Scope(self, called)
        needed = {} if on_top else self.needed[definition.name]
        if delivered and not summarised(query):
            needed = {**visible, **needed}
        if summarised(query):
            returns = tuple(replace(r, expr=scope.rewritten(r.expr)) for r in query.returns)
        else:
            returns = tuple(
                Returned(scope.rewritten(expr), column_of(name)) for name, expr in needed.items()
            )
        if query.all_events:
            for variable in bound_variables(query.pattern):
                scope.rewritten(Field(variable, None))
        members = self.trace or definition.name in self.opened
        self._check_names(definition, visible, on_top=on_top, members=members)
        if members:
            for variable in bound_variables(query.pattern):
                scope.rewritten(Field(variable, None))
        whole = replace(
            query,
            pattern=with_interval_ends(query.pattern, scope.rewritten),
            where=tuple(scope.rewritten(c) for c in query.where),
            having=None if query.having is None else scope.rewritten(query.having),
            returns=returns,
        )
        for equivalence in query.equivalence:
            for atom in atoms(query.pattern):
                scope.rewritten(
                    Field(atom.variable, equivalence.field_name, span=equivalence.span)
                )
        uses = tuple(name for name in types_of(query) if name in self.known)
        below = {name: _own_fields(self.known[name].query) for name in uses}
        for atom, names in _read_by_operators(query.pattern):
            for name in names & set(below.get(str(atom.type), ())):
                scope.rewritten(Field(atom.variable, name, span=atom.span))
        return Layer(
            definition.name, whole, query, uses, tuple(visible), delivered, members, on_top, below
        )

    def _check_names(
        self, definition: Definition, visible: dict[str, Expr], *, on_top: bool, members: bool
    ) -> None:
        """Complex events are known by their ids; who asks for members gets a column of them."""
        if "match_id" in visible and not on_top:
            why = "other layers identify its events by their match_id"
            refuse_column(definition.query, "match_id", why)
        if members and MEMBERS in visible:
            why = "trace=True adds a column of that name with the events of a match"
            refuse_column(definition.query, MEMBERS, why)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The expressions of one layer."""

    layering: _Layering
    definition: Definition
    types: dict[str, str] = field(init=False)  # of the variables that are defined events
    attributes: dict[str, Collection[str]] = field(init=False)  # of results, by variable
    lists: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        pattern = self.definition.query.pattern
        known = self.layering.known
        types = {a.variable: str(a.type) for a in atoms(pattern) if a.type in known}
        for variable, source in origins(pattern).items():  # a result has the fields of its event
            if source in types:
                types[variable] = types[source]
        own = {applied.variable: dict(applied.operator.z) for applied in results(pattern)}
        object.__setattr__(self, "attributes", own)
        object.__setattr__(self, "types", types)
        object.__setattr__(self, "lists", frozenset(kleenes(pattern)))

    def rewritten(self, expr: Expr) -> Expr:
        """An expression in terms of fields that the layers below return."""
        match expr:
            case Field(variable=variable, name=name) if variable in self.types:
                own = self.attributes.get(variable)
                if own is None or (name is not None and name not in own):
                    self._need(expr)
                return expr
            case Aggregate(variable=variable, argument=Field(name=str(name)) as argument) if (
                variable in self.types
            ):
                return self._aggregate(expr, argument, name)
            case _:
                inside = tuple(self.rewritten(e) for e in operands(expr))
                return with_operands(expr, inside)

    def _aggregate(self, expr: Aggregate, argument: Field, name: str) -> Expr:
        below = self.layering.known[self.types[expr.variable]]
        several = expr.variable in self.lists
        if name == MEMBERS and expr.function == "count":
            column = f"count({MEMBERS})"
            self._returned(below, column, _number_of_members(below.query.pattern))
            if several:
                inner = replace(argument, name=column)
                return Aggregate("sum", expr.variable, inner, expr.at, span=expr.span)
            return Field(expr.variable, column, span=expr.span)
        if _is_list(below.query, name, self.layering.known):
            if several:
                raise _pointing(
                    f"{expr.function} over {expr.variable}[] and over members at once",
                    f"RETURN {expr.function}({name}) in the definition of {below.name}",
                    self.definition,
                    expr,
                )
            inner = self._path(below, name, argument, aggregated=True)
            column = f"{expr.function}({name})"
            if expr.parameter is not None:
                given = expr.parameter
                shown = repr(given) if isinstance(given, str) else f"{given:g}"
                column = f"{expr.function}({name}, {shown})"
            owner = inner.variable
            at = At.ALL if owner in kleenes(below.query.pattern) else At.ONLY
            inside = Aggregate(
                expr.function, owner, replace(inner, at=at), At.ALL, expr.parameter, expr.span
            )
            self._returned(below, column, inside)
            return Field(expr.variable, column, span=expr.span)
        self._need(argument)
        return expr

    def _need(self, named: Field) -> None:
        below = self.layering.known[self.types[named.variable]]
        query, name = below.query, named.name
        if name is None:
            for column in returned(query):
                self._returned(below, column.name, column.expr)
        elif name == MEMBERS and MEMBERS not in {r.name for r in returned(query)}:
            if not self.layering.trace:
                self.layering.opened.add(below.name)
        else:
            expr = self._meaning(below, named, name)
            if expr is not None:
                self._returned(below, name, expr)

    def _meaning(self, below: Definition, named: Field, name: str) -> Expr | None:
        """What a field is below; None for what every complex event has."""
        query = below.query
        for column in returned(query):
            if column.name == name:
                return column.expr
        if name in STANDARD:
            return None
        if name in {e.field_name for e in query.equivalence}:
            return _of_key(query.pattern, name)
        if "." in name:
            return self._path(below, name, named)
        own = _own_fields(query)
        raise _pointing(
            f"unknown field '{name}' of event {named.variable} ({below.name})",
            did_you_mean(name, [*own, "start", "end", MEMBERS])
            or f"add it to the RETURN of {below.name}",
            self.definition,
            named,
        )

    def _path(
        self, below: Definition, path: str, named: Field, *, aggregated: bool = False
    ) -> Field:
        """`a.price`, `k[1].price`: a field of a member, as the definition itself would name it."""
        step = _STEP.fullmatch(path)
        assert step is not None
        name, index, rest = step["name"], step["index"], step["rest"]
        query = below.query
        span = named.span if self.definition.query.text == query.text else None
        bound = list(bound_variables(query.pattern))
        if name not in bound:
            raise _pointing(
                f"{below.name} has no member '{name}'",
                did_you_mean(name, bound) or f"its members are {', '.join(bound)}",
                self.definition,
                named,
            )
        if name in kleenes(query.pattern):
            if index is not None:
                at, nth = (At.LAST, 1) if index == "last" else (At.NTH, int(index))
                return Field(name, rest, at, nth, span=span)
            if not aggregated:
                raise _pointing(
                    f"{name} in {below.name} stands for several events: which one do you mean?",
                    f"{named.variable}.{name}[1].{rest} is the first, or take an aggregate: "
                    f"avg({named.variable}.{name}.{rest})",
                    self.definition,
                    named,
                )
        elif index is not None:
            raise _pointing(
                f"{name} in {below.name} is a single event and has no positions",
                f"write {named.variable}.{name}.{rest}",
                self.definition,
                named,
            )
        return Field(name, rest, span=span)

    def _returned(self, below: Definition, name: str, expr: Expr) -> None:
        self.layering.needed[below.name].setdefault(name, expr)


# ------------------------------------------------------------------------------------- fields


def returned(query: Query) -> Iterable[Returned]:
    """The fields of a query's events: its RETURN, or else its variables."""
    if query.returns:
        return query.returns
    lists = kleenes(query.pattern)
    return [
        Returned(Field(v, None, At.ALL if v in lists else At.ONLY), v)
        for v in bound_variables(query.pattern)
    ]


def _own_fields(query: Query) -> tuple[str, ...]:
    """The fields of a definition's events that others may name without a path."""
    own = [*(r.name for r in returned(query)), *(e.field_name for e in query.equivalence)]
    return tuple(dict.fromkeys(own))


def _read_by_operators(pattern: Pattern) -> Iterator[tuple[Atom, frozenset[str]]]:
    """The events that operators of users take, with the names in their functions."""
    sources = origins(pattern)
    events = {atom.variable: atom for atom in atoms(pattern)}
    for applied in results(pattern):
        for part in applied.inputs:
            assert is_input(part)
            variable = sources.get(part.variable, part.variable)
            if variable in events:
                yield events[variable], applied.operator.reads - set(TIMES)


def _is_list(query: Query, path: str, known: dict[str, Definition]) -> bool:
    """Whether a path leads through a Kleene variable without saying which of its events."""
    step = _STEP.fullmatch(path)
    if step is None or step["rest"] is None:
        return False
    if step["name"] in kleenes(query.pattern):
        return step["index"] is None
    inside = next((a.type for a in atoms(query.pattern) if a.variable == step["name"]), None)
    return inside in known and _is_list(known[inside].query, step["rest"], known)


def _of_key(pattern: Pattern, name: str) -> Expr:
    """A field that all events of a match share."""
    lists = kleenes(pattern)

    def of(variable: str) -> Field:
        return Field(variable, name, At.NTH if variable in lists else At.ONLY)

    certain = next(_certain(pattern), None)
    if certain is not None:
        return of(certain)
    return Call("coalesce", tuple(of(v) for v in bound_variables(pattern)))


def _certain(pattern: Pattern) -> Iterator[str]:
    """Variables that every match binds."""
    match form(pattern):
        case Form.SEQUENCE | Form.TOGETHER:
            for part in parts(pattern):
                yield from _certain(part)
        case Form.LOOP:
            if not optional(pattern):
                for part in parts(pattern):
                    yield from _certain(part)
        case Form.EVENT | Form.LIST | Form.RESULT | Form.OPTION | Form.CHOICE | Form.ABSENCE:
            names = list(bound_variables(pattern))
            if len(names) == 1 and not optional(pattern):
                yield names[0]


def _number_of_members(pattern: Pattern) -> Expr:
    """How many events a match has, those of its complex events counted as one each."""
    counts: list[Expr] = [Aggregate("count", atom.variable, None) for atom in positives(pattern)]
    total = counts[0]
    for count in counts[1:]:
        total = Binary("+", total, count)
    return total if counts else Literal(0)


def _pointing(
    problem: str, hint: str | None, definition: Definition, expr: Expr | None = None
) -> QueryError:
    file = f" in {definition.file}" if definition.file else ""
    where = f"in the definition of {definition.name}{file}: " if definition.name else ""
    if isinstance(expr, Field) and expr.span is None:
        where += f"{expr.variable}.{expr.name}: "
    elif expr is not None and expr.span is None:
        where += f"{show_expr(expr)}: "
    span = definition.span if expr is None else expr.span
    return QueryError(where + problem, hint=hint, span=span, text=definition.query.text)
