"""`make demo`, small."""

import sys
from datetime import UTC, datetime
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet
import pytest

import ensue
from demos.shop import main
from demos.timeline import Reading, timeline


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_the_demo_finds_every_planted_theft(tmp_path, capsys, engine):
    code = main(["--folder", str(tmp_path), "--events", "20000", "--engine", engine])
    out = capsys.readouterr().out
    assert code == 0, out
    assert "0 missed, 0 false, 0 reported twice" in out
    assert pa.parquet.read_table(tmp_path / "thefts.parquet").num_rows > 0
    ElementTree.parse(tmp_path / "theft.svg")
    assert "38 planted: 0 missed, 0 false, 0 reported twice" in out
    assert "└─ b  Stock" in out
    ElementTree.parse(tmp_path / "alarm.svg")


def test_the_demo_runs_without_spark_and_says_how_to_get_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert main(["--folder", str(tmp_path), "--events", "2000"]) == 0
    out = capsys.readouterr().out
    assert "Spark needs the package pyspark, which is not installed\n     hint: pip install" in out
    assert "So it runs without Spark" in out
    assert out.count("0 missed, 0 false, 0 reported twice") == 2
    asked = ["--folder", str(tmp_path), "--events", "2000", "--engine", "spark"]
    assert main(asked) == 4
    assert "Spark needs the package pyspark" in capsys.readouterr().err


@pytest.mark.slow
def test_the_demo_fails_when_a_theft_is_missed(tmp_path, capsys, monkeypatch):
    whole = ensue.match

    def less(*arguments: object, **options: object) -> object:
        found = whole(*arguments, **options)
        return found if isinstance(found, dict) else found.slice(1)

    monkeypatch.setattr(ensue, "match", less)
    code = main(["--folder", str(tmp_path), "--events", "20000", "--engine", "local"])
    assert code == 1
    assert "1 missed" in capsys.readouterr().out


def test_a_timeline_is_a_picture_with_names_escaped():
    def at(hour: int) -> datetime:
        return datetime(2026, 3, 14, hour, tzinfo=UTC)

    readings = [Reading(at(8), "SHELF", "shelf-<1>"), Reading(at(10), "EXIT", "exit-1")]
    svg = timeline("item & co", readings, at(10))
    said = " ".join(ElementTree.fromstring(svg).itertext())
    assert "Theft of item & co" in said
    assert "shelf-<1>, 08:00:00" in said
    assert "09:00" in said
