"""By what saved states and match ids know a query."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue.engine import state_format as meaning
from ensue.engine.state_format import pack_state, unpack_state
from ensue.errors import QueryError, StateError
from ensue.ir.canonical_form import Unordered, canonical_form, compute_fingerprint
from ensue.ir.query import Query
from ensue.ir.selection import Strategy
from ensue.operators.match.shared_matcher import SharedMatcher
from ensue.planner.planner_options import PlannerOptions
from ensue.planner.predicate_order import get_state_layout
from ensue.runtime.compiled_query import CompiledQuery, compile_query
from ensue.runtime.stage import StageInput
from ensue.vector.event_table import create_schema
from support.joins import random_join
from support.negations import random_negations
from support.queries import random_query, random_repeats
from support.seeds import scaled
from support.streams import random_events

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # with JIT off, scalars warn


def prepared(text: str, structure: str | None = None) -> CompiledQuery:
    shape = create_schema(random_events(Random(0), 1).schema, time="t", type="type", order=())
    return compile_query(ensue.parse(text), shape, PlannerOptions(structure=structure))


def known_by(ready: CompiledQuery) -> tuple:
    """What states are stamped by: plan, schema, unit."""
    _, schema = ready.shape.physical(ready.query)
    return ready.plan, schema, ready.shape.unit


# ------------------------------------------------------------------------------ canonical forms


@pytest.mark.parametrize(
    "others",
    [
        ("A a WHERE a.x = 1", "A a WHERE a.x = 1.0", "A a WHERE a.x = true"),
        ("A a WHERE a.x = 0.0", "A a WHERE a.x = -0.0"),
        ("A a WHERE a.x = '1'", "A a WHERE a.x = '1 '", "A a WHERE a.x = '\"1\"'"),
        ("A a WHERE a.x = null", "A a WHERE a.x = 'None'"),
        ("A a WHERE a.x = 5 minutes", "A a WHERE a.x = 5 hours", "A a WHERE a.x = 5"),
        (
            "A a WHERE a.t = TIMESTAMP '2026-01-31 10:00:00'",
            "A a WHERE a.t = TIMESTAMP '2026-01-31 10:00:00+01:00'",
            "A a WHERE a.t = TIMESTAMP '2026-01-31 10:00:00.000001'",
        ),
        ("SEQ(A a, B b) LIMIT 1", "SEQ(A a, B b) LIMIT 2", "SEQ(A a, B b)"),
        ("A a RETURN EXISTS", "A a RETURN a.x", "A a"),
        ("SEQ(A a, B b) WITHIN 5", "SEQ(A a, B b) WITHIN 5.0", "SEQ(A a, B b) WITHIN 5 EVENTS"),
        ("SEQ(A a, B b)", "AND(A a, B b)", "SEQ(B b, A a)", "SEQ(A a, B? b)", "SEQ(A b, B a)"),
        (
            "A a RETURN a.k, sum(a.x) AS s GROUP BY k",
            "A a RETURN a.k, sum(a.y) AS s GROUP BY k",
            "A a RETURN a.k, max(a.x) AS s GROUP BY k",
        ),
    ],
)
def test_different_queries_have_different_forms(others):
    queries = [ensue.parse(text) for text in others]
    assert len(set(map(canonical_form, queries))) == len(others)
    assert len(set(map(compute_fingerprint, queries))) == len(others)


def random_texts(seed: int) -> Iterator[str]:
    for write in (random_query, random_repeats, random_negations, random_join):
        yield write(Random(seed))


def test_forms_are_equal_where_the_nodes_are():
    by_form: dict[str, set[str]] = {}
    for seed in range(scaled(150)):
        for text in random_texts(seed):
            try:
                found = ensue.parse(text)
            except QueryError:
                continue
            by_form.setdefault(canonical_form(found), set()).add(repr(found))
    assert len(by_form) > scaled(400)
    assert all(len(nodes) == 1 for nodes in by_form.values())
    assert len(set[str]().union(*by_form.values())) == len(by_form)


def test_how_a_query_is_written_does_not_matter():
    one = ensue.parse("pattern A a -> B b where a.x<b.x within 5 min")
    assert canonical_form(one) == canonical_form(ensue.parse(ensue.show(one)))


def test_the_order_of_sets_and_mappings_does_not_matter():
    assert canonical_form(frozenset("abc")) == canonical_form(frozenset("cba"))
    assert canonical_form({"a": 1, "b": 2}) == canonical_form({"b": 2, "a": 1})
    assert canonical_form(("a", "b")) != canonical_form(("b", "a"))
    assert canonical_form(Unordered("aab")) == canonical_form(Unordered("baa"))
    assert canonical_form(Unordered("aab")) != canonical_form(Unordered("ab"))


def test_values_have_forms_of_their_own():
    moment = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Zurich"))
    values = [
        None, False, True, 0, 1, 0.0, -0.0, 1.0, float("nan"), float("inf"), "", "0", "nan", (),
        ("",), [("",)], ("", ""), {}, Decimal(1), Decimal("1.0"), timedelta(1), timedelta(1, 0, 1),
        date(2026, 10, 25), datetime(2026, 10, 25), moment, moment.replace(fold=1),
        moment.astimezone(UTC), Strategy.ANY, "Strategy.ANY",
    ]  # fmt: skip
    assert len(set(map(canonical_form, values))) == len(values)
    assert canonical_form(np.float64(1.0)) == canonical_form(1.0)


def test_what_cannot_be_read_has_no_form():
    with pytest.raises(TypeError, match="a object has no canonical form"):
        canonical_form((1, object()))


def test_an_operator_is_known_by_its_functions():
    def query(least: int) -> Query:
        operator = ensue.operator("big", over="each", q=lambda e: e.x >= least)
        return ensue.parse("SEQ(big(A a) g, B b) WITHIN 9", definitions=[operator])

    assert compute_fingerprint(query(1)) == compute_fingerprint(query(1))
    assert compute_fingerprint(query(1)) != compute_fingerprint(query(2))


def test_a_fingerprint_does_not_depend_on_the_columns_that_a_query_is_checked_against():
    operator = ensue.operator("big", over="each", q=lambda e: e.x >= 1)
    query = ensue.parse("SEQ(big(A a) g, B b) WITHIN 9", definitions=[operator])
    shape = create_schema(random_events(Random(0), 1).schema, time="t", type="type", order=())
    checked = compile_query(query, shape, PlannerOptions()).query
    assert canonical_form(checked) != canonical_form(query)
    assert compute_fingerprint(checked) == compute_fingerprint(query)


def test_the_order_in_which_conditions_are_tried_does_not_matter():
    text = "SEQ(A a, B b) WHERE a.x < b.x and a.y < b.y and a.s = b.s WITHIN 9"
    plan = prepared(text, "tree").plan
    root = plan.structure.root
    turned = replace(plan.structure, root=replace(root, checks=root.checks[::-1]))
    assert turned != plan.structure
    where = plan.query.where
    assert get_state_layout(turned, where) == get_state_layout(plan.structure, where)


def test_the_checks_of_a_tree_are_part_of_its_state():
    plan = prepared("SEQ(A a, B b) WHERE a.x < b.x WITHIN 9", "tree").plan
    root, where = plan.structure.root, plan.query.where
    other = replace(plan.structure, root=replace(root, checks=()))
    assert get_state_layout(other, where) != get_state_layout(plan.structure, where)


# ------------------------------------------------------------------------------- saved states


SEVERAL = [
    "SEQ(A a, B b, C c) WHERE skip_till_next_match(a, b, c) { [k] and b.x >= a.x } WITHIN 9",
    "SEQ(A a, B b) WHERE [k] WITHIN 9",
    "SEQ(A a, B b, !C c) WHERE [k] and c.x > a.x WITHIN 6",
    "SEQ(A a, B b) WHERE [k] WITHIN 9 RETURN COUNT(*) AS n",
]


def several(texts: list[str] = SEVERAL) -> SharedMatcher:
    return SharedMatcher([prepared(text) for text in texts])


def fed(events: pa.Table) -> StageInput:
    return StageInput(events, {}, ())


def test_the_state_of_several_queries_fits_them_only():
    events, matcher = random_events(Random("meaning several"), 60), several()
    matcher.process(fed(events.slice(0, 30)))
    state = matcher.snapshot()
    several().restore(state)
    for texts in (SEVERAL[:-1], SEVERAL[::-1], [*SEVERAL[:-1], "SEQ(A a, B b) WITHIN 9"]):
        with pytest.raises(StateError, match="another set of queries"):
            several(texts).restore(state)


@pytest.mark.slow
def test_the_text_is_the_same_in_every_process():
    """Sets of names have another order in each: none is in a text."""
    code = (
        "from tests.engine.test_meaning import several, prepared, SEVERAL, known_by, meaning\n"
        "print(several()._fingerprint(), [meaning.make_signature(*known_by(prepared(q)))"
        " for q in SEVERAL])"
    )
    root = Path(__file__).parent.parent.parent
    path = os.pathsep.join([str(root), str(root / "tests"), *sys.path])
    found = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


@pytest.mark.parametrize("version", [None, 9])
def test_a_state_with_a_text_of_another_version_says_what_to_do(version):
    ready = prepared(SEVERAL[0])
    header, arrays, blobs = unpack_state(ready.engine().snapshot())
    assert header["text"] == meaning.VERSION_MEANING
    other = pack_state(header | {"text": version}, arrays, blobs)
    with pytest.raises(StateError, match=rf"version {version}, and this release reads version 1\n"):
        ready.engine().restore(other)
    header, arrays, blobs = unpack_state(unpack_state(several().snapshot())[2]["several"])
    other = pack_state(header | {"text": version}, arrays, blobs)
    with pytest.raises(StateError, match="restore it with the release that saved it"):
        several().restore(pack_state({}, {}, {"several": other}))
