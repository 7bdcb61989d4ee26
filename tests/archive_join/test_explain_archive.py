"""What explain says of JOIN ARCHIVE: stable text, with figures for all four accesses."""

import re
import warnings
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.planner.access_paths import ACCESSES

GOLDEN = Path(__file__).parent / "golden"
COLUMNS = {"time": "t", "type": "type"}
QUERY = """EVENT Again AS SEQ(A a, B b) WHERE [k] and a.x > 2 WITHIN 6
JOIN ARCHIVE old SEQ(C c, D d) WHERE [k] WITHIN 6
RANGE BETWEEN 300 AND 2 BEFORE START LAST 2 ON [k] and d.x > b.x
RETURN a.t AS a, d.t AS d"""
WAITING = """SEQ(A a) JOIN ARCHIVE old SEQ(C c, !D d) WHERE [k] WITHIN 6
RANGE 30 BEFORE START ON [k]"""
KEYLESS = "SEQ(A a) ANTI JOIN ARCHIVE old SEQ(C c) RANGE 30 BEFORE END ON c.x > a.x"


def events(first, count):
    dice = Random(first)
    return pa.table(
        {
            "t": list(range(first, first + count)),
            "type": [dice.choice("ABCD") for _ in range(count)],
            "k": [dice.randint(0, 4) for _ in range(count)],
            "x": [dice.randint(0, 9) for _ in range(count)],
        }
    )


LIVE = events(300, 200)


@pytest.fixture
def archives():
    return {"old": ensue.archive(events(0, 300), **COLUMNS, key="k")}


CASES = {
    "chosen": (QUERY, {}),
    "asked_for": (QUERY, {"access": "grouped", "latency": 5}),
    "own_past": (WAITING, {"own": "old"}),
    "no_key": (KEYLESS, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_text_is_the_golden_one(name, archives, request):
    query, given = CASES[name]
    text = ensue.explain(query, LIVE, **COLUMNS, archives=ensue.Archives(archives, **given)) + "\n"
    kept = GOLDEN / f"{name}.txt"
    if request.config.getoption("--bless"):
        kept.write_text(text, encoding="utf-8")
    assert text == kept.read_text(encoding="utf-8"), "pytest --bless rewrites the golden plans"


def test_no_golden_text_is_left_over():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(CASES)


@pytest.mark.parametrize("access", ACCESSES)
def test_analyze_says_what_was_read_and_found(archives, access):
    given = {"archives": ensue.Archives(archives, access=access)}
    text = ensue.explain(QUERY, LIVE, **COLUMNS, **given, analyze=True)
    rows = ensue.match(LIVE, QUERY, **COLUMNS, **given).num_rows
    live = ensue.match(LIVE, QUERY.split("JOIN", maxsplit=1)[0], **COLUMNS).num_rows
    assert rows > 0
    assert _actual(text, "rows in the result") == rows
    looked_for = _actual(text, "live matches")
    assert looked_for == live if access != "archive_first" else looked_for <= live
    reads = int(re.search(r"in ([\d,]+) reads?,", text)[1].replace(",", ""))
    assert reads == 1 if access != "lazy" else 1 < reads <= live
    assert _actual(text, "old: archived matches") > 0


def _actual(text, what):
    (line,) = [line for line in text.splitlines() if line.strip().startswith(what)]
    numbers = re.findall(r"[\d,.]+", line.removeprefix(f"  {what}"))
    return int(numbers[1 if len(numbers) > 1 and what != "old: events" else 0].replace(",", ""))


def test_an_impossible_access_says_why(archives):
    text = ensue.explain(KEYLESS, LIVE, **COLUMNS, archives=archives)
    assert "archive first (OLLAA)  impossible: only a single inner JOIN" in text


def test_too_many_archived_matches_for_memory_are_impossible_to_keep(archives):
    text = ensue.explain(QUERY, LIVE, **COLUMNS, archives=archives, options=ensue.Limits(memory=100))
    assert re.search(r"eager \(ALAA\) +impossible: .* exceed 100 bytes", text)


def test_without_archives_it_says_what_to_pass(archives):
    with pytest.raises(ensue.QueryError, match="pass events, time= and archives=") as error:
        ensue.explain(QUERY)
    assert 'archives={"old": ensue.archive(' in str(error.value)
    with pytest.raises(ensue.QueryError, match="old"):
        ensue.explain(QUERY, LIVE, **COLUMNS, archives={"new": archives["old"]})


def test_the_kernels_of_both_sides_are_shown(archives):
    text = ensue.explain(QUERY, LIVE, **COLUMNS, archives=archives, kernel=True)
    assert text.count("def step(") == 2


def test_the_picture_has_both_sides(archives):
    drawn = ensue.picture(QUERY, LIVE, **COLUMNS, archives=archives)
    assert drawn.startswith("<svg")
    assert "JOIN ARCHIVE old" in drawn
    assert drawn == ensue.picture(QUERY, LIVE, **COLUMNS, archives=archives)


@pytest.fixture
def folder(tmp_path):
    """Events in the order of their arrival, in which every group has every object."""
    table = events(0, 60_000)
    pq.write_table(table, tmp_path / "all.parquet", row_group_size=10_000)
    return tmp_path


LONG = QUERY.replace("BETWEEN 300 AND 2 BEFORE", "60000 BEFORE")


def test_an_unclustered_archive_is_a_warning_with_its_cost(folder, monkeypatch):
    monkeypatch.setattr("ensue.planner.access_paths.WARN_MICROSECONDS", 100)
    given = {"archives": ensue.Archives({"old": ensue.archive(folder, **COLUMNS, key="k")}, access="lazy")}
    live = events(60_000, 100)
    with pytest.warns(ensue.ArchiveWarning, match="are not stored together, so a read scans about"):
        ensue.match(live, LONG, **COLUMNS, **given)
    assert "  warning  old: the events of a key" in ensue.explain(LONG, live, **COLUMNS, **given)


def test_what_costs_little_is_no_warning(folder):
    given = {"archives": ensue.Archives({"old": ensue.archive(folder, **COLUMNS, key="k")}, access="grouped")}
    with warnings.catch_warnings():
        warnings.simplefilter("error", ensue.ArchiveWarning)
        ensue.match(events(60_000, 100), LONG, **COLUMNS, **given)


def test_the_same_archive_gives_the_same_plan(folder):
    archive = {"old": ensue.archive(folder, **COLUMNS, key="k")}
    texts = {ensue.explain(LONG, LIVE, **COLUMNS, archives=archive) for _ in range(3)}
    assert len(texts) == 1
    assert "parquet, 60,000 events from 0 to 59999, 1 file" in texts.pop()


def test_the_order_of_rows_does_not_change_what_is_expected(archives):
    shuffled = LIVE.take(pa.array(Random(1).sample(range(200), 200)))
    texts = {ensue.explain(QUERY, t, **COLUMNS, archives=archives) for t in (LIVE, shuffled)}
    assert len(texts) == 1
