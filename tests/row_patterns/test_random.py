"""Random clauses over random rows: what is found is what they mean."""

import random

import pytest

from ensue.algebra.row_patterns.recognition import Recognition, Rows
from ensue.columns.arrow_kinds import fields_of
from ensue.engine.row_patterns.finding import Finder
from ensue.engine.row_patterns.found import Search
from ensue.engine.row_patterns.partitions import partitions_of
from ensue.errors import SkipError
from ensue.plan.row_patterns.plan import RowPlan
from ensue.results.row_patterns.table import ResultTable
from ensue.source import cache
from support.row_patterns import a_clause, meant, some_rows


def found(recognition: Recognition, table):
    plan = RowPlan(recognition, fields_of(table.schema))
    keys = [key.column for key in recognition.partition]
    partitions = partitions_of(table, keys, recognition.order)
    result = ResultTable(plan, table.schema)
    whole = result.whole(
        partitions, Finder(plan).find(partitions, Search.whole(partitions.bounds))
    )
    names = [*(key.name for key in recognition.partition)]
    names += [] if recognition.rows is Rows.ONE else ["id"]
    names += [measure.name for measure in recognition.measures]
    return [tuple(row[name] for name in names) for row in whole.to_pylist()]


def outcome(call, *given):
    try:
        return sorted(call(*given), key=repr)
    except SkipError:
        return "no way on"


@pytest.fixture
def uncompiled(monkeypatch):
    """Each clause has a kernel of its own: compiling them all would take minutes."""
    monkeypatch.setattr(cache, "interpreted", True)


@pytest.mark.parametrize("how", ["alone", "matched"])
@pytest.mark.parametrize("block", range(10))
def test_clauses_find_what_they_mean(how, block, uncompiled):
    for seed in range(block * 40, block * 40 + 40):
        rng = random.Random(seed)
        recognition, table = a_clause(rng, how), some_rows(rng)
        assert outcome(found, recognition, table) == outcome(meant, recognition, table), seed
