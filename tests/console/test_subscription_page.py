"""The page of a subscription: what was told, why not more, and where its notes go."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from console.browsing import Browsing
from console.running import Console, plane

LEFT = "=|(@(Depot)(A); 60)(DIST(Depot; >; 20)(A)), A = (ARITH:id = 1)"


class Receiver:
    """A webhook's receiver; `status` is what it answers."""

    def __init__(self) -> None:
        self.status = 204
        self.taken: list[bytes] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if receiver.status < 300:
                    receiver.taken.append(body)
                self.send_response(receiver.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def console(tmp_path: Path, stops: list[Callable[[], None]]) -> Console:
    """A service that may reach this machine, and gives up at once."""
    found = plane(tmp_path, limits={"allow": ["127.0.0.0/8"], "webhook_attempts": 1})
    stops.append(found.stop)
    return found


@pytest.fixture
def page(browsing: Browsing, console: Console) -> Page:
    made = console.do(console.service.subscribe(LEFT, name="left"))
    return browsing.open(f"{console.url}/subscriptions/{made.id}")


def _leave(console: Console, at: int) -> None:
    console.drive(1, (at, 5.0, 5.0), (at + 10, 60.0, 5.0))


def _add_webhook(page: Page, url: str) -> None:
    page.click("text=Add a target")
    page.fill("#target-url", url)
    page.click("#target-form .main")
    expect(page.locator(".target")).to_have_count(1)


def test_its_notes_are_there_and_come_live(page: Page, console: Console):
    _leave(console, 100)
    expect(page.locator("#notes tr:has(.match)")).to_have_count(1)
    page.reload()
    expect(page.locator("#notes tr:has(.match)")).to_have_count(1)
    page.click("#notes a")
    expect(page.locator(".replay h2")).to_have_text("left")


def test_why_not_says_what_stopped_candidates(page: Page, console: Console):
    console.drive_together(*((t, id, 5.0, 5.0) for t in (100, 110) for id in (1, 2)), (120, 1, 25.0, 5.0))
    page.click("#ask-why-not")
    why = page.locator("#why-not")
    expect(why.locator(".funnel")).not_to_have_count(0)
    expect(why.locator(".figure").first).to_contain_text("5")
    test = why.locator(".funnel tr", has_text="more than 20 away from Depot")
    expect(test).to_contain_text("15")  # so far away was the nearest one
    test.locator("button").click()
    assert "DIST" in "".join(why.locator("pre .stopped").all_text_contents())
    expect(why.locator(".candidates").last).to_contain_text("still waiting")


def test_a_webhook_is_added_and_its_secret_shown_once(page: Page, console: Console, receiver: Receiver):
    _add_webhook(page, receiver.url)
    secret = page.locator("#target-secret code")
    expect(secret).to_contain_text("whsec_")
    first = secret.text_content()
    page.click("#target-secret button")
    expect(secret).to_have_count(0)
    page.reload()
    expect(page.locator("body")).not_to_contain_text("whsec_")
    page.click("[data-rotate]")
    expect(secret).to_contain_text("whsec_")
    assert secret.text_content() != first
    _leave(console, 100)
    expect(page.locator("#notes tr:has(.match)")).to_have_count(1)
    expect(page.locator(".target")).to_contain_text("delivered")
    _until(lambda: len(receiver.taken) == 1)


def test_what_was_given_up_is_shown_and_sent_again(page: Page, console: Console, receiver: Receiver):
    receiver.status = 500
    _add_webhook(page, receiver.url)
    _leave(console, 100)
    _reload_until(page, ".target:has-text('1 dead letters')")
    page.click("[data-dead]")
    expect(page.locator(".target table")).to_contain_text("500")
    receiver.status = 204
    page.click("text=Send the 1 again")
    _until(lambda: len(receiver.taken) == 1)


def test_a_target_is_switched_off_and_on_and_removed(page: Page, console: Console, receiver: Receiver):
    _add_webhook(page, receiver.url)
    page.click("text=Switch off")
    expect(page.locator(".target .state")).to_have_text("off")
    page.click("text=Switch on")
    expect(page.locator(".target .state")).to_have_text("on")
    page.click(".target .danger")
    page.click("dialog .danger")
    expect(page.locator(".target")).to_have_count(0)


def test_a_target_that_is_refused_says_why(page: Page, browsing: Browsing):
    browsing.expect_refusals()
    page.click("text=Add a target")
    page.select_option("#target-kind", "kafka")
    page.fill("#target-servers", "not an address")
    page.fill("#target-topic", "alerts")
    page.click("#target-form .main")
    expect(page.locator("#target-says")).to_contain_text("is not an address")


def test_it_is_paused_resumed_and_ended(page: Page, console: Console):
    page.click("text=Pause")
    expect(page.locator(".title .state")).to_have_text("paused")
    page.click("text=Resume")
    expect(page.locator(".title .state")).to_have_text("active")
    page.click("#content .title button.danger")
    page.click("dialog .danger")
    page.wait_for_url("**/subscriptions")
    expect(page.locator("#list")).to_contain_text("No subscriptions yet")
    page.click("text=Ended")
    expect(page.locator("#list")).to_contain_text("left")


def test_one_of_nobody_is_not_found(browsing: Browsing, console: Console):
    browsing.expect_refusals()
    page = browsing.open(f"{console.url}/subscriptions/77")
    expect(page.locator("h1")).to_have_text("Not found")
    expect(page.locator("main")).to_contain_text("there is no subscription 77")


def _reload_until(page: Page, selector: str) -> None:
    """Loads the page again until it says so: deliveries take their time."""

    def there() -> bool:
        page.reload()
        return page.locator(selector).count() > 0

    _until(there)


def _until(happened: Callable[[], bool], times: int = 100) -> None:
    wait = threading.Event()
    for _ in range(times):
        if happened():
            return
        wait.wait(0.2)
    raise AssertionError("it did not happen")
