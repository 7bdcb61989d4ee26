"""Whose turn it is: shares are kept, nobody is forgotten, nobody waits for another's receiver."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ensue.service.delivery.retry_queue import BROKER_BACKOFF, WEBHOOK_BACKOFF, ConcurrencyShares, FairQueue


@given(
    st.builds(ConcurrencyShares, st.integers(1, 6), st.integers(1, 4), st.integers(1, 3)),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), max_size=60),
    st.integers(0, 10_000),
)
def test_all_go_once_in_line_and_within_their_shares(
    shares: ConcurrencyShares, wanted: list[tuple[int, str]], seed: int
) -> None:
    turns: FairQueue[int] = FairQueue(shares)
    chance = Random(seed)
    left = list(enumerate(wanted))
    going: list[tuple[int, str]] = []
    went: list[int] = []
    while left or turns.waiting or going:
        if left and chance.random() < 0.6:
            number, (user, place) = left.pop(0)
            turns.add(user, place, number)
        while chance.random() < 0.7 and (taken := turns.take()) is not None:
            assert wanted[taken[2]] == taken[:2]
            going.append(taken[:2])
            went.append(taken[2])
        assert turns.going == len(going) <= shares.in_all
        assert all(n <= shares.per_user for n in Counter(u for u, _ in going).values())
        assert all(n <= shares.per_place for n in Counter(going).values())
        if going and chance.random() < 0.5:
            turns.done(*going.pop(chance.randrange(len(going))))
    assert sorted(went) == list(range(len(wanted)))
    for line in set(wanted):
        mine = [number for number in went if wanted[number] == line]
        assert mine == sorted(mine)
    assert turns.take() is None
    assert not turns._users


def test_a_user_with_a_long_line_does_not_hold_up_another() -> None:
    turns: FairQueue[str] = FairQueue(ConcurrencyShares(in_all=4, per_user=3, per_place=2))
    for number in range(100):
        turns.add(1, f"place {number % 50}", "of the one")
    turns.add(2, "elsewhere", "of the other")
    assert [taken[2] for _ in range(2) if (taken := turns.take())] == ["of the one", "of the other"]


def test_a_place_that_is_full_does_not_hold_up_another_of_the_same_user() -> None:
    turns: FairQueue[str] = FairQueue(ConcurrencyShares(in_all=8, per_user=8, per_place=1))
    for _ in range(10):
        turns.add(1, "slow", "slow")
    turns.add(1, "quick", "quick")
    assert [taken[2] for _ in range(8) if (taken := turns.take())] == ["slow", "quick"]


# ------------------------------------------------------------------------------- waits


@given(st.integers(1, 100), st.floats(0, 1), st.floats(0, 1e9) | st.none())
def test_waits_grow_within_their_jitter_and_never_beyond_the_most(
    failures: int, luck: float, asked: float | None
) -> None:
    for waits in (WEBHOOK_BACKOFF, BROKER_BACKOFF):
        wait = waits.after(failures, lambda: luck, asked)
        step = waits.steps[min(failures, len(waits.steps)) - 1]
        assert wait <= waits.most
        assert wait >= min(waits.most, max(step * (1 - waits.jitter), asked or 0.0))
        if asked is None:
            assert wait <= step * (1 + waits.jitter)


def test_ten_tries_of_a_request_take_three_days() -> None:
    days = sum(WEBHOOK_BACKOFF.after(n, lambda: 0.5) for n in range(1, 10)) / 86_400
    assert 3 < days < 4
