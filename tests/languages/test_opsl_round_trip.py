"""What OPSL shows, it reads: the same subscription, in the same words."""

from hypothesis import given, settings

from ensue.languages.opsl import parse
from ensue.languages.opsl_text import show
from support.subscriptions import LARGE, SMALL, USUAL, Bounds, subscriptions

SECONDS = Bounds(units=False)


def back(subscription):
    text = show(subscription)
    read = parse(text)
    assert read == subscription, text
    assert show(read) == text


@settings(max_examples=300)
@given(subscriptions(USUAL))
def test_usual_ones(subscription):
    back(subscription)


@given(subscriptions(SMALL))
def test_small_ones(subscription):
    back(subscription)


@given(subscriptions(LARGE))
def test_large_ones(subscription):
    back(subscription)


@given(subscriptions(SECONDS))
def test_lengths_with_units(subscription):
    back(subscription)
