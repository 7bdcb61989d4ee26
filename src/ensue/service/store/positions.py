"""How far each producer's events were taken, so that repeats are dropped."""

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any


def next_of(db: Connection, producer: str, user: int) -> int | None:
    """The number of the event that is expected next; None: the producer is new."""
    row = db.execute(
        "SELECT next FROM positions WHERE producer = ?", (_own(producer, user),)
    ).fetchone()
    return None if row is None else int(row[0])


def move_on(db: Connection, producer: str, user: int, next: int, at: float) -> None:
    """Events up to before this number were taken."""
    db.execute(
        "INSERT INTO positions VALUES (?, ?, ?, ?) ON CONFLICT (producer) "
        "DO UPDATE SET next = max(next, excluded.next), at = excluded.at",
        (_own(producer, user), user, next, at),
    )


def new_ones(sequences: Sequence[int], expected: int | None) -> list[int]:
    """The places of events that were not taken before. Numbers grow; gaps are no matter.

    Events of one message have its number, all of them, and come together.

    >>> new_ones([3, 4, 4, 7], 4)
    [1, 2, 3]
    """
    found: list[int] = []
    last = None if expected is None else expected - 1
    for place, number in enumerate(sequences):
        if last is None or number > last or (found and number == last):
            found.append(place)
            last = number
    return found


def positions_of(db: Connection, user: int | None) -> list[dict[str, Any]]:
    """All producers, or those of a user."""
    rows = db.execute(
        "SELECT producer, user, next, at FROM positions WHERE ?1 IS NULL OR user = ?1 "
        "ORDER BY producer",
        (user,),
    )
    return [{**dict(row), "producer": row["producer"].partition("/")[2]} for row in rows]


def _own(producer: str, user: int) -> str:
    """A name that no other user's producer has."""
    return f"{user}/{producer}"
