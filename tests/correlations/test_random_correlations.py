"""Random queries over a stream and its past: every access finds what the judge says."""

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue import semantics
from ensue.errors import EventError
from ensue.plan.access import ACCESSES
from support.correlations import Story, random_story
from support.repeats import without_nans

SEEDS = 400

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch):
    monkeypatch.setattr("ensue.source.cache.interpreted", True)


def found_by(story: Story, access: str | None, **options: object) -> pa.Table:
    archives = {
        name: ensue.archive(
            table, time=story.nature.columns, type="type", key="k", order="row"
        )
        for name, table in story.archives.items()
    }
    return ensue.match(
        story.live, story.text, time=story.nature.columns, type="type", order="row",
        archives=archives, archive=story.own, access=access, **options,
    )  # fmt: skip


def judged(story: Story) -> Counter:
    """The rows that the query means, as their columns say them."""
    returns = story.correlation.returns
    if not returns:
        return Counter(map(_plain, story.written()))
    return Counter(
        _plain({r.name: [semantics.value_of(r.expr, row.binding)] for r in returns})
        for row in story.rows
    )


def told(story: Story, found: pa.Table) -> Counter:
    if story.correlation.returns:
        names = [r.name for r in story.correlation.returns]
        return Counter(_plain({n: [row[n]] for n in names}) for row in found.to_pylist())
    names = [n for n in found.column_names if n not in ("match_id", "start", "end")]
    return Counter(
        _plain({n: [e["row"] for e in _events(row[n])] for n in names if _events(row[n])})
        for row in found.to_pylist()
    )


def _events(value: object) -> list[dict]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _plain(row: dict) -> str:
    return repr(sorted((name, [without_nans(v) for v in values]) for name, values in row.items()))


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("start", range(0, SEEDS, 50))
def test_every_access_finds_what_the_query_means(start):
    ways = Counter()
    for seed in range(start, start + 50):
        story = random_story(Random(seed))
        wanted = judged(story)
        ids = None
        for access in ACCESSES:
            try:
                found = found_by(story, access)
            except EventError as error:
                assert "impossible here" in str(error), f"seed {seed}: {story.text}"
                continue
            assert told(story, found) == wanted, f"seed {seed}, {access}: {story.text}"
            own = Counter(found["match_id"].to_pylist())
            assert ids is None or own == ids, f"seed {seed}, {access}: {story.text}"
            ids = own
            ways[access] += bool(wanted)
    assert all(ways[access] > 5 for access in ("eager", "lazy", "grouped"))
