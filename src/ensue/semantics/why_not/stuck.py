"""What is told of a part that was tried: what stopped its events, and whether it goes on."""

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from ensue.algebra import places
from ensue.algebra.alternatives import Near
from ensue.algebra.event_test import EventTest
from ensue.algebra.subscription import Where
from ensue.semantics.events import Event
from ensue.semantics.why_not.ground import Tries, Try, Watch
from ensue.semantics.why_not.plan import Level, Stop

if TYPE_CHECKING:
    from ensue.semantics.why_not.search import Search

MOST_TRIED = 8  # events that nearly passed the tests of a part, for each of these


def tell(search: "Search", watch: Watch, depth: int, tries: Tries) -> None:
    """Tells what was passed over together, and whether what is there is stuck, or waits."""
    level = search.plan.levels[depth]
    _count(watch, level, tries)
    if tries.fits:
        return
    now, high = search.ground.now, tries.window.high
    if depth and now is not None and high is not None and high >= now:
        watch.waits(search, level.part, high)
        return
    best = tries.best
    for other in _passed_over(search, level, tries):
        best = other if other.is_better(best) else best
    nearly = _nearly(search, level, tries) if depth else None
    for found in (best, nearly):
        if found is not None:
            with search.holding(level.part, found.event):
                watch.stuck(search, (depth, found.rank), found.stop)
    if depth and best is None and nearly is None:
        watch.stuck(search, (depth, -1), ("role" if len(tries.pool) else "event", level.part))


def _count(watch: Watch, level: Level, tries: Tries) -> None:
    first, last = tries.rows
    for stop, count in (
        (("condition", tries.window.low_by), first),
        (("condition", tries.window.high_by), len(tries.same) - last),
        (("condition", level.equal[0] if level.equal else -1), len(tries.pool) - len(tries.same)),
        (("event", level.part), int(not len(tries.pool))),
    ):
        if count:
            watch.stopped(stop, count)


def _passed_over(search: "Search", level: Level, tries: Tries) -> Iterator[Try]:
    """Of the events outside of the window the nearest, and one with another value."""
    first, last = tries.rows
    same, pool, window = tries.same, tries.pool, tries.window
    for rows, by in (
        (range(last, len(same)), window.high_by),
        (range(first - 1, -1, -1), window.low_by),
    ):
        for row in rows:
            event = same.events[row]
            if not search.plays(event):
                yield Try(_rank(search, level, event), 0, event, ("condition", by))
                break
    if not len(same) and len(pool):
        _, behind = pool.rows(*window.loose())
        event = pool.events[max(0, behind - 1)]
        if not search.plays(event):
            yield Try(0, 0, event, ("condition", level.equal[0]))


def _rank(search: "Search", level: Level, event: Event) -> int:
    with search.holding(level.part, event):
        return 2 * (len(level.equal) + sum(map(search.holds, level.times)))


def _nearly(search: "Search", level: Level, tries: Tries) -> Try | None:
    """An event that fits in all but one test of the part, the furthest of these."""
    test = search.way.parts[level.part]
    assert isinstance(test, EventTest)
    rank = 2 * len(level.equal + level.times) - 1  # behind one that passed the tests
    for number, near in search.ground.near[test]:
        same = search.same(level, near)
        first, last = same.rows(*tries.window.loose())
        for row in range(last - 1, max(first, last - MOST_TRIED) - 1, -1):
            with search.holding(level.part, same.events[row]):
                stop, _ = search.tried(level, same.events[row])
            if stop is None:
                return Try(rank, 0, same.events[row], ("test", number))
    return None


def short_of(search: "Search", stop: Stop) -> float:
    """By how little a condition on places failed; 0 for all others."""
    near = search.way.conditions[stop[1]] if stop[0] == "condition" else None
    if not isinstance(near, Near):
        return 0.0
    p, q = search.places(near)
    if p is None or q is None:
        return inf
    space = search.ground.stream.space
    if near.where is Where.SAME:
        return places.between(places.centre(p, space), places.centre(q, space), space)
    return abs(places.distance(p, q, space) - near.number)
