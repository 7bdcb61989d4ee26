"""Who comes next when not all can go at once: users take turns, and so do places of one user."""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shares:
    """How many may go at a time: in all, of one user, and of one place of a user.

    A user with many receivers that hang fills at most its own share, and a receiver that hangs
    fills at most its share of the user's.

    >>> Shares.of(64)
    Shares(in_all=64, per_user=48, per_place=16)
    """

    in_all: int
    per_user: int
    per_place: int

    @classmethod
    def of(cls, in_all: int) -> "Shares":
        """Shares that leave room for others."""
        return cls(in_all, max(1, in_all * 3 // 4), max(1, in_all // 4))


@dataclass(slots=True)
class _Place(Generic[T]):
    line: deque[T] = field(default_factory=deque)
    going: int = 0
    called: bool = False  # stands in its user's row


@dataclass(slots=True)
class _User(Generic[T]):
    places: dict[str, _Place[T]] = field(default_factory=dict)
    row: deque[str] = field(default_factory=deque)  # places that may have a turn
    going: int = 0
    called: bool = False  # stands in the row of users


class Turns(Generic[T]):
    """Lines of what wants to go, by user and place.

    >>> turns = Turns[str](Shares(in_all=3, per_user=2, per_place=1))
    >>> for user, place, what in ((1, "a", "x"), (1, "a", "y"), (1, "b", "z"), (2, "a", "w")):
    ...     turns.add(user, place, what)
    >>> turns.take(), turns.take(), turns.take(), turns.take()
    ((1, 'a', 'x'), (2, 'a', 'w'), (1, 'b', 'z'), None)
    >>> turns.done(1, "a")
    >>> turns.take()
    (1, 'a', 'y')
    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._users: dict[int, _User[T]] = {}
        self._row: deque[int] = deque()  # users that may have a turn
        self.going = 0
        self.waiting = 0

    def add(self, user: int, place: str, what: T) -> None:
        """Puts something at the end of its line."""
        known = self._users.setdefault(user, _User())
        known.places.setdefault(place, _Place()).line.append(what)
        self.waiting += 1
        self._call(user, place)

    def take(self) -> tuple[int, str, T] | None:
        """What goes next, or nothing while all shares are taken."""
        if self.going >= self._shares.in_all or not self._row:
            return None
        user = self._row.popleft()
        known = self._users[user]
        known.called = False
        name = known.row.popleft()
        place = known.places[name]
        place.called = False
        what = place.line.popleft()
        self.waiting -= 1
        for one in (self, known, place):
            one.going += 1
        self._call(user, name)
        return user, name, what

    def done(self, user: int, place: str) -> None:
        """Says that one of those that went is back."""
        known = self._users[user]
        for one in (self, known, known.places[place]):
            one.going -= 1
        self._call(user, place)
        if not known.places[place].line and not known.places[place].going:
            del known.places[place]
        if not known.places:
            del self._users[user]

    def _call(self, user: int, name: str) -> None:
        """Puts a place and its user in their rows, if they may go and do not stand there yet."""
        known = self._users[user]
        place = known.places[name]
        if not place.called and place.line and place.going < self._shares.per_place:
            place.called = True
            known.row.append(name)
        if not known.called and known.row and known.going < self._shares.per_user:
            known.called = True
            self._row.append(user)
