"""How pages look: light, dark and narrow, without barriers; the pictures of docs/console.md."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from sqlite3 import Connection

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from playwright.sync_api import Page, expect

from console.browsing import Browsing, barriers, on_map
from console.pictures import picture
from console.running import Console, plane
from ensue.console.pages import Background
from ensue.service.store import target_store as targets
from samples.fleet_day import fleet_day

TRUCKS = 40
UNTIL = 9.5  # o'clock, of the day that has passed when pages are opened
YARD = "POLYGON ((7.42 51.38, 7.74 51.36, 7.78 51.52, 7.45 51.55, 7.42 51.38))"
PAGES = ("/", "/subscriptions", "/subscriptions/1", "/subscriptions/new?region=Dortmund",
         "/regions", "/status", "/audit")  # fmt: skip


class Fleet:
    """A morning of trucks: the service, and the reports that are still to come."""

    def __init__(self, folder: Path) -> None:
        day = fleet_day(TRUCKS)
        self.console = Console(
            folder / "fleet.db", schema=day.reports.schema, time="ts", type="type",
            location=("x", "y"), space="earth", key="id", regions=day.regions,
        )  # fmt: skip
        self._reports = day.reports
        self._now = day.reports["ts"][0].as_py()
        service = self.console.service
        for watched in day.subscriptions:
            values = {"template": watched.template, "values": watched.values}
            self.console.do(service.subscribe(name=watched.name, **values))
        self.console.do(service.put_region("Ruhr", YARD))
        self.pass_time(timedelta(hours=UNTIL))
        bad = b'{"ts": "soon", "id": 7}\n'
        self.console.do(service.publish(bad, media="application/x-ndjson"))
        self.console.do(service.do(self._add_failing_target))

    def _add_failing_target(self, db: Connection) -> None:
        """As the courier leaves one behind that it could not reach."""
        where = {"url": "https://hooks.example.org/fleet"}
        made = targets.add_target(db, 1, self.console.service.local, "webhook", where, now=0.0)
        db.execute(
            "UPDATE targets SET cursor = 1 << 40, state = 'failing', failures = 3, "
            "reason = 'the receiver answered 503' WHERE id = ?",
            (made,),
        )

    def pass_time(self, time: timedelta) -> None:
        """Publishes the reports of so long a time."""
        ts = self._reports["ts"]
        begin, self._now = self._now, self._now + time
        ends = [pa.scalar(moment, ts.type) for moment in (begin, self._now)]
        wanted = pc.and_(pc.greater_equal(ts, ends[0]), pc.less(ts, ends[1]))
        self.console.do(self.console.service.publish(self._reports.filter(wanted)))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    found = Fleet(tmp_path_factory.mktemp("fleet"))
    yield found
    found.console.stop()


def _settled(page: Page) -> None:
    """Waits until the page has what it asked for."""
    if page.locator("#connection").count():
        expect(page.locator("#connection")).to_have_text("Live")
        expect(page.locator("#legend li")).not_to_have_count(0)
        expect(page.locator(".leaflet-earth-pane canvas")).to_have_count(1)
    if page.locator("#templates").count():
        expect(page.locator(".editor-says")).to_have_text("The query is valid.")


@pytest.mark.parametrize("how", ["light", "dark", "narrow"])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_barriers(browsing: Browsing, fleet: Fleet, path: str, how: str):
    page = browsing.open(fleet.console.url + path, dark=how == "dark", narrow=how == "narrow", still=True)
    _settled(page)
    assert barriers(page) == []
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, "it has to be scrolled sideways"


@pytest.mark.slow
def test_the_parts_that_open_have_no_barriers(browsing: Browsing, fleet: Fleet):
    page = browsing.open(fleet.console.url, still=True)
    _settled(page)
    for tab in ("objects", "regions"):
        page.click(f"#{tab}-tab")
        assert barriers(page) == []
    page.click("#draw-circle")
    page.mouse.click(300, 300)
    page.mouse.click(340, 300)
    assert barriers(page) == []
    page.click("#region-cancel")
    page.click("#feed-tab")
    page.locator("#feed button").first.click()
    expect(page.locator(".replay")).to_be_visible()
    assert barriers(page) == []


def test_the_map(browsing: Browsing, fleet: Fleet, bless: bool):
    for how in ("light", "dark", "narrow"):
        page = browsing.open(fleet.console.url, dark=how == "dark", narrow=how == "narrow")
        _settled(page)
        for _ in range(2):  # so that objects are known to go somewhere
            fleet.pass_time(timedelta(minutes=4))
            page.wait_for_timeout(1_500)
        picture(page, {"light": "map"}.get(how, f"map_{how}"), bless=bless)


def test_drawing_a_region(browsing: Browsing, fleet: Fleet, bless: bool):
    page = browsing.open(f"{fleet.console.url}/?region=Ruhr")
    _settled(page)
    page.click("#draw-polygon")
    for x, y in ((7.24, 51.44), (7.36, 51.4), (7.4, 51.5), (7.36, 51.58), (7.27, 51.56)):
        page.mouse.click(*on_map(page, x, y))
    page.keyboard.press("Enter")
    page.fill("#region-name", "Bochum")
    expect(page.locator(".handle:not(.middle)")).to_have_count(5)
    picture(page, "drawing", bless=bless)


def test_a_replay(browsing: Browsing, fleet: Fleet, bless: bool):
    page = browsing.open(fleet.console.url, still=True)
    _settled(page)
    strayed = page.locator("#feed button", has_text="convoy")
    (strayed if strayed.count() else page.locator("#feed button")).first.click()
    expect(page.locator(".members .come")).not_to_have_count(0)
    page.wait_for_timeout(500)
    picture(page, "replay", bless=bless)


def test_the_form_and_a_trial(browsing: Browsing, fleet: Fleet, bless: bool):
    page = browsing.open(f"{fleet.console.url}/subscriptions/new?region=Dortmund")
    page.check('input[value="leaves"]')
    _settled(page)
    page.fill("#parameter-margin", "150")
    expect(page.locator("#text")).to_have_value(re.compile("150"))
    page.evaluate("scrollTo(0, 150)")
    picture(page, "form", bless=bless)
    page.click("#try")
    expect(page.locator("#trial .figure").first).to_contain_text("fired")
    page.wait_for_timeout(800)
    page.evaluate("document.querySelector('#trial-part').scrollIntoView()")
    picture(page, "trial", bless=bless)


def test_the_editor(browsing: Browsing, fleet: Fleet, bless: bool):
    browsing.expect_refusals()
    page = browsing.open(f"{fleet.console.url}/subscriptions/new?region=Dortmund")
    _settled(page)
    page.click("#open-text")
    page.fill("#text", page.input_value("#text").replace("@(Dortmund)", "@(Dortmnd)", 1))
    expect(page.locator(".wrong")).to_have_text("Dortmnd")
    page.evaluate("scrollTo(0, 150)")
    picture(page, "editor", bless=bless)


def test_why_not(browsing: Browsing, fleet: Fleet, bless: bool):
    page = browsing.open(f"{fleet.console.url}/subscriptions/1")
    page.click("#ask-why-not")
    place = page.locator("#why-not .candidates .link").first
    expect(place).to_be_visible(timeout=120_000)
    place.click()
    expect(page.locator("#why-not .stopped").first).to_be_visible()
    page.evaluate("document.querySelector('#why-not').scrollIntoView()")
    page.evaluate("scrollBy(0, -60)")
    picture(page, "why_not", bless=bless)
    assert barriers(page) == []


def test_the_other_pages(browsing: Browsing, fleet: Fleet, bless: bool):
    for path, name in (("/subscriptions", "subscriptions"), ("/regions", "regions"),
                       ("/status", "health"), ("/subscriptions/1", "subscription")):  # fmt: skip
        page = browsing.open(fleet.console.url + path)
        page.wait_for_timeout(500)
        picture(page, name, bless=bless)


def test_a_plane_has_a_picture_below(browsing: Browsing, tmp_path: Path, stops: list[Callable[[], None]], bless: bool):
    drawn = tmp_path / "plan.png"
    _draw_plan(drawn)
    console = plane(tmp_path, background=Background.parse(f"{drawn},0,0,60,40"))
    stops.append(console.stop)
    console.drive_together(*((1, id, 4 + 9 * id % 52, 6 + 7 * id % 30) for id in range(9)))
    page = browsing.open(console.url)
    expect(page.locator("#connection")).to_have_text("Live")
    shown = page.locator("img.leaflet-image-layer")
    expect(shown).to_be_visible()
    assert shown.evaluate("(image) => image.naturalWidth") == 600
    console.drive_together(*((9, id, 5 + 9 * id % 52, 7 + 7 * id % 30) for id in range(9)))
    page.wait_for_timeout(2_500)
    picture(page, "plane", bless=bless)
    box = shown.bounding_box()
    assert box is not None
    left, bottom = on_map(page, 0, 0)
    assert (box["x"], box["y"] + box["height"]) == pytest.approx((left, bottom), abs=2)


def test_a_plane_without_a_picture_has_a_grid(browsing: Browsing, console: Console):
    console.drive(1, (1, 5.0, 5.0))
    page = browsing.open(console.url, still=True)
    expect(page.locator("#connection")).to_have_text("Live")
    expect(page.locator("canvas.grid")).to_be_visible()
    assert barriers(page) == []


def _draw_plan(path: Path) -> None:
    """The plan of a warehouse: walls, shelves and gates."""
    from PIL import Image, ImageDraw

    plan = Image.new("RGB", (600, 400), "#fbfaf7")
    draw = ImageDraw.Draw(plan)
    draw.rectangle((4, 4, 595, 395), outline="#8b949b", width=4)
    for row in range(5):
        for part in range(2):
            x, y = 150 + part * 220, 40 + row * 70
            draw.rectangle((x, y, x + 170, y + 26), fill="#e3e0d6", outline="#b9b5a8")
    for gate in range(3):
        draw.rectangle((0, 60 + gate * 110, 8, 110 + gate * 110), fill="#fbfaf7")
    plan.save(path)
