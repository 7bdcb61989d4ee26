"""Is a subscription sound by itself? What its variables stand for, and where they may be read."""

from collections.abc import Iterator, Mapping

from ensue.algebra.subscription import (
    Atomic,
    Both,
    Concurrent,
    Either,
    Expression,
    FieldOf,
    Moment,
    Placed,
    Region,
    Since,
    Subscription,
    Timed,
    Use,
    When,
    parts_of,
)
from ensue.errors import QueryError, did_you_mean
from ensue.span import Span

DEEPEST = 100  # levels of operators, variables written out

Scope = tuple[int, ...]  # the negations that something is below, the outermost first


def check_subscription(subscription: Subscription) -> Subscription:
    """The subscription as it is, or a QueryError that points at what is wrong with a variable."""
    if not subscription.variables and not _speaks_of_variables(subscription.root):
        return subscription
    _Depths(subscription.variables).descend(subscription.root, 1, ())
    scopes = _Scopes(subscription.variables)
    scopes.visit(subscription.root, ())
    _Readings(subscription.variables, scopes).visit(subscription.root)
    return subscription


def _speaks_of_variables(root: Expression) -> bool:
    left = [root]
    while left:
        part = left.pop()
        if isinstance(part, Use) or (isinstance(part, Atomic) and any(_read(part))):
            return True
        left += parts_of(part)
    return False


def used_variables(subscription: Subscription) -> frozenset[str]:
    """The variables that stand somewhere in a subscription, be it in the definition of another."""
    found: set[str] = set()
    left: list[Expression] = [subscription.root]
    while left:
        expression = left.pop()
        left += parts_of(expression)
        if isinstance(expression, Use) and expression.variable not in found:
            found.add(expression.variable)
            left.append(subscription.variables[expression.variable])
    return frozenset(found)


class _Depths:
    """Are all variables defined, none by itself, and how deep does it go?"""

    def __init__(self, variables: Mapping[str, Expression]) -> None:
        self.variables = variables
        self.deepest: dict[str, int] = {}

    def descend(self, expression: Expression, level: int, way: tuple[str, ...]) -> None:
        if level > DEEPEST:
            raise QueryError(
                f"this is nested too deeply: at most {DEEPEST} levels after expanding variables",
                hint="use fewer levels, or split the subscription",
                span=expression.span,
            )
        if isinstance(expression, Use):
            name = expression.variable
            if name not in self.variables:
                raise _unbound(name, self.variables, expression.span)
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
        for part in parts_of(expression):
            self.descend(part, level + 1, way)


def _unbound(name: str, variables: Mapping[str, Expression], span: Span | None) -> QueryError:
    near = did_you_mean(f"${name};", [f"${known};" for known in variables])
    return QueryError(
        f"the variable ${name}; is not defined",
        hint=near or f"define it after the subscription: , ${name}; = (ARITH:id = 17)",
        span=span,
    )


class _Scopes:
    """Below which negations each variable is used: always the same ones, else it is an error."""

    def __init__(self, variables: Mapping[str, Expression]) -> None:
        self.variables = variables
        self.of: dict[str, Scope] = {}
        self._first: dict[str, Use] = {}
        self._negations = 0

    def visit(self, expression: Expression, scope: Scope) -> None:
        if isinstance(expression, Use):
            self._used(expression, scope)
        elif isinstance(expression, Timed) and expression.when is When.ABSENT:
            *bases, part = parts_of(expression)
            for base in bases:
                self.visit(base, scope)
            self._negations += 1
            self.visit(part, (*scope, self._negations))
        else:
            for part in parts_of(expression):
                self.visit(part, scope)

    def _used(self, use: Use, scope: Scope) -> None:
        name = use.variable
        if name not in self.of:
            self.of[name], self._first[name] = scope, use
            self.visit(self.variables[name], scope)
        elif (known := self.of[name]) != scope:
            below = self._first[name] if len(known) > len(scope) else use
            raise QueryError(
                f"${name}; is used both inside and outside a negation",
                hint="use another variable inside the negation; "
                f"you may read fields, as in ARITH:id = ${name};.id",
                span=below.span,
            )


class _Readings:
    """May each `$x;.field` be read where it stands?"""

    def __init__(self, variables: Mapping[str, Expression], scopes: _Scopes) -> None:
        self.variables = variables
        self.scopes = scopes
        self._bound: dict[str, frozenset[str]] = {}
        self._seen: set[tuple[str, frozenset[str]]] = set()

    def visit(
        self, expression: Expression, given: frozenset[str] = frozenset(), below: int = 0
    ) -> None:
        """`given` are the variables that have a value wherever this is looked at, `below` counts
        the negations around it."""
        given |= self.bound(expression)
        match expression:
            case Atomic():
                for value in _read(expression):
                    self._require(value, expression, given)
                    self._require_near(value, below)
            case Use(name):
                if (name, given) not in self._seen:
                    self._seen.add((name, given))
                    self.visit(self.variables[name], given, below)
            case Timed(When.ABSENT, _, absent):
                *bases, _ = parts_of(expression)
                for base in bases:
                    self.visit(base, given, below)
                self.visit(absent, given, below + 1)
            case _:
                for part in parts_of(expression):
                    self.visit(part, given, below)

    def bound(self, expression: Expression) -> frozenset[str]:
        """The variables that have a value in every match of an expression."""
        match expression:
            case Atomic():
                return frozenset()
            case Use(name):
                if name not in self._bound:
                    self._bound[name] = self.bound(self.variables[name]) | {name}
                return self._bound[name]
            case Either(parts):
                return frozenset.intersection(*(self.bound(part) for part in parts))
            case Timed(When.ABSENT, _, _):
                *bases, _ = parts_of(expression)
                return frozenset[str]().union(*(self.bound(base) for base in bases))
            case Timed() | Concurrent() | Placed() | Both():
                return frozenset[str]().union(*(self.bound(p) for p in parts_of(expression)))

    def _require(self, value: FieldOf, reader: Atomic, given: frozenset[str]) -> None:
        name = value.variable
        if name not in self.variables:
            raise _unbound(name, self.variables, value.span)
        if name not in given:
            raise self._unread(name, value.span)
        events = _single(self.variables[name], self.variables)
        if events is None:
            raise QueryError(
                f"${name}; is not a single event, and ${name};.{value.name} is a field of one",
                hint="read the field of a variable that stands for one of its events",
                span=value.span,
            )
        if any(event is reader for event in events):
            raise QueryError(
                f"${name};.{value.name} is read in ${name}; itself",
                hint="compare with a field of another event",
                span=value.span,
            )

    def _require_near(self, value: FieldOf, below: int) -> None:
        if below - len(self.scopes.of[value.variable]) > 1:
            raise QueryError(
                f"${value.variable};.{value.name} is read across two negations",
                hint="compare with a variable of the negation around it",
                span=value.span,
            )

    def _unread(self, name: str, span: Span | None) -> QueryError:
        if name not in self.scopes.of:
            return QueryError(
                f"${name}; is read here, and used as an event nowhere",
                hint=f"make it part of the match: ${name}; && ...",
                span=span,
            )
        if self.scopes.of[name]:
            return QueryError(
                f"${name}; is used only inside a negation, so it cannot be read outside",
                hint="what is absent has no fields: reverse the comparison and write it inside "
                "the negation",
                span=span,
            )
        return QueryError(
            f"${name}; is not there in every alternative that reads it",
            hint=f"write ${name}; into each alternative of || that reads its fields",
            span=span,
        )


def _read(atom: Atomic) -> Iterator[FieldOf]:
    return (p.value for p in atom.predicates if isinstance(p.value, FieldOf))


def _single(
    expression: Expression, variables: Mapping[str, Expression]
) -> tuple[Atomic, ...] | None:
    """The atoms of which one is the event that an expression stands for; None if it is no event.

    >>> from ensue.algebra.subscription import Predicate, PredicateType
    >>> truck = Atomic((Predicate(PredicateType.STRING, "type", "=", "truck"),))
    >>> _single(Use("x"), {"x": truck}) == (truck,), _single(Both((truck, truck)), {})
    (True, None)
    """
    match expression:
        case Atomic():
            return (expression,)
        case Use(name):
            return _single(variables[name], variables)
        case Placed(_, Region(), part) | Timed(When.BETWEEN | When.AFTER, Since(Moment()), part):
            return _single(part, variables)
        case Either(parts):
            found: list[Atomic] = []
            for part in parts:
                events = _single(part, variables)
                if events is None:
                    return None
                found += events
            return tuple(found)
        case Timed() | Concurrent() | Placed() | Both():
            return None
