"""What the page about OPSL shows is what happens; its pictures are those that are drawn."""

import pytest
from tests.docs.opsl_pictures import FOLDER, PICTURES, drawn
from tests.docs.pages import PAGES, Example, examples
from tests.docs.subscription_examples import Row, asked, notified, rows

from ensue.errors import QueryError

ANSWERED = [e for page in PAGES for e in examples(page, "opsl")]
ROWS = [row for page in PAGES if page.name == "opsl.md" for row in rows(page)]


@pytest.mark.parametrize("example", ANSWERED, ids=lambda e: e.name)
def test_a_subscription_gives_the_matches_shown(example: Example):
    assert notified(example.code) == example.expected


@pytest.mark.filterwarnings("ignore")  # of atoms that most of these few events pass
@pytest.mark.parametrize("example", ANSWERED, ids=lambda e: e.name)
def test_the_matcher_finds_them_too(example: Example):
    try:
        subscribed = asked(example.code)
    except QueryError:
        return  # an example of an error
    assert sorted(subscribed.delivered().splitlines()) == sorted(subscribed.shown().splitlines())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.line}: {row.text}")
def test_a_line_of_a_table_is_right(row: Row):
    assert row.found() == row.matches


def test_all_forms_have_a_line():
    texts = [row.text for row in ROWS]
    for form in ("=|(", "|=(", "!("):
        for interval in ("10;", "A; 2", "A; B"):
            assert any(text.startswith(form + interval) for text in texts), (form, interval)
    for form in ("@({})", "OVLP({})", "SPL({}", "DIST({}; <;", "DIST({}; =;", "DIST({}; >;"):
        assert any(text.startswith(form.format("R")) for text in texts), form
        others = [form.format("A"), form.format("A").replace("@", "IN")]
        assert any(text.startswith(tuple(others)) for text in texts), form
    assert any(text.startswith("|(A)") for text in texts)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_drawn(name: str):
    kept = (FOLDER / f"opsl_{name}.svg").read_text(encoding="utf-8")
    assert kept == drawn(name), "python -m tests.docs.opsl_pictures draws them anew"
