"""What is written down about targets."""

import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from ensue.service.store import target_store as targets
from ensue.service.store.database import create_tables
from ensue.service.store.target_store import FAILING, ON, DeliveryOutcome, FailedDelivery

NUMBERS = range(1, 7)


def a_file(waiting: frozenset[int] = frozenset()) -> sqlite3.Connection:
    """A file with notes of a subscription, a target of it, and notes that failed."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.row_factory = sqlite3.Row
    create_tables(db, ":memory:")
    for name in ("seal", "unseal"):  # nothing here depends on how
        db.create_function(name, 1, lambda text: text)
    targets.add_target(db, 7, 1, "webhook", {"url": "x"}, now=0.0)
    for number in NUMBERS:
        db.execute("INSERT INTO outbox VALUES (?, 7, 1, 'match', ?, 0.0, ?)", (number, f"m{number}", b"{}"))
    for number in waiting:
        db.execute("INSERT INTO deliveries VALUES (1, ?, 1, 0.0, 'waiting', '', 0.0)", (number,))
    return db


def written(db: sqlite3.Connection) -> list[list[tuple[object, ...]]]:
    tables = ("targets", "deliveries", "counters")
    return [list(map(tuple, db.execute(f"SELECT * FROM {name} ORDER BY 1, 2"))) for name in tables]


@st.composite
def outcomes(draw: st.DrawFn) -> DeliveryOutcome:
    numbers = st.frozensets(st.sampled_from(NUMBERS))
    settled = draw(numbers)
    failed = {
        number: FailedDelivery(draw(st.integers(1, 3)), 5.0, "no", draw(st.booleans()))
        for number in sorted(draw(numbers) - settled)
    }
    state = draw(st.sampled_from([ON, FAILING]))
    names = st.sampled_from(["delivered", "failed", "dead"])
    counted = draw(st.dictionaries(names, st.integers(0, 5)))
    return DeliveryOutcome(
        targets.get_target(a_file(), 1),
        draw(st.integers(0, 6)),
        settled,
        failed,
        state,
        None if state == ON else "no",
        draw(st.integers(0, 3)),
        None if state == ON else 9.0,
        counted,
    )


@given(st.frozensets(st.sampled_from(NUMBERS)), outcomes(), outcomes())
def test_two_outcomes_written_together_are_as_one_after_the_other(
    waiting: frozenset[int], first: DeliveryOutcome, second: DeliveryOutcome
) -> None:
    apart, together = a_file(waiting), a_file(waiting)
    targets.record_outcome(apart, first, 1.0)
    after = targets.record_outcome(apart, second, 1.0)
    assert targets.record_outcome(together, first.combine(second), 1.0) == after
    assert written(together) == written(apart)


@given(st.frozensets(st.sampled_from(NUMBERS)), outcomes())
def test_work_goes_on_from_what_is_not_written_as_from_what_is(
    waiting: frozenset[int], outcome: DeliveryOutcome
) -> None:
    without, with_it = a_file(waiting), a_file(waiting)
    targets.record_outcome(with_it, outcome, 1.0)
    for now in (1.0, 5.0, 9.0):
        expected = targets.read_pending_deliveries(with_it, 1, now, {"": 3}, None)
        assert targets.read_pending_deliveries(without, 1, now, {"": 3}, outcome) == expected


def test_a_file_knows_which_targets_have_work() -> None:
    db = a_file()
    assert [target.id for target in targets.list_pending_targets(db)] == [1]
    db.execute("UPDATE targets SET cursor = 6")
    assert targets.list_pending_targets(db) == []
    db.execute("INSERT INTO deliveries VALUES (1, 3, 1, 99.0, 'dead', '', 0.0)")
    assert targets.list_pending_targets(db) == []
    db.execute("UPDATE deliveries SET state = 'waiting'")
    assert [target.id for target in targets.list_pending_targets(db)] == [1]
    targets.switch_off(db, 1, "enough", now=1.0)
    assert targets.list_pending_targets(db) == []


def test_a_change_by_hand_is_told_from_others_though_the_clock_stands() -> None:
    db = a_file()
    moments = {targets.get_target(db, 1).changed}
    for _ in range(3):
        targets.switch_off(db, 1, "enough", now=0.0)
        moments.add(targets.get_target(db, 1).changed)
    assert len(moments) == 4
