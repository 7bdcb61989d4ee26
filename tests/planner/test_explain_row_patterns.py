"""The plans of MATCH_RECOGNIZE clauses kept as text: `pytest --bless` rewrites them."""

from pathlib import Path

import pyarrow as pa
import pytest

import ensue

GOLDEN = Path(__file__).parent / "golden_row_patterns"
CLAUSES = sorted(GOLDEN.glob("*.sql"))
ROWS = pa.table(
    {
        "symbol": pa.array(["a", "a", "b"], pa.string()),
        "at": pa.array([1, 2, 3], pa.timestamp("us")),
        "price": pa.array([5.0, 6.0, 7.0], pa.float64()),
        "volume": pa.array([1, 2, 3], pa.int64()),
    }
)


@pytest.mark.parametrize("path", CLAUSES, ids=lambda path: path.stem)
def test_the_plan_is_the_golden_one(path, bless):
    text = ensue.explain(path.read_text(encoding="utf-8"), ROWS) + "\n"
    kept = path.with_suffix(".txt")
    if bless:
        kept.write_text(text, encoding="utf-8")
    assert text == kept.read_text(encoding="utf-8"), "pytest --bless rewrites the golden plans"


@pytest.mark.parametrize("path", CLAUSES, ids=lambda path: path.stem)
def test_a_clause_is_explained_without_its_table(path):
    text = ensue.explain(path.read_text(encoding="utf-8"))
    head = text.partition("\n\n")[0]
    assert head in path.with_suffix(".txt").read_text(encoding="utf-8")


def test_no_golden_plan_is_left_over():
    assert {p.stem for p in GOLDEN.glob("*.txt")} == {p.stem for p in CLAUSES}


def test_it_says_how_many_rows_come_out_of_a_table():
    clause = "MATCH_RECOGNIZE (ORDER BY at MEASURES A.price AS p PATTERN (A) DEFINE A AS price > 5)"
    assert ensue.explain(clause, ROWS, analyze=True).endswith("2 result rows from 3 rows")


def test_a_clause_has_a_picture():
    clause = "MATCH_RECOGNIZE (MEASURES A.price AS p PATTERN (A) DEFINE A AS price > 5)"
    assert "price &gt; 5" in ensue.picture(clause)
