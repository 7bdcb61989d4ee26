"""Runs kernels whose alike edges share their code: the matches of the semantics, in short texts.

Few queries are compiled; with NUMBA_DISABLE_JIT=1 many random ones run.
"""

from collections import Counter
from random import Random

import numba
import pytest
from benchmarks.compile_time import QUERIES as MEASURED

import ensue
from ensue.analyzer.query import check_query
from ensue.codegen.kernel_cache import LONG_COMPILE, estimate_compile_seconds
from ensue.engine.program import Program
from ensue.errors import QueryError
from ensue.planner import nfa as code_size
from ensue.planner.physical_plan import Nfa
from ensue.planner.planner import choose_plan
from ensue.planner.planner_options import PlannerOptions
from ensue.planner.schema_inference import infer_schema
from support.edges import random_edges
from support.groups import random_groups
from support.judged import judged
from support.negations import random_negations
from support.queries import random_query, random_repeats
from support.seeds import scaled
from support.streams import PLAIN, random_events, random_nature, random_slices

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

UNCOMPILED = bool(numba.config.DISABLE_JIT)
LEFT_OUT = (("stacks",), ("stacks", "window"), ("stacks", "push_negation"), ("stacks",))
WRITTEN = {
    "queries": random_query,
    "repeats": random_repeats,
    "negations": random_negations,
    "groups": random_groups,
    "edges": random_edges,
}
QUERIES = {
    "and": "AND(A a, B b, C c) WHERE [k] and b.x >= a.x + 1 and c.x >= a.x + 1",
    "next": "SEQ(A a, AND(B b, C+ c[])) USING next WHERE c[i].x >= c[i-1].x WITHIN 9",
    "waiting": "SEQ(A a, B? b, C c, !B n) WHERE n.x > a.x WITHIN 4",
    "group": "SEQ((A a, B b){1,3} THEN ANY C c) USING next",
    "strict": "SEQ(A a, B? b, C c) USING strict WHERE c.x >= a.x",
}


@pytest.fixture
def shared(monkeypatch):
    """However short the kernel of a query is, its edges share their code."""
    monkeypatch.setattr(code_size, "MOST_LINES", 0)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(4))
def test_the_matches_are_those_of_the_semantics(name, round):
    random, outcomes = Random(f"{name} {round}"), Counter()
    for _ in range(20):
        events = random_events(random, random.randint(4, 11))
        pieces = random_slices(random, events)
        outcomes[judged(QUERIES[name], events, pieces, PLAIN)] += 1
    assert outcomes["matches"] > 1
    assert not outcomes["reference"]


@pytest.mark.usefixtures("shared")
@pytest.mark.skipif(not UNCOMPILED, reason="hundreds of queries would be compiled")
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("sort", WRITTEN)
def test_random_queries(sort, seed, monkeypatch):
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", (1, 2, 4, 1_024)[seed % 4])
    random, outcomes = Random(f"{sort} {seed}"), Counter()
    for _ in range(scaled(40)):
        nature = random_nature(random)
        text, off = WRITTEN[sort](random, nature), random.choice(LEFT_OUT)
        events = random_events(random, random.randint(3, 9), nature)
        try:
            outcomes[judged(text, events, random_slices(random, events), nature, off)] += 1
        except QueryError:
            outcomes["refused"] += 1
    assert outcomes["matches"] > 0, outcomes


def _planned(text, structure=None):
    query = ensue.parse(text)
    schema = infer_schema(query)
    return choose_plan(check_query(query, schema), schema, PlannerOptions(structure=structure)), schema


# ----------------------------------------------------------------------------- how long it takes

PATTERNS = {name: text for name, text in MEASURED.items() if text.startswith("PATTERN")}


@pytest.mark.parametrize("name", PATTERNS)
def test_no_kernel_of_runs_takes_longer_to_compile_than_it_may(name):
    plan, schema = _planned(PATTERNS[name])
    if not isinstance(plan.structure, Nfa):
        pytest.skip("it is not run on runs")
    source = Program(plan, schema, "us", nullable=False).source
    assert estimate_compile_seconds(source.text, "step") < LONG_COMPILE


def test_twice_as_many_states_are_no_longer_text():
    lengths = []
    for count in (6, 8):
        plan, schema = _planned(PATTERNS[f"AND of {count}"])
        source = Program(plan, schema, "us", nullable=False).source
        code = [line for line in source.text.splitlines() if " = np.array(" not in line]
        lengths.append(len(code))
    assert lengths[1] < 1.2 * lengths[0]


def test_explain_says_that_code_is_shared():
    said = "share the code of those that are alike"
    assert said in ensue.explain(PATTERNS["AND of 5"])
    assert said not in ensue.explain(PATTERNS["SEQ of 3, next"])


@pytest.mark.usefixtures("shared")
def test_the_same_conditions_with_other_constants_have_the_same_text():
    texts = set()
    for number in (3, 17):
        text = f"AND(A a, B b, C c) WHERE b.x > a.x + {number} and c.x > {number} * a.x WITHIN 9"
        texts.add(Program(*_planned(text), "us", nullable=False).source.text)
    assert len(texts) == 1
