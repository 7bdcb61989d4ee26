"""Both sides against plain loops, on few events: `python -m pytest benchmarks/peers`."""

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from benchmarks.peers.environment import REQUIREMENTS
from benchmarks.peers.events import read, read_matches, trades, write
from benchmarks.peers.queries import PAIRS, Pair
from benchmarks.peers.reference import expected

import ensue
from ensue.parser.pattern_parser import parse
from ensue.reference import Event, compute_value, find_matches

FLINK = Path(__file__).resolve().parents[1] / ".cache" / "flink"


def _with_edges(table: pa.Table) -> pa.Table:
    """Adds two runs at the window's end, its last millisecond and one too late.

    And one that is still open when the stream ends, behind which another one is complete.
    """
    begin = table["ts"][-1].as_py() + 1
    rows = [
        (begin, "A", "INSIDE"), (begin + 1, "A", "OUTSIDE"),
        (begin + 2, "B", "INSIDE"), (begin + 3, "B", "OUTSIDE"),
        (begin + 119_999, "C", "INSIDE"), (begin + 120_001, "C", "OUTSIDE"),
        (begin + 120_002, "D", "OPEN"), (begin + 120_003, "D", "OPEN"),
        (begin + 120_004, "D", "OPEN"),
    ]  # fmt: skip
    ts, type, symbol = zip(*rows, strict=True)
    price = [100.0 + k for k in range(len(rows))]
    columns = [ts, type, symbol, price, [1500] * 6 + [1124, 1172, 1168]]
    return pa.concat_tables([table, pa.table(columns, names=table.column_names)])


# Of 1,000 symbols each has an event every ten seconds, so the window cuts many runs off.
TABLE = _with_edges(trades(30_000, symbols=1_000, seed=3))


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("peers") / "events.csv"
    write(TABLE, path)
    return path


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: p.name)
def test_every_query_has_matches(pair: Pair) -> None:
    assert len(expected(pair.name, TABLE)) > 20


def test_the_window_cuts_where_it_should() -> None:
    keys = dict(zip(TABLE["ts"].to_pylist(), TABLE["symbol"].to_pylist(), strict=True))
    found = {keys[match[0]] for match in expected("next", TABLE)}
    assert "INSIDE" in found
    assert "OUTSIDE" not in found
    assert [keys[match[0]] for match in expected("surge", TABLE)].count("OPEN") == 1


@pytest.mark.parametrize("pair", [p for p in PAIRS if p.ensue], ids=lambda p: p.name)
def test_the_loops_say_what_ensue_means(pair: Pair) -> None:
    assert pair.ensue is not None
    # The oracle tries every chain of a Kleene variable, so those get few events.
    few = trades(600 if pair.typed else 96, symbols=12, seed=5)
    stretched = [80 * ts for ts in few["ts"].to_pylist()]  # so that the window cuts
    few = few.set_column(0, "ts", pa.array(stretched))
    stream = [
        Event(
            position=k,
            type=row["type"] if pair.typed else "Stock",
            start=row["ts"] * 1_000_000,
            end=row["ts"] * 1_000_000,
            values=row,
        )
        for k, row in enumerate(few.to_pylist())
    ]
    query = parse(pair.ensue)
    found = [tuple(compute_value(r.expr, binding) for r in query.returns) for binding in find_matches(query, stream)]
    assert found
    assert sorted(found, key=str) == sorted(expected(pair.name, few), key=str)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: p.name)
def test_ensue_finds_what_the_loops_find(pair: Pair, events: Path) -> None:
    if pair.ensue is None:
        found = ensue.sql(pair.sql(), tables={"stock": read(events)})
    else:
        kind = "type" if pair.typed else None
        found = ensue.match(read(events), pair.ensue, time="ts", type=kind)
    columns = [found[c].cast("int64").to_pylist() for c in pair.columns]
    assert sorted(zip(*columns, strict=True)) == expected(pair.name, TABLE)


@pytest.mark.slow
@pytest.mark.skipif(not (FLINK / REQUIREMENTS.name).exists(), reason="Flink is not installed")
@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: p.name)
def test_flink_finds_what_the_loops_find(pair: Pair, events: Path, tmp_path: Path) -> None:
    task = {
        "events": str(events),
        "warm_up": str(events),
        "matches": str(tmp_path / "matches"),
        "columns": pair.columns,
        "insert": pair.insert(),
        "mode": "streaming",
        "parallelism": 1,
    }
    runner = Path(__file__).with_name("flink_runner.py")
    subprocess.run([str(FLINK / "bin" / "python"), str(runner)], input=json.dumps(task), text=True, check=True)
    assert read_matches(tmp_path / "matches", pair.columns) == expected(pair.name, TABLE)
