"""Checks of subscriptions: their variables, and their fields against a schema."""

from collections.abc import Iterator, Mapping

from ensue.errors import QueryError, Span, did_you_mean
from ensue.ir.subscription import (
    Concurrent,
    Conjunction,
    Disjunction,
    EventAtom,
    Expression,
    IntervalSince,
    Predicate,
    PredicateType,
    Region,
    SpatialCondition,
    Subscription,
    TemporalCondition,
    TemporalRelation,
    TimePoint,
    VariableField,
    VariableUse,
    get_subexpressions,
    iterate_parts,
)
from ensue.schema import Schema, ValueKind

MAX_DEPTH = 100  # levels of operators after expanding variables

Scope = tuple[int, ...]  # the negations around an expression, the outermost first


def check_subscription(subscription: Subscription) -> Subscription:
    """Returns the subscription, or raises a QueryError for misuse of a variable."""
    if not subscription.variables and not _has_variables(subscription.root):
        return subscription
    _Depths(subscription.variables).descend(subscription.root, 1, ())
    scopes = _Scopes(subscription.variables)
    scopes.visit(subscription.root, ())
    _Readings(subscription.variables, scopes).visit(subscription.root)
    return subscription


def _has_variables(root: Expression) -> bool:
    return any(
        isinstance(part, VariableUse) or (isinstance(part, EventAtom) and any(_iterate_reads(part)))
        for part in iterate_parts(root)
    )


def get_used_variables(subscription: Subscription) -> frozenset[str]:
    """Returns the variables that a subscription uses, directly or in used definitions."""
    used: set[str] = set()
    pending: list[Expression] = [subscription.root]
    while pending:
        expression = pending.pop()
        pending += get_subexpressions(expression)
        if isinstance(expression, VariableUse) and expression.variable not in used:
            used.add(expression.variable)
            pending.append(subscription.variables[expression.variable])
    return frozenset(used)


class _Depths:
    """Checks that all variables are defined and acyclic, and limits the depth."""

    def __init__(self, variables: Mapping[str, Expression]) -> None:
        self.variables = variables
        self.deepest: dict[str, int] = {}

    def descend(self, expression: Expression, level: int, way: tuple[str, ...]) -> None:
        if level > MAX_DEPTH:
            raise QueryError(
                f"this is nested too deeply: at most {MAX_DEPTH} levels after expanding variables",
                hint="use fewer levels, or split the subscription",
                span=expression.span,
            )
        if isinstance(expression, VariableUse):
            name = expression.variable
            if name not in self.variables:
                raise _undefined_error(name, self.variables, expression.span)
            if name in way:
                circle = [f"${step};" for step in (*way[way.index(name) :], name)]
                raise QueryError(
                    f"${name}; is defined in terms of itself: {' -> '.join(circle)}",
                    hint="a variable stands for its definition: break the cycle",
                    span=expression.span,
                )
            if level > self.deepest.get(name, 0):
                self.deepest[name] = level
                self.descend(self.variables[name], level + 1, (*way, name))
        for part in get_subexpressions(expression):
            self.descend(part, level + 1, way)


def _undefined_error(name: str, variables: Mapping[str, Expression], span: Span | None) -> QueryError:
    near = did_you_mean(f"${name};", [f"${known};" for known in variables])
    return QueryError(
        f"the variable ${name}; is not defined",
        hint=near or f"define it after the subscription: , ${name}; = (ARITH:id = 17)",
        span=span,
    )


class _Scopes:
    """Checks that all uses of a variable are inside the same negations."""

    def __init__(self, variables: Mapping[str, Expression]) -> None:
        self.variables = variables
        self.by_name: dict[str, Scope] = {}
        self._first: dict[str, VariableUse] = {}
        self._negations = 0

    def visit(self, expression: Expression, scope: Scope) -> None:
        if isinstance(expression, VariableUse):
            self._enter_variable(expression, scope)
        elif isinstance(expression, TemporalCondition) and expression.when is TemporalRelation.ABSENT:
            *bases, part = get_subexpressions(expression)
            for base in bases:
                self.visit(base, scope)
            self._negations += 1
            self.visit(part, (*scope, self._negations))
        else:
            for part in get_subexpressions(expression):
                self.visit(part, scope)

    def _enter_variable(self, use: VariableUse, scope: Scope) -> None:
        name = use.variable
        if name not in self.by_name:
            self.by_name[name], self._first[name] = scope, use
            self.visit(self.variables[name], scope)
        elif (known := self.by_name[name]) != scope:
            below = self._first[name] if len(known) > len(scope) else use
            raise QueryError(
                f"${name}; is used both inside and outside a negation",
                hint=f"use another variable inside the negation; you may read fields, as in ARITH:id = ${name};.id",
                span=below.span,
            )


class _Readings:
    """Checks that each `$x;.field` is bound where it is read."""

    def __init__(self, variables: Mapping[str, Expression], scopes: _Scopes) -> None:
        self.variables = variables
        self.scopes = scopes
        self._bound: dict[str, frozenset[str]] = {}
        self._seen: set[tuple[str, frozenset[str]]] = set()

    def visit(self, expression: Expression, names: frozenset[str] = frozenset(), below: int = 0) -> None:
        """Visits an expression; `names` are the bound variables, `below` the negations around."""
        names |= self.find_bound(expression)
        match expression:
            case EventAtom():
                for value in _iterate_reads(expression):
                    self._require(value, expression, names)
                    self._require_near(value, below)
            case VariableUse(name):
                if (name, names) not in self._seen:
                    self._seen.add((name, names))
                    self.visit(self.variables[name], names, below)
            case TemporalCondition(TemporalRelation.ABSENT, _, absent):
                *bases, _ = get_subexpressions(expression)
                for base in bases:
                    self.visit(base, names, below)
                self.visit(absent, names, below + 1)
            case _:
                for part in get_subexpressions(expression):
                    self.visit(part, names, below)

    def find_bound(self, expression: Expression) -> frozenset[str]:
        """Returns the variables that every match of an expression binds."""
        match expression:
            case EventAtom():
                return frozenset()
            case VariableUse(name):
                if name not in self._bound:
                    self._bound[name] = self.find_bound(self.variables[name]) | {name}
                return self._bound[name]
            case Disjunction(parts):
                return frozenset.intersection(*(self.find_bound(part) for part in parts))
            case TemporalCondition(TemporalRelation.ABSENT, _, _):
                *bases, _ = get_subexpressions(expression)
                return frozenset[str]().union(*(self.find_bound(base) for base in bases))
            case TemporalCondition() | Concurrent() | SpatialCondition() | Conjunction():
                return frozenset[str]().union(*(self.find_bound(p) for p in get_subexpressions(expression)))

    def _require(self, value: VariableField, reader: EventAtom, names: frozenset[str]) -> None:
        name = value.variable
        if name not in self.variables:
            raise _undefined_error(name, self.variables, value.span)
        if name not in names:
            raise self._unread_error(name, value.span)
        events = _get_events(self.variables[name], self.variables)
        if events is None:
            raise QueryError(
                f"${name}; is not a single event, so ${name};.{value.name} is not defined",
                hint="read the field of a variable that stands for one of its events",
                span=value.span,
            )
        if any(event is reader for event in events):
            raise QueryError(
                f"${name};.{value.name} is read in ${name}; itself",
                hint="compare with a field of another event",
                span=value.span,
            )

    def _require_near(self, value: VariableField, below: int) -> None:
        if below - len(self.scopes.by_name[value.variable]) > 1:
            raise QueryError(
                f"${value.variable};.{value.name} is read across two negations",
                hint="compare with a variable of the negation around it",
                span=value.span,
            )

    def _unread_error(self, name: str, span: Span | None) -> QueryError:
        if name not in self.scopes.by_name:
            return QueryError(
                f"${name}; is read here, but used as an event nowhere",
                hint=f"make it part of the match: ${name}; && ...",
                span=span,
            )
        if self.scopes.by_name[name]:
            return QueryError(
                f"${name}; is used only inside a negation, so it cannot be read outside",
                hint="an absent event has no fields: reverse the comparison and write it inside the negation",
                span=span,
            )
        return QueryError(
            f"${name}; is not bound in every alternative that reads it",
            hint=f"write ${name}; into each alternative of || that reads its fields",
            span=span,
        )


def _iterate_reads(atom: EventAtom) -> Iterator[VariableField]:
    return (p.value for p in atom.predicates if isinstance(p.value, VariableField))


def _get_events(expression: Expression, variables: Mapping[str, Expression]) -> tuple[EventAtom, ...] | None:
    """Returns the atoms of which an expression is one; None if it is not a single event."""
    match expression:
        case EventAtom():
            return (expression,)
        case VariableUse(name):
            return _get_events(variables[name], variables)
        case SpatialCondition(_, Region(), part) | TemporalCondition(
            TemporalRelation.BETWEEN | TemporalRelation.AFTER, IntervalSince(TimePoint()), part
        ):
            return _get_events(part, variables)
        case Disjunction(parts):
            atoms: list[EventAtom] = []
            for part in parts:
                events = _get_events(part, variables)
                if events is None:
                    return None
                atoms += events
            return tuple(atoms)
        case TemporalCondition() | Concurrent() | SpatialCondition() | Conjunction():
            return None


_TIMES = (ValueKind.TIMESTAMP, ValueKind.DATE)
_FITS = {
    PredicateType.ARITH: ("a number", (ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL)),
    PredicateType.STRING: ("text", (ValueKind.STRING,)),
    PredicateType.BOOL: ("true or false", (ValueKind.BOOLEAN,)),
    PredicateType.TIME: ("a time", (*_TIMES, ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL)),
}


def check_subscription_fields(subscription: Subscription, schema: Schema) -> None:
    """Raises a QueryError for locations without a column, or fields that cannot be compared.

    Predicates with constants are checked when the predicate index is built.
    """
    for expression in iterate_parts(subscription.root, *subscription.variables.values()):
        match expression:
            case SpatialCondition(span=span) if schema.location is None:
                raise QueryError(
                    "the events have no location",
                    hint='name its columns: location="position", or location=("lon", "lat")',
                    span=span,
                )
            case EventAtom(predicates):
                for predicate in predicates:
                    if isinstance(predicate.value, VariableField):
                        _check_comparison(predicate, predicate.value, schema)
            case _:
                continue


def _check_comparison(predicate: Predicate, other: VariableField, schema: Schema) -> None:
    left = _get_kind(predicate.name, predicate.span, schema)
    right = _get_kind(other.name, other.span, schema)
    expected, kinds = _FITS[predicate.type]
    for name, kind, span in ((predicate.name, left, predicate.span), (other.name, right, other.span)):
        if kind not in kinds:
            raise QueryError(
                f"{predicate.type.value} means {expected}, and field '{name}' holds {kind.value}s",
                hint=_suggest_type(kind),
                span=span,
            )
    if (left in _TIMES) != (right in _TIMES):
        raise QueryError(f"a {left.value} cannot be compared with a {right.value}", span=predicate.span)
    if left is ValueKind.STRING and predicate.operator not in ("=", "!="):
        raise QueryError(
            f"the texts of two events can only be compared with = and !=, not with {predicate.operator}",
            hint="compare each with a constant instead",
            span=predicate.span,
        )


def _get_kind(name: str, span: Span | None, schema: Schema) -> ValueKind:
    if schema.common is not None:
        if name in schema.common:
            return schema.common[name]
        known = set(schema.common)
    else:
        kinds = {t.fields[name] for t in schema.types.values() if name in t.fields}
        if len(kinds) == 1:
            return kinds.pop()
        known = {field for t in schema.types.values() for field in t.fields}
    if name == "type" and schema.type_column is not None:
        return ValueKind.STRING
    raise QueryError(f"unknown field '{name}'", hint=did_you_mean(name, sorted(known)), span=span)


def _suggest_type(kind: ValueKind) -> str | None:
    for type_, (_, kinds) in _FITS.items():
        if kind in kinds:
            return f"write {type_.value}:"
    return None
