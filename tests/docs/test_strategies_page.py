"""The pictures of the page about strategies show what the queries find."""

import pytest
from tests.docs.pages import PAGES, ROOT
from tests.docs.strategy_pictures import FOLDER, PICTURES, READINGS, THEFT, draw_theft, drawn


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_what_the_queries_find(name: str):
    assert (FOLDER / f"strategies_{name}.svg").read_text(encoding="utf-8") == drawn(name)


def test_every_picture_is_on_the_page():
    (page,) = [page for page in PAGES if page.name == "strategies.md"]
    text = page.read_text(encoding="utf-8")
    assert [name for name in PICTURES if f"(pictures/strategies_{name}.svg)" not in text] == []


def test_the_picture_of_the_readme_shows_what_its_query_finds():
    assert (FOLDER / "theft.svg").read_text(encoding="utf-8") == draw_theft()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "(docs/pictures/theft.svg)" in readme
    assert all(line in readme for line in THEFT.strip().splitlines())
    assert all(f"2026-03-14 {clock},{reader},{tag}" in readme for clock, reader, tag in READINGS)
