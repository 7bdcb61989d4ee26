"""The command line makes archives, fills, compacts and shows them."""

from datetime import datetime, timedelta
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.archives.delta_writer import claim
from ensue.cli.main import main
from ensue.cli.terminal import ExitCode

BEGIN = datetime(2026, 3, 1, 9)


def trades(count: int = 120) -> pa.Table:
    return pa.table(
        {
            "ts": pa.array([BEGIN + timedelta(minutes=k) for k in range(count)], pa.timestamp("us")),
            "symbol": [f"S{k % 5}" for k in range(count)],
            "price": [float(k) for k in range(count)],
        }
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    pq.write_table(trades(), tmp_path / "trades.parquet")
    pa_csv.write_csv(trades(10), tmp_path / "more.csv")
    (tmp_path / "more.jsonl").write_text(
        '{"ts": "2026-03-02T09:00:00", "symbol": "S1", "price": 1.5}\n', encoding="utf-8"
    )
    return tmp_path


def created(place: Path) -> str:
    past = str(place / "past")
    events = str(place / "trades.parquet")
    assert main(["archive", "create", past, "--events", events, "--key", "symbol"]) == ExitCode.FINE
    return past


def test_an_archive_is_made_of_files(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    past = created(place)
    for name in ("more.csv", "more.jsonl"):
        assert main(["archive", "append", past, "--events", str(place / name)]) == ExitCode.FINE
    assert "appended 10 events to" in capsys.readouterr().err
    assert ensue.archive(past).layout().rows == 131
    assert main(["archive", "show", past]) == ExitCode.FINE
    shown = capsys.readouterr().out
    for fact in ("(delta, version 3)", "131", "by day and 16 buckets, sorted by symbol, ts",
                 "timestamp[us]", "2026-03-01 09:00:00"):  # fmt: skip
        assert fact in shown


def test_an_archive_is_compacted(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    past = created(place)
    for _ in range(3):
        main(["archive", "append", past, "--events", str(place / "more.csv")])
    before = ensue.archive(past).layout()
    assert main(["archive", "compact", past, "--vacuum", "0"]) == ExitCode.FINE
    told = capsys.readouterr().err
    assert "merged " in told
    assert "that no version needs" in told
    after = ensue.archive(past).layout()
    assert after.rows == before.rows
    assert after.files < before.files
    assert len(list(Path(past).rglob("*.parquet"))) == after.files
    assert main(["archive", "compact", past]) == ExitCode.FINE
    assert "nothing to do" in capsys.readouterr().err


def test_only_the_columns_are_taken(place: Path) -> None:
    past, events = str(place / "past"), str(place / "trades.parquet")
    arguments = ["--events", events, "--key", "symbol", "--empty", "--buckets", "4"]
    assert main(["archive", "create", past, *arguments]) == ExitCode.FINE
    layout = ensue.archive(past).layout()
    assert (layout.rows, layout.buckets) == (0, 4)


def test_tables_of_others_are_shown_with_what_they_cost(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deltalake.write_deltalake(place / "theirs", trades())
    arguments = [str(place / "theirs"), "--time", "ts", "--key", "symbol"]
    assert main(["archive", "show", *arguments]) == ExitCode.FINE
    told = capsys.readouterr()
    assert "not clustered by key" in told.out
    assert "warning: " in told.err
    assert "hint: " in told.err


def test_a_stream_that_is_gone_is_released(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    past = created(place)
    claim(ensue.archive(past), "abc")
    arguments = ["archive", "append", past, "--events", str(place / "more.csv")]
    assert main(arguments) == ExitCode.WRONG
    assert "ensue archive release" in capsys.readouterr().err
    main(["archive", "show", past])
    assert "stream abc" in capsys.readouterr().out
    assert main(["archive", "release", past]) == ExitCode.FINE
    assert main(arguments) == ExitCode.FINE


def test_mistakes_say_what_to_do(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    past, events = created(place), str(place / "trades.parquet")
    for arguments, problem, code in (
        (["create", past, "--events", events, "--key", "symbol"], "cannot create", ExitCode.EVENTS),
        (["create", f"{past}2", "--events", events], "no key column", ExitCode.EVENTS),
        (["create", f"{past}2", "--events", f"T={events}", "--key", "symbol"], "single table", ExitCode.WRONG),
        (["show", f"{past}3"], "there is no file or folder", ExitCode.EVENTS),
        (["compact", f"{past}3"], "there is no Delta table", ExitCode.EVENTS),
        (["compact", past, "--vacuum", "-1"], "needs a number of hours", ExitCode.WRONG),
        (["show", str(place), "--time", "ts"], "contains a Delta table: past", ExitCode.EVENTS),
    ):
        assert main(["archive", *arguments]) == code
        assert problem in capsys.readouterr().err
