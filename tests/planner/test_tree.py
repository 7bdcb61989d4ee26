"""The shapes of join trees, and where conditions and negations go in them."""

import pytest

import ensue
from ensue.errors import QueryError
from ensue.planner.explain.plan_description import describe_plan
from ensue.planner.explain.plan_node import format_plan
from ensue.planner.explain.plan_picture import draw_plan
from ensue.planner.join_tree import build_left_deep, build_tree, format_tree
from ensue.planner.physical_plan import JoinNode, JoinTree
from ensue.planner.planner import choose_plan
from ensue.planner.planner_options import PlannerOptions
from support.join_shapes import shapes


def planned(text: str, shape=None, **options) -> JoinTree:
    query = ensue.parse(text)
    tree = build_tree(query, query.where, (), shape, **options)
    assert tree is not None
    return tree


def joins(tree: JoinTree) -> dict[str, JoinNode]:
    found = {}

    def visit(node) -> None:
        if isinstance(node, JoinNode):
            found[format_tree(node)] = node
            visit(node.left)
            visit(node.right)

    visit(tree.root)
    return found


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("SEQ(A a, B b)", 1),
        ("SEQ(A a, B b, C c, D d)", 5),
        ("SEQ(A a, !X n, B b, C c, D d)", 5),
        ("SEQ(A a, B b, C c, D d, E e)", 14),
        ("AND(A a, B b, C c)", 3),
        ("AND(A a, B b, C c, D d)", 15),
        ("SEQ(A a, AND(B b, C c, D d), E e)", 6),
    ],
)
def test_a_pattern_has_so_many_shapes(text, count):
    query = ensue.parse(text)
    found = list(shapes(query))
    assert len(found) == len(set(found)) == count
    assert build_left_deep(query) in found
    for shape in found:
        planned(text, shape)


def test_conditions_go_to_the_lowest_node_that_sees_their_events():
    text = "SEQ(A a, B b, C c, D d) WHERE a.x < b.x and c.x < d.x and b.x < d.x"
    bushy = joins(planned(text, (("a", "b"), ("c", "d"))))
    assert {name: len(node.checks) for name, node in bushy.items()} == {
        "((a -> b) -> (c -> d))": 1,
        "(a -> b)": 1,
        "(c -> d)": 1,
    }
    late = joins(planned(text, (("a", "b"), ("c", "d")), push=False))
    assert len(late["((a -> b) -> (c -> d))"].checks) == 3


def test_a_negation_goes_where_its_neighbours_are():
    text = "SEQ(A a, !X n, B b, C c)"
    left = joins(planned(text, (("a", "b"), "c")))
    assert len(left["(a -> b)"].absences) == 1
    right = joins(planned(text, ("a", ("b", "c"))))
    assert len(right["(a -> (b -> c))"].absences) == 1
    first = joins(planned("SEQ(!X n, A a, B b, C c)", (("a", "b"), "c")))
    assert len(first["((a -> b) -> c)"].absences) == 1


def test_a_negation_may_be_named_in_a_shape():
    text = "SEQ(A a, !B n, C* c[], D d)"
    trees = {
        name: planned(text, shape)
        for name, shape in {
            "T1": ((("a", "n"), "c"), "d"),
            "T2": (("a", "n"), ("c", "d")),
            "T3": (("a", ("n", "c")), "d"),
            "T4": ("a", (("n", "c"), "d")),
            "T5": ("a", ("n", ("c", "d"))),
        }.items()
    }
    assert trees["T1"] == trees["T3"] != trees["T2"] == trees["T4"] == trees["T5"]


@pytest.mark.parametrize("shape", [("b", "a"), (("a", "c"), "b"), "a", ("a", ("b", "x"))])
def test_a_shape_that_does_not_fit_is_refused(shape):
    with pytest.raises(QueryError, match="does not fit"):
        planned("SEQ(A a, B b, C c)", shape)


def test_explain_and_picture_show_the_tree(case):
    told = case("SEQ(A a, !X n, B b, AND(C c, D+ d[])) WHERE a.x < b.x WITHIN 5")
    planning = PlannerOptions(structure="tree", shape=("a", ("b", ("c", "d"))))
    plan = choose_plan(told.checked, told.shape.schema, planning)
    shown = format_plan(describe_plan(plan))
    assert "join tree: (a -> (b -> (c & d)))" in shown
    assert "\n    . a.x < b.x\n    . no X n after a and before b\n" in shown
    assert "AND" in draw_plan(describe_plan(plan))
