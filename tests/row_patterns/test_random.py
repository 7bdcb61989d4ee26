"""Random clauses over random rows: what is found is what they mean."""

import random

import pytest

from ensue.codegen import kernel_cache as cache
from ensue.errors import SkipError
from ensue.operators.row_match import compiled_clause
from ensue.options import Limits
from ensue.runtime import table_parts
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


@pytest.mark.parametrize("block", some(1, 6))
def test_clauses_find_the_same_in_threads(block, uncompiled, monkeypatch):
    """The same rows, in the same order and with the same ids."""

    def matched(clause, table, threads):
        limits = Limits(threads=threads)
        try:
            return str(
                compiled_clause.compile_clause(clause, table.schema, limits, ids=True).match_complete(table).to_pylist()
            )
        except SkipError as error:
            return str(error)

    monkeypatch.setattr(table_parts, "BLOCK", 8)
    partitions = 0
    for seed in of_round(block, 40):
        rng = random.Random(seed)
        row_pattern, table = a_clause(rng, "alone"), some_rows(rng, 30)
        whole = matched(row_pattern, table, 1)
        with monkeypatch.context() as small:
            small.setattr(compiled_clause, "PART_ROWS", 1)
            for threads in (1, 2, 7):
                assert matched(row_pattern, table, threads) == whole, seed
        partitions += bool(row_pattern.partition)
    assert partitions > 5
