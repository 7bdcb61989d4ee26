"""Texts of a known shape are read as any other: the same tree, the same errors."""

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.errors import QueryError
from ensue.languages import opsl_shapes
from ensue.languages.opsl import parse
from ensue.languages.opsl_shapes import alike
from ensue.languages.opsl_text import show
from support.subscriptions import LARGE, USUAL, Bounds, random_subscription

LEFT = "=|(@(Depot)(A); {t})(DIST(Depot; >; {l})(A)), A = (ARITH:id = {n}, STRING:type = {s})"
DEPOT = {"Depot": "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"}
USED = {"t": "25 minutes", "l": "20", "n": "-7", "s": "'truck'"}


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    monkeypatch.setattr(opsl_shapes, "_shapes", {})


def known(text, regions=None):
    """What is read once its shape is known, and equal to what `parse` reads."""
    given = regions or {}
    alike(text, given)
    found = alike(text, given)
    if found is not None:
        whole = parse(text, given)
        assert repr(found.subscription) == repr(whole)  # 5 is not 5.0 here
        assert found.subscription.text == text
    return found


def taught(text, regions=None):
    """A shape that is known from one text."""
    assert known(text, regions) is not None
    return text


@pytest.mark.parametrize(
    "other",
    [
        {"t": "0 minutes"}, {"t": "1000000 minutes"}, {"l": "0"}, {"l": "007"}, {"n": "-0"},
        {"n": "-999999999999999999"}, {"s": "''"}, {"s": "'it''s'"}, {"s": "'x -- y'"},
        {"s": "'\N{GREEK SMALL LETTER ALPHA}'"},
    ],
)  # fmt: skip
def test_other_constants_are_filled_in(other):
    taught(LEFT.format(**USED), DEPOT)
    text = LEFT.format(**{**USED, **other})
    found = alike(text, DEPOT)
    assert found is not None
    assert repr(found.subscription) == repr(parse(text, DEPOT))


@pytest.mark.parametrize(
    "other",
    [
        {"t": "25"}, {"t": "25 hours"}, {"t": "2.5 minutes"}, {"l": "20.5"}, {"l": "-20"},
        {"n": "7"}, {"n": "7.0"}, {"n": "1234567890123456789012"}, {"s": "3"}, {"l": ".5"},
        {"n": "-99999999999999999999"}, {"t": "99999999999999 minutes"},
    ],
)  # fmt: skip
def test_another_form_of_a_constant_is_another_shape_or_read_whole(other):
    taught(LEFT.format(**USED), DEPOT)
    assert alike(LEFT.format(**{**USED, **other}), DEPOT) is None


def test_regions_are_those_of_the_call():
    taught(LEFT.format(**USED), DEPOT)
    text, regions = LEFT.format(**USED), {"Depot": "CIRCLE (1 2, 3)", "Other": "CIRCLE (0 0, 1)"}
    found = alike(text, regions)
    assert found is not None
    assert repr(found.subscription) == repr(parse(text, regions))
    assert alike(text, {}) is None  # unknown name


def test_regions_in_the_text_are_holes():
    text = "@(Yard)(ARITH:id = {}) && DIST(Yard; <; 5)(ARITH:id = {}), Yard = {}"
    taught(text.format(1, 2, "POLYGON ((0 0, 1 0, 1 1, 0 0))"))
    for region in ("circle(5 5,2)", "POLYGON ((0 0, 9 0, 9 9, 0 0), (4 3, 5 3, 5 4, 4 3))"):
        other = text.format(3, 4, region)
        found = alike(other, {})
        assert found is not None
        assert repr(found.subscription) == repr(parse(other))
    assert alike(text.format(1, 2, "CIRCLE (0 0, -1)"), {}) is None
    assert alike(text.format(1, 2, "POINT (0 0)"), {}) is None


@pytest.mark.parametrize(
    "text",
    [
        "SPL(Depot; {})(ARITH:id = 7)",
        "SPL(Depot)(ARITH:id = 7) WITH same_place = {}",
    ],
)
def test_a_threshold_of_zero_stays_an_error(text):
    taught(text.format(3), DEPOT)
    assert alike(text.format(0), DEPOT) is None
    with pytest.raises(QueryError, match="more than 0"):
        parse(text.format(0), DEPOT)


def test_digits_in_names_and_comments_are_no_holes():
    text = "A1 && E-2 /* 5 'x' */, A1 = (ARITH:\"f 3\" = {0}), E-2 = (ARITH:b4 = {0}) -- 9\n"
    text += "WITH within = 10 seconds"
    taught(text.format(1))
    assert alike(text.format(12), {}) is not None
    assert alike(text.format(12).replace("5", "6"), {}) is None


def test_what_is_wrong_is_never_known():
    for text in ("@(Depot)(ARITH:id = 7", "ARITH:id = 7", "(ARITH:id = 'x')", "(ARITH:id = '"):
        assert [alike(text, DEPOT) for _ in range(3)] == [None] * 3


def test_the_number_of_shapes_is_bounded(monkeypatch):
    monkeypatch.setattr(opsl_shapes, "MOST_SHAPES", 3)
    for n in range(10):
        alike(f"(ARITH:f{'x' * n} = 7)", {})
    assert len(opsl_shapes._shapes) <= 3


@settings(max_examples=200)
@given(st.integers(0, 10**9), st.sampled_from([USUAL, LARGE, Bounds(units=False)]))
def test_random_subscriptions(seed, bounds):
    random = Random(seed)
    text = show(random_subscription(random, bounds))
    known(text)
    changed = re.sub(r"(?<=[ (])\d+(?=[; )])", lambda _: str(random.randint(0, 50)), text)
    found = alike(changed, {})
    if found is not None:
        assert repr(found.subscription) == repr(parse(changed))


def test_most_random_subscriptions_are_known_the_second_time():
    random = Random(7)
    texts = [show(random_subscription(random, Bounds(moments=False))) for _ in range(60)]
    assert sum(known(text) is not None for text in texts) > 50
