"""Random queries whose keys can be evicted, and streams with several keys."""

import warnings
from collections.abc import Callable
from random import Random

import pyarrow as pa

import ensue
from ensue.errors import EnsueError
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.compiled_query import compile_with_timeouts
from ensue.runtime.spill.eviction import why_not_evictable
from ensue.vector.event_table import create_schema
from support.negations import random_negations
from support.queries import random_query, random_repeats
from support.streams import Nature, random_events, random_nature

WRITERS: tuple[Callable[..., str], ...] = (
    random_query,
    random_query,
    random_repeats,
    random_negations,
    random_negations,
)
STRUCTURES = (None, None, "runs", "stacks", "tree", "compact", "reference")
KEYS = 5


def random_stream(random: Random, count: int) -> tuple[pa.Table, Nature]:
    """Events of a few keys, now and then twice the same."""
    nature = random_nature(random)
    events = random_events(random, count, nature)
    keys = [None if k is None else random.randrange(KEYS) for k in events["k"].to_pylist()]
    place = events.column_names.index("k")
    events = events.set_column(place, "k", pa.array(keys, pa.int64()))
    if random.random() < 0.5:
        times = [random.choice((1, 1, 1, 2)) for _ in range(events.num_rows)]
        events = events.take([k for k, n in enumerate(times) for _ in range(n)])
    return events, nature


def random_evictable(
    random: Random, events: pa.Table, nature: Nature, *, emit_timeouts: bool = False
) -> tuple[str, str | None]:
    """A query that can be evicted and has matches, and the structure to run it on."""
    shape = create_schema(events.schema, time=nature.columns, type="type", order=())
    for _ in range(2_000):
        text, structure = random.choice(WRITERS)(random, nature), random.choice(STRUCTURES)
        try:
            query = ensue.parse(text)
            made = compile_with_timeouts(query, shape, PlannerOptions(structure=structure), emit_timeouts=emit_timeouts)
            if why_not_evictable(made.queries) is not None:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = ensue.match(
                    events,
                    text,
                    time=nature.columns,
                    type="type",
                    options=[
                        ensue.OutputOptions(emit_timeouts=emit_timeouts),
                        ensue.PlannerOptions(structure=structure),
                    ],
                )
        except EnsueError:
            continue
        if 0 < found.num_rows < 300:
            return text, structure
    raise AssertionError("no query found")
