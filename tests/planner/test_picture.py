"""Pictures: well-formed, with every label, and nothing outside the frame."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

import ensue

SVG = "{http://www.w3.org/2000/svg}"
QUERIES = sorted((Path(__file__).parent / "golden").glob("*.ensue"))


def drawn(text):
    return ElementTree.fromstring(ensue.picture(text))


def texts(root):
    return [node.text for node in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_every_golden_query_has_a_picture(path):
    root = drawn(path.read_text(encoding="utf-8"))
    left, top, width, height = map(float, root.get("viewBox").split())
    for node in root.iter(f"{SVG}text"):
        assert left <= float(node.get("x")) <= left + width
        assert top <= float(node.get("y")) <= top + height


def test_states_edges_and_predicates():
    found = texts(drawn("SEQ(Stock+ a[], Stock b) WHERE a[i].x > a[i-1].x and b.y < 2 WITHIN 5"))
    assert {"0", "1", "2", "match", "b.y < 2", "a[i].x > a[i-1].x"} <= set(found)
    assert found.count("Stock a[]") == 2  # the way to state 1, and the loop there
    assert found.count("Stock b") == 1


def test_edges_have_their_words_which_are_explained_once():
    found = texts(drawn("A a THEN NEXT (B b THEN)++ UNTIL X u THEN ANY C c"))
    assert {"THEN NEXT B b[]", "THEN B b[]", "THEN ANY C c", "UNTIL X u: it is none"} <= set(found)
    assert found.count("the very next event of the partition") == 1
    assert found.count("no event before it that could be it") == 1
    assert "greedy: neither it nor one passed over can be b[]" in found


def test_a_greedy_loop_at_the_end_says_when_it_is_a_match():
    assert "if b[] cannot go on (greedy)" in texts(drawn("A a THEN NEXT (B b THEN NEXT)++"))


def test_there_and_back_inside_a_column_are_two_edges_with_a_label_each():
    root = drawn("SEQ(A a, (B b, C c)+, D d) USING next")
    places = {n.text: float(n.get("x")) for n in root.iter(f"{SVG}text") if n.get("text-anchor") in ("start", "end")}
    (back,) = (x for text, x in places.items() if text == "C c[]")
    (there,) = (x for text, x in places.items() if text == "B b[]")
    assert back + 50 < there


def test_accepting_states_are_double_circles():
    root = drawn("SEQ(A a, B+ b[])")
    assert len(list(root.iter(f"{SVG}circle"))) == 4


def test_long_predicates_are_numbered_below():
    long = "a.temperature_of_the_inner_wall > b.temperature_of_the_outer_wall"
    found = texts(drawn(f"SEQ(A a, B+ b[], C c) WHERE {long.replace('b.', 'c.')} WITHIN 5"))
    assert found.count("[1]") == 2  # on the edge and in the legend
    assert long.replace("b.", "c.") in found


@pytest.mark.parametrize(
    ("text", "negated"),
    [
        ("SEQ(A a, !N n, B+ b[])", "N n"),
        ("SEQ(!N n, A a, B+ b[]) WITHIN 5", "N n"),
        ("SEQ(A a, B+ b[], !N n) WITHIN 5", "N n"),
        ("SEQ(A a, !N n, B b)", "N n"),
        ("SEQ(!N n, A a, B b) WITHIN 5", "N n"),
        ("AND(A a, B b, !N n)", "N n"),
        ("SEQ(A a, !SEQ(N n, M m), B b)", "SEQ(N n, M m)"),
    ],
)
def test_negated_events_are_white_on_black(text, negated):
    nodes = [n for n in drawn(text).iter(f"{SVG}text") if n.text == negated]
    assert nodes
    assert all(node.get("fill") == "#ffffff" for node in nodes)


def test_a_negation_at_the_end_says_when_it_is_decided():
    assert "no N n after a, b[] inside the window: decided when the window closes" in texts(
        drawn("SEQ(A a, B+ b[], !N n) WITHIN 5")
    )


def test_stacks():
    found = texts(drawn("SEQ(Shelf x, !Counter y, Exit z) WHERE [tag] and x.p < z.p WITHIN 5"))
    assert {"Shelf x", "Counter y", "Exit z", "x.p < z.p"} <= set(found)
    assert {"kept on a stack", "each builds matches backwards"} <= set(found)


def test_a_pattern_that_the_reference_runs_is_a_tree():
    found = texts(drawn("SEQ(A a, !SEQ(B b, C c), OR(D d, E+ e[])) WHERE b.x < e[i].x"))
    assert {"SEQ", "NOT", "OR", "A a", "E+ e[]"} <= set(found)
    assert any("slower exact path, because of a condition on a negated" in t for t in found)


def test_a_large_automaton_is_a_tree_as_well():
    atoms = ", ".join(f"A a{n}" for n in range(6))
    found = texts(drawn(f"AND({atoms})"))
    assert {"AND", "A a5", "runs along an automaton of 64 states"} <= set(found)


def test_texts_are_escaped():
    found = texts(drawn('SEQ("<A>" a, B+ b[]) WHERE a.s = \'<&>"\''))
    assert "a.s = '<&>\"'" in found
    assert any("<A>" in text for text in found)


def test_long_names_are_cut():
    name = "a_very_long_name_of_a_type_of_events_that_goes_on_and_on"
    assert "a_very_long_name_… a" in texts(drawn(f"SEQ({name} a, B+ b[])"))
