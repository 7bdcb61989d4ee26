"""Texts of events and of other users are shown as they are, and never become part of a page."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from console.browsing import Browsing
from console.running import DEPOT, Console, plane
from ensue.console.pages import STATIC

# Were it read as HTML, the browser would go elsewhere; the mark says where it was read so.
MARKUP = '"\'><b data-markup>x</b><meta http-equiv="refresh" content="0;url=/gone">'

TEMPLATES = STATIC.parent / "templates"

# Ways from a text to markup. Leaflet takes elements as well, as `make` returns them.
_NEVER = re.compile(
    r"\.(?:inner|outer)HTML\s*[+]?=(?!=)|insertAdjacentHTML|document\.write|createContextualFragment"
    r"|srcdoc|setHTMLUnsafe|\beval\(|new Function|javascript:"
)
_LEAFLET = re.compile(
    r"(?:bindTooltip\(|bindPopup\(|setTooltipContent\(|setPopupContent\(|setContent\(|\bhtml:)"
    r"(?!\s*make\()"
)
_TEMPLATE = re.compile(r"\|\s*safe\b|autoescape\s+false|Markup\(")


def _scripts() -> Iterator[Path]:
    return (path for path in STATIC.rglob("*.js") if "leaflet" not in path.parts)


def test_scripts_set_text_not_markup():
    found = [
        f"{path.name}: {line.strip()}"
        for path in [*_scripts(), *TEMPLATES.glob("*.html")]
        for line in path.read_text(encoding="utf-8").splitlines()
        if _NEVER.search(line) or _LEAFLET.search(line) or _TEMPLATE.search(line)
    ]
    assert not found


@pytest.fixture
def console(tmp_path: Path, stops: list[Callable[[], None]]) -> Console:
    """Objects whose names are texts."""
    columns = {"t": "int64", "id": "string", "type": "string", "x": "double", "y": "double"}
    found = plane(
        tmp_path, schema=columns, type="type", regions={f"Depot{MARKUP}": DEPOT},
        limits={"allow": ["127.0.0.0/8"], "webhook_attempts": 1},
    )  # fmt: skip
    stops.append(found.stop)
    return found


def _plain(page: Page) -> None:
    """The markup is on the page as text only."""
    assert page.locator("[data-markup]").count() == 0
    assert page.locator('meta[http-equiv="refresh" i]').count() == 0
    assert not page.url.endswith("/gone")


def test_markup_in_any_field_is_shown_as_text(browsing: Browsing, console: Console):
    browsing.expect_refusals()
    service = console.service
    truck = f"truck{MARKUP}"
    quoted = truck.replace("'", "''")
    text = f"A, A = (STRING:id = '{quoted}')"
    hook = {"kind": "webhook", "url": "http://127.0.0.1:9/?<b/data-markup>"}
    made = console.do(service.subscribe(text, name=f"here{MARKUP}", targets=[hook]))
    body = {"t": 1, "id": truck, "type": truck, "x": 5.0, "y": 5.0}
    console.publish(body, {**body, "t": 2}, {**body, "t": "no"})
    console.do(service.publish({**body, MARKUP: 1}, producer=MARKUP, sequence=1))
    note = next(one for one in console.do(service.list_notifications()) if one.kind == "match")

    page = browsing.open(console.url)
    expect(page.locator("#feed li:has(.match)")).to_have_count(2)
    expect(page.locator("#feed")).to_contain_text(MARKUP)
    _plain(page)
    page.goto(f"{console.url}/?note={note.number}")
    expect(page.locator("body")).to_contain_text("<b data-markup>")
    _plain(page)
    for path in ("subscriptions", f"subscriptions/{made.id}", "regions", "status", "audit"):
        page.goto(f"{console.url}/{path}")
        expect(page.locator("main")).to_contain_text("<b data-markup>")
        _plain(page)
    page.goto(f"{console.url}/subscriptions/{made.id}")
    page.click("#ask-why-not")
    expect(page.locator("#why-not")).not_to_be_empty()
    _plain(page)

    page.goto(f"{console.url}/subscriptions/{made.id}/edit")
    expect(page.locator("#text")).to_have_value(text)
    page.click("#try")
    expect(page.locator("#trial .figure").first).to_contain_text("2times")
    page.locator(".trial-map").scroll_into_view_if_needed()
    page.locator(".trial-map").hover()  # the marks are in its middle
    expect(page.locator(".leaflet-tooltip")).to_contain_text(MARKUP)
    _plain(page)
    page.fill("#text", f"A, A = (STRING:{MARKUP} = 1)")
    expect(page.locator(".editor-says")).not_to_be_empty()
    _plain(page)
