"""The layers of a hierarchy: each is a query over raw events and the events of lower layers.

A layer returns the fields that are delivered or that higher layers read, including fields of its
members: `x.a.price` is a field `a.price` of x's type, which the lower layer computes.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product

from ensue.analyzer.interval_negation import iterate_interval_negations, rewrite_interval_ends
from ensue.analyzer.key_inference import build_key_value
from ensue.analyzer.output_mode import build_variable_columns, is_summarized
from ensue.analyzer.query import reject_column
from ensue.errors import QueryError, did_you_mean
from ensue.ir import traits, traversal
from ensue.ir.expression import Aggregate, Binary, EventPosition, Expr, FieldRef, IsNull
from ensue.ir.hierarchy import FIRST_POSITION, LAST_POSITION, Definition, Hierarchy, get_pattern_types
from ensue.ir.pattern import Atom, OperatorCall, Pattern, Repeat
from ensue.ir.query import Query, ReturnItem
from ensue.ir.user_operator import TIME_ATTRIBUTES
from ensue.printing.expression_printer import format_expr

MEMBERS = "members"
STANDARD_FIELDS = ("match_id", "start", "end", "location")  # fields of every complex event
_STEP = re.compile(r"(?P<name>[^.\[]+)(?:\[(?P<index>\d+|last)\])?(?:\.(?P<rest>.+))?")


@dataclass(frozen=True, slots=True)
class Layer:
    """One level of a hierarchy."""

    name: str  # of the events it defines, or the key in `Hierarchy.top_queries`
    query: Query  # returns all columns that are needed, named by `get_layer_column`
    meaning: Query  # as the user wrote it
    uses: tuple[str, ...]  # the defined event types in its pattern
    fields: tuple[str, ...]  # of its events: RETURN, or else its variables
    delivered: bool
    members: bool = False  # the members of its events are needed
    top_queries: bool = False
    below: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # fields of `uses`

    @property
    def called(self) -> str:
        """Its name in the query, "" for none."""
        return (self.meaning.name or "") if self.top_queries else self.name

    @property
    def key(self) -> tuple[str, ...]:
        """The fields whose values all events of a match share."""
        return tuple(e.field_name for e in self.query.equivalence)

    @property
    def shown(self) -> tuple[str, ...]:
        """The fields of a complex event as a value, besides its times and members."""
        return () if self.members and not self.meaning.returns else self.fields

    @property
    def reads_raw(self) -> bool:
        """Whether its pattern has raw events."""
        return not self.uses or set(get_pattern_types(self.query)) != set(self.uses)


def get_layer_column(name: str) -> str:
    """Returns the column of a layer's result that holds a field."""
    return f"{name}@own" if name in STANDARD_FIELDS or name.startswith("__") else name


def build_layers(hierarchy: Hierarchy, *, trace: bool = False) -> tuple[Layer, ...]:
    """Returns the layers, lower ones first, top queries last.

    With `trace` the members of every event are needed. Raises a QueryError if a layer reads a
    field that the events of another do not have.
    """
    return _Layering(hierarchy, trace).layers()


class _Layering:
    """Builds layers from the top down: a layer adds the fields it reads to lower layers."""

    def __init__(self, hierarchy: Hierarchy, trace: bool) -> None:
        self.hierarchy = hierarchy
        self.trace = trace
        self.known = {d.name: d for d in hierarchy.definitions}
        self.needed: dict[str, dict[str, Expr]] = {name: {} for name in self.known}
        self.opened = set(self.known) if trace else set()

    def layers(self) -> tuple[Layer, ...]:
        layers = [
            self._layer(Definition(name, query), delivered=True, on_top=True)
            for name, query in reversed(self.hierarchy.top_queries.items())
        ]
        for definition in reversed(self.hierarchy.definitions):
            delivered = definition.name in self.hierarchy.emit
            layers.append(self._layer(definition, delivered=delivered))
        return tuple(reversed(layers))

    def _layer(self, definition: Definition, *, delivered: bool, on_top: bool = False) -> Layer:
        query = definition.query
        if is_summarized(query):
            if not on_top:
                raise _build_error(
                    "COUNT(*) and EXISTS count matches and produce no events for other layers",
                    "define the matches, and count them in the top query",
                    definition,
                )
            visible: dict[str, Expr] = {}
        elif query.all_events:
            if not on_top or self.trace:
                raise _build_error(
                    "ALL EVENTS returns rows for the events of a match, not complex events"
                    if not on_top
                    else "ensue.OutputOptions(trace=True) cannot be combined with ALL EVENTS",
                    "leave out ALL EVENTS",
                    definition,
                )
            visible = {r.name: r.expr for r in query.returns}
        else:
            visible = {r.name: r.expr for r in get_returned_columns(query)}
        called = replace(definition, name=query.name or "") if on_top else definition
        scope = _Scope(self, called)
        needed = {} if on_top else self.needed[definition.name]
        if is_summarized(query):
            returns = tuple(replace(r, expr=scope.rewrite(r.expr)) for r in query.returns)
        else:
            needed = {**visible, **needed} if delivered else needed
            returns = tuple(ReturnItem(scope.rewrite(expr), get_layer_column(name)) for name, expr in needed.items())
        members = self.trace or definition.name in self.opened
        if "match_id" in visible and not on_top:
            reject_column(query, "match_id", "other layers identify its events by their match_id")
        if members and MEMBERS in visible:
            why = "ensue.OutputOptions(trace=True) adds a column of that name with the events of a match"
            reject_column(query, MEMBERS, why)
        if members or query.all_events:
            for variable in traversal.iterate_bound_variables(query.pattern):
                scope.rewrite(FieldRef(variable, None))
        whole = replace(
            query,
            pattern=rewrite_interval_ends(query.pattern, scope.rewrite),
            where=tuple(scope.rewrite(c) for c in query.where),
            having=None if query.having is None else scope.rewrite(query.having),
            returns=returns,
        )
        for equivalence in query.equivalence:
            for atom in traversal.iterate_atoms(query.pattern):
                key = FieldRef(atom.variable, equivalence.field_name, span=equivalence.span)
                scope.rewrite(key)
        uses = tuple(name for name in get_pattern_types(query) if name in self.known)
        below = {name: _get_own_fields(self.known[name].query) for name in uses}
        for atom, names in _read_by_operators(query.pattern):
            for name in names & set(below.get(str(atom.type), ())):
                scope.rewrite(FieldRef(atom.variable, name, span=atom.span))
        return Layer(definition.name, whole, query, uses, tuple(visible), delivered, members, on_top, below)


class _Scope:
    """The expressions of one layer."""

    def __init__(self, layering: _Layering, definition: Definition) -> None:
        pattern = definition.query.pattern
        self.layering = layering
        self.definition = definition
        self.types = {  # of the variables that are defined events
            a.variable: str(a.type) for a in traversal.iterate_atoms(pattern) if a.type in layering.known
        }
        for variable, source in traversal.map_results_to_events(pattern).items():
            if source in self.types:  # a result has the fields of its event
                self.types[variable] = self.types[source]
        self.attributes = {r.variable: dict(r.operator.z) for r in traversal.iterate_operator_calls(pattern)}
        self.lists = frozenset(traversal.get_kleene_variables(pattern))

    def rewrite(self, expr: Expr) -> Expr:
        """Rewrites an expression over the fields that lower layers return."""
        match expr:
            case FieldRef(variable=variable, name=name) if variable in self.types:
                own = self.attributes.get(variable)
                if own is None or (name is not None and name not in own):
                    self._require(expr)
                return expr
            case Aggregate(variable=variable, argument=FieldRef(name=str(name)) as argument) if variable in self.types:
                return self._aggregate(expr, argument, name)
            case _:
                inside = tuple(self.rewrite(e) for e in traversal.get_operands(expr))
                return traversal.replace_operands(expr, inside)

    def _aggregate(self, expr: Aggregate, argument: FieldRef, name: str) -> Expr:
        below = self.layering.known[self.types[expr.variable]]
        several = expr.variable in self.lists
        if name == MEMBERS and expr.function == "count":
            column = f"count({MEMBERS})"
            self._add_column(below, column, _count_members(below.query.pattern))
            if several:
                inner = replace(argument, name=column)
                return Aggregate("sum", expr.variable, inner, expr.at, span=expr.span)
            return FieldRef(expr.variable, column, span=expr.span)
        if _is_list(below.query, name, self.layering.known):
            if several:
                raise _build_error(
                    f"{expr.function} over {expr.variable}[] and over members at once",
                    f"RETURN {expr.function}({name}) in the definition of {below.name}",
                    self.definition,
                    expr,
                )
            inner = self._path(below, name, argument, aggregated=True)
            parameter = expr.parameter
            shown = repr(parameter) if isinstance(parameter, str) else f"{parameter or 0:g}"
            column = f"{expr.function}({name}{'' if parameter is None else f', {shown}'})"
            owner = inner.variable
            several = owner in traversal.get_kleene_variables(below.query.pattern)
            inner = replace(inner, at=EventPosition.ALL if several else EventPosition.ONLY)
            inside = replace(expr, variable=owner, argument=inner, at=EventPosition.ALL)
            self._add_column(below, column, inside)
            return FieldRef(expr.variable, column, span=expr.span)
        self._require(argument)
        return expr

    def _require(self, named: FieldRef) -> None:
        below = self.layering.known[self.types[named.variable]]
        query, name = below.query, named.name
        if name is None:
            for column in get_returned_columns(query):
                self._add_column(below, column.name, column.expr)
        elif name == MEMBERS and MEMBERS not in {r.name for r in get_returned_columns(query)}:
            if not self.layering.trace:
                self.layering.opened.add(below.name)
        else:
            expr = self._resolve_field(below, named, name)
            if expr is not None:
                self._add_column(below, name, expr)

    def _resolve_field(self, below: Definition, named: FieldRef, name: str) -> Expr | None:
        """Returns the expression of a field in its layer; None for standard fields."""
        query = below.query
        for column in get_returned_columns(query):
            if column.name == name:
                return column.expr
        if name in STANDARD_FIELDS:
            return None
        if name in {e.field_name for e in query.equivalence}:
            return build_key_value(query.pattern, name)
        if "." in name:
            return self._path(below, name, named)
        own = _get_own_fields(query)
        raise _build_error(
            f"unknown field '{name}' of event {named.variable} ({below.name})",
            did_you_mean(name, [*own, "start", "end", MEMBERS]) or f"add it to the RETURN of {below.name}",
            self.definition,
            named,
        )

    def _path(self, below: Definition, path: str, named: FieldRef, *, aggregated: bool = False) -> FieldRef:
        """Resolves `a.price` or `k[1].price` to a field of a member in the definition."""
        step = _STEP.fullmatch(path)
        assert step is not None
        name, index, rest = step["name"], step["index"], step["rest"]
        query = below.query
        span = named.span if self.definition.query.text == query.text else None
        bound = list(traversal.iterate_bound_variables(query.pattern))
        if name not in bound:
            raise _build_error(
                f"{below.name} has no member '{name}'",
                did_you_mean(name, bound) or f"its members are {', '.join(bound)}",
                self.definition,
                named,
            )
        if name in traversal.get_kleene_variables(query.pattern):
            if index is not None:
                if index == "last":
                    return FieldRef(name, rest, EventPosition.LAST, span=span)
                return FieldRef(name, rest, EventPosition.NTH, int(index), span=span)
            if not aggregated:
                raise _build_error(
                    f"{name} in {below.name} stands for several events: which one do you mean?",
                    f"{named.variable}.{name}[1].{rest} is the first, or take an aggregate: "
                    f"avg({named.variable}.{name}.{rest})",
                    self.definition,
                    named,
                )
        elif index is not None:
            raise _build_error(
                f"{name} in {below.name} is a single event and has no positions",
                f"write {named.variable}.{name}.{rest}",
                self.definition,
                named,
            )
        return FieldRef(name, rest, span=span)

    def _add_column(self, below: Definition, name: str, expr: Expr) -> None:
        self.layering.needed[below.name].setdefault(name, expr)


def get_returned_columns(query: Query) -> Iterable[ReturnItem]:
    """Returns the columns of RETURN, by default one per variable."""
    return query.returns or tuple(build_variable_columns(query))


def _get_own_fields(query: Query) -> tuple[str, ...]:
    """Returns the fields of a definition's events without those of members."""
    keys = (equivalence.field_name for equivalence in query.equivalence)
    return tuple(dict.fromkeys([*(r.name for r in get_returned_columns(query)), *keys]))


def _read_by_operators(pattern: Pattern) -> Iterator[tuple[Atom, frozenset[str]]]:
    """Yields the input events of user-defined operators, with the names in their functions."""
    sources = traversal.map_results_to_events(pattern)
    events = {atom.variable: atom for atom in traversal.iterate_atoms(pattern)}
    for applied in traversal.iterate_operator_calls(pattern):
        for part in applied.inputs:
            assert traits.is_input(part)
            variable = sources.get(part.variable, part.variable)
            if variable in events:
                yield events[variable], applied.operator.reads - set(TIME_ATTRIBUTES)


def _is_list(query: Query, path: str, known: dict[str, Definition]) -> bool:
    """Whether a path contains a Kleene variable without an index."""
    step = _STEP.fullmatch(path)
    if step is None or step["rest"] is None:
        return False
    if step["name"] in traversal.get_kleene_variables(query.pattern):
        return step["index"] is None
    types = {a.variable: a.type for a in traversal.iterate_atoms(query.pattern)}
    inside = types.get(step["name"])
    return inside in known and _is_list(known[inside].query, step["rest"], known)


def _count_members(pattern: Pattern) -> Expr:
    """Builds the number of events of a match; a complex event counts as one."""
    counts: list[Expr] = [Aggregate("count", atom.variable, None) for atom in traversal.iterate_positive_atoms(pattern)]
    return reduce(lambda total, count: Binary("+", total, count), counts)


def _build_error(problem: str, hint: str | None, definition: Definition, expr: Expr | None = None) -> QueryError:
    file = f" in {definition.file}" if definition.file else ""
    where = f"in the definition of {definition.name}{file}: " if definition.name else ""
    if isinstance(expr, FieldRef) and expr.span is None:
        where += f"{expr.variable}.{expr.name}: "
    elif expr is not None and expr.span is None:
        where += f"{format_expr(expr)}: "
    span = definition.span if expr is None else expr.span
    return QueryError(where + problem, hint=hint, span=span, text=definition.query.text)


# --- order of complex events: an event precedes a complex event if it precedes all its members

START_TIME, END_TIME = "__start", "__end"  # the columns with its times

SequenceItem = Atom | OperatorCall


def build_order_conditions(pattern: Pattern, complex_types: Collection[str]) -> tuple[Expr, ...]:
    """Builds the conditions for the order of members in sequences with complex events.

    >>> from ensue.ir.pattern import Atom, Seq
    >>> from ensue.printing.expression_printer import format_expr
    >>> both = Seq((Atom("Reading", "a"), Atom("Incident", "x")))
    >>> [format_expr(c) for c in build_order_conditions(both, {"Incident"})]
    ['a.__at < x.__from']
    """
    lists = frozenset(traversal.get_kleene_variables(pattern))
    complex_ = {a.variable for a in traversal.iterate_atoms(pattern) if a.type in complex_types}
    if not complex_:
        return ()
    absent = {
        a.variable: n
        for n, node in enumerate(traversal.iterate_negations(pattern))
        for a in traversal.iterate_atoms(node)
    }
    anywhere = {
        a.variable for negation, _ in iterate_interval_negations(pattern) for a in traversal.iterate_atoms(negation)
    }
    outside = dict.fromkeys(
        _unless_separate(x, y, _build_order(a, b, lists))
        for x, y in _pairs(pattern)
        for a, b in product(_variables(x), _variables(y))
        if b in complex_
        and absent.get(a, absent.get(b)) == absent.get(b, absent.get(a))
        and anywhere.isdisjoint((a, b))
    )
    loops = (c for loop in traversal.iterate_loops(pattern) for c in _order_rounds(loop, complex_))
    return (*outside, *loops, *_order_untils(pattern, complex_))


def _variables(part: SequenceItem) -> list[str]:
    return [atom.variable for atom in traversal.iterate_atoms(part)]


def _unless_separate(x: SequenceItem, y: SequenceItem, in_order: Expr) -> Expr:
    """Restricts a condition on members to results that do not already precede the other part.

    The times of an operator's result are computed by its F, independent of its events.
    """
    if traits.is_event(x) and traits.is_event(y):
        return in_order
    end = FieldRef(x.variable, END_TIME if traits.is_event(x) else "end")
    start = FieldRef(y.variable, START_TIME if traits.is_event(y) else "start")
    return Binary("or", Binary("<", end, start), in_order)


def _order_rounds(loop: Repeat, complex_: Collection[str]) -> Iterator[Expr]:
    """Yields the conditions for a repeated group: each complex event follows the previous one."""
    events = traits.get_parts(loop.part) if traits.is_sequence(loop.part) else (loop.part,)
    order = [event.variable for event in events if traits.is_event(event)]
    for position, variable in enumerate(order):
        if variable in complex_ and len(order) == len(events):
            # the last event of an iteration precedes the first of the next one
            at = EventPosition.CURRENT if position else EventPosition.PREVIOUS
            left = FieldRef(order[position - 1], LAST_POSITION, at)
            yield Binary("<", left, FieldRef(variable, FIRST_POSITION, EventPosition.CURRENT))
    if len(order) < len(events) and {a.variable for a in traversal.iterate_atoms(loop.part)} & {*complex_}:
        raise QueryError(
            "complex events can only be repeated in groups of single events",
            hint="leave out optional and repeated parts inside: (A a, B b)+",
            span=loop.span,
        )


def _order_untils(pattern: Pattern, complex_: Collection[str]) -> Iterator[Expr]:
    """Yields the conditions for complex events that end a loop: they follow what it has taken, if anything."""
    for loop in traversal.iterate_subpatterns(pattern):
        ends = traversal.iterate_atoms(loop.until) if traits.is_repetition(loop) and loop.until is not None else ()
        for until, taken in product(ends, traversal.iterate_positive_atoms(loop)):
            if until.variable in complex_:
                last = FieldRef(taken.variable, LAST_POSITION, EventPosition.LAST)
                first = FieldRef(until.variable, FIRST_POSITION)
                yield Binary("or", IsNull(last), Binary("<", last, first))


def _pairs(pattern: Pattern) -> Iterator[tuple[SequenceItem, SequenceItem]]:
    """Yields pairs of events or results of which the first precedes the second, without loops."""
    if traits.is_loop(pattern):
        return
    if traits.is_list(pattern):
        yield pattern.atom, pattern.atom
    if traits.is_sequence(pattern) or (traits.is_operator_call(pattern) and pattern.operator.in_order):
        front: list[SequenceItem] = []
        for part in traits.get_parts(pattern):
            # a negation inside a group is limited by the parts of that group only
            own = (
                traits.is_negation(part)
                or traits.forbids_next_event(part)
                or (traits.is_sequence(part) and not traits.is_then(part))
            )
            absent = (
                ()
                if own
                else [a for negation in traversal.iterate_negations(part) for a in traversal.iterate_atoms(negation)]
            )
            inside = [item for item in _iterate_items(part) if item not in absent]
            yield from product(front, inside)
            front += inside
    for part in traits.get_parts(pattern):
        yield from _pairs(part)


def _iterate_items(pattern: Pattern) -> Iterator[SequenceItem]:
    """Yields the items of a sequence: events, and results instead of their inputs."""
    if traits.is_event(pattern) or traits.is_operator_call(pattern):
        yield pattern
    else:
        for part in traits.get_parts(pattern):
            yield from _iterate_items(part)


def _build_order(left: str, right: str, lists: frozenset[str]) -> Expr:
    if left == right:
        ends = EventPosition.PREVIOUS, EventPosition.CURRENT
    else:
        ends = (
            EventPosition.LAST if left in lists else EventPosition.ONLY,
            EventPosition.NTH if right in lists else EventPosition.ONLY,
        )
    earlier = FieldRef(left, LAST_POSITION, ends[0])
    return Binary("<", earlier, FieldRef(right, FIRST_POSITION, ends[1]))
