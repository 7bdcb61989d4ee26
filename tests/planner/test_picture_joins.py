"""Pictures of join trees and of MATCH_RECOGNIZE clauses."""

from xml.etree import ElementTree

import pytest

import ensue

TREES = [
    "SEQ(A a, AND(B b, C c), D d) WHERE a.x < b.x AND b.y = c.y AND a.n = d.n AND c.x > 3",
    "SEQ(A a, !N n, B b, C c) WHERE a.x + b.x + c.x < 10 AND a.z > 3 AND a.z < 30 AND n.x = a.x",
    "SEQ(A a, B b, C c, D d, E e) WHERE a.x < e.x AND b.x < d.x",
]


def elements(svg: str, tag: str) -> list[ElementTree.Element]:
    return [e for e in ElementTree.fromstring(svg).iter() if e.tag.endswith(f"}}{tag}")]


def boxes_of(svg: str) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of the boxes with a border."""
    found = []
    for e in elements(svg, "rect"):
        if e.get("stroke") is not None:
            x, y, width, height = (float(e.attrib[n]) for n in ("x", "y", "width", "height"))
            found.append((x, y, x + width, y + height))
    return found


@pytest.mark.parametrize("query", TREES)
def test_every_edge_of_a_join_tree_ends_at_two_boxes(query):
    svg = ensue.picture(f"{query} WITHIN 10", options=ensue.PlannerOptions(structure="tree"))
    boxes = boxes_of(svg)
    edges = [e.attrib["d"] for e in elements(svg, "path")]
    assert edges
    for way in edges:
        (x, bottom), *_, (to, top) = (tuple(map(float, point.split(","))) for point in way.strip("M").split(" L"))
        assert any(b[0] <= x <= b[2] and abs(b[3] - bottom) < 0.2 for b in boxes), way
        assert any(b[0] <= to <= b[2] and abs(b[1] - top) < 0.2 for b in boxes), way


@pytest.mark.parametrize("query", TREES)
def test_boxes_of_a_join_tree_are_apart(query):
    boxes = boxes_of(ensue.picture(f"{query} WITHIN 10", options=ensue.PlannerOptions(structure="tree")))
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            beside = one[2] <= other[0] or other[2] <= one[0]
            assert beside or one[3] <= other[1] or other[3] <= one[1]


def test_a_clause_is_drawn_with_its_variables_and_their_conditions():
    svg = ensue.picture(
        "MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY day MEASURES LAST(day) AS d"
        " PATTERN (^ START_ROW (DOWN+ | PERMUTE(FLAT, ODD){2,3}) {- UP*? -})"
        " DEFINE DOWN AS price < PREV(price), FLAT AS price = 3, ODD AS price = 5)"
    )
    texts = [e.text for e in elements(svg, "text")]
    for said in ("START_ROW", "DOWN+", "one of", "in any order", "repeated {2,3}", "UP*?", "^"):
        assert said in texts, said
    assert "price < PREV(price)" in texts
    assert "every row" in texts
