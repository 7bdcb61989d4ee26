"""`make demo-archive`, small."""

import io

import pyarrow as pa
import pytest
from rich.console import Console

from brokers import kafka
from demos import archive
from demos.archive import main
from samples.toll import toll

ROAD = toll(2_000)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.spark
def test_nothing_is_lost_or_doubled_when_the_stream_is_stopped(tmp_path, spark, capsys):
    if reason := kafka.missing():
        pytest.skip(reason)
    code = main(["--passes", "5000", "--folder", str(tmp_path / "demo")])
    out = capsys.readouterr().out
    assert code == 0, out
    assert "0 missed, 0 false, 0 reported twice" in out
    assert "0 lost, 0 archived twice" in out
    assert not spark.streams.active


def test_without_a_broker_it_says_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(kafka, "missing", lambda: "Maven (mvn) is not on PATH")
    assert main([]) == 4
    said = capsys.readouterr().err
    assert "none can run here: Maven (mvn) is not on PATH" in said
    assert "examples/toll_travel.py" in said


def test_a_folder_in_use_is_not_written_to(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(kafka, "missing", lambda: None)
    (tmp_path / "mine").touch()
    assert main(["--folder", str(tmp_path)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def said(compare, *arguments) -> tuple[bool, str]:
    text = io.StringIO()
    right = compare(Console(file=text, width=200), *arguments)
    return right, text.getvalue()


def test_what_is_missed_false_or_told_twice_is_counted():
    truth = ROAD.speeders.to_pylist()
    other = truth[0] | {"tag": "another car"}
    assert said(archive._compare, truth, ROAD)[0]
    right, text = said(archive._compare, [*truth[1:], truth[1], other], ROAD)
    assert not right
    assert "1 missed, 1 false, 1 reported twice" in text
    assert "false: another car" in text


def test_passes_that_are_archived_twice_or_lost_are_counted(tmp_path):
    pytest.importorskip("deltalake").write_deltalake(
        str(tmp_path), pa.concat_tables([ROAD.past, ROAD.past.slice(0, 2), ROAD.live.slice(3)])
    )
    assert "3 lost, 2 archived twice" in said(archive._archived_once, str(tmp_path), ROAD, 0)[1]
    assert "0 lost, 2 archived twice" in said(archive._archived_once, str(tmp_path), ROAD, 3)[1]


def test_passes_arrive_late_by_less_than_the_stream_waits():
    pieces = archive._arriving(ROAD.live)
    arriving = pa.concat_tables(pieces)
    assert arriving != ROAD.live
    assert arriving.sort_by("ts") == ROAD.live.sort_by("ts")
    assert all(piece.num_rows for piece in pieces)
