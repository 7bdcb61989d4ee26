"""How far beyond a range to read, so that the matches inside it are those of the whole stream.

Most patterns see only their own events and what lies between them: then the range is enough. What
lies before or behind a match has a say in it where a negation stands at its start or end, and
where others decide what may be used: AFTER MATCH, and operators that repeat.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from ensue.algebra.check.arrangement import open_ended
from ensue.algebra.durations import show_duration
from ensue.algebra.form import is_absence, is_sequence, optional, parts
from ensue.algebra.operator import Over
from ensue.algebra.pattern import Not, Pattern
from ensue.algebra.policy import Strategy
from ensue.algebra.query import Query
from ensue.algebra.row_patterns.edges import alone
from ensue.algebra.row_patterns.pattern import Anchor, terms
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.row_patterns.values import Navigation
from ensue.algebra.walk import negations, results
from ensue.algebra.window import ByEvents, ByTime, ByUnits


class Edge(Enum):
    """As far as there are events: of the object, where the query has a key."""

    OBJECT = "object"


Far = ByTime | ByUnits | Edge | None  # None: not at all


@dataclass(frozen=True, slots=True)
class Reach:
    """What is to be read before a range, and behind it."""

    before: Far = None
    after: Far = None

    def __str__(self) -> str:
        """As explain says it.

        >>> print(Reach(), Reach(ByUnits(5)), Reach(Edge.OBJECT, ByUnits(5)), sep="; ")
        0; 5 before; from the first event of the object, 5 behind
        """
        words = [*_words(self.before, "before"), *_words(self.after, "behind")]
        return ", ".join(words) or "0"


def _words(far: Far, side: str) -> Iterator[str]:
    match far:
        case None:
            return
        case ByTime(nanoseconds=length):
            yield f"{show_duration(length)} {side}"
        case ByUnits(amount=amount):
            yield f"{amount!r} {side}"
        case Edge.OBJECT if side == "before":
            yield "from the first event of the object"
        case Edge.OBJECT:
            yield "to the last event of the object"


def reach(query: Query, *, intervals: bool = False) -> Reach:
    """How far a checked query reaches beyond the range that its matches lie in.

    `intervals`: events have a duration, so that one that starts before the range may still stand
    between two that are inside.

    >>> from ensue.algebra.pattern import Atom, Seq
    >>> a, b = Atom("A", "a"), Atom("B", "b")
    >>> print(reach(Query(Seq((a, Not(b))), within=ByUnits(5))))
    5 behind
    """
    pattern, within = query.pattern, query.within
    made = list(results(pattern))
    negated = any(negations(pattern))
    # where an operator moves its results in time, what lies between them is anywhere
    moved = negated and any(one.operator.keeps != (True, True) for one in made)
    before: Far = None
    after: Far = None
    if any(open_started(pattern)):
        before = _window(within)
    if any(open_ended(pattern)) or (query.after is not None and query.after.by_start):
        after = _window(within)
    counted = query.strategy is not Strategy.ANY or isinstance(within, ByEvents)
    if (
        moved
        or query.after is not None
        or any(one.operator.over is Over.REPEAT for one in made)
        or (intervals and counted)
    ):
        before = Edge.OBJECT
    return Reach(before, Edge.OBJECT if moved else after)


def clause_reach(recognition: Recognition) -> Reach:
    """How far a checked clause reaches beyond the range that its matches lie in.

    The search goes from the first row of a partition on, so all rows before a match have a say in
    it; those behind it until it is decided that no longer one is preferred.

    >>> from ensue.languages.row_patterns.clause import read_bare
    >>> print(clause_reach(read_bare("(PATTERN (A) DEFINE A AS A.x > 1)")))
    0
    >>> print(clause_reach(read_bare("(PATTERN (A B+) WITHIN 5 DEFINE B AS B.x > 1)")))
    from the first event of the object, 5 behind
    """
    if alone(recognition):
        return Reach()
    ahead = any(
        isinstance(reached, Navigation) and reached.shift > 0
        for value in recognition.values
        for reached in value.reaches
    )
    ahead |= any(isinstance(t, Anchor) and t.at == "end" for t in terms(recognition.pattern))
    return Reach(Edge.OBJECT, Edge.OBJECT if ahead else _lasting(recognition.within))


def _lasting(within: timedelta | int | float | None) -> Far:
    match within:
        case None:
            return Edge.OBJECT
        case timedelta():
            return ByTime(within // timedelta(microseconds=1) * 1_000)
        case _:
            return ByUnits(within)


def longest_of(recognition: Recognition) -> ByTime | ByUnits | None:
    """How long a match of a clause is at most, if that is known."""
    if alone(recognition):
        return ByUnits(0)
    found = _lasting(recognition.within)
    return None if isinstance(found, Edge) else found


def _window(within: ByTime | ByUnits | ByEvents | None) -> Far:
    match within:
        case ByTime() | ByUnits():
            return within
        case ByEvents() | None:
            return Edge.OBJECT


def open_started(pattern: Pattern) -> Iterator[Not]:
    """The negations with nothing bound before them: they look back as far as the window allows.

    >>> from ensue.algebra.pattern import Atom, Seq
    >>> list(open_started(Seq((Not(Atom("B", "b")), Atom("A", "a")))))
    [Not(part=Atom(type='B', variable='b'), interval=None)]
    """
    if is_absence(pattern):
        return
    inner = parts(pattern)
    if is_sequence(pattern):
        for place, part in enumerate(inner):
            if is_absence(part) and all(map(optional, inner[:place])):
                yield part
    for part in inner:
        yield from open_started(part)
