"""Clauses over rows that keep coming: what is found is what is found in all of them at once."""

import random

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.columns.stream import in_order
from ensue.errors import SkipError
from ensue.plan.limits import Limits
from ensue.workload.row_patterns.clause import prepared
from ensue.workload.row_patterns.matcher import ClauseMatcher
from ensue.workload.source import Source
from support.row_patterns import a_clause, some_rows, streamed_clause, tied_rows, written

NO_WAY_ON = "no way on"


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def whole(recognition: Recognition, table: pa.Table) -> list[str] | str:
    try:
        return rows_of(prepared(recognition, table.schema, Limits(), ids=True).whole(table))
    except SkipError:
        return NO_WAY_ON


def matcher_of(recognition: Recognition, table: pa.Table, order: tuple[str, ...] = ()):
    clause = prepared(recognition, table.schema, Limits(), ids=True)
    return ClauseMatcher(clause, Source(table.schema, "id", order=order))


def streamed(
    rng: random.Random, recognition: Recognition, table: pa.Table, order: tuple[str, ...] = ()
) -> list[str] | str:
    """What comes out piece by piece: time passes between pieces, and it moves on by its bytes."""
    matcher = matcher_of(recognition, table, order)
    times = table["id"].to_pylist()
    found, at = [], 0
    try:
        while at < table.num_rows:
            count = rng.randint(0, 4)
            found.append(matcher.feed(table.slice(at, count)))
            at = min(at + count, table.num_rows)
            if rng.random() < 0.4:
                now = times[at] if at < len(times) else times[-1] + rng.randint(0, 9)
                due = matcher.deadline()
                late = matcher.advance(now - rng.choice([0, 0, 1]))
                assert due is not None or not late.num_rows
                found.append(late)
            if rng.random() < 0.3:
                saved = matcher.save()
                matcher = matcher_of(recognition, table, order)
                matcher.restore(saved)
            assert matcher.state_bytes >= 0 and matcher.partial_matches >= 0
        found.append(matcher.finish())
    except SkipError:
        return NO_WAY_ON
    return rows_of(pa.concat_tables(found))


@pytest.mark.first_rounds(4)
@pytest.mark.parametrize("how", ["alone", "matched"])
@pytest.mark.parametrize("block", range(20))
def test_pieces_of_a_stream_find_what_the_whole_does(how, block):
    for seed in range(block * 60, block * 60 + 60):
        rng = random.Random(seed)
        recognition = written(a_clause(rng, how, streaming=True))
        table = some_rows(rng, 16)
        assert streamed(rng, recognition, table) == whole(recognition, table), seed


@pytest.mark.first_rounds(3)
@pytest.mark.parametrize("how", ["alone", "matched"])
@pytest.mark.parametrize("block", range(12))
def test_rows_of_one_time_and_equal_rows_too(how, block):
    for seed in range(block * 60, block * 60 + 60):
        rng = random.Random(seed)
        recognition, table, order = streamed_clause(rng, how), tied_rows(rng), ()
        if rng.random() < 0.5 and len(recognition.order) > 1:
            names = tuple(by.expr.name for by in recognition.order[1:])
            if not any(by.descending for by in recognition.order):
                order = names
        shape = Source(table.schema, "id", order=order).shape
        assert streamed(rng, recognition, in_order(table, shape), order) == whole(
            recognition, table
        ), seed
