"""Which structure a query gets, and where its conditions go."""

import pytest

from ensue.planner.physical_plan import InstanceStacks, Nfa, ReferencePlan
from ensue.planner.planner import CHOICES, choose_plan, get_structure_name, why_no_stacks
from ensue.planner.rewrites import RULES
from ensue.printing.expression_printer import format_condition


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("SEQ(A a, B b)", "instance stacks"),
        ("SEQ(!C c, A a, B b) WITHIN 5", "instance stacks"),
        ("SEQ(A a, B b, !C c) WITHIN 5", "runs"),
        ("SEQ(A a, B b) WHERE skip_till_next_match(a, b) { [k] }", "runs"),
        ("SEQ(A a, B? b)", "runs"),
        ("SEQ(A a, B+ b[])", "runs"),
        ("AND(A a, B b)", "runs"),
        ("A a", "runs"),
        ("SEQ(A a, !SEQ(B b, C c), D d)", "instance stacks"),
        ("SEQ(A a, !SEQ(B b, C c)) WITHIN 5", "runs"),
        ("AND(A a, B b, !C c)", "runs"),
        ("AND(A a, B b, !SEQ(B c, C d))", "reference"),
        ("SEQ(A a, !SEQ(B b, C c)) WITHIN 5 EVENTS", "reference"),
        ("SEQ(A a, !OR(SEQ(B b, C c), D d), E e) WHERE b.x = d.x or c.x = a.x", "reference"),
        ("SEQ(A a, !C c, B b) WHERE c.s < a.s", "reference"),
        ("SEQ(A a, B+ b[]) WHERE percentile(b.x, 50) > a.x", "runs"),
    ],
)
def test_the_structure(case, text, name):
    assert get_structure_name(case(text).plan.structure) == name


def test_runs_have_a_reason_and_stacks_have_none(case):
    for text in ("A a", "SEQ(A a, B+ b[])", "SEQ(A a, B b, !C c) WITHIN 5", "AND(A a, B b)"):
        assert why_no_stacks(case(text).plan.query)
    assert why_no_stacks(case("SEQ(A a, B b)").plan.query) is None


def test_the_same_input_gives_the_same_plan(case):
    told = case("SEQ(A+ a[], OR(B b, AND(C c, D d))) WHERE sum(a.x) > c.x and b.x < d.x WITHIN 5")
    assert choose_plan(told.checked, told.shape.schema) == choose_plan(told.checked, told.shape.schema)


def test_what_is_off_is_noted(case):
    told = case("SEQ(A a, B b) WHERE a.k = b.k WITHIN 5")
    names = [rule.__name__ for rule in RULES]
    plan = choose_plan(told.checked, told.shape.schema, off=(*names, *CHOICES))
    assert plan.notes == tuple(f"{name}: off" for name in (*names, *CHOICES))
    assert isinstance(plan.structure, Nfa)
    assert not plan.prune
    assert plan.query == told.checked


def test_conditions_on_one_event_are_tested_by_the_scan(case):
    plan = case("SEQ(A+ a[], B b) WHERE a[1].x > 1 and a[i].y > 0 and b.s = 'p' and 1 < 2").plan
    role = plan.role("a")
    assert [format_condition(c) for c in role.first] == ["a[1].x > 1"]
    assert [format_condition(c) for c in role.conditions] == ["a[i].y > 0", "1 < 2"]
    assert [format_condition(c) for c in plan.role("b").conditions] == ["b.s = 'p'", "1 < 2"]


def test_stacks_try_conditions_where_the_leftmost_variable_is_bound(case):
    stacks = case("SEQ(A a, B b, C c) WHERE a.x < c.x and b.x < c.x").plan.structure
    assert isinstance(stacks, InstanceStacks)
    assert [[format_condition(c.condition) for c in checks] for checks in stacks.checks] == [
        ["a.x < c.x"],
        ["b.x < c.x"],
        [],
    ]


@pytest.mark.slow
def test_a_pattern_with_too_many_states_is_left_to_the_reference(case):
    atoms = ", ".join(f"A a{n}" for n in range(13))
    assert isinstance(case(f"AND({atoms})").plan.structure, ReferencePlan)


def test_edges_never_lead_backwards(case):
    automaton = case("SEQ(AND(A+ a[], B b), OR(C c, D? d), A e)").plan.structure
    assert isinstance(automaton, Nfa)
    assert all(edge.source <= edge.target for edge in automaton.edges)
    assert [s.number for s in automaton.states] == list(range(len(automaton.states)))
