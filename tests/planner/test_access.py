"""Which access is taken: by figures alone, so the same figures give the same plan."""

from dataclasses import replace

import pytest

from ensue.planner.access_paths import ACCESSES, COSTS, ArchiveStatistics, LiveStatistics, choose_access_path

LIVE = LiveStatistics(events=1_000_000, batch=10_000, cost=20, matches=0.001, rate=1.0)
PAST = ArchiveStatistics("trades", far=100_000, rows=20_000_000, span=20_000_000, files=480, buckets=16)
SMALL = ArchiveStatistics("trades", far=10_000, rows=10_000, span=10_000)


def cost(decision, name):
    return decision.candidate(name).cost


def test_all_four_are_weighed_in_one_order():
    assert tuple(c.name for c in choose_access_path(LIVE, [PAST]).candidates) == ACCESSES
    assert [c.paper for c in choose_access_path(LIVE, [PAST]).candidates] == ["ALAA", "LLAA", "SLLAA", "OLLAA"]


def test_the_cheapest_is_taken():
    for live in (LIVE, replace(LIVE, matches=0.1), replace(LIVE, events=10, batch=10)):
        for past in (PAST, SMALL, replace(PAST, matches=0.5), replace(PAST, clustered=False)):
            found = choose_access_path(live, [past])
            assert cost(found, found.access) == min(c.cost for c in found.candidates)


def test_the_same_figures_give_the_same_plan():
    assert choose_access_path(LIVE, [PAST]) == choose_access_path(replace(LIVE), [replace(PAST)])


def test_a_group_is_cheaper_than_one_read_a_live_match():
    many = replace(LIVE, events=1_000_000, batch=1 << 20, matches=0.001)  # 1,000 live matches
    found = choose_access_path(many, [PAST])
    assert cost(found, "lazy") > 5 * cost(found, "grouped")


def test_latency_saves_reads():
    at_once = replace(LIVE, batch=100, matches=0.05)
    waiting = replace(at_once, latency=5_000)
    assert (
        cost(choose_access_path(waiting, [PAST]), "grouped") < cost(choose_access_path(at_once, [PAST]), "grouped") / 5
    )
    assert cost(choose_access_path(waiting, [PAST]), "lazy") == cost(choose_access_path(at_once, [PAST]), "lazy")


def test_few_live_matches_leave_a_large_archive_unread():
    rare = LiveStatistics(events=10_000, batch=10_000, matches=0.0002)
    assert choose_access_path(rare, [replace(PAST, far=PAST.span)]).access == "grouped"


def test_many_batches_over_one_small_archive_read_it_once():
    busy = replace(LIVE, batch=1_000, matches=0.05)
    found = choose_access_path(busy, [replace(SMALL, files=1)], impossible={"archive_first": "no key"})
    assert found.access == "eager"


def test_a_rare_past_admits_few_live_events():
    dear = replace(LIVE, cost=200, matches=0.05)
    rare = replace(SMALL, matches=0.0001, keys=1_000)
    found = choose_access_path(dear, [rare])
    assert found.access == "archive_first"
    assert found.candidate("archive_first").words == "0% of the live events matched"


def test_an_unclustered_archive_is_dearer_to_read_by_object():
    long = replace(PAST, far=PAST.span)
    for name in ("lazy", "grouped"):
        clustered, not_so = (choose_access_path(LIVE, [replace(long, clustered=c)]) for c in (True, False))
        assert cost(not_so, name) > cost(clustered, name)


def test_reading_around_the_range_costs_more():
    whole = replace(PAST, wider=float("inf"))
    assert cost(choose_access_path(LIVE, [whole]), "grouped") > cost(choose_access_path(LIVE, [PAST]), "grouped")


def test_of_a_table_in_memory_only_the_objects_that_are_asked_for_are_looked_at():
    """Few live matches over millions of events: what all objects take is not to be read."""
    live = LiveStatistics(events=3e6, batch=1 << 20, cost=0.1, matches=5e-5, share=0.5)
    past = ArchiveStatistics("trades", far=3e6, rows=3e6, span=3e6, keys=20_000, share=0.5, cost=0.5, matches=3e-4)
    found = choose_access_path(live, [past])
    assert found.access == "grouped"
    assert cost(found, "archive_first") > 1.5 * cost(found, "grouped")
    fewer = cost(choose_access_path(live, [replace(past, keys=200)]), "grouped")
    assert fewer > cost(found, "grouped")  # an object has more events, where objects are fewer


def test_events_that_a_pattern_cannot_use_cost_less():
    for name in ACCESSES:
        half, all_ = (choose_access_path(replace(LIVE, share=s), [PAST]) for s in (0.5, 1.0))
        assert cost(half, name) < cost(all_, name)


def test_a_group_reaches_as_far_back_as_its_first_match():
    """An archive that does not grow is left behind, but not by the first match of a group."""
    live = LiveStatistics(events=50_000, batch=1 << 20, matches=0.01, rate=1.0)
    past = ArchiveStatistics("trades", far=25_000, rows=50_000, span=50_000, files=20, buckets=4, keys=500)
    whole, parts = (choose_access_path(replace(live, batch=b), [past]) for b in (1 << 20, 1_000))
    read = COSTS.stored.access + COSTS.stored.file * 12  # half of five parts, and one more
    assert cost(whole, "grouped") * live.events > read
    assert cost(parts, "grouped") > 5 * cost(whole, "grouped")


def test_what_does_not_fit_into_memory_is_impossible():
    many = replace(PAST, matches=1.0)
    found = choose_access_path(LIVE, [many], memory=1_000_000)
    assert found.access in ("lazy", "grouped")
    assert found.candidate("eager").impossible == "20 MB of archived matches exceed 1 MB"


@pytest.mark.parametrize("name", ACCESSES)
def test_an_access_that_is_asked_for_is_taken(name):
    found = choose_access_path(LIVE, [PAST], requested=name)
    assert (found.access, found.why) == (name, "requested")


def test_an_impossible_one_has_no_cost_and_a_reason():
    found = choose_access_path(LIVE, [SMALL], impossible={"archive_first": "no key"})
    assert found.candidate("archive_first").impossible == "no key"
    assert found.access != "archive_first"


def test_every_cost_is_a_number_whatever_is_known():
    nothing = ArchiveStatistics("x", far=1, rows=1, span=None, wider=float("inf"), keyed=False)
    for live in (LIVE, LiveStatistics(events=0, matches=0), replace(LIVE, matches=10, rate=1e-9)):
        for past in (nothing, replace(nothing, files=3, clustered=False), replace(PAST, own=True)):
            for candidate in choose_access_path(live, [past, past]).candidates:
                assert 0 <= candidate.cost < float("inf")
