"""Health: the figures, what is bad and what fails, without loading the page again."""

from time import time

from playwright.sync_api import expect

from console.browsing import Browsing
from console.running import Console
from ensue.service.store.target_store import switch_off


def test_figures_follow_the_service(browsing: Browsing, console: Console):
    page = browsing.open(f"{console.url}/status")
    events = page.locator(".figure", has_text="total events").locator("strong")
    expect(events).to_have_text("0")
    console.drive(1, (10, 1.0, 1.0), (20, 2.0, 2.0))
    expect(events).to_have_text("2")
    expect(page.locator(".figure", has_text="watermark")).to_contain_text("20")
    console.drive(1, (5, 1.0, 1.0))
    late = page.locator(".figure.warning", has_text="late events")
    expect(late).to_contain_text("1")
    expect(late.locator("[role=img]")).to_have_attribute("aria-label", "warning")


def test_bad_events_are_listed_with_their_reason(browsing: Browsing, console: Console):
    page = browsing.open(f"{console.url}/status")
    expect(page.locator("#bad-events")).to_contain_text("None.")
    lines = b'{"t": 10, "id": 1, "x": 1, "y": 1}\n{"t": "<b>soon</b>", "id": 1}\n'
    console.do(console.service.publish(lines, media="application/x-ndjson"))
    expect(page.locator("#bad-events tbody tr")).to_have_count(1)
    expect(page.locator("#bad-events code")).to_contain_text("<b>soon</b>")


def test_a_failing_target_is_switched_on_from_there(browsing: Browsing, console: Console):
    service = console.service
    made = console.do(service.subscribe("(ARITH:id = 1)", name="seen"))
    config = {"servers": "127.0.0.1:1", "topic": "alerts", "timeout": 0.5}
    target = console.do(service.add_target(made.id, "kafka", config))
    console.do(service.do(lambda db: switch_off(db, target, "by hand", now=time())))
    page = browsing.open(f"{console.url}/status")
    row = page.locator("#targets tbody tr")
    expect(row).to_contain_text("seen")
    expect(row.locator(".state")).to_have_text("off")
    expect(row).to_contain_text("by hand")
    row.locator("button", has_text="Switch on").click()
    expect(row.locator(".state.off")).to_have_count(0)


def test_the_keyboard_keeps_its_place_when_parts_are_renewed(browsing: Browsing, console: Console):
    for name in ("one", "two"):
        console.do(console.service.subscribe("(ARITH:id = 1)", name=name))
    page = browsing.open(f"{console.url}/subscriptions")
    page.locator('[aria-label="Pause two"]').focus()
    console.drive(1, (10, 1.0, 1.0))
    expect(page.locator("#list tr", has_text="two")).to_contain_text("1")
    expect(page.locator('[aria-label="Pause two"]')).to_be_focused()


def test_a_service_that_is_away_is_said_to_be(browsing: Browsing, console: Console):
    browsing.expect_absence()
    page = browsing.open(f"{console.url}/status")
    expect(page.locator("#stale")).to_be_hidden()
    console.stop()
    expect(page.locator("#stale")).to_be_visible()
    console.start()
    expect(page.locator("#stale")).to_be_hidden()


def test_how_all_subscriptions_are_run_is_explained(browsing: Browsing, console: Console):
    console.do(console.service.subscribe("(ARITH:id = 1)", name="seen"))
    page = browsing.open(f"{console.url}/status")
    page.click("text=Execution plan of all subscriptions")
    expect(page.locator("#explained")).not_to_be_empty()
