"""A stream that is stopped may go on with another access: what it kept is found again."""

import math
from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue.operators.archive_join.join_operator import ArchiveJoinStage
from ensue.operators.archive_join.join_planner import compile_archive_join
from ensue.planner.access_paths import ACCESSES
from ensue.planner.planner_options import DEFAULT_OPTIONS
from ensue.runtime.query_spec import open_archives
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import StageInput
from ensue.vector.event_table import create_schema, split_table

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
    shape = create_schema(events(0, 1).schema, time="t", type="type", order=())
    pasts = open_archives(
        ensue.Archives({"old": ensue.archive(events(0, 60), time="t", type="type", key="k")}, own=own, access=access)
    )
    query = ensue.parse(QUERY)
    prepared = compile_archive_join(query, shape, pasts, DEFAULT_OPTIONS)
    source = SourceSchema(shape.arrow, "t", "type")
    return ArchiveJoinStage((prepared,), (), pasts, source, ())


def found(matcher, pieces):
    for piece in pieces:
        (table,) = matcher.process(StageInput.from_events(piece))
        yield from table.to_pylist()


@pytest.mark.parametrize("own", [pytest.param(None, marks=pytest.mark.slow), "old"])
@pytest.mark.parametrize("before", ACCESSES)
@pytest.mark.parametrize("after", ACCESSES)
def test_another_access_goes_on_with_the_same_matches(before, after, own):
    pieces = split_table(events(60, 60), 10)
    whole = list(found(stage("grouped", own).matcher(), pieces))
    first = stage(before, own).matcher()
    rows = list(found(first, pieces[:3]))
    second = stage(after, own).matcher()
    second.restore(first.snapshot())
    rows += found(second, pieces[3:])
    (rest,) = second.on_watermark(math.inf)
    assert len(whole) > 5
    assert rows + rest.to_pylist() == whole
