"""A subscription is made by a form or as text, tried over what is stored, and saved."""

import re

import pytest
from playwright.sync_api import Page, expect

from console.browsing import Browsing
from console.running import Console

LEFT = ((0, 5.0), (10, 5.0), (20, 40.0), (30, 60.0), (40, 60.0))  # time, x


@pytest.fixture
def page(browsing: Browsing, console: Console) -> Page:
    """The form, with two journeys stored and one that does not leave."""
    leaving = [(t + id, id, x, 5.0) for id in (1, 2) for t, x in LEFT]
    staying = [(t, 3, 5.0, 5.0) for t, _ in LEFT]
    console.drive_together(*leaving, *staying, (500, 9, 5.0, 5.0))
    found = browsing.open(f"{console.url}/subscriptions/new?region=Depot")
    expect(found.locator("#templates input")).not_to_have_count(0)
    return found


def _leaves(page: Page) -> None:
    page.check('input[value="leaves"]')
    expect(page.locator("#parameter-region")).to_have_value("Depot")
    page.fill("#parameter-margin", "5")
    page.fill("#parameter-dwell", "0")
    page.fill("#parameter-within", "60")
    expect(page.locator(".editor-says")).to_have_text("The query is valid.")


def _subscriptions(console: Console) -> list:
    return console.do(console.service.subscriptions())


def test_the_form_writes_the_text(page: Page):
    _leaves(page)
    expect(page.locator("#text")).to_have_value(re.compile(r"DIST\(Depot; >; 5\)"))
    expect(page.locator("#text")).not_to_be_editable()
    page.fill("#parameter-object", "1, 2")
    expect(page.locator("#text")).to_have_value(re.compile(r"ARITH:id IN \(1, 2\)"))
    expect(page.locator("#name")).to_have_value(re.compile("leaves Depot"))


def test_what_is_missing_is_said(page: Page):
    _leaves(page)
    page.select_option("#parameter-region", "")
    expect(page.locator("#form-says")).to_have_text("Still needed: Region.")
    expect(page.locator("#text")).to_have_value("")


def test_a_wrong_value_is_said_beside_its_field(page: Page, browsing: Browsing):
    browsing.expect_refusals()
    _leaves(page)
    page.fill("#parameter-margin", "-3")
    expect(page.locator("#parameter-margin")).to_have_attribute("aria-invalid", "true")
    expect(page.locator(".field:has(#parameter-margin) .wrong-value")).not_to_be_empty()
    page.fill("#parameter-margin", "3")
    expect(page.locator("#parameter-margin")).to_have_attribute("aria-invalid", "false")


def test_the_text_of_a_form_is_opened_and_edited(page: Page, console: Console):
    _leaves(page)
    page.click("#open-text")
    expect(page.locator("#text")).to_be_focused()
    text = page.input_value("#text")
    page.fill("#text", text.replace("60", "99"))
    page.fill("#name", "by hand")
    page.click("#form .main")
    page.wait_for_url("**/subscriptions/*?made=1")
    (made,) = _subscriptions(console)
    assert (made.name, made.template) == ("by hand", None)
    assert "99" in made.text


def test_errors_are_underlined_while_typing(page: Page, browsing: Browsing):
    browsing.expect_refusals()
    page.check('input[value=""]')
    page.fill("#text", "@(Depto)(ARITH:id = 17)")
    expect(page.locator(".wrong")).to_have_text("Depto")
    expect(page.locator("#text")).to_have_attribute("aria-invalid", "true")
    says = page.locator(".editor-says")
    expect(says).to_contain_text("Line 1, column 3")
    expect(says).to_contain_text("did you mean 'Depot'?")
    # behind a sign that is two units of the browser's texts, and one of the service's
    page.fill("#text", "-- \U0001f69a\n@(Depto)(ARITH:id = 17)")
    expect(says).to_contain_text("Line 2, column 3")
    expect(page.locator(".wrong")).to_have_text("Depto")
    says.locator("button").click()
    assert page.evaluate("getSelection().toString()") == "Depto"
    page.keyboard.type("Depot")
    expect(says).to_have_text("The query is valid.")
    expect(page.locator(".wrong")).to_have_count(0)
    expect(page.locator("#text")).to_have_attribute("aria-invalid", "false")


def test_the_colours_lie_under_the_text(page: Page, browsing: Browsing):
    browsing.expect_refusals()
    page.check('input[value=""]')
    page.fill("#text", "-- words\n@(Depot)(STRING:name = 'x', ARITH:id = 17) && $x;\n\n")
    colours = page.evaluate(
        """() => {
          const area = document.querySelector("#text"), below = document.querySelector(".colours");
          const [a, b] = [area, below].map((element) => getComputedStyle(element));
          const same = ["fontSize", "fontFamily", "lineHeight", "paddingLeft", "paddingTop",
            "whiteSpace", "letterSpacing", "tabSize", "overflowWrap", "width"];
          return {
            text: below.textContent.slice(0, -1) === area.value,
            different: same.filter((name) => a[name] !== b[name]),
            heights: area.scrollHeight - below.scrollHeight,
          };
        }"""
    )
    assert colours["text"]
    assert colours["different"] == []
    assert abs(colours["heights"]) <= 25  # a line, which the area has below its last one
    for kind, text in (("comment", "-- words"), ("text", "'x'"), ("number", "17")):
        expect(page.locator(f".opsl-{kind}").first).to_have_text(text)


def test_a_trial_says_how_often_it_would_have_fired(page: Page, console: Console):
    _leaves(page)
    page.click("#try")
    trial = page.locator("#trial")
    expect(trial.locator(".figure").first).to_contain_text("2times it would have fired")
    expect(trial.locator(".by-object li")).to_have_count(2)
    expect(trial.locator(".bars rect")).not_to_have_count(0)
    expect(trial.locator(".trial-map canvas")).not_to_have_count(0)
    assert _subscriptions(console) == []
    page.fill("#parameter-within", "5")  # what was tried is no longer what stands there
    expect(page.locator("#trial-part")).to_be_hidden()
    page.click("#try")
    expect(trial).to_contain_text("It would not have fired.")


def test_a_template_is_saved_with_its_values(page: Page, console: Console):
    _leaves(page)
    page.fill("#name", "left")
    page.select_option("#expires", "3600")
    page.click("#form .main")
    page.wait_for_url("**/subscriptions/*?made=1")
    expect(page.locator("h1")).to_have_text("left")
    expect(page.locator("#messages")).to_contain_text("Saved.")
    (made,) = _subscriptions(console)
    assert (made.name, made.template) == ("left", "leaves")
    assert made.values["region"] == "Depot"
    assert made.values["margin"] == 5
    assert made.expires is not None


def test_a_double_click_saves_once(page: Page, console: Console):
    _leaves(page)
    page.evaluate(
        """() => { const form = document.querySelector("#form");
          form.requestSubmit(); form.requestSubmit(); }"""
    )
    page.wait_for_url("**/subscriptions/*?made=1")
    assert len(_subscriptions(console)) == 1


def test_a_subscription_is_changed(browsing: Browsing, console: Console):
    made = console.do(console.service.subscribe("(ARITH:id = 1)", name="one"))
    page = browsing.open(f"{console.url}/subscriptions/{made.id}/edit")
    expect(page.locator("#text")).to_have_value("(ARITH:id = 1)")
    page.fill("#text", "(ARITH:id = 2)")
    page.click("#form .main")
    page.click("dialog .danger")
    page.wait_for_url(f"**/subscriptions/{made.id}")
    assert console.do(console.service.subscription(made.id)).text == "(ARITH:id = 2)"
