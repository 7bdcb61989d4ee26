"""Events of files, datasets and readers that do not fit into memory give the same rows in the same order."""

import math
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.backends import out_of_core
from ensue.codegen import kernel_cache
from ensue.errors import EventError, LimitError, QueryError
from ensue.runtime.spill import spilled_keys
from support.edges import random_edges
from support.groups import random_groups
from support.negations import random_negations
from support.parts import make_parts_small
from support.queries import random_query, random_repeats
from support.seeds import of_round, some
from support.streams import random_events, random_nature

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # uncompiled, scalars warn
WRITERS = (random_query, random_query, random_repeats, random_negations, random_groups, random_edges)
ANSWERS = ("", "", "", " RETURN COUNT(*) AS n", " RETURN EXISTS", " LIMIT 1", " RETURN a.x AS x LIMIT 2")
EACH = 90
TIMED = {"time": "t", "type": "type"}
PAIRS = "SEQ(A a, B b) USING next WHERE [k] WITHIN 50"
LEVELS = """EVENT Two AS SEQ(A a, B b) USING next WHERE [k] WITHIN 9 RETURN b.x AS x, b.k AS k;
    SEQ(Two p, Two q) WHERE [k] and q.x >= p.x WITHIN 30"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Events of some bytes are spilled, into this folder."""
    place = tmp_path / "spilled"
    place.mkdir()
    monkeypatch.setattr(out_of_core, "SHARE", 1e9)
    monkeypatch.setenv(spilled_keys.SPILL_VARIABLE, str(place))
    monkeypatch.setattr(kernel_cache, "interpreted", True)
    return place


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of the files that were written."""
    rows, write = list[int](), spilled_keys.SpillFolder.write

    def counted(folder: Any, table: pa.Table) -> Any:
        rows.append(table.num_rows)
        return write(folder, table)

    monkeypatch.setattr(spilled_keys.SpillFolder, "write", counted)
    return rows


def make_events(count: int = 400, keys: int = 7) -> pa.Table:
    random = Random(count + keys)
    return pa.table(
        {
            "t": sorted(random.randint(0, count // 2) for _ in range(count)),
            "type": [random.choice("ABC") for _ in range(count)],
            "k": [random.choice([None, *map(str, range(keys))]) for _ in range(count)],
            "x": [random.randint(0, 3) for _ in range(count)],
        }
    )


def in_batches(events: pa.Table, random: Random) -> pa.RecordBatchReader:
    cuts = sorted({0, events.num_rows, *(random.randint(0, events.num_rows) for _ in range(random.randint(0, 6)))})
    pieces = [events.slice(a, b - a).combine_chunks() for a, b in zip(cuts, cuts[1:], strict=False)]
    return pa.RecordBatchReader.from_batches(events.schema, [b for piece in pieces for b in piece.to_batches()])


def shuffle(events: pa.Table, random: Random) -> pa.Table:
    return events.take(random.sample(range(events.num_rows), events.num_rows))


def make_kinds(events: pa.Table, random: Random) -> list[Any]:
    return [in_batches(events, random), ds.dataset(events), ds.dataset(events).scanner(batch_size=5)]


@pytest.mark.filterwarnings("ignore")  # types that do not occur
@pytest.mark.parametrize("round", some(1, 8))
def test_random_queries_find_the_same(round, written, monkeypatch, folder):
    compared = spilled = 0
    for seed in of_round(round, EACH):
        random = Random(seed)
        monkeypatch.setattr(out_of_core, "SHARE", random.choice([1e7, 3e7, 1e9]))  # some groups are large
        nature = random_nature(random)
        query = random.choice(WRITERS)(random, nature)
        if "RETURN" not in query:
            query += random.choice(ANSWERS)
        events = random_events(random, random.randint(10, 28), nature)
        if random.random() < 0.3:  # duplicates, which the ids of matches number
            events = pa.concat_tables([events, events.slice(0, 5)])
        if random.random() < 0.3:
            at = events.column_names.index("k")
            events = events.set_column(at, "k", pa.array(map(str, events["k"].to_pylist())).dictionary_encode())
        if random.random() < 0.5:
            events = shuffle(events, random)
        options = {"time": nature.columns, "type": "type", "order": random.choice([(), (), "row"])}
        queries: Any = query
        if random.random() < 0.3:
            queries = {"one": query, "two": "SEQ(A a, B b) WHERE [k]", "three": "A a"}
        elif random.random() < 0.2:
            options["options"] = ensue.OutputOptions(emit_timeouts=True)
        try:
            expected = ensue.match(events, queries, **options)
        except (QueryError, EventError, LimitError):
            continue
        written.clear()
        for given in make_kinds(events, random):
            found = ensue.match(given, queries, **options)
            if not isinstance(expected, dict):
                expected, found = {"": expected}, {"": found}
            for name, table in expected.items():
                assert found[name].schema == table.schema, (seed, query)
                # NaN equals no NaN
                assert str(found[name].to_pylist()) == str(table.to_pylist()), (seed, name, query)
            expected = expected[""] if "" in expected else expected
        compared += 1
        spilled += bool(written)
    assert spilled > compared // 2
    assert not any(folder.iterdir())
