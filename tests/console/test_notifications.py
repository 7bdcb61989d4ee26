"""A subscription fires: the note is seen at once, replayed, and not missed while away."""

import re

import pytest
from playwright.sync_api import Page, expect

from console.browsing import Browsing, on_map
from console.running import Console
from ensue.service.store import outbox

LEFT = "=|(@(Depot)(A); 60)(DIST(Depot; >; 20)(A)), A = (ARITH:id = 1)"


@pytest.fixture
def subscribed(console: Console) -> int:
    """Truck 1 leaves the depot."""
    return console.do(console.service.subscribe(LEFT, name="left")).id


def _leave(console: Console, at: int) -> None:
    """Truck 1 leaves, by three reports."""
    console.drive(1, (at, 5.0, 5.0), (at + 10, 25.0, 5.0), (at + 20, 60.0, 9.0))


def _live(browsing: Browsing, console: Console, **how: bool) -> Page:
    page = browsing.open(console.url, **how)
    expect(page.locator("#connection")).to_have_text("Live")
    return page


def _matches(page: Page):
    return page.locator("#feed li:has(.match)")


def test_draw_save_fire_see_and_replay(browsing: Browsing, console: Console):
    page = _live(browsing, console)
    expect(page.locator("#region-list li")).to_have_count(1)
    page.click("#regions-tab")
    page.click("#draw-polygon")
    for x, y in ((1, 1), (9, 1), (9, 9), (1, 9)):
        page.mouse.click(*on_map(page, x, y))
    page.keyboard.press("Enter")
    page.fill("#region-name", "Yard")
    page.click("#region-form .main")
    page.click('[aria-label="New subscription with Yard"]')
    page.check('input[value="leaves"]')
    page.fill("#parameter-margin", "5")
    page.fill("#parameter-dwell", "0")
    page.fill("#parameter-within", "60")
    page.fill("#name", "left the yard")
    expect(page.locator(".editor-says")).to_have_text("The query is valid.")
    page.click("#form .main")
    page.wait_for_url("**/subscriptions/*?made=1")
    page.click("nav >> text=Map")
    expect(page.locator("#connection")).to_have_text("Live")
    _leave(console, 100)
    console.drive(2, (400, 5.0, 5.0))
    expect(_matches(page)).to_have_count(1)
    expect(_matches(page)).to_contain_text("left the yard")
    expect(page.locator("#announcements")).to_contain_text("Match: left the yard, id 1")
    _matches(page).locator("button").click()
    replay = page.locator(".replay")
    expect(replay.locator("h2")).to_have_text("left the yard")
    expect(replay.locator(".members li")).to_have_count(2)
    expect(page.locator(".leaflet-marker-pane .member")).to_have_count(2)


def test_members_appear_in_the_order_of_time(browsing: Browsing, console: Console, subscribed: int):
    _leave(console, 100)
    page = _live(browsing, console, still=True)  # nothing moves by itself
    _matches(page).locator("button").click()
    expect(page.locator(".members .come")).to_have_count(2)
    slider = page.locator(".player input")
    slider.focus()
    page.keyboard.press("Home")
    expect(page.locator(".members .come")).to_have_count(1)
    page.evaluate(
        """() => { const s = document.querySelector(".player input"); s.value = 500;
          s.dispatchEvent(new Event("input")); }"""
    )
    expect(page.locator(".members li").first).to_have_class("come")
    expect(page.locator(".member.ghost")).to_have_count(1)
    expect(slider).to_have_attribute("aria-valuetext", "110")
    page.keyboard.press("End")
    expect(page.locator(".members .come")).to_have_count(2)
    expect(page.locator(".members li").nth(1)).to_contain_text("at 60, 9")
    page.click(".replay header button")
    expect(page.locator(".replay")).to_have_count(0)
    expect(page.locator(".leaflet-marker-pane .member")).to_have_count(0)


def test_a_replay_plays_and_pauses(browsing: Browsing, console: Console, subscribed: int):
    _leave(console, 100)
    page = _live(browsing, console)
    _matches(page).locator("button").click()
    button = page.locator(".player button")
    expect(button).to_have_attribute("aria-label", "Pause")
    button.click()
    expect(button).to_have_attribute("aria-label", "Play")
    at = page.input_value(".player input")
    page.wait_for_timeout(200)
    assert page.input_value(".player input") == at
    button.click()
    expect(page.locator(".members .come")).to_have_count(2)
    expect(button).to_have_attribute("aria-label", "Play")  # it is over


def test_the_timeline_is_walked_with_the_keyboard(browsing: Browsing, console: Console, subscribed: int):
    for at in (100, 300, 500):
        _leave(console, at)
    page = _live(browsing, console)
    expect(page.locator(".timeline .note")).to_have_count(3)
    page.locator(".timeline").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".timeline")).to_have_attribute("aria-valuetext", re.compile("520"))
    page.keyboard.press("Home")
    expect(page.locator(".timeline")).to_have_attribute("aria-valuetext", re.compile("120"))
    page.keyboard.press("Enter")
    expect(page.locator(".replay .about").first).to_contain_text("100 – 120")


def test_a_click_on_the_timeline_replays(browsing: Browsing, console: Console, subscribed: int):
    _leave(console, 100)
    page = _live(browsing, console)
    page.locator(".timeline .note").click()
    expect(page.locator(".replay h2")).to_have_text("left")


def test_a_held_feed_counts_what_comes(browsing: Browsing, console: Console, subscribed: int):
    page = _live(browsing, console)
    page.click("#feed-pause")
    _leave(console, 100)
    expect(page.locator("#feed-held")).to_have_text("1 new")
    expect(_matches(page)).to_have_count(0)
    page.click("#feed-pause")
    expect(_matches(page)).to_have_count(1)
    expect(page.locator("#feed-held")).to_have_text("")


def test_the_feed_is_narrowed_to_a_subscription(browsing: Browsing, console: Console, subscribed: int):
    console.do(console.service.subscribe("(ARITH:id = 2)", name="seen"))
    _leave(console, 100)
    console.drive(2, (200, 1.0, 1.0), (300, 2.0, 2.0))
    page = _live(browsing, console)
    expect(_matches(page)).to_have_count(3)
    page.select_option("#feed-filter", label="seen")
    expect(_matches(page)).to_have_count(2)
    expect(page.locator(".timeline .note")).to_have_count(2)


def test_nothing_is_missed_or_doubled_when_the_service_restarts(browsing: Browsing, console: Console, subscribed: int):
    browsing.expect_absence()
    page = _live(browsing, console)
    _leave(console, 100)
    expect(_matches(page)).to_have_count(1)
    console.stop()
    expect(page.locator("#connection")).to_have_text("Reconnecting…")
    console.start()
    _leave(console, 300)  # before the page is back, most likely
    expect(page.locator("#connection")).to_have_text("Live")
    expect(_matches(page)).to_have_count(2)
    _leave(console, 500)
    expect(_matches(page)).to_have_count(3)
    expect(_matches(page).first).to_contain_text("500 – 520")
    numbers = page.locator("#feed [data-number]").evaluate_all("(all) => all.map((one) => Number(one.dataset.number))")
    assert numbers == sorted(set(numbers), reverse=True)


def test_notes_that_are_gone_are_told_of(browsing: Browsing, console: Console, subscribed: int):
    browsing.expect_absence()
    page = _live(browsing, console)
    _leave(console, 100)
    expect(_matches(page)).to_have_count(1)
    console.stop()
    expect(page.locator("#connection")).to_have_text("Reconnecting…")
    page.context.set_offline(True)
    console.start()
    _leave(console, 300)
    console.do(console.service.do(lambda db: outbox.prune_notifications(db, 1e12)))
    page.context.set_offline(False)
    expect(page.locator(".notice")).to_contain_text("Some notifications were removed")
    _leave(console, 500)
    expect(_matches(page)).to_have_count(2)


def test_objects_move_on_the_map_and_show_their_track(browsing: Browsing, console: Console):
    console.drive(1, (10, 5.0, 5.0))
    page = _live(browsing, console)
    page.click("#objects-tab")
    expect(page.locator("#object-list button")).to_have_count(1)
    console.drive(1, (20, 6.0, 6.0), (30, 7.0, 7.0))
    console.drive(2, (31, 9.0, 9.0))
    expect(page.locator("#object-list button")).to_have_count(2)
    page.mouse.click(*on_map(page, 7, 7))
    expect(page.locator("#object-card")).to_contain_text("track of 3 reports")
    page.fill("#object-search", "2")
    page.keyboard.press("Enter")
    expect(page.locator("#object-card h2")).to_have_text("2")
    place = page.evaluate("() => { const {lat, lng} = ensueMap.objects.placeOf(1); return [lng, lat]; }")
    assert place == [7, 7]
