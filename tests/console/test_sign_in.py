"""Who may see what: sessions, scopes, and pages of others."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from console.browsing import Browsing
from console.running import Console
from ensue.service.store import user_store


@pytest.fixture
def tokens(console: Console) -> dict[str, str]:
    """Two users, one of them with a token that only reads, and an administrator."""

    def make(db) -> dict[str, str]:
        for name in ("ann", "bob", "root"):
            user_store.add_user(db, name)
        wanted = {
            "ann": ("ann", ("read", "subscribe")),
            "reader": ("ann", ("read",)),
            "bob": ("bob", ("read", "subscribe")),
            "publisher": ("bob", ("publish",)),
            "root": ("root", user_store.SCOPES),
        }
        return {name: user_store.add_token(db, user, scopes=scopes).token for name, (user, scopes) in wanted.items()}

    return console.do(console.service.do(make))


def _sign_in(page: Page, token: str) -> None:
    page.fill("#token", token)
    page.click("main .main")


def test_a_token_opens_the_console_and_leads_back(browsing: Browsing, console: Console, tokens: dict[str, str]):
    page = browsing.open(f"{console.url}/subscriptions?state=paused")
    expect(page).to_have_url(f"{console.url}/sign-in?next=/subscriptions%3Fstate%3Dpaused")
    _sign_in(page, "ens_" + "x" * 43)
    expect(page.locator('[role="alert"]')).to_contain_text("unknown, expired or revoked")
    _sign_in(page, tokens["ann"])
    expect(page).to_have_url(f"{console.url}/subscriptions?state=paused")
    expect(page.locator(".who")).to_contain_text("ann")
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    page.click("text=Sign out")
    expect(page).to_have_url(f"{console.url}/sign-in")
    page.goto(f"{console.url}/subscriptions")
    expect(page.locator("#token")).to_be_visible()


def test_a_change_goes_through_with_the_token_of_the_page(browsing: Browsing, console: Console, tokens: dict[str, str]):
    page = browsing.open(f"{console.url}/?draw=typed")
    _sign_in(page, tokens["ann"])
    page.fill("#region-text", "1 1\n4 1\n4 3")
    page.fill("#region-name", "Yard")
    page.click("#region-form .main")
    expect(page.locator("#region-list")).to_contain_text("Yard")
    browsing.expect_refusals()
    page.evaluate("document.querySelector('meta[name=csrf-token]').content = 'forged'")
    page.click('[aria-label="Remove Yard"]')
    page.click("dialog .danger")
    expect(page.locator("#messages")).to_contain_text("CSRF token is missing or wrong")


def test_a_session_that_is_over_leads_to_signing_in(browsing: Browsing, console: Console, tokens: dict[str, str]):
    browsing.expect_refusals()
    page = browsing.open(console.url)
    _sign_in(page, tokens["ann"])
    expect(page.locator("#connection")).to_have_text("Live")
    console.do(console.service.do(lambda db: db.execute("DELETE FROM sessions")))
    page.wait_for_url("**/sign-in?next=%2F")


def test_everybody_sees_only_their_own(browsing: Browsing, console: Console, tokens: dict[str, str]):
    def user(name: str) -> int:
        find = "SELECT id FROM users WHERE name = ?"
        return console.do(console.service.look(lambda db: int(db.execute(find, (name,)).fetchone()[0])))

    made = console.do(console.service.subscribe("(ARITH:id = 1)", name="anns", user=user("ann")))
    console.do(console.service.put_region("Anns", "CIRCLE (1 1, 1)", user=user("ann")))
    console.drive(1, (10, 1.0, 1.0))
    browsing.expect_refusals()
    page = browsing.open(f"{console.url}/subscriptions")
    _sign_in(page, tokens["bob"])
    for path in ("/subscriptions", "/regions", "/status", "/audit", "/"):
        page.goto(console.url + path)
        expect(page.locator("main")).not_to_contain_text("anns")
        expect(page.locator("main")).not_to_contain_text("Anns")
    page.goto(f"{console.url}/subscriptions/{made.id}")
    expect(page.locator("h1")).to_have_text("Not found")
    expect(page.locator("nav")).to_contain_text("Health")


def test_who_only_reads_is_offered_no_changes(browsing: Browsing, console: Console, tokens: dict[str, str]):
    browsing.expect_refusals()
    page = browsing.open(f"{console.url}/subscriptions")
    _sign_in(page, tokens["reader"])
    expect(page.locator("text=New subscription")).to_have_count(0)
    page.goto(f"{console.url}/subscriptions/new")
    expect(page.locator("h1")).to_have_text("Not allowed")
    page.goto(f"{console.url}/regions")
    expect(page.locator("#import-form")).to_have_count(0)
    page.goto(console.url)
    page.click("#regions-tab")
    expect(page.locator("#region-list")).to_contain_text("Depot")
    expect(page.locator("#draw-polygon")).to_have_count(0)


def test_who_only_publishes_sees_nothing(browsing: Browsing, console: Console, tokens: dict[str, str]):
    browsing.expect_refusals()
    page = browsing.open(console.url)
    _sign_in(page, tokens["publisher"])
    expect(page.locator("h1")).to_have_text("Not allowed")


def test_the_audit_log_names_who_did_what(browsing: Browsing, console: Console, tokens: dict[str, str]):
    page = browsing.open(f"{console.url}/audit")
    _sign_in(page, tokens["root"])
    expect(page.locator("main")).to_contain_text("add token")
    expect(page.locator("main tr", has_text="sign in")).to_contain_text("root")


def test_pages_cannot_be_framed_or_sniffed(console: Console, tmp_path: Path):
    import httpx2

    for path in ("/sign-in", "/static/map_page.js", "/"):
        headers = httpx2.get(console.url + path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
