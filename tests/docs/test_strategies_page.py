"""The pictures of the page about strategies show what the queries find."""

import pytest
from tests.docs.pages import PAGES
from tests.docs.strategy_pictures import FOLDER, PICTURES, drawn


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_what_the_queries_find(name: str):
    assert (FOLDER / f"strategies_{name}.svg").read_text(encoding="utf-8") == drawn(name)


def test_every_picture_is_on_the_page():
    (page,) = [page for page in PAGES if page.name == "strategies.md"]
    text = page.read_text(encoding="utf-8")
    assert [name for name in PICTURES if f"(pictures/strategies_{name}.svg)" not in text] == []
