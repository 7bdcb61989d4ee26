"""A live matcher gives the rows of a batch run, ids included, however the stream is cut."""

import warnings
from itertools import pairwise
from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue.codegen import kernel_cache as cache
from ensue.errors import EventError, QueryError
from support.edges import random_edges
from support.groups import random_groups
from support.hierarchies import random_hierarchy
from support.live import by_output, fed, rows
from support.negations import random_negations
from support.queries import random_query, random_repeats
from support.seeds import scaled
from support.stages import EVENTS, HIERARCHIES, readings, shuffled
from support.streams import Nature, random_events, random_nature

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # uncompiled, scalars warn
    pytest.mark.filterwarnings("ignore:no event is of type"),
]
WRITERS = (random_query, random_query, random_repeats, random_negations)
ANSWERS = ("", "", "", "", " RETURN COUNT(*) AS n", " RETURN EXISTS", " LIMIT 1", " LIMIT 2")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)


def pieces(random: Random, events: pa.Table) -> list[pa.Table]:
    """Mostly one by one, else cut anywhere, also between events of the same time."""
    count = events.num_rows
    if random.random() < 0.5:
        return [events.slice(k, 1) for k in range(count)]
    borders = [0, *sorted(random.choices(range(count + 1), k=random.randint(1, count))), count]
    return [events.slice(low, high - low) for low, high in pairwise(borders)]


def with_twins(random: Random, events: pa.Table) -> pa.Table:
    """Some events twice or three times: no column tells them apart."""
    times = [random.choice((1, 1, 1, 2, 3)) for _ in range(events.num_rows)]
    return events.take([k for k, n in enumerate(times) for _ in range(n)])


def random_case(random: Random, count: int):
    nature = random_nature(random)
    events = random_events(random, count, nature)
    if random.random() < 0.6:
        events = with_twins(random, events.slice(0, count // 2 + 1))
    return nature, events, {"time": nature.columns, "type": "type"}


def delayed(random: Random, events: pa.Table, nature: Nature) -> tuple[pa.Table, object]:
    """The events in another order, and the watermark that it needs."""
    second = {"integer": 1, "float": 1}.get(nature.time)
    plain = events.set_column(events.column_names.index("t"), "t", [range(events.num_rows)])
    places = shuffled(random, plain.append_column("place", [range(events.num_rows)]), 3)["place"]
    moved = events.take(places.combine_chunks())
    ticks = moved["t"].cast(pa.int64()).to_pylist() if second is None else moved["t"].to_pylist()
    most = max(max(ticks[:k]) - ticks[k] for k in range(1, len(ticks)))
    if second is not None:
        return moved, max(0, most)
    unit = "ns" if str(moved.schema.field("t").type) == "timestamp[ns]" else "us"
    return moved, f"{max(0, most)} {unit}"


def check(random: Random, events: pa.Table, query, nature: Nature, **options) -> int:
    """The number of rows that both give, or -1 if the query cannot be run."""
    if random.random() < 0.3:
        events, options["watermark"] = delayed(random, events, nature)
    watermark = options.pop("watermark", None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = by_output(ensue.match(events, query, **options))
    except (QueryError, EventError):
        return -1
    found = fed(pieces(random, events), query, random=random, watermark=watermark, **options)
    assert list(found) == list(wanted)
    for name, table in wanted.items():
        assert found[name].schema == table.schema
    assert rows(found) == rows(wanted), (query, options, watermark)
    return sum(table.num_rows for table in wanted.values())


def queries(random: Random, nature: Nature, events: pa.Table, count: int, writers=WRITERS) -> list[str]:
    """Queries that can be run, most of them with matches."""
    found: list[str] = []
    for tries in range(40 * count):
        text = random.choice(writers)(random, nature) + random.choice(ANSWERS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                matches = ensue.match(events, text, time=nature.columns, type="type")
        except (QueryError, EventError):
            continue
        if 0 < matches.num_rows < 500 or tries > 30 * count:
            found.append(text)
        if len(found) == count:
            break
    return found


@pytest.mark.first_rounds(9)
@pytest.mark.parametrize("seed", range(400))
def test_one_query(seed):
    random = Random(seed)
    nature, events, options = random_case(random, 12)
    (query,) = queries(random, nature, events, 1)
    options["options"] = ensue.OutputOptions(emit_timeouts=random.random() < 0.3)
    check(random, events, query, nature, **options)


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("seed", range(200))
def test_one_query_whose_parts_say_how_they_follow(seed):
    random = Random(f"edges {seed}")
    nature, events, options = random_case(random, 12)
    (query,) = queries(random, nature, events, 1, (random_edges,))
    options["options"] = ensue.OutputOptions(emit_timeouts=random.random() < 0.3)
    check(random, events, query, nature, **options)


@pytest.mark.first_rounds(3)
@pytest.mark.parametrize("seed", range(200))
def test_an_event_delivers_all_that_its_time_decides(seed):
    random = Random(f"decided {seed}")
    nature, events = Nature(), random_events(random, 12)
    (query,) = queries(random, nature, events, 1, (random_edges, random_groups))
    options = {"schema": events.schema, "time": "t", "type": "type"}
    options["options"] = ensue.OutputOptions(emit_timeouts="WITHIN" in query and random.random() < 0.5)
    try:
        fed, told = (ensue.live(query, **options) for _ in range(2))
    except QueryError:  # timeouts of some queries are refused
        return
    for row in range(events.num_rows):
        found = fed.feed(events.slice(row, 1))
        wanted = told.feed(events.slice(row, 1))
        late = told.advance(events["t"][row].as_py())
        assert not late.num_rows, (query, row)
        assert found.equals(wanted)


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("seed", range(100))
def test_several_queries(seed):
    random = Random(seed)
    nature, events, options = random_case(random, 12)
    texts = queries(random, nature, events, 6)
    options["options"] = ensue.OutputOptions(emit_timeouts=random.random() < 0.2)
    check(random, events, texts, nature, **options)


@pytest.mark.first_rounds(4)
@pytest.mark.parametrize("seed", range(200))
def test_a_random_hierarchy(seed):
    random = Random(seed)
    nature, events, options = random_case(random, 12)
    options["options"] = ensue.OutputOptions(
        levels=random.choice([None, "all"]), trace=random.random() < 0.3, emit_timeouts=random.random() < 0.2
    )
    check(random, events, random_hierarchy(random, nature), nature, **options)


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", HIERARCHIES)
def test_a_hierarchy_of_many_keys(name, seed):
    random = Random(seed)
    lasting = seed % 3 == 2
    events = readings(random, 60, lasting=lasting)
    options = EVENTS | {"time": ("begin", "t") if lasting else "t", "options": ensue.OutputOptions(levels="all")}
    if lasting:
        events = events.sort_by([("t", "ascending"), ("begin", "ascending")])
    assert check(random, events, HIERARCHIES[name], Nature(), **options) >= 0


def test_most_random_cases_have_matches():
    counts: list[int] = []
    for seed in range(scaled(40)):
        random = Random(5_000 + seed)
        nature, events, options = random_case(random, 12)
        (query,) = queries(random, nature, events, 1)
        counts.append(check(random, events, query, nature, **options))
    assert sum(count > 0 for count in counts) > scaled(35)
    assert sum(counts) > scaled(100)
