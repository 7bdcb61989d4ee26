"""Resource quotas per user: subscriptions that exceed them are paused.

A pause is a change of the set, in the same transaction as the events before or after it, so a
crash changes nothing, and the matches of other subscriptions are not affected.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from sqlite3 import Connection
from typing import Any

from ensue.errors import LimitError
from ensue.options import Limits, format_size
from ensue.service.matching.match_backend import MatchBackend
from ensue.service.settings import ServiceLimits
from ensue.service.store import subscription_store
from ensue.service.store.user_store import get_user_limits, list_quotas
from ensue.service.subscription_catalog import SubscriptionCatalog

_LOG = logging.getLogger(__name__)
_MINUTE = 60.0
_GROWN = 1.05  # growth after which all subscriptions are measured again within a minute
_ALIKE = 0.5  # share of the largest from which others of the same user are paused, too


class ResourceQuotas:
    """Pauses subscriptions that exceed their user's share; runs in the core thread."""

    def __init__(
        self,
        matching: MatchBackend,
        catalog: SubscriptionCatalog,
        limits: ServiceLimits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.matching = matching
        self.catalog = catalog
        self.limits = limits
        self.clock = clock
        # CPU seconds of this minute, by subscription
        self._spent: defaultdict[int, float] = defaultdict(float)
        self._since = clock()
        self._seen_bytes = 0  # state size when subscriptions were last measured

    def pause_failed(self, db: Connection, blamed: Mapping[str, float], error: Exception) -> bool:
        """Pauses the subscriptions that made matching fail; returns whether there are any."""
        shares = {int(name): share for name, share in blamed.items()}
        users = self._users(db, shares)
        if not users:
            return False
        largest = max(users, key=lambda number: (shares[number], number))
        own = [id for id, user in users.items() if user == users[largest] and shares[id] >= _ALIKE * shares[largest]]
        if not isinstance(error, LimitError):
            _LOG.error("subscriptions %s cannot be matched", own, exc_info=error)
        self.catalog.pause_exceeding(db, own, self._reason(db, largest, type(error).__name__))
        return True

    def _reason(self, db: Connection, id: int, kind: str) -> str:
        """The reason for pausing a subscription that made matching fail with an error of a kind."""
        if kind != LimitError.__name__:
            return f"it cannot be matched: {kind}, see the log of the service"
        row = subscription_store.get_subscription(db, id)
        assert row is not None
        limits = get_user_limits(db, row["user"], self.limits)
        return (
            f"it needs more than {format_size(limits.memory_per_user)} for partial matches, or "
            f"finds more than {limits.matches_per_publish:,} matches at once: the limits "
            "memory_per_user and matches_per_publish"
        )

    def pause_left_out(self, db: Connection, left_out: Mapping[str, tuple[int, str]]) -> None:
        """Pauses subscriptions that Spark tasks left out, given as {name: (version, error)}."""
        over: dict[str, list[int]] = {}
        for name, (version, kind) in left_out.items():
            id = int(name)
            if self._users(db, {id: 0}) and subscription_store.get_added_version(db, id) <= version:
                over.setdefault(kind, []).append(id)
        for kind, ids in over.items():
            self.catalog.pause_exceeding(db, ids, self._reason(db, ids[0], kind))

    def check_matches(self, db: Connection, found: Mapping[int, int]) -> None:
        """Pauses subscriptions of users with too many matches in one batch."""
        if sum(found.values()) <= self._least(db, "matches_per_publish"):
            return
        reason = "its user's subscriptions found {held:,.0f} matches at once, and {most:,} is the "
        self._pause_largest(db, found, "matches_per_publish", reason + "limit {limit}")

    def check_usage(self, db: Connection) -> None:
        """Pauses subscriptions of users with too much state or CPU time in this minute."""
        now = self.clock()
        if not 0 <= now - self._since < _MINUTE:
            self._since, self._seen_bytes = now, 0
            self._spent.clear()
            self.matching.forget_seconds()
        size, most = self.matching.usage.state_bytes, self._least(db, "memory_per_user")
        memory = size > max(most, self._seen_bytes * _GROWN)
        new, most = self.matching.seconds, self._least(db, "seconds_per_minute")
        over = new + sum(self._spent.values()) > most and new >= most * (_GROWN - 1)
        slow = over and subscription_store.have_several_users(db)
        if not memory and not slow:
            return
        measured = self.matching.measure_subscriptions()  # expensive: measures every subscription
        self._seen_bytes = size
        for name, spent in measured.seconds.items():
            self._spent[int(name)] += spent
        if memory:
            held = {int(name): size for name, size in measured.bytes.items()}
            reason = "partial matches of its user take {held:,.0f} bytes, and {most:,} is the "
            self._pause_largest(db, held, "memory_per_user", reason + "limit {limit}")
        if slow:
            reason = (
                "subscriptions of its user took {held:.1f} seconds of processor time in a minute, "
                "and {most:g} is the limit {limit}"
            )
            self._pause_largest(db, self._spent, "seconds_per_minute", reason)

    def _pause_largest(self, db: Connection, held: Mapping[int, float], limit: str, reason: str) -> None:
        """Pauses the largest subscriptions of each user above a limit, until it holds."""
        users = self._users(db, held)
        totals: defaultdict[int, float] = defaultdict(float)
        for id, user in users.items():
            totals[user] += held[id]
        for user, total in totals.items():
            most = getattr(get_user_limits(db, user, self.limits), limit)
            over, left = [], total
            for id in sorted(users, key=lambda number: -held[number]):
                if left <= most:
                    break
                if users[id] == user:
                    over.append(id)
                    left -= held[id]
            if over:
                text = reason.format(held=total, most=most, limit=limit)
                self.catalog.pause_exceeding(db, over, text)
            for id in over:
                self._spent.pop(id, None)

    def _users(self, db: Connection, ids: Mapping[int, Any]) -> dict[int, int]:
        """The users of the active subscriptions among `ids`."""
        rows = ((id, subscription_store.get_subscription(db, id)) for id in ids)
        return {id: row["user"] for id, row in rows if row and row["state"] == subscription_store.ACTIVE}

    def _least(self, db: Connection, limit: str) -> float:
        """The lowest value of a limit for any user."""
        return min([float(getattr(self.limits, limit)), *list_quotas(db, limit)])


def compute_matcher_limits(db: Connection, limits: ServiceLimits) -> Limits:
    """The limits of the matcher: the highest values of any user."""
    matches, memory = (
        max([getattr(limits, name), *list_quotas(db, name)]) for name in ("matches_per_publish", "memory_per_user")
    )
    return Limits(max_matches=max(1, int(matches)), memory=max(1.0, float(memory)))
