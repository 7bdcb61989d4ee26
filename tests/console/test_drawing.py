"""Regions are drawn by clicks, by keys or as text, changed, and imported."""

import json

import pytest
from playwright.sync_api import Page, expect

from console.browsing import Browsing, on_map, tab_to
from console.running import Console
from ensue.geo.wkt import Circle, Polygons, read_wkt


@pytest.fixture
def page(browsing: Browsing, console: Console) -> Page:
    """The map, around the depot, with its regions beside."""
    found = browsing.open(console.url)
    expect(found.locator("#connection")).to_have_text("Live")
    expect(found.locator("#region-list li")).to_have_count(1)
    found.click("#regions-tab")
    return found


def _regions(console: Console) -> dict[str, str]:
    return console.do(console.service.regions())


def _click(page: Page, x: float, y: float) -> None:
    page.mouse.click(*on_map(page, x, y))


def _near(found: list[tuple[float, float]], *expected: tuple[float, float]) -> bool:
    """A click hits a pixel, not a place."""
    both = zip(found, expected, strict=True)
    return all(abs(a - b) < 0.15 for pair in both for a, b in zip(*pair, strict=True))


def _corners(text: str) -> list[tuple[float, float]]:
    found = read_wkt(text)
    assert isinstance(found, Polygons)
    return [(x, y) for x, y in found.polygons[0][0][:-1]]


def _save(page: Page, name: str) -> None:
    page.fill("#region-name", name)
    page.click("#region-form .main")
    expect(page.locator("#region-list")).to_contain_text(name)


def test_a_polygon_is_drawn_by_clicks_and_saved(page: Page, console: Console):
    page.click("#draw-polygon")
    for x, y in ((1, 1), (5, 1), (5, 4), (1, 4)):
        _click(page, x, y)
    page.keyboard.press("Enter")
    _save(page, "Yard")
    assert _near(_corners(_regions(console)["Yard"]), (1, 1), (5, 1), (5, 4), (1, 4))


def test_a_click_on_the_first_corner_finishes(page: Page, console: Console):
    page.click("#draw-polygon")
    for x, y in ((1, 1), (5, 1), (5, 4), (1, 1)):
        _click(page, x, y)
    _save(page, "Yard")
    assert len(_corners(_regions(console)["Yard"])) == 3


def test_corners_are_taken_back(page: Page, console: Console):
    page.click("#draw-polygon")
    for x, y in ((1, 1), (5, 1), (9, 9), (5, 4)):
        _click(page, x, y)
    page.keyboard.press("Backspace")
    page.keyboard.press("Control+z")
    _click(page, 3, 4)
    page.click("#region-finish")
    _save(page, "Yard")
    assert _near(_corners(_regions(console)["Yard"]), (1, 1), (5, 1), (3, 4))


def test_escape_cancels(page: Page, console: Console):
    page.click("#draw-polygon")
    _click(page, 1, 1)
    page.keyboard.press("Escape")
    expect(page.locator("#region-form")).to_be_hidden()
    expect(page.locator(".handle")).to_have_count(0)
    assert set(_regions(console)) == {"Depot"}


def test_a_circle_is_drawn_by_its_centre_and_border(page: Page, console: Console):
    page.click("#draw-circle")
    _click(page, 4, 4)
    _click(page, 6, 4)
    _save(page, "Gate")
    found = read_wkt(_regions(console)["Gate"])
    assert isinstance(found, Circle)
    assert (found.x, found.y, found.radius) == pytest.approx((4, 4, 2), abs=0.1)


def test_corners_are_dragged(page: Page, console: Console):
    page.click("#draw-polygon")
    for x, y in ((1, 1), (5, 1), (5, 4)):
        _click(page, x, y)
    page.keyboard.press("Enter")
    page.mouse.move(*on_map(page, 5, 4))
    page.mouse.down()
    page.mouse.move(*on_map(page, 6, 5), steps=4)
    page.mouse.move(*on_map(page, 7, 6), steps=4)
    page.mouse.up()
    page.mouse.move(*on_map(page, 3, 1))  # the handle between two corners
    page.mouse.down()
    page.mouse.move(*on_map(page, 3, 0.4), steps=4)
    page.mouse.move(*on_map(page, 3, 0), steps=4)
    page.mouse.up()
    _save(page, "Yard")
    found = _corners(_regions(console)["Yard"])
    assert _near(found, (1, 1), (3, 0), (5, 1), (7, 6))


def test_a_region_is_typed(page: Page, console: Console):
    page.click("#type-region")
    page.fill("#region-text", "1 1\n4 1\nfour")
    expect(page.locator("#region-says")).to_have_text("This is not a region yet.")
    page.fill("#region-text", "1 1\n4 1\n4 3")
    expect(page.locator("#region-says")).to_have_text("")
    expect(page.locator(".handle:not(.middle)")).to_have_count(3)
    _save(page, "Corner")
    page.click("#type-region")
    page.fill("#region-text", "CIRCLE (3 3, 2)")
    _save(page, "Round")
    found = _regions(console)
    assert _near(_corners(found["Corner"]), (1, 1), (4, 1), (4, 3))
    assert read_wkt(found["Round"]) == Circle(3.0, 3.0, 2.0)


def test_what_the_service_refuses_is_said(page: Page, browsing: Browsing):
    browsing.expect_refusals()
    page.click("#type-region")
    page.fill("#region-text", "1 1\n4 1\n4 3")
    page.fill("#region-name", "no name, this")
    page.click("#region-form .main")
    expect(page.locator("#region-says")).to_contain_text("is not a valid region name")


def test_a_region_is_changed_and_removed(page: Page, console: Console):
    console.do(console.service.put_region("Yard", "POLYGON ((1 1, 5 1, 5 4, 1 1))"))
    page.goto(f"{console.url}/?edit=Yard")
    expect(page.locator("#region-form h2")).to_have_text("Edit Yard")
    expect(page.locator(".handle:not(.middle)")).to_have_count(3)
    page.locator('.handle[title="Corner 3 of 3"]').focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.click("#region-form .main")
    expect(page.locator("#region-form")).to_be_hidden()
    (_, _), (_, _), (x, y) = _corners(_regions(console)["Yard"])
    assert x > 5
    assert y == pytest.approx(4, abs=0.1)
    page.click('[aria-label="Remove Yard"]')
    page.click("dialog .danger")
    expect(page.locator("#region-list li")).to_have_count(1)
    assert set(_regions(console)) == {"Depot"}


def test_regions_are_imported_and_refused_ones_named(browsing: Browsing, console: Console):
    square = {"type": "Polygon", "coordinates": [[[0, 0], [3, 0], [3, 3], [0, 0]]]}
    line = {"type": "LineString", "coordinates": [[0, 0], [3, 0]]}
    features = [
        {"type": "Feature", "properties": {"name": name}, "geometry": geometry}
        for name, geometry in (("North gate", square), ("Road", line))
    ]
    page = browsing.open(f"{console.url}/regions")
    page.fill("#import-text", "not JSON")
    page.click("#import-form button")
    expect(page.locator("#import-says")).to_contain_text("This is not JSON")
    page.fill("#import-text", json.dumps({"type": "FeatureCollection", "features": features}))
    page.click("#import-form button")
    expect(page.locator("#import-says")).to_contain_text("1 added, 1 refused")
    expect(page.locator("#import-says")).to_contain_text("Road")
    page.reload()
    expect(page.locator("#list")).to_contain_text("North_gate")
    assert "North_gate" in _regions(console)


def test_a_region_is_drawn_and_saved_with_the_keyboard_alone(browsing: Browsing, console: Console):
    page = browsing.open(console.url)
    expect(page.locator("#region-list li")).to_have_count(1)
    tab_to(page, "#feed-tab")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#regions-tab")).to_be_focused()
    tab_to(page, "#draw-polygon")
    page.keyboard.press("Enter")
    expect(page.locator("#map")).to_be_focused()
    page.keyboard.press("Space")
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft"):
        for _ in range(3):
            page.keyboard.press(key)
        page.keyboard.press("Space")
    page.keyboard.press("Enter")
    expect(page.locator("#region-name")).to_be_focused()
    page.keyboard.type("Keyed")
    page.keyboard.press("Enter")
    expect(page.locator("#region-list")).to_contain_text("Keyed")
    corners = _corners(_regions(console)["Keyed"])
    assert len(corners) == 4
    (west, north), (east, _), (_, south), _ = corners
    assert west < east
    assert south < north
    page.keyboard.press("Enter")  # the link to a new subscription with it has the focus
    page.wait_for_url("**/subscriptions/new?region=Keyed")
