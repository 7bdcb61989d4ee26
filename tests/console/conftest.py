"""One browser for all tests of the console; without one they are skipped."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from console.browsing import Browsing
from console.running import Console, plane

CHROMIUM = Path("/usr/bin/chromium")
# Names but those of this machine lead nowhere, whatever a page asks for.
ARGUMENTS = [
    "--no-sandbox",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The browser."""
    if not CHROMIUM.exists():
        pytest.skip(f"there is no browser at {CHROMIUM}")
    expect.set_options(timeout=20_000)  # milliseconds: a busy machine is slow, not wrong
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def stops() -> Iterator[list[Callable[[], None]]]:
    """What is stopped once all pages are closed: a page would miss its service."""
    found: list[Callable[[], None]] = []
    yield found
    for stop in reversed(found):
        stop()


@pytest.fixture
def browsing(chromium: Browser, stops: list[Callable[[], None]]) -> Iterator[Browsing]:
    """Pages; at the end nothing may have gone wrong in them."""
    found = Browsing(chromium)
    yield found
    found.close()


@pytest.fixture
def console(tmp_path: Path, stops: list[Callable[[], None]]) -> Console:
    """A new service on a plane."""
    found = plane(tmp_path)
    stops.append(found.stop)
    return found


# What `make test` runs of the console: the way from a region to its replay, and who sees what. The
# browser takes minutes for all of it, which `make test-slow` does.
QUICK = {
    "test_draw_save_fire_see_and_replay",
    "test_errors_are_underlined_while_typing",
    "test_a_trial_says_how_often_it_would_have_fired",
    "test_a_token_opens_the_console_and_leads_back",
    "test_pages_cannot_be_framed_or_sniffed",
    "test_scripts_set_text_not_markup",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves the rest to `make test-slow`."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and getattr(item, "originalname", item.name) not in QUICK:
            item.add_marker(pytest.mark.slow)
