"""The disjunctive normal form of subscriptions: an OR of ANDs of events and conditions on groups.

A variable is one group of parts wherever it is used. A group starts with its first part, ends
with its last, and its location is the hull of its parts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ensue.errors import QueryError, Span
from ensue.ir.subscription import (
    Concurrent,
    Conjunction,
    Disjunction,
    EventAtom,
    EventTest,
    Expression,
    IntervalBetween,
    IntervalSince,
    Length,
    Region,
    RegionTest,
    SpatialCondition,
    SpatialRelation,
    Subscription,
    TemporalCondition,
    TemporalRelation,
    TimePoint,
    VariableField,
    VariableUse,
)

MAX_PARTS = 64  # atoms and absences of an alternative
MAX_ALTERNATIVES = 256
Group = frozenset[int]  # numbers of parts


@dataclass(frozen=True, slots=True)
class TimeAnchor:
    """A point in time: the end or start of a group, or a constant."""

    anchor: Group | TimePoint
    end: bool = True

    @property
    def group(self) -> Group:
        return frozenset() if isinstance(self.anchor, TimePoint) else self.anchor


@dataclass(frozen=True, slots=True)
class TimeConstraint:
    """`later - earlier >= by`, or `>` if `strict`, or `<=` with `most`."""

    earlier: TimeAnchor
    later: TimeAnchor
    by: Length | None = None  # None: 0
    strict: bool = False
    most: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def group(self) -> Group:
        return self.earlier.group | self.later.group


@dataclass(frozen=True, slots=True)
class SpatialConstraint:
    """A spatial relation of two groups, or of a region and a group."""

    where: SpatialRelation
    first: Group | Region
    second: Group
    comparison: str | None = None
    number: float = 0.0
    tolerance: float = 0.0
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def group(self) -> Group:
        return self.second if isinstance(self.first, Region) else self.first | self.second


@dataclass(frozen=True, slots=True)
class FieldComparison:
    """A field of one part against a field of another: `$c;.id = $a;.id`."""

    part: int
    name: str
    operator: str
    other: int
    other_name: str

    @property
    def group(self) -> Group:
        return frozenset((self.part, self.other))


Condition = TimeConstraint | SpatialConstraint | FieldComparison


@dataclass(frozen=True, slots=True)
class AbsentPart:
    """A part that requires that something did not happen in (since, until]."""

    base: Group
    since: TimeAnchor
    until: TimeAnchor
    length: Length | None  # added to `until`
    absent: tuple["SubscriptionAlternative", ...]  # none of them may have happened
    # (index in `absent`, comparison with our part)
    asks: tuple[tuple[int, FieldComparison], ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def lasts(self) -> bool:
        """Whether a match is complete only at the end of the interval."""
        return self.length is not None

    @property
    def group(self) -> Group:
        outside = frozenset(compared.other for _, compared in self.asks)
        return self.base | self.since.group | self.until.group | outside


@dataclass(frozen=True, slots=True)
class SubscriptionAlternative:
    """One alternative of a subscription: its parts, all different events, and conditions."""

    parts: tuple[EventTest | AbsentPart, ...] = ()
    conditions: tuple[Condition, ...] = ()
    together: tuple[Group, ...] = ()  # operands of operators, innermost first
    bound: tuple[tuple[str, Group], ...] = ()  # the groups of its variables
    asks: tuple[tuple[int, str, str, VariableField], ...] = ()  # (part, name, operator, field)
    root: Group = frozenset()

    def find_group(self, variable: str) -> Group | None:
        return dict(self.bound).get(variable)


def build_alternatives(subscription: Subscription) -> tuple[SubscriptionAlternative, ...]:
    """Returns all alternatives of a subscription; raises a QueryError if there are too many."""
    return _Flattening(subscription).flatten()


@dataclass
class _Flattening:
    subscription: Subscription
    made: int = 0
    below: int = 0  # the number of negations around the current expression

    def flatten(self) -> tuple[SubscriptionAlternative, ...]:
        distinct: dict[SubscriptionAlternative, None] = {}
        for way, group in self._expand(self.subscription.root, SubscriptionAlternative()):
            finished = self._resolve_reads(replace(way, root=group))
            if finished is None:
                continue
            events = frozenset(n for n, part in enumerate(finished.parts) if isinstance(part, EventTest))
            if self.subscription.within is not None and events:
                both = TimeAnchor(events, end=False), TimeAnchor(events)
                bound = TimeConstraint(*both, self.subscription.within, most=True)
                finished = replace(finished, conditions=(*finished.conditions, bound))
            distinct[finished] = None
        return tuple(distinct)

    def _resolve_reads(self, way: SubscriptionAlternative) -> SubscriptionAlternative | None:
        """Turns reads of variables into conditions; None if a variable is not bound."""
        for part, name, operator, other_field in way.asks:
            group = way.find_group(other_field.variable)
            if group is None:
                return None
            (other,) = (n for n in group if isinstance(way.parts[n], EventTest))
            compared = FieldComparison(part, name, operator, other, other_field.name)
            way = replace(way, conditions=(*way.conditions, compared))
        parts = tuple(self._resolve_absent(p, way) if isinstance(p, AbsentPart) else p for p in way.parts)
        return replace(way, parts=parts, asks=())

    def _resolve_absent(self, gone: AbsentPart, way: SubscriptionAlternative) -> AbsentPart:
        """Resolves the fields of our variables that an absent alternative is compared with."""
        absent: list[SubscriptionAlternative] = []
        asks: list[tuple[int, FieldComparison]] = []
        for other in gone.absent:
            comparisons = []
            for part, name, operator, wanted in other.asks:
                group = way.find_group(wanted.variable)
                if group is None and self.below:
                    raise QueryError(
                        f"${wanted.variable};.{wanted.name} is read across two negations",
                        hint="compare with a variable of the negation around it",
                        span=wanted.span,
                        text=self.subscription.text,
                    )
                if group is None:
                    break  # the comparison holds for no event
                (ours,) = (n for n in group if isinstance(way.parts[n], EventTest))
                comparisons.append(FieldComparison(part, name, operator, ours, wanted.name))
            else:
                asks += [(len(absent), compared) for compared in comparisons]
                absent.append(replace(other, asks=()))
        return replace(gone, absent=tuple(absent), asks=tuple(asks))

    def _expand(
        self, expression: Expression, way: SubscriptionAlternative
    ) -> Iterator[tuple[SubscriptionAlternative, Group]]:
        """Yields the alternatives extended by an expression, and the expression's group."""
        match expression:
            case EventAtom():
                yield self._add_atom(expression, way)
            case VariableUse(variable):
                known = way.find_group(variable)
                if known is not None:
                    yield way, known
                    return
                for after, group in self._expand(self.subscription.variables[variable], way):
                    yield replace(after, bound=(*after.bound, (variable, group))), group
            case Disjunction(parts):
                for part in parts:
                    for found in self._expand(part, way):
                        self._count(expression.span)
                        yield found
            case Conjunction(parts):
                for after, groups in self._expand_all(parts, way):
                    yield _record(after, frozenset().union(*groups))
            case Concurrent(first, second, tolerance):
                by = tolerance or self.subscription.concurrent
                for after, (a, b) in self._expand_all((first, second), way):
                    touching = [
                        TimeConstraint(x, y, by, most=True, span=expression.span)
                        for x, y in (
                            (TimeAnchor(a), TimeAnchor(b, end=False)),
                            (TimeAnchor(b), TimeAnchor(a, end=False)),
                        )
                    ]
                    yield _record(_constrain(after, *touching), a | b)
            case SpatialCondition(place=Region() as region, part=part):
                for after, group in self._expand(part, way):
                    yield self._add_region(expression, region, after, group), group
            case SpatialCondition(place=place, part=part):
                assert not isinstance(place, Region)
                for after, (a, b) in self._expand_all((place, part), way):
                    yield _record(_constrain(after, self._relate(expression, a, b)), a | b)
            case TemporalCondition(TemporalRelation.ABSENT):
                yield from self._expand_absence(expression, way)
            case TemporalCondition(when, _, part):
                for after, base, since, until, length in self._expand_interval(expression, way):
                    for later, c in self._expand(part, after):
                        span = expression.span
                        conditions = _bound_times(when, since, until, length, c, span)
                        yield _record(_constrain(later, *conditions), base | c)

    def _expand_all(
        self, parts: Sequence[Expression], way: SubscriptionAlternative
    ) -> Iterator[tuple[SubscriptionAlternative, tuple[Group, ...]]]:
        if not parts:
            yield way, ()
            return
        for after, group in self._expand(parts[0], way):
            for last, groups in self._expand_all(parts[1:], after):
                yield last, (group, *groups)

    def _add_atom(self, atom: EventAtom, way: SubscriptionAlternative) -> tuple[SubscriptionAlternative, Group]:
        number = len(way.parts)
        _check_count(number, atom.span)
        constant = tuple(p for p in atom.predicates if not isinstance(p.value, VariableField))
        asks = tuple(
            (number, p.name, p.operator, p.value) for p in atom.predicates if isinstance(p.value, VariableField)
        )
        parts = (*way.parts, EventTest(constant))
        return replace(way, parts=parts, asks=(*way.asks, *asks)), frozenset((number,))

    def _add_region(
        self, test: SpatialCondition, region: Region, way: SubscriptionAlternative, group: Group
    ) -> SubscriptionAlternative:
        """Adds a region test: to the event if the group is a single one, else as a condition."""
        near = self._relate(test, region, group)
        number = min(group, default=-1)
        part = way.parts[number] if len(group) == 1 else None
        if not isinstance(part, EventTest):
            return _constrain(way, near)
        tested = RegionTest(near.where, region, near.comparison, near.number, near.tolerance, span=test.span)
        part = replace(part, places=(*part.places, tested))
        return replace(way, parts=(*way.parts[:number], part, *way.parts[number + 1 :]))

    def _relate(self, test: SpatialCondition, first: Group | Region, second: Group) -> SpatialConstraint:
        number = test.number
        if number is None:
            number = self.subscription.same_place if test.where is SpatialRelation.SAME else 0.0
        equals = test.where is SpatialRelation.DISTANCE and test.comparison == "="
        tolerance = self.subscription.equal if equals else 0.0
        return SpatialConstraint(test.where, first, second, test.comparison, number, tolerance, test.span)

    def _expand_interval(
        self, timed: TemporalCondition, way: SubscriptionAlternative
    ) -> Iterator[tuple[SubscriptionAlternative, Group, TimeAnchor, TimeAnchor, Length | None]]:
        """Yields the alternatives with an interval: its group, start, end, and added length."""
        match timed.interval:
            case IntervalSince(TimePoint() as moment, length):
                yield way, frozenset(), TimeAnchor(moment), TimeAnchor(moment), length
            case IntervalSince(base, length):
                assert not isinstance(base, TimePoint)
                for after, a in self._expand(base, way):
                    yield after, a, TimeAnchor(a), TimeAnchor(a), length
            case IntervalBetween(first, second):
                for after, (a, b) in self._expand_all((first, second), way):
                    points = TimeAnchor(a), TimeAnchor(b, end=False)
                    ordered = TimeConstraint(*points, strict=True, span=timed.span)
                    after, both = _record(_constrain(after, ordered), a | b)
                    yield after, both, TimeAnchor(a), TimeAnchor(b, end=False), None

    def _expand_absence(
        self, expression: TemporalCondition, way: SubscriptionAlternative
    ) -> Iterator[tuple[SubscriptionAlternative, Group]]:
        self.below += 1
        inner = [
            self._resolve_bound_reads(replace(found, root=root))
            for found, root in self._expand(expression.part, SubscriptionAlternative())
        ]
        self.below -= 1
        for after, base, since, until, length in self._expand_interval(expression, way):
            number = len(after.parts)
            _check_count(number, expression.span)
            gone = AbsentPart(base, since, until, length, tuple(inner), span=expression.span)
            after = replace(after, parts=(*after.parts, gone))
            yield _record(after, base | {number})

    def _resolve_bound_reads(self, way: SubscriptionAlternative) -> SubscriptionAlternative:
        """Turns reads of variables that are bound in it into conditions, and keeps the others."""
        bound = replace(way, asks=tuple(a for a in way.asks if way.find_group(a[3].variable)))
        others = tuple(a for a in way.asks if not way.find_group(a[3].variable))
        settled = self._resolve_reads(bound)
        assert settled is not None
        return replace(settled, asks=others)

    def _count(self, span: Span | None) -> None:
        self.made += 1
        if self.made > MAX_ALTERNATIVES:
            raise QueryError(
                f"expanded, this subscription has more than {MAX_ALTERNATIVES} alternatives",
                hint="split it into several subscriptions, one for each part of the outer `||`",
                span=span,
                text=self.subscription.text,
            )


def _check_count(number: int, span: Span | None) -> None:
    if number >= MAX_PARTS:
        raise QueryError(
            f"a subscription has at most {MAX_PARTS} atoms and absences",
            hint="split it into several subscriptions",
            span=span,
        )


def _bound_times(
    when: TemporalRelation, since: TimeAnchor, until: TimeAnchor, length: Length | None, c: Group, span: Span | None
) -> tuple[TimeConstraint, ...]:
    if when is TemporalRelation.BETWEEN:
        return (
            TimeConstraint(since, TimeAnchor(c, end=False), strict=True, span=span),
            TimeConstraint(until, TimeAnchor(c), length, most=True, span=span),
        )
    bound = until if length is not None else TimeAnchor(until.anchor)  # AFTER starts at b's end
    return (TimeConstraint(bound, TimeAnchor(c, end=False), length, strict=True, span=span),)


def _constrain(way: SubscriptionAlternative, *conditions: Condition) -> SubscriptionAlternative:
    new = tuple(c for c in conditions if c not in way.conditions)
    return replace(way, conditions=(*way.conditions, *new))


def _record(way: SubscriptionAlternative, group: Group) -> tuple[SubscriptionAlternative, Group]:
    """Records a group that is the operand of an operator."""
    if len(group) > 1 and group not in way.together:
        way = replace(way, together=(*way.together, group))
    return way, group


PartField = tuple[int, str]  # a part, and its field that has the key's value


def find_common_key(way: SubscriptionAlternative) -> PartField | None:
    """Returns a part and its field that is equal to a field of every other part, or None."""
    events = {n for n, part in enumerate(way.parts) if isinstance(part, EventTest)}
    if len(events) < 2:
        return None
    classes: dict[PartField, set[PartField]] = {}
    for condition in way.conditions:
        if isinstance(condition, FieldComparison) and condition.operator == "=":
            left = condition.part, condition.name
            right = condition.other, condition.other_name
            merged = classes.get(left, {left}) | classes.get(right, {right})
            classes |= dict.fromkeys(merged, merged)
    keys = [fields for fields in classes.values() if {part for part, _ in fields} == events]
    return min(map(min, keys), default=None)
