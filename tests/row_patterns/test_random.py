"""Random clauses over random rows: what is found is what they mean."""

import random

import pytest

from ensue.codegen import kernel_cache as cache
from ensue.operators.row_match import compiled_clause
from support.row_patterns import a_clause, found, meant, outcome, some_rows
from support.seeds import of_round, some


@pytest.fixture
def uncompiled(monkeypatch):
    """Each clause has a kernel of its own: compiling them all would take minutes."""
    monkeypatch.setattr(cache, "interpreted", True)


@pytest.mark.parametrize("how", ["alone", "matched"])
@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("block", range(10))
def test_clauses_find_what_they_mean(how, block, uncompiled):
    for seed in of_round(block, 40):
        rng = random.Random(seed)
        row_pattern, table = a_clause(rng, how), some_rows(rng)
        assert outcome(found, row_pattern, table) == outcome(meant, row_pattern, table), seed


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("block", some(1, 6))
def test_clauses_find_the_same_in_parts(block, threads, uncompiled, monkeypatch):
    monkeypatch.setenv("ENSUE_THREADS", threads)
    monkeypatch.setattr(compiled_clause, "PART_ROWS", 1)
    for seed in of_round(block, 40):
        rng = random.Random(seed)
        row_pattern, table = a_clause(rng, "alone"), some_rows(rng, 30)
        with monkeypatch.context() as alone:
            alone.setattr(compiled_clause, "PART_ROWS", 1_000)
            expected = outcome(found, row_pattern, table)
        assert outcome(found, row_pattern, table) == expected, seed
