"""Hierarchies give the same rows in the same order with any number of threads."""

from random import Random

import pytest

import ensue
from ensue.codegen import kernel_cache
from ensue.errors import LimitError, QueryError
from ensue.operators.hierarchy import parallel_hierarchy
from support.hierarchies import Habits, random_crowd, random_hierarchies, random_hierarchy
from support.parts import make_parts_small, match
from support.seeds import of_round, some
from support.stages import EVENTS, HIERARCHIES, readings
from support.streams import random_events

pytestmark = pytest.mark.filterwarnings("ignore")  # uncompiled, scalars warn; types that do not occur
EACH = 8
LEVELS = ensue.OutputOptions(levels="all")
TIMEOUTS = ensue.OutputOptions(levels="all", trace=True, emit_timeouts=True)


@pytest.fixture
def split(monkeypatch):
    """Counts the stages of small tables that threads match in parts."""
    make_parts_small(monkeypatch)
    monkeypatch.setattr(kernel_cache, "interpreted", True)
    counts, group = [], parallel_hierarchy.group_rows_by_key

    def counted(events, key, parts, *arguments):
        counts.append(parts)
        return group(events, key, parts, *arguments)

    monkeypatch.setattr(parallel_hierarchy, "group_rows_by_key", counted)
    return counts


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, LEVELS) for name in HIERARCHIES), *((name, TIMEOUTS) for name in ("factory", "one key", "no key"))],
)
def test_layers_whose_keys_change(name, options, split):
    for seed in range(2):
        events = readings(Random(seed), 60, lasting=seed == 1)
        given = {**EVENTS, "time": ("begin", "t")} if seed == 1 else EVENTS
        one = match(events, HIERARCHIES[name], 1, options, **given)
        assert not split
        for threads in (4, 7):
            found = match(events, HIERARCHIES[name], threads, options, **given)
            assert {level: table.to_pylist() for level, table in found.items()} == {
                level: table.to_pylist() for level, table in one.items()
            }
        assert max(split) > 1
        split.clear()


@pytest.mark.parametrize("round", some(1, 8))
def test_random_hierarchies_find_the_same(round, split):
    for seed in of_round(round, EACH):
        random = Random(seed)
        nature = random_crowd(random)
        habits = Habits(depth=2, flat=random.random() < 0.3, intervals=random.random() < 0.3)
        text = random_hierarchy(random, nature, habits)
        if random.random() < 0.2:
            text = random_hierarchies(random, 2, nature, habits)
        events = random_events(random, random.randint(8, 16), nature)
        options = ensue.OutputOptions(levels="all", emit_timeouts=random.random() < 0.3)
        given = {"time": nature.columns, "type": "type"}
        try:
            one = match(events, text, 1, options, **given)
        except (QueryError, LimitError):
            continue
        for threads in (4, 7):
            found = match(events, text, threads, options, **given)
            for level, table in one.items():
                assert str(found[level].to_pylist()) == str(table.to_pylist()), (seed, level, text)
    assert max(split) > 1
    assert len(split) > EACH // 4


def test_a_hierarchy_that_chooses_its_columns_is_matched_as_a_whole(split):
    text = HIERARCHIES["one cut"].replace("AS rise", "AS start")
    assert match(readings(Random(1), 60), text, 2, **EVENTS).num_rows
    assert not split


def test_limits_hold_for_all_threads_together(split):
    events, text = readings(Random(1), 200), HIERARCHIES["one key"]
    for threads in (1, 2, 7):
        limits = ensue.Limits(threads=threads, memory=1_000)
        with pytest.raises(LimitError, match="needs"):
            ensue.match(events, text, options=limits, **EVENTS)
        with pytest.raises(LimitError, match="max_matches=3"):
            ensue.match(events, text, options=ensue.Limits(threads=threads, max_matches=3), **EVENTS)


def test_an_error_in_a_part_is_that_of_the_call(split, monkeypatch):
    class Broken(parallel_hierarchy.HierarchyMatcher):
        def process(self, batch):  # noqa: ARG002
            raise ValueError("no")

    monkeypatch.setattr(parallel_hierarchy, "HierarchyMatcher", Broken)
    with pytest.raises(ValueError, match="no"):
        match(readings(Random(1), 200), HIERARCHIES["one key"], 4, **EVENTS)


def test_progress_ends_with_all_events(split):
    for text in ("factory", "one key"):
        seen = []
        match(
            readings(Random(1), 200),
            HIERARCHIES[text],
            4,
            progress=lambda *done, seen=seen: seen.append(done),
            **EVENTS,
        )
        assert seen == sorted(seen)
        assert seen[-1] == (200, 200)
