"""What the subscriptions of each user may take of the service; those that take more are paused.

A pause is a change of the set, in the same transaction as the events before or after it. So a
crash changes nothing, and the matches of all others are the same as without it.
"""

import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from sqlite3 import Connection
from typing import Any

from ensue.errors import LimitError
from ensue.plan.limits import Limits as MatcherLimits
from ensue.plan.limits import size_text
from ensue.service.access import limits_of
from ensue.service.catalogue import Catalogue
from ensue.service.matching.contract import Matching
from ensue.service.settings import Limits
from ensue.service.store import subscriptions as store

_LOG = logging.getLogger(__name__)
_MINUTE = 60.0
_GROWN = 1.05  # how much more is worth another look at every subscription within a minute
_ALIKE = 0.5  # of the largest, from which on others of the same user are paused with it


class Budgets:
    """Pauses subscriptions that exceed their user's share. It runs in the core thread."""

    def __init__(
        self,
        matching: Matching,
        catalogue: Catalogue,
        limits: Limits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.matching = matching
        self.catalogue = catalogue
        self.limits = limits
        self.clock = clock
        self._spent: defaultdict[int, float] = defaultdict(
            float
        )  # seconds of this minute, by subscription
        self._since = clock()
        self._seen_bytes = 0  # when it was looked last at what each subscription holds

    def pause_failed(self, db: Connection, blamed: Mapping[str, float], error: Exception) -> bool:
        """Pauses those because of whom nothing could be matched; whether there are any."""
        shares = {int(name): share for name, share in blamed.items()}
        users = self._users(db, shares)
        if not users:
            return False
        largest = max(users, key=lambda number: (shares[number], number))
        own = [
            id
            for id, user in users.items()
            if user == users[largest] and shares[id] >= _ALIKE * shares[largest]
        ]
        if not isinstance(error, LimitError):
            _LOG.error("subscriptions %s cannot be matched", own, exc_info=error)
        self.catalogue.pause_over(db, own, self._reason(db, largest, type(error).__name__))
        return True

    def _reason(self, db: Connection, id: int, kind: str) -> str:
        """Why a subscription is paused because of which matching failed with such an error."""
        if kind != LimitError.__name__:
            return f"it cannot be matched: {kind}, see the log of the service"
        row = store.subscription_of(db, id)
        assert row is not None
        limits = limits_of(db, row["user"], self.limits)
        return (
            f"it needs more than {size_text(limits.memory_per_user)} for partial matches, or "
            f"finds more than {limits.matches_per_publish:,} matches at once: the limits "
            "memory_per_user and matches_per_publish"
        )

    def pause_left_out(self, db: Connection, left_out: Mapping[str, tuple[int, str]]) -> None:
        """Pauses those that lanes go on without: by name, the newest version then, and why."""
        over: dict[str, list[int]] = {}
        for name, (version, kind) in left_out.items():
            id = int(name)
            if self._users(db, {id: 0}) and store.came_with(db, id) <= version:
                over.setdefault(kind, []).append(id)
        for kind, ids in over.items():
            self.catalogue.pause_over(db, ids, self._reason(db, ids[0], kind))

    def check_matches(self, db: Connection, found: Mapping[int, int]) -> None:
        """Pauses subscriptions of users whose subscriptions found too many matches at once."""
        if sum(found.values()) <= self._least(db, "matches_per_publish"):
            return
        reason = "its user's subscriptions found {held:,.0f} matches at once, and {most:,} is the "
        self._pause_largest(db, found, "matches_per_publish", reason + "limit {limit}")

    def check_usage(self, db: Connection) -> None:
        """Pauses subscriptions of users who hold too much, or took too long in this minute."""
        self._pass_minute()
        size, most = self.matching.state_bytes, self._least(db, "memory_per_user")
        memory = size > max(most, self._seen_bytes * _GROWN)
        new, most = self.matching.seconds, self._least(db, "seconds_per_minute")
        over = new + sum(self._spent.values()) > most and new >= most * (_GROWN - 1)
        slow = over and self._several_users(db)
        if not memory and not slow:
            return
        usage = self.matching.usage()  # it looks at every subscription
        self._seen_bytes = size
        for name, spent in usage.seconds.items():
            self._spent[int(name)] += spent
        if memory:
            held = {int(name): size for name, size in usage.bytes.items()}
            reason = "partial matches of its user take {held:,.0f} bytes, and {most:,} is the "
            self._pause_largest(db, held, "memory_per_user", reason + "limit {limit}")
        if slow:
            reason = (
                "subscriptions of its user took {held:.1f} seconds of processor time in a minute, "
                "and {most:g} is the limit {limit}"
            )
            self._pause_largest(db, self._spent, "seconds_per_minute", reason)

    def _pass_minute(self) -> None:
        now = self.clock()
        if not 0 <= now - self._since < _MINUTE:
            self._since, self._seen_bytes = now, 0
            self._spent.clear()
            self.matching.forget_seconds()

    def _pause_largest(
        self, db: Connection, held: Mapping[int, float], limit: str, reason: str
    ) -> None:
        """Pauses the largest subscriptions of each user who is over a limit, until that holds."""
        users = self._users(db, held)
        totals: defaultdict[int, float] = defaultdict(float)
        for id, user in users.items():
            totals[user] += held[id]
        for user, total in totals.items():
            most = getattr(limits_of(db, user, self.limits), limit)
            over, left = [], total
            for id in sorted(users, key=lambda number: -held[number]):
                if left <= most:
                    break
                if users[id] == user:
                    over.append(id)
                    left -= held[id]
            if over:
                said = reason.format(held=total, most=most, limit=limit)
                self.catalogue.pause_over(db, over, said)
            for id in over:
                self._spent.pop(id, None)

    def _users(self, db: Connection, ids: Mapping[int, Any]) -> dict[int, int]:
        """The users of those subscriptions that are active."""
        rows = ((id, store.subscription_of(db, id)) for id in ids)
        return {id: row["user"] for id, row in rows if row and row["state"] == store.ACTIVE}

    def _least(self, db: Connection, limit: str) -> float:
        """The lowest value that a limit has for any user."""
        return min([float(getattr(self.limits, limit)), *quotas_of(db, limit)])

    def _several_users(self, db: Connection) -> bool:
        """Whether one user's subscriptions can slow down another's."""
        rows = db.execute(
            "SELECT DISTINCT user FROM subscriptions WHERE state = ? LIMIT 2", (store.ACTIVE,)
        )
        return len(rows.fetchall()) > 1


def quotas_of(db: Connection, limit: str) -> list[float]:
    """The values of a limit that users have of their own."""
    rows = db.execute("SELECT quotas FROM users WHERE quotas <> '{}'")
    quotas = (json.loads(row[0]) for row in rows)
    return [float(own[limit]) for own in quotas if limit in own]


def limits_of_each(db: Connection, limits: Limits) -> MatcherLimits:
    """What one subscription may hold and find at most, whoever's it is."""
    matches, memory = (
        max([getattr(limits, name), *quotas_of(db, name)])
        for name in ("matches_per_publish", "memory_per_user")
    )
    return MatcherLimits(max_matches=max(1, int(matches)), memory=max(1.0, float(memory)))
