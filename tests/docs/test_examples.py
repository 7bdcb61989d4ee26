"""Every example runs and says what it is meant to say."""

import runpy
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace

import pytest
from tests.docs.pages import ROOT

SAYS = {
    "theft": "0 missed, 0 false",
    "stock_collapse": "the longest climbs:",
    "response_time": "ann gave up at 12:01:10: 3 responses",
    "sensor_intervals": "press: hot with an open door from 20 to 22, stopped at 26",
    "alarm_deduplication": "0 missed, 0 false",
    "double_peak": "0 missed, 0 false",
    "fault_monitoring": "0 missed, 0 false",
    "market_alarm": "0 missed, 0 false",
    "live_stdin": "10:00:09 guessed: ann from 203.0.113.9",
    "spark_batch": "|exit-1|",
    "toll_travel": "on a stream  65 found, 65 planted: 0 missed, 0 false",
    "stock_comeback": "on a stream  11 found, 11 planted: 0 missed, 0 false",
    "new_device": "on a stream  112 found, 112 planted: 0 missed, 0 false",
    "warehouse": "on a stream  264 found, 264 planted: 0 missed, 0 false",
    "convoy": "one by one   16 found, 16 planted: 0 missed, 0 false",
    "fleet_service": "listening    1267 received, 1267 planted: 0 missed, 0 false",
    "geofences": "on a table   698 found, 698 planted: 0 missed, 0 false",
}
# the first three go the ways of tests/streaming/test_archive_streams.py, the others of convoy
SLOW = ("convoy", "toll_travel", "stock_comeback", "new_device", "geofences", "warehouse", "fleet_service")
ARGUMENTS = {"geofences": ["10000"]}  # a tenth of its fences
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def _marked(example: Path) -> object:
    marks = [pytest.mark.spark] if "pyspark" in example.read_text() else []
    marks += [pytest.mark.slow] if example.stem in SLOW else []
    return pytest.param(example, id=example.stem, marks=marks)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is piped into an example."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("example", [_marked(e) for e in EXAMPLES])
def test_an_example_runs(example: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("sys.argv", [str(example), *ARGUMENTS.get(example.stem, [])])
    if "pyspark" in example.read_text():
        from ensue.backends.spark.session import get_or_create_session

        get_or_create_session()
    runpy.run_path(str(example), run_name="__main__")
    assert SAYS[example.stem] in capsys.readouterr().out


@pytest.mark.slow
def test_matches_are_printed_while_lines_come():
    example = ROOT / "examples" / "live_stdin.py"
    shown = runpy.run_path(str(example))["SHOWN"]
    command = [sys.executable, "-u", str(example)]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(shown)
        process.stdin.flush()  # and it stays open
        assert process.stdout.readline() == "10:00:09 guessed: ann from 203.0.113.9\n"
        rest, said = process.communicate()
    assert "left open: bob from 192.0.2.5" in rest
    assert "7 events" not in rest
    assert "line 6 is no event" in said


def test_every_example_is_described():
    readme = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert all(f"[{e.name}]({e.name})" in readme for e in EXAMPLES)
