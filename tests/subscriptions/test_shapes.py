"""Subscriptions in the pattern language: together they find what each finds alone."""

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

from ensue.errors import QueryError
from ensue.workload.subscriptions.catalogue.change import Change
from support.queries import random_query, random_repeats
from support.shapes import (
    alone,
    matcher_of,
    other_constants,
    prepared,
    shape_of_stream,
    told,
)
from support.streams import PLAIN, random_events, random_nature, random_slices

FLAT = "SEQ(A a, B b) WHERE a.x > {} and b.x < {} WITHIN 5"
KLEENE = "SEQ(A a, B+ b[], C c) WHERE [k] and a.x > {} and b[i].y > {} and sum(b.x) > {} WITHIN 8"


def several(random: Random, nature, write=random_query) -> dict[str, str]:
    """A few random queries that fit the events, each with several sets of constants."""
    shape = shape_of_stream(random_events(random, 1, nature), nature)
    found: dict[str, str] = {}
    for _ in range(20):
        text = write(random, nature)
        try:
            prepared(text, shape)
        except QueryError:
            continue
        for text_of in (text, *(other_constants(text, random) for _ in range(2))):
            found[f"s{len(found)}"] = text_of
        if len(found) > 3:
            break
    return found


@pytest.mark.parametrize("write", [random_query, random_repeats])
@pytest.mark.parametrize("seed", range(60))
def test_random_queries_find_together_what_they_find_alone(seed, write):
    random = Random(f"shapes {seed}")
    nature = random_nature(random)
    texts = several(random, nature, write)
    events = random_events(random, 16, nature)
    shape = shape_of_stream(events, nature)
    matcher = matcher_of(shape, texts)
    pieces = random_slices(random, events)
    tables = [matcher.feed_events(piece) for piece in pieces] + matcher.finish()
    found = told(tables)
    for name, text in texts.items():
        expected = alone(prepared(text, shape), [events])
        assert found.get(name, Counter()) == Counter(list(expected)), text
    matches = pa.concat_tables(tables)
    assert len(set(matches["match_id"].to_pylist())) == matches.num_rows
    for match in matches.to_pylist():
        rows = tuple(event["row"] for event in match["members"])
        own = alone(prepared(texts[match["subscription"]], shape), [events])[rows]
        assert (match["start"], match["end"]) == (own["start"], own["end"])
