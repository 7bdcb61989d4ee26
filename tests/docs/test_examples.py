"""Every example runs and says what it is meant to say."""

import runpy
from pathlib import Path

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
    "spark_batch": "|exit-1|",
}
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def _marked(example: Path) -> object:
    marks = [pytest.mark.spark] if "pyspark" in example.read_text() else []
    return pytest.param(example, id=example.stem, marks=marks)


@pytest.mark.parametrize("example", [_marked(e) for e in EXAMPLES])
def test_an_example_runs(example: Path, capsys: pytest.CaptureFixture[str]):
    if "pyspark" in example.read_text():
        from ensue.runners.spark.session import embedded

        embedded()
    runpy.run_path(str(example), run_name="__main__")
    assert SAYS[example.stem] in capsys.readouterr().out


def test_every_example_is_described():
    readme = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert all(f"[{e.name}]({e.name})" in readme for e in EXAMPLES)
