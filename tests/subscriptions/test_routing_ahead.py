"""Events of a large table are routed in another thread, while those before are matched."""

from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue.operators.subscriptions import subscription_matcher
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.runtime import compiled_query


@pytest.fixture
def small_slices(monkeypatch):
    monkeypatch.setattr(compiled_query, "MANY_EVENTS", 1)
    for name in ("SLICE", "FIRST_SLICE"):
        monkeypatch.setattr(subscription_matcher, name, 8)


def make_events(count: int = 300) -> pa.Table:
    random = Random(count)
    columns = {"t": range(count), "id": [random.randrange(4) for _ in range(count)]}
    return pa.table({**columns, "type": [random.choice("AB") for _ in range(count)]})


def make_subscriptions() -> ensue.Subscriptions:
    subscriptions = ensue.Subscriptions(time="t", type="type")
    for number in range(4):
        kinds = (f"STRING:type = '{kind}', ARITH:id = {number}" for kind in "AB")
        subscriptions.add(f"pair {number}", "=|({}; 9)({})".format(*kinds))
        subscriptions.add(f"one {number}", f"(ARITH:id = {number})")
    subscriptions.add("pattern", "SEQ(A a, B b) USING next WHERE [id] WITHIN 9")
    return subscriptions


def test_matches_do_not_depend_on_the_number_of_threads(small_slices, monkeypatch):
    ahead, route = [], subscription_matcher.SubscriptionMatcher._route_ahead
    monkeypatch.setattr(
        subscription_matcher.SubscriptionMatcher, "_route_ahead", lambda *some: ahead.append(1) or route(*some)
    )
    events, subscriptions = make_events(), make_subscriptions()
    one = ensue.match(events, subscriptions, options=ensue.Limits(threads=1))
    assert one.num_rows > 300
    assert not ahead
    for threads in (2, 7):
        seen = []
        limits = ensue.Limits(threads=threads)
        found = ensue.match(events, subscriptions, options=limits, progress=lambda *done: seen.append(done))  # noqa: B023
        assert found == one
        assert seen == sorted(seen)
        assert seen[-1] == (300, 300)
    assert len(ahead) == 2


def test_the_first_error_is_that_of_the_call(small_slices, monkeypatch):
    route, calls = SubscriptionSet.route, []

    def fail(subscriptions, events):
        calls.append(events)
        if len(calls) > 3:
            raise ValueError("no")
        return route(subscriptions, events)

    monkeypatch.setattr(SubscriptionSet, "route", fail)
    for threads in (1, 2):
        calls.clear()
        with pytest.raises(ValueError, match="no"):
            ensue.match(make_events(), make_subscriptions(), options=ensue.Limits(threads=threads))


def test_limits_hold(small_slices):
    errors = set()
    for threads in (1, 2):
        limits = ensue.Limits(threads=threads, max_matches=9)
        with pytest.raises(ensue.LimitError) as error:
            ensue.match(make_events(), make_subscriptions(), options=limits)
        errors.add(str(error.value))
    assert len(errors) == 1
