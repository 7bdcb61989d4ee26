"""A subscription, flattened: an OR of ANDs of events, and conditions on groups of them.

A variable is one group of parts wherever it is used, so its uses agree by themselves. Of a group
the start is the least, the end the greatest, the place the hull of those of its parts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ensue.algebra.event_test import EventTest, RegionTest
from ensue.algebra.subscription import (
    Amid,
    Atomic,
    Both,
    Concurrent,
    Either,
    Expression,
    FieldOf,
    Length,
    Moment,
    Placed,
    Region,
    Since,
    Subscription,
    Timed,
    Use,
    When,
    Where,
)
from ensue.errors import QueryError
from ensue.span import Span

MOST_PARTS = 64  # of an alternative: atoms and absences
MOST_ALTERNATIVES = 256
Group = frozenset[int]  # numbers of parts


@dataclass(frozen=True, slots=True)
class Point:
    """A point in time: the end (or start) of a group, or a moment."""

    of: Group | Moment
    end: bool = True

    @property
    def group(self) -> Group:
        return frozenset() if isinstance(self.of, Moment) else self.of


@dataclass(frozen=True, slots=True)
class Later:
    """`later` is behind `earlier` by at least `by`, or, if `strict`, by more.

    With `most`, it is at most so much behind instead.
    """

    earlier: Point
    later: Point
    by: Length | None = None  # None: 0
    strict: bool = False
    most: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def group(self) -> Group:
        return self.earlier.group | self.later.group


@dataclass(frozen=True, slots=True)
class Near:
    """How the places of two groups lie, or those of a region and a group."""

    where: Where
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
class Compared:
    """A field of one part against a field of another: `$c;.id = $a;.id`."""

    part: int
    name: str
    operator: str
    other: int
    other_name: str

    @property
    def group(self) -> Group:
        return frozenset((self.part, self.other))


Condition = Later | Near | Compared


@dataclass(frozen=True, slots=True)
class Gone:
    """A part that says that something did not happen in (since, until]."""

    base: Group
    since: Point
    until: Point
    length: Length | None  # until is so much behind the point; None: at it
    absent: tuple["Alternative", ...]  # one of these would have been it
    asks: tuple[tuple[int, Compared], ...] = ()  # (which of these, its part against one of ours)
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def lasts(self) -> bool:
        """Whether what it is part of ends when the interval is over, not before."""
        return self.length is not None

    @property
    def group(self) -> Group:
        outside = frozenset(compared.other for _, compared in self.asks)
        return self.base | self.since.group | self.until.group | outside


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to satisfy a subscription: its parts, all different events, and what must hold."""

    parts: tuple[EventTest | Gone, ...] = ()
    conditions: tuple[Condition, ...] = ()
    together: tuple[Group, ...] = ()  # groups that operators speak of, from the inside out
    bound: tuple[tuple[str, Group], ...] = ()  # what its variables stand for
    asks: tuple[tuple[int, str, str, FieldOf], ...] = ()  # (part, name, operator, field)
    root: Group = frozenset()

    def group_of(self, variable: str) -> Group | None:
        return dict(self.bound).get(variable)


def alternatives(subscription: Subscription) -> tuple[Alternative, ...]:
    """Every way to satisfy a subscription. QueryError if they are too many."""
    return _Flattening(subscription).whole()


@dataclass
class _Flattening:
    subscription: Subscription
    made: int = 0
    below: int = 0  # negations around what is flattened

    def whole(self) -> tuple[Alternative, ...]:
        found: dict[Alternative, None] = {}
        for way, group in self._ways(self.subscription.root, Alternative()):
            finished = self._finished(replace(way, root=group))
            if finished is None:
                continue
            if self.subscription.within is not None and (events := _events(finished)):
                both = Point(events, end=False), Point(events)
                bound = Later(*both, self.subscription.within, most=True)
                finished = replace(finished, conditions=(*finished.conditions, bound))
            found[finished] = None
        return tuple(found)

    def _finished(self, way: Alternative) -> Alternative | None:
        """With fields of variables as conditions; None: it needs a variable that it has not."""
        for part, name, operator, wanted in way.asks:
            group = way.group_of(wanted.variable)
            if group is None:
                return None
            (other,) = (n for n in group if isinstance(way.parts[n], EventTest))
            compared = Compared(part, name, operator, other, wanted.name)
            way = replace(way, conditions=(*way.conditions, compared))
        parts = []
        for part_ in way.parts:
            if isinstance(part_, Gone):
                part_ = self._asking(part_, way)
            parts.append(part_)
        return replace(way, parts=tuple(parts), asks=())

    def _asking(self, gone: Gone, way: Alternative) -> Gone:
        """What could have happened, with the fields of ours that it is compared with."""
        absent: list[Alternative] = []
        asks: list[tuple[int, Compared]] = []
        for other in gone.absent:
            mine = []
            for part, name, operator, wanted in other.asks:
                group = way.group_of(wanted.variable)
                if group is None and self.below:
                    raise QueryError(
                        f"${wanted.variable};.{wanted.name} is read across two negations",
                        hint="compare with a variable of the negation around it",
                        span=wanted.span,
                        text=self.subscription.text,
                    )
                if group is None:
                    break  # what nothing is compared with holds for no event
                (ours,) = (n for n in group if isinstance(way.parts[n], EventTest))
                mine.append(Compared(part, name, operator, ours, wanted.name))
            else:
                asks += [(len(absent), compared) for compared in mine]
                absent.append(replace(other, asks=()))
        return replace(gone, absent=tuple(absent), asks=tuple(asks))

    # ---------------------------------------------------------------------------- ways

    def _ways(
        self, expression: Expression, way: Alternative
    ) -> Iterator[tuple[Alternative, Group]]:
        """Each way to go on with an expression, and the group that it is."""
        match expression:
            case Atomic():
                yield self._atom(expression, way)
            case Use(variable):
                known = way.group_of(variable)
                if known is not None:
                    yield way, known
                    return
                for after, group in self._ways(self.subscription.variables[variable], way):
                    yield replace(after, bound=(*after.bound, (variable, group))), group
            case Either(parts):
                for part in parts:
                    for found in self._ways(part, way):
                        self._count(expression.span)
                        yield found
            case Both(parts):
                for after, groups in self._each(parts, way):
                    yield _joined(after, frozenset().union(*groups))
            case Concurrent(first, second, tolerance):
                by = tolerance or self.subscription.concurrent
                for after, (a, b) in self._each((first, second), way):
                    touching = (
                        Later(Point(a), Point(b, end=False), by, most=True, span=expression.span),
                        Later(Point(b), Point(a, end=False), by, most=True, span=expression.span),
                    )
                    yield _joined(_with(after, *touching), a | b)
            case Placed(place=Region() as region, part=part):
                for after, group in self._ways(part, way):
                    yield self._located(expression, region, after, group), group
            case Placed(place=place, part=part):
                assert not isinstance(place, Region)
                for after, (a, b) in self._each((place, part), way):
                    yield _joined(_with(after, self._near(expression, a, b)), a | b)
            case Timed(When.ABSENT):
                yield from self._absent(expression, way)
            case Timed(when, _, part):
                for after, base, since, until, length in self._intervals(expression, way):
                    for later, c in self._ways(part, after):
                        span = expression.span
                        conditions = _placed_in_time(when, since, until, length, c, span)
                        yield _joined(_with(later, *conditions), base | c)

    def _each(
        self, parts: Sequence[Expression], way: Alternative
    ) -> Iterator[tuple[Alternative, tuple[Group, ...]]]:
        if not parts:
            yield way, ()
            return
        for after, group in self._ways(parts[0], way):
            for last, groups in self._each(parts[1:], after):
                yield last, (group, *groups)

    def _atom(self, atom: Atomic, way: Alternative) -> tuple[Alternative, Group]:
        number = len(way.parts)
        _check_count(number, atom.span)
        constant = tuple(p for p in atom.predicates if not isinstance(p.value, FieldOf))
        asks = tuple(
            (number, p.name, p.operator, p.value)
            for p in atom.predicates
            if isinstance(p.value, FieldOf)
        )
        parts = (*way.parts, EventTest(constant))
        return replace(way, parts=parts, asks=(*way.asks, *asks)), frozenset((number,))

    def _located(
        self, test: Placed, region: Region, way: Alternative, group: Group
    ) -> Alternative:
        """A region against one event is a test of that event."""
        near = self._near(test, region, group)
        number = min(group, default=-1)
        part = way.parts[number] if len(group) == 1 else None
        if not isinstance(part, EventTest):
            return _with(way, near)
        asked = near.comparison, near.number, near.tolerance
        tested = RegionTest(near.where, region, *asked, span=test.span)
        part = replace(part, places=(*part.places, tested))
        return replace(way, parts=(*way.parts[:number], part, *way.parts[number + 1 :]))

    def _near(self, test: Placed, first: Group | Region, second: Group) -> Near:
        number = test.number
        if number is None:
            number = self.subscription.same_place if test.where is Where.SAME else 0.0
        equals = test.where is Where.DISTANCE and test.comparison == "="
        tolerance = self.subscription.equal if equals else 0.0
        return Near(test.where, first, second, test.comparison, number, tolerance, test.span)

    def _intervals(
        self, timed: Timed, way: Alternative
    ) -> Iterator[tuple[Alternative, Group, Point, Point, Length | None]]:
        """What an interval adds, from where, to where, and how much behind that."""
        match timed.interval:
            case Since(Moment() as moment, length):
                yield way, frozenset(), Point(moment), Point(moment), length
            case Since(base, length):
                assert not isinstance(base, Moment)
                for after, a in self._ways(base, way):
                    yield after, a, Point(a), Point(a), length
            case Amid(first, second):
                for after, (a, b) in self._each((first, second), way):
                    points = Point(a), Point(b, end=False)
                    ordered = Later(*points, strict=True, span=timed.span)
                    after, both = _joined(_with(after, ordered), a | b)
                    yield after, both, Point(a), Point(b, end=False), None

    def _absent(self, expression: Timed, way: Alternative) -> Iterator[tuple[Alternative, Group]]:
        self.below += 1
        inner = [
            self._settled(replace(found, root=root))
            for found, root in self._ways(expression.part, Alternative())
        ]
        self.below -= 1
        for after, base, since, until, length in self._intervals(expression, way):
            number = len(after.parts)
            _check_count(number, expression.span)
            gone = Gone(base, since, until, length, tuple(inner), span=expression.span)
            after = replace(after, parts=(*after.parts, gone))
            yield _joined(after, base | {number})

    def _settled(self, way: Alternative) -> Alternative:
        """Fields of variables that are bound in it are conditions; others are left to ask for."""
        mine = replace(way, asks=tuple(a for a in way.asks if way.group_of(a[3].variable)))
        others = tuple(a for a in way.asks if not way.group_of(a[3].variable))
        settled = self._finished(mine)
        assert settled is not None
        return replace(settled, asks=others)

    def _count(self, span: Span | None) -> None:
        self.made += 1
        if self.made > MOST_ALTERNATIVES:
            raise QueryError(
                f"written out, this subscription has more than {MOST_ALTERNATIVES} alternatives",
                hint="split it into several subscriptions, one for each part of the outer `||`",
                span=span,
                text=self.subscription.text,
            )


def _check_count(number: int, span: Span | None) -> None:
    if number >= MOST_PARTS:
        raise QueryError(
            f"a subscription has at most {MOST_PARTS} atoms and absences",
            hint="split it into several subscriptions",
            span=span,
        )


def _placed_in_time(
    when: When, since: Point, until: Point, length: Length | None, c: Group, span: Span | None
) -> tuple[Later, ...]:
    if when is When.BETWEEN:
        return (
            Later(since, Point(c, end=False), strict=True, span=span),
            Later(until, Point(c), length, most=True, span=span),
        )
    behind = until if length is not None else Point(until.of)  # *after* b is behind its end
    return (Later(behind, Point(c, end=False), length, strict=True, span=span),)


def _with(way: Alternative, *conditions: Condition) -> Alternative:
    new = tuple(c for c in conditions if c not in way.conditions)
    return replace(way, conditions=(*way.conditions, *new))


def _joined(way: Alternative, group: Group) -> tuple[Alternative, Group]:
    """The same, where an operator speaks of a group."""
    if len(group) > 1 and group not in way.together:
        way = replace(way, together=(*way.together, group))
    return way, group


def _events(way: Alternative) -> Group:
    return frozenset(n for n, part in enumerate(way.parts) if isinstance(part, EventTest))
