"""Inlining of complex events: their variables in a layer are replaced by their patterns.

`find_inlinable` decides which variables can be inlined, and `inline_layer` builds the query.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from ensue.analyzer.hierarchy_layers import Layer, get_returned_columns
from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.analyzer.key_inference import add_inferred_equivalence, get_equality
from ensue.analyzer.output_mode import is_summarized
from ensue.ir.expression import Aggregate, Binary, EventPosition, Expr, FieldRef, FunctionCall, Literal, Unary
from ensue.ir.hierarchy import get_pattern_types
from ensue.ir.pattern import Atom, Kleene, Pattern
from ensue.ir.query import Query, ReturnItem
from ensue.ir.selection import ByEvents, ByTime, ByUnits, Strategy, Window
from ensue.ir.traits import NodeForm, get_form, get_parts, is_event, is_list, is_negation, is_optional, is_plain
from ensue.ir.traversal import (
    get_kleene_variables,
    get_operands,
    iterate_atoms,
    iterate_operator_calls,
    iterate_positive_atoms,
    replace_operands,
    rewrite_pattern,
)
from ensue.printing.expression_printer import format_expr
from ensue.printing.pattern_printer import format_head
from ensue.schema import Types, TypeUnion, get_type_names

_OF_ONE = ("min", "max", "first", "last", "sum")  # aggregates that return a single value unchanged


class InliningError(Exception):
    """An expression over a complex event cannot be expressed over its events."""


def _edge(pattern: Pattern, column: Mapping[str, str], *, first: bool) -> tuple[Expr | None, bool]:
    """Builds the start or end of a match, and tells whether it is never NULL."""
    if is_event(pattern):
        return FieldRef(pattern.variable, column[pattern.variable]), True
    if is_list(pattern):
        name = pattern.atom.variable
        if pattern.least:
            at = EventPosition.NTH if first else EventPosition.LAST
            return FieldRef(name, column[name], at), True
        every = FieldRef(name, column[name], EventPosition.ALL)
        return Aggregate("first" if first else "last", name, every), False
    inner = get_parts(pattern)
    match get_form(pattern):
        case NodeForm.SEQUENCE:
            tried: list[Expr] = []
            for part in inner if first else reversed(inner):
                expr, certain = _edge(part, column, first=first)
                tried += [] if expr is None else [expr]
                if certain:
                    return _combine("coalesce", tried), True
            return _combine("coalesce", tried), False
        case NodeForm.TOGETHER:
            edges = [_edge(part, column, first=first) for part in inner]
            times = [expr for expr, _ in edges if expr is not None]
            certain = any(known for _, known in edges)
            return _combine("least" if first else "greatest", times), certain
        case NodeForm.ABSENCE:
            return None, False
        case form:
            raise AssertionError(f"{form} cannot be inlined")


def _combine(function: str, times: list[Expr]) -> Expr | None:
    if len(times) < 2:
        return times[0] if times else None
    return FunctionCall(function, tuple(times))


def build_window_condition(window: Window | None, start: Expr, end: Expr) -> tuple[Expr, ...]:
    """Builds the condition that a complex event is not longer than its window."""
    match window:
        case ByUnits(amount=amount):
            length = Literal(amount)
        case ByTime(nanoseconds=nanoseconds):
            length = Literal(timedelta(microseconds=nanoseconds // 1_000))
        case _:
            return ()
    return (Binary("<=", Binary("-", end, start), length),)


def get_inlined_fields(query: Query, starts: Mapping[str, str], ends: Mapping[str, str]) -> dict[str, Expr]:
    """Returns the fields of a complex event: its columns, its start and its end."""
    own = {r.name.removesuffix("@own"): r.expr for r in query.returns}
    start, _ = _edge(query.pattern, starts, first=True)
    end, _ = _edge(query.pattern, ends, first=False)
    assert start is not None and end is not None  # noqa: PT018  a match binds events
    return {"start": start, "end": end} | own


def substitute_fields(expr: Expr, variable: str, fields: Mapping[str, Expr], lists: Mapping[str, Kleene]) -> Expr:
    """Replaces the fields of a complex event by their expressions, or raises InliningError.

    `lists` are the Kleene variables of the complex event's pattern.
    """
    match expr:
        case FieldRef(variable=named, name=name) if named == variable:
            if name is None or name not in fields:
                raise InliningError(
                    f"{format_expr(expr)} exists only for complex events"
                    if name is not None
                    else f"{variable} as a whole is not a value of its events"
                )
            return _require(fields[name], lists)
        case Aggregate(variable=named, argument=None) if named == variable:
            return Literal(1)
        case Aggregate(variable=named, argument=argument) if named == variable:
            assert argument is not None
            if expr.function not in _OF_ONE:
                raise InliningError(f"{format_expr(expr)} is an aggregate over a complex event")
            return substitute_fields(argument, variable, fields, lists)
        case _:
            inside = (substitute_fields(e, variable, fields, lists) for e in get_operands(expr))
            return replace_operands(expr, tuple(inside))


def _require(expr: Expr, lists: Mapping[str, Kleene]) -> Expr:
    """Rewrites an expression so that it is NULL if an event is missing.

    A condition on a missing event does not apply, but one on a complex event's field does.
    """
    match expr:
        case FieldRef(variable=variable, name=name, at=at, nth=nth):
            if name is None or at is EventPosition.ALL:
                raise InliningError(f"{format_expr(expr)} is more than one value")
            least = lists[variable].least if variable in lists else 1
            if nth <= least:
                return expr
            if nth > 1:
                raise InliningError(f"{format_expr(expr)} is optional")
            every = FieldRef(variable, name, EventPosition.ALL)
            return Aggregate("last" if at is EventPosition.LAST else "first", variable, every)
        case Aggregate():
            return expr
        case _:
            return replace_operands(expr, tuple(_require(e, lists) for e in get_operands(expr)))


def rename_variables(expr: Expr, names: Mapping[str, str]) -> Expr:
    """Renames the variables of an expression."""
    inside = replace_operands(expr, tuple(rename_variables(e, names) for e in get_operands(expr)))
    if isinstance(inside, FieldRef | Aggregate):
        return replace(inside, variable=names.get(inside.variable, inside.variable))
    return inside


InlinedVariable = tuple[str, str]  # the name of a layer, and its variable for a complex event


def find_inlinable(layers: Sequence[Layer], *, delivered_too: bool = False) -> dict[InlinedVariable, str | None]:
    """Returns why each complex event of a hierarchy cannot be inlined; None if it can."""
    known = {layer.name: layer for layer in layers}
    return {
        (layer.name, atom.variable): explain_not_inlinable(
            layer, atom.variable, known[atom.type], layers, delivered_too=delivered_too
        )
        for layer in layers
        for atom in iterate_atoms(layer.query.pattern)
        if atom.type in layer.uses
    }


def explain_not_inlinable(
    above: Layer, variable: str, below: Layer, layers: Sequence[Layer] = (), *, delivered_too: bool = False
) -> str | None:
    """Returns why the pattern of a layer cannot replace a variable; None if it can.

    `layers` are all layers of the hierarchy. With `delivered_too` the layer below may itself be
    delivered.
    """
    known = {layer.name: layer for layer in layers} | {below.name: below}
    above, below = (replace(layer, query=add_inferred_equivalence(layer.query)) for layer in (above, below))
    return (
        _explain_types(above.query)
        or _explain_types(below.query)
        or _explain_above(above.query)
        or _explain_position(above.query.pattern, variable, known)
        or _explain_below(below, delivered_too=delivered_too)
        or _explain_key(above, below)
        or _explain_times(below, known)
        or _explain_fields(above.query, variable, below.query)
    )


def _explain_types(query: Query) -> str | None:
    if any(isinstance(atom.type, TypeUnion) for atom in iterate_atoms(query.pattern)):
        return "a variable of it takes events of several types"
    return None


def _explain_above(query: Query) -> str | None:
    for strategy in sorted(s.value for s in query.strategies - {Strategy.ANY}):
        return f"{strategy} looks at skipped events"
    if query.after is not None:
        return "AFTER MATCH needs the complex events themselves"
    if query.limit is not None or is_summarized(query):
        return "LIMIT, COUNT(*) and EXISTS need the complex events themselves"
    if isinstance(query.within, ByEvents):
        return "WITHIN n EVENTS counts complex events"
    if any(iterate_operator_calls(query.pattern)):
        return "user-defined operators take complex events unchanged"
    if any(iterate_interval_negations(query.pattern)):
        return "an absence with an interval is evaluated on complex events"
    return None


def _explain_below(layer: Layer, *, delivered_too: bool) -> str | None:
    query, name = layer.query, layer.name
    if layer.delivered and not delivered_too:
        return f"{name} is itself delivered"
    for strategy in sorted(s.value for s in query.strategies - {Strategy.ANY}):
        return f"{name} is matched with {strategy}"
    if query.after is not None or query.limit is not None:
        return f"{name} has AFTER MATCH or LIMIT"
    if query.having is not None or is_summarized(query):
        return f"{name} has HAVING, COUNT(*) or EXISTS"
    if isinstance(query.within, ByEvents):
        return f"{name} is matched WITHIN a number of events"
    if any(iterate_interval_negations(query.pattern)):
        return f"{name} has an absence with an interval"
    return _explain_pattern(query.pattern, name)


def _explain_pattern(pattern: Pattern, name: str) -> str | None:
    inner = get_parts(pattern)
    match get_form(pattern):
        case NodeForm.EVENT | NodeForm.LIST | NodeForm.ABSENCE:
            return None
        case NodeForm.LOOP:
            return f"{name} repeats a group"
        case NodeForm.CHOICE | NodeForm.OPTION:
            return f"{name} has alternatives or optional parts"
        case NodeForm.RESULT:
            return f"{name} has a user-defined operator"
        case NodeForm.SEQUENCE:
            for position, part in enumerate(inner):
                sides = (inner[:position], inner[position + 1 :])
                if is_negation(part) and any(all(map(is_optional, side)) for side in sides):
                    return f"{name} has a negation at a start or an end"
        case NodeForm.TOGETHER:
            pass
    if not is_plain(pattern):
        return f"{name} is matched with {format_head(pattern)}"
    return next((why for p in inner if (why := _explain_pattern(p, name))), None)


def _explain_key(above: Layer, below: Layer) -> str | None:
    if set(above.key) != set(below.key):
        return f"{below.name} has another key"
    columns = {r.name: r.expr for r in get_returned_columns(below.meaning)}
    for name in below.key:
        expr = columns.get(name)
        if expr is not None and not (isinstance(expr, FieldRef) and expr.name == name):
            return f"'{name}' of {below.name} is not a field of its events"
    return None


def _explain_times(below: Layer, known: Mapping[str, Layer]) -> str | None:
    """Checks that the start and end of members are not hidden by fields of these names."""
    for atom in iterate_positive_atoms(below.query.pattern):
        inner = known.get(atom.type) if isinstance(atom.type, str) else None
        names = {r.name for r in get_returned_columns(inner.meaning)} if inner else set()
        if inner and names & {"start", "end"}:
            return f"{inner.name} returns its own fields called start or end"
    return None


def _explain_fields(query: Query, variable: str, below: Query) -> str | None:
    times: Mapping[str, str] = defaultdict(str)
    fields, lists = get_inlined_fields(below, times, times), get_kleene_variables(below.pattern)
    exprs = [*query.where, *(() if query.having is None else (query.having,))]
    exprs += [r.expr for r in query.returns if r.expr != FieldRef(variable, None)]
    try:
        for expr in exprs:
            substitute_fields(expr, variable, fields, lists)
    except InliningError as reason:
        return str(reason)
    return None


# --- conditions on the position in the pattern


def _explain_position(pattern: Pattern, variable: str, known: Mapping[str, Layer]) -> str | None:
    for node in _find_path(pattern, variable):
        match get_form(node):
            case NodeForm.LIST | NodeForm.LOOP:
                return f"{variable} stands for several complex events"
            case NodeForm.ABSENCE:
                return f"{variable} is negated"
            case NodeForm.OPTION:
                return f"{variable} is optional"
            case NodeForm.CHOICE | NodeForm.RESULT:
                return f"{variable} is one of several alternatives"
            case NodeForm.TOGETHER:
                inner = get_parts(node)
                if any(map(is_negation, inner)):
                    return f"a negation in the AND around {variable} looks at complex events"
                own, others = _split_types(inner, variable, known)
                if own & others:
                    shared = ", ".join(sorted(own & others))
                    return f"{variable} may share events with the rest of an AND ({shared})"
            case NodeForm.SEQUENCE | NodeForm.EVENT:
                pass
        if not is_plain(node):
            return f"{format_head(node)} needs the complex events themselves"
    return None


def _find_path(pattern: Pattern, variable: str) -> tuple[Pattern, ...]:
    """Returns the nodes on the path from the pattern to the event of a variable."""
    if is_event(pattern):
        return (pattern,) if pattern.variable == variable else ()
    for part in get_parts(pattern):
        below = _find_path(part, variable)
        if below:
            return (pattern, *below)
    return ()


def _split_types(inner: Sequence[Pattern], variable: str, known: Mapping[str, Layer]) -> tuple[set[str], set[str]]:
    """Returns the event types of a complex event, and those of the other parts of an AND."""
    own: set[str] = set()
    others: set[str] = set()
    for part in inner:
        if _find_path(part, variable):
            event = next(a for a in iterate_atoms(part) if a.variable == variable)
            own |= _get_types(event.type, known)
        else:
            for atom in iterate_atoms(part):
                others |= _get_types(atom.type, known)
    return own, others


def _get_types(types: Types, known: Mapping[str, Layer]) -> set[str]:
    return {name for type_ in get_type_names(types) for name in get_base_types(type_, known)}


def get_base_types(name: str, known: Mapping[str, Layer]) -> set[str]:
    """Returns an event type and, recursively, the types in its definition."""
    types = {name}
    if name in known:
        for inner in get_pattern_types(known[name].query):
            types |= get_base_types(inner, known)
    return types


Path = tuple[str, ...]  # the variables of nested complex events, outermost first


@dataclass(frozen=True, slots=True)
class InlinedEvent:
    """A complex event that is replaced by its pattern."""

    path: Path
    name: str  # of its definition
    box: str  # its unique name: `x`, and `x_p` for `p` inside it
    variables: tuple[str, ...]  # the variables that a match binds instead
    within: Window | None
    level: int  # the query is level 1
    precursor: str | None  # the complex event around it; None: the query
    fields: Mapping[str, Expr]  # its fields as expressions over these variables


@dataclass(frozen=True, slots=True)
class InlinedQuery:
    """A query in which complex events are replaced by their patterns.

    `leaves` maps each complex event, and () for the query, to its remaining variables and their
    new names. `whole` are the columns of RETURN that are complex events as a whole: they have no
    expression, so the query does not return them.
    """

    query: Query
    boxes: tuple[InlinedEvent, ...] = ()  # outer ones first
    leaves: Mapping[Path, Mapping[str, str]] = field(default_factory=dict)
    whole: Mapping[str, Path] = field(default_factory=dict)


def inline_layer(
    layers: Sequence[Layer],
    gone: Collection[InlinedVariable],
    *,
    name: str | None = None,
    times: tuple[str, str] = ("start", "end"),
) -> InlinedQuery:
    """Inlines the complex events `gone` in a layer, by default the top one.

    `times` are the start and end columns of raw events.
    """
    known = {layer.name: layer for layer in layers}
    return _Inlining(known, gone, times).inline(known[layers[-1].name if name is None else name])


@dataclass(frozen=True, slots=True)
class _Inlining:
    known: Mapping[str, Layer]
    gone: Collection[InlinedVariable]
    times: tuple[str, str]

    def inline(self, layer: Layer) -> InlinedQuery:
        query = add_inferred_equivalence(layer.query)
        own = list(iterate_atoms(query.pattern))
        replaced = [a for a in own if (layer.name, a.variable) in self.gone]
        leaves = {a.variable: a.variable for a in own if a not in replaced}
        flat = InlinedQuery(query, (), {(): leaves})
        taken = {a.variable for a in own}
        for box in replaced:
            flat = self._inline_event(flat, box, taken)
        return replace(flat, query=_separate_equalities(flat.query))

    def _inline_event(self, above: InlinedQuery, box: Atom, taken: set[str]) -> InlinedQuery:
        """Replaces a complex event in a query by the pattern of its layer."""
        x, layer = box.variable, self.known[str(box.type)]
        below = self.inline(layer)
        names = {a.variable: _create_name(x, a.variable, taken) for a in iterate_atoms(below.query.pattern)}
        boxes = {b.box: _create_name(x, b.box, taken) for b in below.boxes}
        inside = _rename_query(below.query, names)
        starts, ends = (self._times(inside.pattern, side) for side in (0, 1))
        fields = get_inlined_fields(inside, starts, ends)
        timeless = get_inlined_fields(replace(inside, returns=()), starts, ends)
        bound = tuple(a.variable for a in iterate_positive_atoms(inside.pattern))
        outer = InlinedEvent((x,), layer.name, x, bound, inside.within, 2, None, fields)
        inner = [
            replace(
                b,
                path=(x, *b.path),
                box=boxes[b.box],
                variables=tuple(names[v] for v in b.variables),
                level=b.level + 1,
                precursor=x if b.precursor is None else boxes[b.precursor],
                fields={f: rename_variables(expr, names) for f, expr in b.fields.items()},
            )
            for b in below.boxes
        ]
        lists = get_kleene_variables(inside.pattern)

        def substitute(expr: Expr) -> Expr:
            return substitute_fields(expr, x, fields, lists)

        query = above.query
        where = (
            *map(substitute, query.where),
            *inside.where,
            *build_window_condition(inside.within, timeless["start"], timeless["end"]),
        )
        whole = {r.name: (x,) for r in query.returns if r.expr == FieldRef(x, None)}
        others = [r for r in query.returns if r.name not in whole]
        leaves = {(x, *path): {v: names[n] for v, n in own.items()} for path, own in below.leaves.items()}
        return InlinedQuery(
            replace(
                query,
                pattern=rewrite_pattern(query.pattern, lambda p: inside.pattern if p == box else p),
                where=where,
                having=None if query.having is None else substitute(query.having),
                returns=tuple(replace(r, expr=substitute(r.expr)) for r in others),
            ),
            (*above.boxes, outer, *inner),
            {**above.leaves, **leaves},
            {**above.whole, **whole},
        )

    def _times(self, pattern: Pattern, side: int) -> dict[str, str]:
        """Returns the start or end column of each variable."""
        standard = ("start", "end")
        return {a.variable: (standard if a.type in self.known else self.times)[side] for a in iterate_atoms(pattern)}


def _create_name(box: str, variable: str, taken: set[str]) -> str:
    """Returns a unique name."""
    name, number = f"{box}_{variable}", 1
    while name in taken:
        number += 1
        name = f"{box}_{variable}{number}"
    taken.add(name)
    return name


def _rename_query(query: Query, names: Mapping[str, str]) -> Query:
    def renamed(part: Pattern) -> Pattern:
        return replace(part, variable=names[part.variable]) if is_event(part) else part

    return replace(
        query,
        pattern=rewrite_pattern(query.pattern, renamed),
        where=tuple(rename_variables(c, names) for c in query.where),
        returns=tuple(ReturnItem(rename_variables(r.expr, names), r.name) for r in query.returns),
    )


def _separate_equalities(query: Query) -> Query:
    """Rewrites equalities of different layers that together would be inferred as `[attr]`."""
    if add_inferred_equivalence(query).equivalence == query.equivalence:
        return query
    plain = tuple(
        Unary("not", replace(c, operator="!=")) if get_equality(c) is not None and isinstance(c, Binary) else c
        for c in query.where
    )
    return replace(query, where=plain)
