"""The paper's subscriptions, and streams of events in which their matches are planted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

STEP = 500  # microseconds between events
YARD, APART = 100, 1_000  # metres: of a yard, and from one to the next
IN_TIME = 10_000  # microseconds

LEFT = """=|(@(Region1)(A); 10 milliseconds)(DIST(Region1; >; 300)(A)),
    A = (ARITH:id = {n}, STRING:type = 'truck'), Region1 = {yard}"""
ARRIVED = """=|(DIST(Region2; >; 300)(A); 10 milliseconds)(@(Region2)(A)),
    A = (ARITH:id = {n}, STRING:type = 'truck'), Region2 = {yard}"""
STRAYED = """=|($e1;; 10 milliseconds)($e2;),
    $e1; = (|($A;)($B;) && DIST($A;; <; 50)($B;)),
    $e2; = (|($C;)($D;) && DIST($C;; >; 50)($D;)),
    $A; = E-A, $B; = E-B, $C; = E-A, $D; = E-B,
    E-A = (ARITH:id = {follower}, STRING:type = 'truck'),
    E-B = (ARITH:id = {n}, STRING:type = 'truck')
    WITH concurrent = 1 millisecond"""


@dataclass(frozen=True)
class Kind:
    """One of the paper's subscriptions, and the events that match it: (follower?, x in a yard)."""

    name: str
    text: str
    story: tuple[tuple[bool, float], ...]
    parked: tuple[tuple[bool, float], ...]  # satisfies atoms, and completes nothing

    def opsl(self, n: int) -> str:
        x, end = n * APART, n * APART + YARD
        yard = f"POLYGON (({x} 0, {end} 0, {end} {YARD}, {x} {YARD}, {x} 0))"
        return self.text.format(n=n, follower=n + 1_000_000, yard=yard)


KINDS = (
    Kind("left", LEFT, ((False, 50), (False, 450)), ((False, 50),)),
    Kind("arrived", ARRIVED, ((False, 450), (False, 50)), ((False, 450),)),
    Kind("strayed", STRAYED, ((False, 0), (True, 10), (False, 0), (True, 90)),
         ((False, 0), (True, 10))),
)  # fmt: skip
STREAMS = ("paper", "parked", "elsewhere")


def stream(kind: Kind, name: str, subscriptions: int, events: int, seed: int = 7) -> pa.Table:
    """Stories one behind the other, each of a vehicle of its own; the same ones again when all had
    their turn. Then nothing matches by accident, since turns are longer than any interval."""
    random = np.random.default_rng(seed)
    order = random.permutation(subscriptions)
    rows: list[tuple[int, str, float]] = []
    if name == "paper":
        told = 0
        while len(rows) < events:
            rows += _told(int(order[told % subscriptions]), kind.story)
            told += 1
    else:
        planted, others = np.split(order, [subscriptions // 10])
        told = 0
        while len(rows) < events:
            rows += _told(int(planted[told % len(planted)]), kind.story)
            rest = 99 * len(kind.story)
            for place in range(told * rest, (told + 1) * rest, len(kind.parked)):
                other = int(others[place // len(kind.parked) % len(others)])
                if name == "elsewhere":
                    other += 10_000_000
                rows += _told(other, kind.parked)
            told += 1
    ids, types, x = zip(*rows[:events], strict=True)
    times = np.datetime64("2026-03-16T06:00:00", "us") + np.arange(events) * STEP
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")), "id": pa.array(ids, pa.int64()),
            "type": pa.array(types), "x": pa.array(x, pa.float64()),
            "y": pa.array(np.full(events, 50.0)),
        }
    )  # fmt: skip


def _told(n: int, story: Sequence[tuple[bool, float]]) -> Iterator[tuple[int, str, float]]:
    for follower, x in story:
        yield n + 1_000_000 * follower, "truck", n * APART + x


def planted(kind: Kind, name: str, events: int) -> int:
    """How many whole stories there are."""
    return events // len(kind.story) if name == "paper" else -(-events // (100 * len(kind.story)))
