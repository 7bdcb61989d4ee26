"""What a notebook shows of plans, queries, pictures and tables: all of it escaped."""

from html.parser import HTMLParser
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import ensue
from ensue.notebook import render_table

EVIL = "<script>alert(1)</script>"
EVENTS = pa.table({"t": [1, 2], "kind": ["A", "B"], "note": [EVIL, 'x" onload="y'], "x": [3, 4]})
CLAUSE = "MATCH_RECOGNIZE (ORDER BY day MEASURES LAST(day) AS d PATTERN (A B+) DEFINE B AS price > PREV(price))"
HIERARCHY = "EVENT Pair AS SEQ(A a, B b) WITHIN 5; SEQ(Pair p)"


class Seen(HTMLParser):
    """Which tags and attributes there are, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text += data


def test_a_plan_is_a_text_and_has_lines_in_a_notebook():
    plan = ensue.explain(f"SEQ(A a, B b) WHERE a.note = '{EVIL}' WITHIN 5")
    assert isinstance(plan, str)
    assert plan.startswith("pattern    SEQ(A a, B b)")
    shown = plan._repr_mimebundle_()
    assert shown["text/plain"] == plan
    seen = Seen(shown["text/html"])
    assert set(seen.tags) == {"pre", "b", "span"}
    assert seen.text == plan


def test_a_picture_is_the_text_of_an_svg():
    picture = ensue.picture(f"SEQ(A a, B b) WHERE a.note = '{EVIL}' WITHIN 5")
    assert isinstance(picture, str)
    ElementTree.fromstring(picture)
    assert picture._repr_svg_() == picture
    assert "<script" not in picture
    assert "SVG" in picture._repr_mimebundle_(include=None, exclude=None)["text/plain"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (lambda: ensue.parse("SEQ(A a, B b) WITHIN 5"), "PATTERN SEQ(A a, B b)\nWITHIN 5"),
        (lambda: ensue.parse(HIERARCHY), "EVENT Pair AS\nPATTERN SEQ(A a, B b)\nWITHIN 5;\n\nPATTERN"),
        (lambda: ensue.parse(HIERARCHY).definitions[0], "EVENT Pair AS\nPATTERN SEQ(A a, B b)"),
        (lambda: ensue.pattern("A a").then("B b"), "PATTERN"),
        (lambda: ensue.parse(CLAUSE), "MATCH_RECOGNIZE"),
        (lambda: ensue.parse("A a JOIN ARCHIVE old A b RANGE 9 BEFORE START"), "JOIN ARCHIVE old"),
        (lambda: ensue.parse("=|(A; 25)(A), A = (ARITH:id = 17)"), "ARITH:id"),
        (lambda: ensue.parse(f"A a WHERE a.note = '{EVIL}'"), EVIL),
    ],
)
def test_every_kind_of_query_is_shown_as_its_text(query, said):
    shown = query()._repr_mimebundle_(include=None, exclude=None)
    assert said in shown["text/plain"]
    seen = Seen(shown["text/html"])
    assert set(seen.tags) <= {"pre", "b", "span"}
    assert seen.attributes <= {"style"}
    assert seen.text == shown["text/plain"]


def test_a_set_of_subscriptions_shows_the_first_of_them():
    fleet = ensue.Subscriptions(time="ts")
    fleet.add_all({f"<i>{n}": f"SEQ(A a, B b) WHERE a.id = {n} WITHIN 5" for n in range(30)})
    seen = Seen(fleet._repr_html_())
    assert "i" not in seen.tags
    assert "<i>3" in seen.text
    assert "… and 10 more" in seen.text


def test_a_trace_and_a_plot_escape_what_events_say():
    found = ensue.match(EVENTS, "SEQ(A a, B b)", time="t", type="kind")
    trace = ensue.trace(found)
    for svg in (
        trace._repr_html_(),
        trace._repr_svg_(),
        ensue.plot(found, EVENTS, time="t", type="kind"),
        ensue.plot(found, EVENTS, time="t", type="kind", by="note"),
    ):
        root = ElementTree.fromstring(svg)
        assert not [e for e in root.iter() if e.tag.endswith("script")]
        assert not [e for e in root.iter() if "onload" in e.attrib]


def test_characters_that_xml_cannot_hold_do_not_break_a_picture():
    events = pa.table({"t": [1, 2], "kind": ["A", "B"], "note": ["a\x01b", "\x00"]})
    found = ensue.match(events, "SEQ(A a, B b)", time="t", type="kind")
    ElementTree.fromstring(ensue.trace(found).svg)
    ElementTree.fromstring(ensue.plot(found, events, time="t", type="kind", by="note"))


def test_an_arrow_table_is_shown_with_short_ids_and_escaped():
    found = ensue.match(EVENTS, "SEQ(A a, B b)", time="t", type="kind")
    seen = Seen(render_table(found))
    assert "script" not in seen.tags
    assert "onload" not in seen.attributes
    assert found["match_id"][0].as_py()[:10] in seen.text
    assert found["match_id"][0].as_py() not in seen.text
    assert "1 rows" in seen.text or "1 row" in seen.text


def test_of_a_long_table_the_first_rows_are_shown():
    seen = Seen(render_table(pa.table({"x": list(range(1000))})))
    assert seen.tags.count("tr") == 21
    assert "1,000 rows" in seen.text


# ------------------------------------------------------------------------------ plots


def test_a_plot_counts_what_it_does_not_draw():
    many = pa.table({"t": list(range(3_000)), "kind": ["A", "B", "C"] * 1_000})
    found = ensue.match(many, "SEQ(A a, B b) WITHIN 1", time="t", type="kind")
    svg = ensue.plot(found, many, time="t", type="kind", most_matches=500, most_events=100)
    assert "500 of 1,000 matches, 100 of 3,000 events" in svg
    assert svg.count("<circle") == 100 + 2 * 500


def test_a_plot_has_a_row_for_each_type_and_a_line_through_the_events_of_a_match():
    found = ensue.match(EVENTS, "SEQ(A a, B b)", time="t", type="kind")
    svg = ElementTree.fromstring(ensue.plot(found, EVENTS, time="t", type="kind"))
    texts = [e.text for e in svg.iter() if e.tag.endswith("text")]
    assert {"A", "B", "matches"} <= set(texts)
    lines = [e for e in svg.iter() if "stroke-opacity" in e.attrib]
    assert len(lines) == 1
    assert len(lines[0].attrib["d"].split()) == 2


def test_of_many_groups_the_others_are_counted():
    many = pa.table({"t": list(range(100)), "id": [f"id{n}" for n in range(100)]})
    found = ensue.match(many, "A a LIMIT 1", time="t")
    assert "… and 26 more groups" in ensue.plot(found, many, time="t", by="id")


def test_matches_without_members_are_bars():
    found = ensue.match(EVENTS, "SEQ(A a, B b) RETURN a.x AS x", time="t", type="kind")
    svg = ensue.plot(found, EVENTS, time="t", type="kind")
    assert "polyline" not in svg
    assert "1 match, 2 events" in svg


@pytest.mark.parametrize("world", ["pandas", "polars", "list"])
def test_tables_of_other_libraries_are_plotted(world):
    found = ensue.match(EVENTS, "SEQ(A a, B b)", time="t", type="kind")
    if world == "list":
        given, events = found.to_pylist(), EVENTS.to_pylist()
    else:
        library = pytest.importorskip(world)
        made = (lambda t: t.to_pandas()) if world == "pandas" else library.from_arrow
        given, events = made(found), made(EVENTS)
    assert "1 match, 2 events" in ensue.plot(given, events, time="t", type="kind")


def test_no_matches_and_no_events_are_plotted_too():
    found = ensue.match(EVENTS, "SEQ(A a, B b) WHERE a.x > 99", time="t", type="kind")
    assert "0 matches, 2 events" in ensue.plot(found, EVENTS, time="t", type="kind")
    nothing = EVENTS.slice(0, 0)
    ElementTree.fromstring(ensue.plot(found, nothing, time="t", type="kind"))


def test_what_cannot_be_plotted_says_why():
    found = ensue.match(EVENTS, "SEQ(A a, B b)", time="t", type="kind")
    with pytest.raises(ensue.EventError, match="no column 'start'"):
        ensue.plot(EVENTS, EVENTS, time="t")
    with pytest.raises(ensue.EventError, match="did you mean 'kind'"):
        ensue.plot(found, EVENTS, time="t", by="kid")
