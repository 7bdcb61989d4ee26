"""The policies against their definitions, and against each other."""

import numpy as np
import pytest

from ensue.runtime.spill.eviction import GapHistogram, IdleKeys, score_need, score_stpm, score_tpm

INF = float("inf")


def quiet(created, last, state, deadline=None) -> IdleKeys:
    due = np.full(len(last), INF) if deadline is None else np.array(deadline, float)
    return IdleKeys(np.array(created, float), np.array(last, float), np.array(state), due)


def learned(gaps, lapsed=0, *, window=420.0) -> GapHistogram:
    found = GapHistogram(window, 1)
    found.follow(np.zeros(len(gaps), np.int64), np.array(gaps, float))
    found.lapse(np.zeros(lapsed, np.int64))
    return found


def test_tpm_goes_by_creation():
    assert score_tpm(quiet([3, 1, 2], [9, 9, 9], [0, 0, 0])).tolist() == [3, 1, 2]


def test_stpm_is_the_printed_formula():
    gaps = GapHistogram(100.0, 2)
    gaps.follow(np.array([0, 0, 1]), np.array([10.0, 40.0, 5.0]))
    gaps.lapse(np.array([0, 0]))
    found = score_stpm(quiet([0, 0], [7, 8], [0, 1]), gaps)
    assert found.tolist() == [7 + 40 * 0.5, 8 + 5 * 1.0]


@pytest.mark.parametrize("horizon", [1.0, 20.0, 400.0])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_need_is_the_discounted_chance(horizon, share):
    random = np.random.default_rng(3)
    seen = random.uniform(0, 120, 4_000)
    gaps = learned(seen, round(4_000 * (1 - share) / share))
    ages = np.array([0.0, 3.0, 30.0, 60.0, 110.0])
    found = score_need(quiet(ages * 0, 500 - ages, np.zeros(5, np.int64)), gaps, 500.0, horizon)
    for age, score in zip(ages, found, strict=True):
        later = seen[seen >= age]
        expected = np.exp(-(later - age) / horizon).sum() / len(seen)
        exact = share * expected / (1 - share * (seen < age).mean())
        assert score == pytest.approx(exact, rel=0.2, abs=0.02)


def test_what_is_overdue_is_needed_least():
    gaps = learned(np.linspace(1, 60, 200), 100)
    score = score_need(quiet([0, 0], [400, 495], [0, 0]), gaps, 500.0, 20.0)
    assert score[0] < score[1] / 20


def test_a_deadline_is_a_sure_need():
    gaps = learned([400.0] * 10, 1_000)
    keys = quiet([0, 0, 0], [490, 490, 490], [0, 0, 0], [INF, 505, 600])
    none, soon, later = score_need(keys, gaps, 500.0, 20.0)
    assert none < later < soon == pytest.approx(np.exp(-5 / 20))


def test_what_was_never_seen_has_a_score():
    gaps = GapHistogram(100.0, 1)
    found = score_need(quiet([0], [90], [5]), gaps, 100.0, 10.0)
    assert found.tolist() == pytest.approx([0.5 * np.exp(-1)])


def test_what_was_counted_long_ago_fades():
    gaps = learned([10.0], 0, window=100.0)
    for _ in range(30):
        gaps.follow(np.zeros(1 << 16, np.int64), np.full(1 << 16, 50.0))
    assert gaps.followed.sum() < 1 << 21


# ---------------------------------------------------------------- simulated, as the paper's page


def objects(count, ratio, kind, lengths=(60.0, 120.0, 240.0)):
    """Objects that go A, B, C, D: times, objects, states in the order of the stream."""
    random = np.random.default_rng(1)
    now = np.cumsum(random.exponential(1.0, count))
    alive, steps = np.ones(count, bool), [(now, np.arange(count), np.zeros(count, int))]
    for step, length in enumerate(lengths):
        alive &= random.random(count) < ratio ** (1 / 3)
        gap = {
            "uniform": random.uniform(0, length, count),
            "exponential": np.minimum(random.exponential(length / 4, count), length),
            "late": random.uniform(0.8 * length, length, count),
        }[kind]
        now = now + gap
        left = np.flatnonzero(alive)
        steps.append((now[left], left, np.full(len(left), step + 1)))
    times, names, states = (np.concatenate(parts) for parts in zip(*steps, strict=True))
    order = np.argsort(times, kind="stable")
    return times[order], names[order], states[order]


def misses(policy, stream, room, window=420.0) -> int:
    """Misses where `room` partial matches are in memory and a quarter goes when it is full."""
    gaps, memory, stored, missed = GapHistogram(window, 4), {}, {}, 0
    for time, name, state in zip(*(part.tolist() for part in stream), strict=True):
        known = memory.pop(name, None)
        if known is None and name in stored:
            known, missed = stored.pop(name), missed + 1
        if known is not None:
            gaps.follow(np.array([known[2]]), np.array([time - known[1]]))
        if state < 3:
            memory[name] = (time if known is None else known[0], time, state)
        if len(memory) > room:
            for known in (memory, stored):
                dead = [old for old, value in known.items() if value[0] < time - window]
                gaps.lapse(np.array([known.pop(old)[2] for old in dead], np.int64))
            names, values = np.array(list(memory)), np.array(list(memory.values()))
            keys = quiet(values[:, 0], values[:, 1], values[:, 2].astype(np.int64))
            score = {
                "tpm": lambda keys: score_tpm(keys),
                "stpm": lambda keys: score_stpm(keys, gaps),
                "need": lambda keys, now=time: score_need(keys, gaps, now, 20.0),
            }[policy](keys)
            for old in names[np.argsort(score)[: room // 4]].tolist():
                stored[old] = memory.pop(old)
    return missed


@pytest.mark.parametrize("kind", ["uniform", "exponential", "late"])
@pytest.mark.parametrize(
    "ratio", [pytest.param(0.1, marks=pytest.mark.slow), 0.5, pytest.param(0.9, marks=pytest.mark.slow)]
)
def test_need_misses_no_more_than_tpm(kind, ratio):
    stream = objects(3_000, ratio, kind)
    assert misses("need", stream, 90) <= misses("tpm", stream, 90)


def test_what_still_waits_is_no_sign_that_nothing_follows():
    """Of a stream that has just begun only short gaps are known."""
    gaps = learned([10.0] * 50, 0)
    gaps.wait(np.zeros(50, np.int64), np.full(50, 5.0))
    assert gaps.chance[0] == pytest.approx(1.0)
    gaps.wait(np.zeros(50, np.int64), np.full(50, 200.0))
    assert gaps.chance[0] == pytest.approx(0.5)
