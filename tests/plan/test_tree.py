"""The shapes of join trees, and where conditions and negations go in them."""

import pytest

import ensue
from ensue.errors import QueryError
from ensue.plan.choose import choose
from ensue.plan.physical import Join, Tree
from ensue.plan.physical_rules.tree import left_deep, shapes, tree_of, tree_text
from ensue.plan.planning import Planning
from ensue.plan.show.explain import explain
from ensue.plan.show.picture import picture


def planned(text: str, shape=None, **options) -> Tree:
    query = ensue.parse(text)
    tree = tree_of(query, query.where, (), shape, **options)
    assert tree is not None
    return tree


def joins(tree: Tree) -> dict[str, Join]:
    found = {}

    def visit(node) -> None:
        if isinstance(node, Join):
            found[tree_text(node)] = node
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
    assert left_deep(query) in found
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
    planning = Planning(structure="tree", shape=("a", ("b", ("c", "d"))))
    plan = choose(told.checked, told.shape.schema, planning)
    shown = explain(plan)
    assert "join tree: (a -> (b -> (c & d)))" in shown
    assert "\n    . a.x < b.x\n    . no X n after a and before b\n" in shown
    assert "AND" in picture(plan)
