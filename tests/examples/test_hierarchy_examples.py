"""The data centre and the market: what is planted in them is what hierarchies find."""

from pathlib import Path

import pyarrow as pa
import pytest
from tests.docs.pages import ROOT

import ensue
from samples.faults import faults
from samples.market import ALARM, market

EXAMPLES = ROOT / "examples"


def ends(found: pa.Table, of: str) -> set[tuple[str, object]]:
    return {(row[of], row["end"]) for row in found.to_pylist()}


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", [7, 8])
def test_the_planted_collapses_and_alarms_are_found(seed):
    day = market(seed=seed)
    levels = ensue.match(
        {"Stock": day.trades}, EXAMPLES / "market_alarm.ensue", time="ts", options=ensue.OutputOptions(levels="all")
    )
    assert list(levels) == ["VolumeCollapse", "SectorCollapse", "MarketAlarm"]
    assert ends(levels["VolumeCollapse"], "symbol") == day.collapses
    assert ends(levels["SectorCollapse"], "sector") == day.sectors
    assert set(levels["MarketAlarm"]["end"].to_pylist()) == day.alarms
    assert len(day.collapses) > 3 * len(day.sectors) > 3 * len(day.alarms) > 3


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", [7, 8])
def test_the_planted_attacks_are_found(seed):
    evening = faults(seed=seed)
    levels = ensue.match(
        evening.tables, EXAMPLES / "fault_monitoring.ensue", time="ts", options=ensue.OutputOptions(levels="all")
    )
    assert ends(levels["DdosSuspicion"], "host") == evening.floods
    assert ends(levels["ServiceFailure"], "host") == evening.failures
    assert ends(levels["DownByAttack"], "service") == evening.downs
    assert levels["DownByAttack"].num_rows == len(evening.downs) < levels["Outage"].num_rows


def test_a_hierarchy_means_one_match_after_the_other():
    day = market()
    texts = [(EXAMPLES / name).read_text() for name in ("volume_collapse.ensue", "market_alarm.ensue")]
    one, two, three = (s for text in texts for s in text.split(";") if "EVENT" in s)
    collapses = ensue.match({"Stock": day.trades}, one, time="ts")
    sectors = ensue.match({"VolumeCollapse": collapses}, two, time=("start", "end"))
    alarms = ensue.match({"SectorCollapse": sectors}, three, time=("start", "end"))
    hierarchy = ensue.match({"Stock": day.trades}, EXAMPLES / "market_alarm.ensue", time="ts")
    shown = ["start", "end", "first", "second"]
    assert hierarchy.select(shown).equals(alarms.select(shown))


def test_the_stories_are_seeded():
    assert market(24) == market(24) != market(24, seed=8)
    assert faults(6, stories=1) == faults(6, stories=1) != faults(6, stories=1, seed=8)


def test_a_query_file_that_is_not_there(tmp_path):
    with pytest.raises(ensue.QueryError, match="there is no query file"):
        ensue.match({"A": pa.table({"t": [1]})}, Path(tmp_path / "none.ensue"), time="t")


def test_the_files_define_what_the_demo_shows():
    written = ensue.parse(EXAMPLES / "market_alarm.ensue")
    shown = ensue.parse(ALARM)
    assert [d.query for d in written.definitions] == [d.query for d in shown.definitions]
    assert written.query == shown.query


def test_the_picture_in_the_docs_is_the_first_alarm():
    alarms = ensue.match({"Stock": market().trades}, ALARM, time="ts", options=ensue.OutputOptions(trace=True))
    drawn = (ROOT / "docs" / "pictures" / "market_alarm.svg").read_text(encoding="utf-8")
    assert ensue.trace(alarms.slice(0, 1), ALARM).svg == drawn
