"""Tables of matches on terminals of any width."""

import io
import re
from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from rich.console import Console

from ensue.cli.main import main
from ensue.cli.output import print_matches

BEGIN = datetime(2026, 3, 14, 9, 6, 11, 442608)
MATCHES = pa.table(
    {
        "match_id": [f"{n:032x}"[::-1] for n in range(1, 6)],
        "start": [BEGIN + timedelta(minutes=n) for n in range(5)],
        "total": [1234567.25 + n for n in range(5)],
        "note": ["a long sentence about nothing in particular, told twice"] * 5,
        "s": [{"ts": BEGIN, "kind": "SHELF", "tag": "item-5", "price": 12345.75}] * 5,
    }
)


def printed(width: int, table: pa.Table = MATCHES, limit: int = 3, *, short: bool = True) -> str:
    file = io.StringIO()
    print_matches(Console(file=file, width=width), table, limit, short_ids=short)
    return file.getvalue()


@pytest.mark.parametrize("width", [40, 50, 60, 70, 80, 100, 120, 160, 200, 300])
def test_no_date_and_no_number_is_ever_cut(width):
    text = printed(width)
    assert max(map(len, text.splitlines())) <= width
    starts = re.findall(r"2026-03-14", text)
    hours = re.findall(r"09:0[678]:11\.442608", text)
    assert len(starts) >= 3
    assert len(hours) >= 3
    numbers = re.findall(r"123456\d\.25", text)
    assert numbers == ["1234567.25", "1234568.25", "1234569.25"]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_ids_are_short_on_terminals_and_in_full_on_demand(width):
    assert "1000000000\n" in printed(width) or "1000000000 " in printed(width)
    assert printed(width, short=False).count("0") >= printed(width).count("0") + 3 * 22


def test_long_texts_are_cut_between_words():
    text = printed(160, pa.table({"note": ["some words and more words " * 5]}))
    assert text.splitlines()[-1].endswith(" and …")


def test_events_are_cut_between_their_fields():
    cells = [line.rpartition("│")[2].strip() for line in printed(200).splitlines()]
    events = [cell for cell in cells if cell.startswith("{")]
    assert len(events) == 3
    assert all(re.fullmatch(r"\{(\w+: [^,]+, )+…\}", cell) for cell in events)


def test_cells_wrap_between_words():
    cells = [line.rpartition("│")[2].strip() for line in printed(100).splitlines()[2:5]]
    assert cells == ["{ts: 2026-03-14", "09:06:11.442608, kind:", "SHELF, tag: item-5, …}"]


def test_where_columns_do_not_fit_each_match_has_lines_of_its_own():
    lines = printed(50).splitlines()
    assert lines[0] == "match 1"
    assert lines[1].split() == ["match_id", "1000000000"]
    assert lines[2].split() == ["start", "2026-03-14", "09:06:11.442608"]


def test_how_many_more_there_are_is_told_in_both_ways():
    assert printed(200).splitlines()[-1] == "... and 2 more"
    assert printed(50).splitlines()[-1] == "... and 2 more"
    assert "more" not in printed(200, limit=5)


def test_a_table_without_rows_or_columns_is_drawn_too():
    assert "match_id" in printed(80, MATCHES.slice(0, 0))
    printed(80, pa.table({}))


@pytest.mark.parametrize("command", ["", "run", "explain", "check"])
def test_help_says_the_essential_first(command, capsys):
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines[0]) < 80
    text = "\n".join(lines[:16])
    if command in ("", "run"):
        assert "ensue run theft.ensue --events readings.parquet --time ts --type reader" in text
    if command:
        assert "--events" in text
