"""The kernels of MATCH_RECOGNIZE: also run uncompiled, and compiled with bounds checks."""

import random

import pytest

from ensue.analyzer.row_pattern_checks import check_row_pattern
from ensue.parser.sql.clause_parser import parse_clause
from support.row_patterns import COLUMNS, a_clause, found, meant, outcome, some_rows
from support.seeds import of_round

pytestmark = pytest.mark.kernels

# each has a kernel of its own
JUDGED = (
    """PARTITION BY k ORDER BY id MEASURES FIRST(id) AS f, LAST(id) AS l, sum(A.v) AS s
    PATTERN (A+ B) DEFINE A AS sum(A.v) < 9 OR A.v IS NULL, B AS B.v > LAST(A.v) OR B.x = 'B'""",
    """ORDER BY id MEASURES MATCH_NUMBER() AS n, CLASSIFIER() AS c ALL ROWS PER MATCH
    PATTERN ((A | B)* C+?) WITHIN 5
    DEFINE A AS A.f <= FIRST(A.f, 1) OR FIRST(A.f, 1) IS NULL, C AS C.v > avg(B.v)""",
    """PARTITION BY k ORDER BY id MEASURES count(*) AS n, min(A.v) AS low, max(B.f) AS high
    AFTER MATCH SKIP TO NEXT ROW PATTERN (A (A | B){0,3} A)
    DEFINE B AS B.x <> LAST(A.x) AND min(B.v) >= 1 AND count(B.*) < 3""",
)


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("block", range(8))
def test_rows_alone_decide(block):
    for seed in of_round(block, 25):
        rng = random.Random(seed)
        row_pattern, table = a_clause(rng, "alone"), some_rows(rng, 30)
        assert outcome(found, row_pattern, table) == outcome(meant, row_pattern, table), seed


@pytest.mark.parametrize("text", JUDGED)
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("block", range(4))
def test_the_match_so_far_decides(text, block):
    row_pattern = check_row_pattern(parse_clause(f"({text})"), COLUMNS)
    for seed in of_round(block, 15):
        table = some_rows(random.Random(seed), 25)
        assert outcome(found, row_pattern, table) == outcome(meant, row_pattern, table), seed
