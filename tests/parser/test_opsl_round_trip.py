"""What OPSL shows, it reads: the same subscription, in the same words."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.ir.selection import ByTime, ByUnits
from ensue.ir.subscription import (
    EventAtom,
    IntervalSince,
    Predicate,
    PredicateType,
    Subscription,
    TemporalCondition,
    TemporalRelation,
    TimePoint,
)
from ensue.parser.opsl.opsl_parser import parse_subscription
from ensue.printing.opsl_printer import format_subscription
from support.seeds import scaled
from support.subscriptions import LARGE, SMALL, USUAL, Bounds, subscriptions

SECONDS = Bounds(units=False)


def back(subscription):
    text = format_subscription(subscription)
    read = parse_subscription(text)
    assert read == subscription, text
    assert format_subscription(read) == text


@settings(max_examples=scaled(100))
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


# ------------------------------------------------------------------------- values and names

AWKWARD = ["it's", "'", '"', "`", "--x", "/* y", "$x;", "(", ";", "%_\\", "", "\n", "IN", "with"]
texts = st.sampled_from(AWKWARD) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
fields = st.sampled_from(["id", "a-b", "in", "with", "Über"]) | texts.filter(bool)
integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
moments = st.datetimes(
    min_value=datetime(1000, 1, 1), timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=30))])
).map(lambda moment: moment.replace(fold=0))
COMPARED = ["=", "!=", "<", "<=", ">", ">="]


def predicates(type, values, operators=(*COMPARED, "IN")):
    return st.sampled_from(operators).flatmap(
        lambda operator: st.builds(
            Predicate,
            st.just(type),
            fields,
            st.just(operator),
            st.lists(values, min_size=1, max_size=3).map(tuple) if operator == "IN" else values,
        )
    )


any_predicate = st.one_of(
    predicates(PredicateType.ARITH, integers | floats),
    predicates(PredicateType.STRING, texts, (*COMPARED, "IN", "LIKE")),
    predicates(PredicateType.BOOL, st.booleans(), ("=", "!=")),
    predicates(PredicateType.TIME, moments | integers | floats),
)
lengths = st.one_of(
    st.integers(0, 9 * 10**18).map(ByTime),
    st.integers(0, 2**63 - 1).map(ByUnits),
    st.floats(0, allow_infinity=False).map(ByUnits),
)


@given(st.lists(any_predicate, min_size=1, max_size=3))
def test_awkward_predicates(found):
    back(Subscription(EventAtom(tuple(found)), {}))


@given(moments | integers | floats, lengths, any_predicate, lengths)
def test_awkward_times(at, length, predicate, within):
    timed = TemporalCondition(TemporalRelation.ABSENT, IntervalSince(TimePoint(at), length), EventAtom((predicate,)))
    back(Subscription(timed, {}, within=within))
