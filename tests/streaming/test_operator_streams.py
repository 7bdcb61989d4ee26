"""Checkpoints know the operators of their query, by name and by code."""

import pyarrow as pa
import pytest

import ensue
from ensue.workload import stream_job
from ensue.workload.stream_job import StreamJob

ARROW = pa.schema({"t": pa.int64(), "k": pa.string(), "x": pa.int64()})


def job(op: ensue.Operator) -> StreamJob:
    query = ensue.parse(f"SEQ({op.name}(A a, B b) r, C c) WITHIN 5", operators=[op])
    return StreamJob(query, ARROW, "t", "k", (), None, None, lanes=2)


def test_a_job_reads_back_with_its_operators():
    op = ensue.operator("of_a_stream", q=lambda a, b: a.x < b.x, known=False)
    again = StreamJob.read(job(op).text, [op])
    assert again.query == job(op).query
    assert again.text == job(op).text


def test_an_operator_that_is_not_known_is_named():
    op = ensue.operator("unknown_here", q=lambda a, b: a.x < b.x, known=False)
    with pytest.raises(ensue.StateError, match=r"uses the operator unknown_here, which is not"):
        StreamJob.read(job(op).text)


def test_a_changed_operator_is_refused():
    op = ensue.operator("changing", q=lambda a, b: a.x < b.x, known=False)
    other = ensue.operator("changing", q=lambda a, b: a.x <= b.x, known=False)
    with pytest.raises(ensue.StateError, match="the operator changing is not what it was"):
        StreamJob.read(job(op).text, [other])
    assert job(op).text != job(other).text  # so that a restarted stream is refused as well


def test_the_end_of_a_stream_knows_the_operators_that_began_it():
    op = ensue.operator("began_it", q=lambda a, b: a.x < b.x, known=False)
    stream_job.remember(job(op).query)
    assert StreamJob.read(job(op).text).query == job(op).query


def test_jobs_travel_with_their_functions():
    from numba import cloudpickle

    op = ensue.operator("travels", q=lambda a, b: a.x < b.x, known=False)
    came = cloudpickle.loads(cloudpickle.dumps(job(op)))
    assert came.text == job(op).text
    assert came.query.pattern.parts[0].operator.q is not op.q
