"""Checkpoints know the operators of their query, by name and by code."""

import pyarrow as pa
import pytest

import ensue
from ensue.runtime.job_fingerprint import register_job
from ensue.runtime.workload import Workload
from support.key_groups import workload_of

ARROW = pa.schema({"t": pa.int64(), "k": pa.string(), "x": pa.int64()})


def job(op: ensue.UserOperator) -> Workload:
    query = ensue.parse(f"SEQ({op.name}(A a, B b) r, C c) WITHIN 5", definitions=[op])
    return workload_of(query, ARROW, "t", "k", key_groups=2)


def test_a_job_reads_back_with_its_operators():
    op = ensue.operator("of_a_stream", q=lambda a, b: a.x < b.x)
    again = Workload.read(job(op).texts, [op])
    assert again.specs == job(op).specs
    assert again.texts == job(op).texts


def test_an_operator_that_is_not_known_is_named():
    op = ensue.operator("unknown_here", q=lambda a, b: a.x < b.x)
    with pytest.raises(ensue.StateError, match=r"uses the operator unknown_here, which is not"):
        Workload.read(job(op).texts)


def test_a_changed_operator_is_refused():
    op = ensue.operator("changing", q=lambda a, b: a.x < b.x)
    other = ensue.operator("changing", q=lambda a, b: a.x <= b.x)
    with pytest.raises(ensue.StateError, match="the operator changing is not what it was"):
        Workload.read(job(op).texts, [other])
    assert job(op).texts != job(other).texts  # so that a restarted stream is refused as well


def test_the_end_of_a_stream_knows_the_operators_that_began_it():
    op = ensue.operator("began_it", q=lambda a, b: a.x < b.x)
    register_job(job(op).specs)
    assert Workload.read(job(op).texts).specs == job(op).specs


def test_jobs_travel_with_their_functions():
    from numba import cloudpickle

    op = ensue.operator("travels", q=lambda a, b: a.x < b.x)
    came = cloudpickle.loads(cloudpickle.dumps(job(op).chains[0]))
    assert came.text == job(op).chains[0].text
    assert came.specs[0].query.pattern.parts[0].operator.q is not op.q
