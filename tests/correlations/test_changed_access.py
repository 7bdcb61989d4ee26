"""A stream that is stopped may go on with another access: what it kept is found again."""

from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue.columns.stream import shape_of, slices
from ensue.plan.access import ACCESSES
from ensue.plan.planning import DEFAULT
from ensue.workload.correlations.prepare import Wanted, prepare_correlation
from ensue.workload.correlations.prepared import pasts_of
from ensue.workload.correlations.work import CorrelationStage
from ensue.workload.source import Source
from ensue.workload.stage import Fed

QUERY = """SEQ(A a, B b) WHERE [k] WITHIN 6
JOIN ARCHIVE old SEQ(C c, D d) WHERE [k] WITHIN 6 RANGE 30 BEFORE START ON [k]
RETURN a.t AS a, d.t AS d"""


def events(first, count):
    dice = Random(first)
    return pa.table(
        {
            "t": list(range(first, first + count)),
            "type": [dice.choice("ABCD") for _ in range(count)],
            "k": [dice.randint(0, 1) for _ in range(count)],
        }
    )


def stage(access, own):
    shape = shape_of(events(0, 1).schema, time="t", type="type", order=())
    pasts = pasts_of({"old": ensue.archive(events(0, 60), time="t", type="type", key="k")}, own)
    query = ensue.parse(QUERY)
    prepared = prepare_correlation(query, shape, pasts, DEFAULT, Wanted(access))
    source = Source(shape.arrow, "t", "type")
    return CorrelationStage((prepared,), (), pasts, source, ())


def found(matcher, pieces):
    for piece in pieces:
        (table,) = matcher.feed(Fed.of(piece))
        yield from table.to_pylist()


@pytest.mark.parametrize("own", [None, "old"])
@pytest.mark.parametrize("before", ACCESSES)
@pytest.mark.parametrize("after", ACCESSES)
def test_another_access_goes_on_with_the_same_matches(before, after, own):
    pieces = slices(events(60, 60), 10)
    whole = list(found(stage("grouped", own).matcher(), pieces))
    first = stage(before, own).matcher()
    rows = list(found(first, pieces[:3]))
    second = stage(after, own).matcher()
    second.restore(first.save())
    rows += found(second, pieces[3:])
    (rest,) = second.finish()
    assert len(whole) > 5
    assert rows + rest.to_pylist() == whole
