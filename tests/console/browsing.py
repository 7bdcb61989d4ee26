"""A browser that reaches loopback only, and in which every complaint is a failure."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

AXE = Path(__file__).with_name("axe") / "axe.min.js"
WIDE = {"width": 1200, "height": 750}
NARROW = {"width": 390, "height": 844}

_REPORT_POLICY = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
"""

# Contrast and names are what goes wrong; the rest of what axe knows of WCAG 2.2 A and AA is asked
# for as well. The map itself is a canvas: its objects are also in a list beside it.
_ASK_AXE = """
async () => {
  const found = await axe.run(document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    resultTypes: ["violations"],
  });
  return found.violations.map(({ id, help, nodes }) => ({
    id, help, nodes: nodes.slice(0, 5).map((node) => `${node.target}: ${node.failureSummary}`),
  }));
}
"""


class Browsing:
    """Pages of one test, and what the browser had to say against them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._expected: list[re.Pattern[str]] = []
        self.complaints: list[str] = []

    def open(self, url: str, *, dark: bool = False, narrow: bool = False, still: bool = False) -> Page:
        """A page in a profile of its own; `still`: the user has asked for less motion."""
        context = self._browser.new_context(
            viewport=NARROW if narrow else WIDE,
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce" if still else "no-preference",
            locale="en-GB",
        )
        context.set_default_timeout(20_000)
        context.add_init_script(_REPORT_POLICY)
        self._contexts.append(context)
        page = context.new_page()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", self._asked)
        page.goto(url)
        return page

    def expect(self, pattern: str) -> None:
        """A complaint that belongs to the test."""
        self._expected.append(re.compile(pattern))

    def expect_refusals(self) -> None:
        """The service refuses something in the test, which the browser logs."""
        self.expect(r"the server responded with a status of 4\d\d")

    def expect_absence(self) -> None:
        """The service is away for a while in the test."""
        self.expect(
            "ERR_CONNECTION_REFUSED|ERR_INTERNET_DISCONNECTED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY|ERR_CONNECTION_RESET"
        )

    def close(self) -> None:
        """Ends all pages; fails if the browser had complaints."""
        for context in self._contexts:
            context.close()
        left = [c for c in self.complaints if not any(e.search(c) for e in self._expected)]
        assert not left, left

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} {message.location}")

    def _asked(self, request: Request) -> None:
        found = urlsplit(request.url)
        if found.scheme in ("http", "https", "ws", "wss") and found.hostname != "127.0.0.1":
            self.complaints.append(f"asked for {request.url}")


def barriers(page: Page) -> list[dict[str, Any]]:
    """What axe finds that keeps people from using the page."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = page.evaluate(_ASK_AXE)
    return found


def tab_to(page: Page, selector: str, most: int = 120) -> None:
    """Goes to an element as people do who have no mouse."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.matches({selector!r})"):
            return
    raise AssertionError(f"{selector} cannot be reached by the tab key")


def on_map(page: Page, x: float, y: float) -> tuple[float, float]:
    """Where a place is on the screen."""
    found = page.evaluate(
        """([x, y]) => {
          const map = window.ensueMap.map;
          const point = map.latLngToContainerPoint([y, x]);
          const box = map.getContainer().getBoundingClientRect();
          return [box.left + point.x, box.top + point.y];
        }""",
        [x, y],
    )
    return float(found[0]), float(found[1])
