"""Keys are stored and brought back all the time: the matches are those without a limit."""

import warnings
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import ensue
from support.evicted import random_evictable, random_stream
from support.live import by_output, rows

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # uncompiled, scalars warn
    pytest.mark.filterwarnings("ignore:no event is of type"),
]


def pieces(random: Random, events: pa.Table) -> list[pa.Table]:
    count = events.num_rows
    if random.random() < 0.3:
        return [events.slice(k, 1) for k in range(count)]
    borders = [0, *sorted(random.choices(range(count + 1), k=random.randint(1, count))), count]
    return [events.slice(low, high - low) for low, high in pairwise(borders)]


def evicted(
    random: Random, events: pa.Table, query: Any, options: list[Any], evict: str | None = None, **columns: Any
) -> dict[Any, pa.Table]:
    """All that a live matcher with a limit gives; it is saved and restored in between, also
    without its limit."""

    def made() -> Any:
        limit = None if random.random() < 0.15 else "1 GB"
        limits = ensue.Limits(memory=limit, evict=evict)
        return ensue.live(query, schema=events.schema, options=[limits, *options], **columns)

    live, found = made(), []
    for piece in pieces(random, events):
        found.append(by_output(live.feed(piece)))
        if random.random() < 0.25:
            live = made().restore(live.save())
        if random.random() < 0.1 and piece.num_rows:
            found.append(by_output(live.advance(piece["t"][-1].as_py())))
    found.append(by_output(live.finish()))
    return {name: pa.concat_tables([f[name] for f in found]) for name in found[0]}


@pytest.mark.first_rounds(5)
@pytest.mark.parametrize("seed", range(400))
def test_one_query(seed, few_keys):
    random = Random(seed)
    events, nature = random_stream(random, 24)
    timeouts = random.random() < 0.3
    query, structure = random_evictable(random, events, nature, emit_timeouts=timeouts)
    few_keys(random.choice((1, 1, 2, 3)))
    options = [
        ensue.PlannerOptions(structure=structure, adaptive=random.random() < 0.1),
        ensue.OutputOptions(emit_timeouts=timeouts),
    ]
    given = {"time": nature.columns, "type": "type", "options": options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = by_output(ensue.match(events, query, **given))
    evict = random.choice(("need", "tpm", "stpm"))
    found = evicted(random, events, query, **given, evict=evict)
    assert rows(found) == rows(wanted), (query, given)


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(120))
def test_several_queries(seed, few_keys):
    random = Random(seed)
    events, nature = random_stream(random, 20)
    timeouts = random.random() < 0.2
    given = {"time": nature.columns, "type": "type", "options": [ensue.OutputOptions(emit_timeouts=timeouts)]}
    texts = []
    while len(texts) < 3:
        text, _ = random_evictable(random, events, nature, emit_timeouts=timeouts)
        if "[k" in text:
            texts.append(text)
    few_keys(random.choice((1, 1, 2, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = by_output(ensue.match(events, texts, **given))
    found = evicted(random, events, texts, **given)
    assert rows(found) == rows(wanted), (texts, given)
