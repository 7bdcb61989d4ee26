"""`explain(analyze=True)`: estimates beside what was counted."""

import json
import re

import pyarrow as pa
import pyarrow.parquet
import pytest

import ensue
from ensue.cli.main import main

QUERY = "SEQ(A a, B b) WHERE [k] and a.x > 1 and a.x < b.x WITHIN 5"
EVENTS = pa.table(
    {
        "t": list(range(12)),
        "type": list("ABABABABABAB"),
        "k": [1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1, 1],
        "x": [1, 5, 2, 1, 3, 4, 2, 9, 5, 1, 2, 3],
    }
)


def analysed(query=QUERY, events=EVENTS, **options):
    return ensue.explain(query, events, time="t", type="type", analyze=True, **options)


def lines_of(text):
    return [line.strip() for line in text.split("analysis of ")[1].splitlines()]


def test_roles_conditions_and_matches_are_counted():
    lines = [re.sub(" +", " ", line) for line in lines_of(analysed())]
    matches = ensue.match(EVENTS, QUERY, time="t", type="type").num_rows
    assert lines[0] == "12 events: estimate, actual"
    assert "A a 2 5 events, of 6 of its type" in lines
    assert "a.x > 1 0.333 0.833 of 6 tried" in lines
    assert "B b 6 6 events, of 6 of its type" in lines
    assert any(line.startswith("a.x < b.x at a 0.333 0.") for line in lines)
    assert any(re.fullmatch(rf"matches \S+ {matches}", line) for line in lines)
    assert "partitions 100 2 as dense as 1.8 equal ones" in lines
    assert f"matches in the result: {matches}" in lines
    assert lines[-1].startswith("time: compiling ")


def test_measured_statistics_come_near():
    known = ensue.statistics(EVENTS, QUERY, time="t", type="type")
    lines = [re.sub(" +", " ", line) for line in lines_of(analysed(options=ensue.PlannerOptions(statistics=known)))]
    assert "A a 5 5 events, of 6 of its type" in lines
    assert "a.x > 1 0.833 0.833 of 6 tried" in lines


@pytest.mark.parametrize(
    "query",
    [
        "SEQ(A a, B+ b[], !A c) WHERE b[i].x > a.x WITHIN 4",
        "SEQ(A a, !SEQ(B b, A c), B d) WITHIN 4",
        "AND(A a, B b) WHERE a.x = b.x WITHIN 4",
        "SEQ(A a, B b) WHERE strict_contiguity(a, b) { a.x < b.x }",
    ],
)
def test_every_plan_can_be_analysed(query):
    found = ensue.match(EVENTS, query, time="t", type="type").num_rows
    assert f"matches in the result: {found}" in analysed(query)


def test_it_needs_events():
    with pytest.raises(ensue.EventError, match="pass a table of events"):
        ensue.explain(QUERY, analyze=True)


def test_the_command_line_analyses_and_measures(tmp_path, capsys):
    file = tmp_path / "events.parquet"
    pyarrow.parquet.write_table(EVENTS, file)
    events = ["--events", str(file), "--time", "t", "--type", "type"]
    assert main(["explain", QUERY, *events, "--analyze", "--statistics", "measure"]) == 0
    out = capsys.readouterr().out
    assert "decisions, by statistics: all 12 events" in out
    assert "analysis of 12 events" in out
    kept = tmp_path / "known.json"
    kept.write_text(ensue.statistics(EVENTS, QUERY, time="t", type="type").text())
    told = ["--statistics", str(kept), "--off", "window", "--structure", "runs"]
    assert main(["explain", QUERY, *events, *told]) == 0
    out = capsys.readouterr().out
    assert "structure: runs, requested" in out
    assert "window: off" in out
    assert main(["run", QUERY, *events, *told, "--format", "json"]) == 0
    rows = capsys.readouterr().out.splitlines()
    found = ensue.match(EVENTS, QUERY, time="t", type="type")
    assert {json.loads(r)["match_id"] for r in rows} == set(found["match_id"].to_pylist())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--analyze"], "--analyze runs the query"),
        (["--statistics", "measure"], "name some with --events"),
        (["--statistics", "missing.json"], "cannot read statistics from missing.json"),
        (["--off", "everything"], "there is no rule 'everything' to switch off"),
    ],
)
def test_mistakes_on_the_command_line(arguments, message, capsys):
    assert main(["explain", QUERY, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_events_without_time_of_types_that_no_level_names_are_left_out():
    text = "EVENT Hot AS SEQ(A a, B b) WITHIN 5; SEQ(Hot h, C c) WITHIN 9"
    events = pa.table({"t": [1, 2, None, 3], "type": ["A", "B", "X", "C"]})
    told = ensue.explain(text, events, time="t", type="type", analyze=True)
    assert "the hierarchy in 3 events" in told
