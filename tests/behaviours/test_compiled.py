"""Machine code finds what the reference semantics finds, for each kind of kernel once.

Other behaviours run generated code as plain Python, which is the same text; what may differ is
what a compiler makes of it: types of variables, integers that overflow, NULL and NaN.
"""

from random import Random

import pyarrow as pa
import pytest
from tests.conftest import Live, Local, Semantics

pytestmark = pytest.mark.usefixtures("compiled")

QUERIES = {
    "stacks": "SEQ(A a, B b, C c) WHERE a.k = b.k and b.x > a.x and sqrt(c.f) > 0.5 WITHIN 20",
    "negations": "SEQ(!(D d), A a, !(B b), C c) WHERE b.x > a.x WITHIN 6",
    "a negation at the end": "SEQ(A a, C c, !(B b)) WHERE a.k = c.k and b.k = a.k WITHIN 5",
    "a run": "SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) "
    "{ [k] and b[i].x >= b[i-1].x and sum(b[..i].x) < 9 } WITHIN 9",
    "strict contiguity": "SEQ(A+ a[], B b) WHERE strict_contiguity(a[], b) { a.LEN > 0 } WITHIN 9",
    "aggregates": "SEQ(A a, B+ b[], C c) WHERE count(b.f) > 0 and sum(b.x) > a.x WITHIN 9",
    "either": "SEQ(A a, (B b | C c), D? d) WHERE a.x < 3 WITHIN 4",
    "counts": "SEQ(A a, B b, C c) WHERE a.k = c.k WITHIN 6 RETURN COUNT(*) AS n",
}


def random_events(random: Random, size: int) -> pa.Table:
    columns = {
        "x": pa.array(random.choices([None, *range(5), 2**62], k=size), pa.int64()),
        "f": pa.array(random.choices([None, float("nan"), 0.5, 1.5, 2.0], k=size), pa.float64()),
        "k": random.choices("uvw", k=size),
    }
    return pa.table({"t": range(size), "type": random.choices("ABCD", k=size)} | columns)


QUICK = ("negations",)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in QUERIES])
def test_machine_code_finds_the_same(name):
    events = random_events(Random(name), 60)
    wanted, *others = (
        sorted(map(repr, runner.match(events, QUERIES[name], time="t", type="type").to_pylist()))
        for runner in (Semantics(), Local(), Live())
    )
    assert wanted
    for found in others:
        assert found == wanted
