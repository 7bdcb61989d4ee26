"""adaptive=True with several queries: plans that change all the time change no match."""

import math
from random import Random

import pyarrow as pa
import pytest

from ensue.codegen import kernel_cache as cache
from ensue.operators.match.shared_engine import SharedTableMatcher
from ensue.operators.match.shared_matcher import SharedMatcher
from ensue.parser.pattern_parser import parse
from ensue.runtime.compiled_query import compile_with_timeouts
from ensue.runtime.pipeline import run_to_end
from ensue.runtime.stage import StageInput
from ensue.vector.event_table import create_schema
from several.test_random_sets import in_order, random_set
from support.matching import match_in_order
from support.restless import Restless, restless
from support.streams import random_events, random_nature, random_slices

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # uncompiled, scalars warn
    pytest.mark.filterwarnings("ignore:no event is of type"),
]


def streamed(random: Random, prepared, events: pa.Table) -> list[pa.Table]:
    live, rounds = SharedMatcher(prepared), []
    for piece in random_slices(random, events):
        rounds.append(live.process(StageInput(piece, {}, ())))
        if random.random() < 0.3:
            saved, live = live.snapshot(), SharedMatcher(prepared)
            live.restore(saved)
        if random.random() < 0.3 and piece.num_rows:
            ends = piece["t"]
            ends = ends.cast(pa.int64()) if pa.types.is_timestamp(ends.type) else ends
            rounds.append(live.on_watermark(ends.to_numpy().max()))
    rounds.append(live.on_watermark(math.inf))
    return [pa.concat_tables([tables[k] for tables in rounds]) for k in range(len(prepared))]


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(40))
def test_random_sets_whose_plans_change(seed, monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)
    planning = restless(monkeypatch, 1 + seed % 4)
    random = Random(f"adaptive {seed}")
    nature = random_nature(random)
    events = random_events(random, 14, nature)
    shape = create_schema(events.schema, time=nature.columns, type="type", order=())
    texts = random_set(random, nature, shape, 6)
    wanted = [match_in_order(compile_with_timeouts(parse(text), shape).main, events) for text in texts]
    prepared = [compile_with_timeouts(parse(text), shape, planning).main for text in texts]
    on_tables = run_to_end(SharedTableMatcher(prepared, block=random.randint(1, 14)), StageInput.from_events(events))
    on_streams = streamed(random, prepared, events)
    for text, alone, one, other in zip(texts, wanted, on_tables, on_streams, strict=True):
        assert one.schema == other.schema == alone.schema
        assert in_order(one) == in_order(alone), text
        assert in_order(other) == in_order(alone), text


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(20))
def test_timed_out_partial_matches_of_plans_that_change(seed, monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)
    planning = restless(monkeypatch, 1 + seed % 4)
    random = Random(f"timed out {seed}")
    nature = random_nature(random)
    events = random_events(random, 12, nature)
    shape = create_schema(events.schema, time=nature.columns, type="type", order=())
    text = "SEQ(A a, B b, C c) WHERE [k] and a.x <= b.x WITHIN 4"
    text += " seconds" if nature.time.startswith("timestamp") else ""
    alone = match_in_order(compile_with_timeouts(parse(text), shape, emit_timeouts=True), events)
    changing = compile_with_timeouts(parse(text), shape, planning, emit_timeouts=True)
    assert in_order(match_in_order(changing, events)) == in_order(alone)
    assert Restless.changes > 0
