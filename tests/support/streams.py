"""Random streams of few events: small enough for the reference semantics, nasty enough to matter.

Every choice is taken from the generator that is passed in. A seeded one repeats a stream; one that
Hypothesis supplies also shrinks it.
"""

from dataclasses import dataclass
from itertools import pairwise
from random import Random

import pyarrow as pa

TYPES = "ABC"  # the types queries speak of; a stream also has events of type X
WHOLE, REAL, STAMPS, FINE = "integer", "float", "timestamp[us]", "timestamp[ns]"
TIMES = (WHOLE, REAL, STAMPS, FINE)

_SECOND = {STAMPS: 1_000_000, FINE: 1_000_000_000}
_COLUMNS = {
    "row": pa.int64(),
    "type": pa.string(),
    "x": pa.int64(),
    "y": pa.float64(),
    "s": pa.string(),
    "k": pa.int64(),
}


@dataclass(frozen=True, slots=True)
class Nature:
    """What may happen in a stream.

    `nulls_from` is the row from which on values may be missing; None: none ever is.
    """

    time: str = WHOLE  # one of TIMES
    intervals: bool = False
    nulls_from: int | None = None
    nans: bool = False
    steps: tuple[int, ...] = (0, 1, 1, 2)  # from one event to the next

    @property
    def columns(self) -> str | tuple[str, str]:
        """The time of the events, as `ensue.match` wants it."""
        return ("b", "t") if self.intervals else "t"


PLAIN = Nature()


def random_nature(random: Random) -> Nature:
    """Mostly simple events with whole times, and now and then anything else."""
    return Nature(
        time=random.choice((WHOLE, WHOLE, WHOLE, *TIMES)),
        intervals=random.random() < 0.2,
        nulls_from=random.choice((None, None, None, 0, 2, 4)),
        nans=random.random() < 0.2,
    )


def random_events(random: Random, count: int, nature: Nature = PLAIN) -> pa.Table:
    """Events in the order of the stream: t (and b, where they begin), type, x, y, s, k, row.

    >>> random_events(Random(5), 3).column_names
    ['b', 't', 'row', 'type', 'x', 'y', 's', 'k']
    """
    times = _random_times(random, count, nature)
    reals = (0.0, 1.5, 2.5, -1.0, float("nan")) if nature.nans else (0.0, 1.5, 2.5, -1.0)
    events = []
    for row, (begin, end) in enumerate(times):
        values: dict[str, object] = {
            "x": random.randint(0, 4),
            "y": random.choice(reals),
            "s": random.choice("pqr"),
            "k": random.randint(0, 1),
        }
        if nature.nulls_from is not None and row >= nature.nulls_from:
            values = {n: None if random.random() < 0.2 else v for n, v in values.items()}
        kind = "X" if random.random() < 0.1 else random.choice(TYPES)
        events.append(values | {"row": row, "type": kind, "b": begin, "t": end})
    time = _time_type(nature.time)
    schema = pa.schema({"b": time, "t": time} | _COLUMNS)
    return pa.Table.from_pylist(events, schema=schema)


def _random_times(random: Random, count: int, nature: Nature) -> list[tuple[float, float]]:
    second = _SECOND.get(nature.time, 1)
    now: float = 0
    times = []
    for _ in range(count):
        now += random.choice(nature.steps) * second
        long = random.choice((0, 0, 1, 2, 3)) * second if nature.intervals else 0
        times.append((now - long, now))
    return sorted(times, key=lambda time: (time[1], time[0]))


def _time_type(time: str) -> pa.DataType:
    match time:
        case "integer":
            return pa.int64()
        case "float":
            return pa.float64()
        case _:
            return pa.timestamp("us" if time == STAMPS else "ns")


def random_slices(random: Random, events: pa.Table) -> list[pa.Table]:
    """The events cut anywhere, also into empty pieces; their order is kept."""
    count = events.num_rows
    cuts = sorted(random.randint(0, count) for _ in range(random.randint(0, 3)))
    borders = [0, *cuts, count]
    return [events.slice(low, high - low) for low, high in pairwise(borders)]
