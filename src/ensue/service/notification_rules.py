"""Which matches become notifications: suppressed and throttled ones are counted, never lost."""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from ensue.service.event_columns import EventColumns, format_time, to_json_values
from ensue.service.settings import ServiceLimits
from ensue.service.store.journal import increment, increment_all
from ensue.service.store.outbox import ENDED, MATCH, STARTED, Notification, OutboxRow, add_notifications
from ensue.service.store.subscription_store import get_quiet_end, get_subscription, set_quiet_end
from ensue.service.store.user_store import get_user_limits

_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def encode_matches(matches: pa.Table, names: Mapping[int, str]) -> list[bytes]:
    """Encodes matches of `ensue.match` as the JSON bodies of notifications.

    Times are ISO strings, with Z where the column has a time zone. Decimals are strings and bytes
    are base64, because JSON lacks both.
    """
    ids = [int(name) for name in matches.column("subscription").to_pylist()]
    lists = _combine(matches.column("members"))
    offsets = lists.offsets.to_pylist()
    events = lists.values  # of the whole buffer, independent of the offsets
    fields = [field.name for field in events.type]
    columns = [to_json_values(events.field(k)) for k in range(len(fields))]
    members = [dict(zip(fields, row, strict=True)) for row in zip(*columns, strict=True)]
    rows = zip(
        ids,
        matches.column("match_id").to_pylist(),
        to_json_values(matches.column("start")),
        to_json_values(matches.column("end")),
        matches.column("location").to_pylist(),
        offsets[:-1],
        offsets[1:],
        strict=True,
    )
    return [
        orjson.dumps(
            {
                "kind": "match",
                "subscription": id,
                "name": names.get(id, ""),
                "match_id": match_id,
                "start": start,
                "end": end,
                "location": location,
                "members": members[first:last],
            },
            option=_OPTIONS,
        )
        for id, match_id, start, end, location, first, last in rows
    ]


def _combine(column: pa.ChunkedArray) -> Any:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    return array


_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class NotificationPolicy:
    """What the notifications of a subscription depend on."""

    user: int
    name: str
    quiet: float | None
    per_minute: int


class NotificationBuilder:
    """Creates notifications; runs in the core thread, inside a transaction."""

    def __init__(self, columns: EventColumns, limits: ServiceLimits, clock: Callable[[], float] = time.time) -> None:
        self.columns = columns
        self.limits = limits
        self.clock = clock
        self.match_counts: dict[int, int] = {}  # matches of the last batch, by subscription
        self._known: dict[int, NotificationPolicy] = {}
        self._minute: dict[int, tuple[float, int]] = {}  # user: start of the minute, notifications

    def invalidate(self, subscription: int | None = None) -> None:
        """Drops the cached policy of a changed subscription, or of all."""
        if subscription is None:
            self._known.clear()
        else:
            self._known.pop(subscription, None)

    def notify_matches(self, db: Connection, matches: pa.Table) -> list[Notification]:
        """Creates the notifications of matches; suppressed and throttled matches are counted."""
        self.match_counts = {}
        if not matches.num_rows:
            return []
        matches = _sort(matches)
        codes = matches.column("subscription").combine_chunks().dictionary_encode()
        codes = codes.combine_chunks() if isinstance(codes, pa.ChunkedArray) else codes
        ids = [int(name) for name in codes.dictionary.to_pylist()]
        which = codes.indices.to_numpy(zero_copy_only=False)
        known = [self._policy(db, id) for id in ids]
        counted = np.bincount(which, minlength=len(ids))
        self.match_counts = dict(zip(ids, counted.tolist(), strict=True))
        counts = [(id, "matches", n) for id, n in self.match_counts.items()]
        keep = np.ones(matches.num_rows, np.bool_)
        if any(policy is None or policy.quiet for policy in known):
            self._suppress(db, matches, ids, which, known, keep, counts)
        self._throttle(ids, which, known, keep, counts)
        increment_all(db, counts)
        if not keep.any():
            return []
        if not keep.all():
            matches = matches.filter(pa.array(keep))
            which = which[keep]
        policies = {id: each for id, each in zip(ids, known, strict=True) if each is not None}
        bodies = encode_matches(matches, {id: each.name for id, each in policies.items()})
        at = self.clock()
        match_ids = matches.column("match_id").to_pylist()
        rows: list[OutboxRow] = [
            (ids[k], policies[ids[k]].user, MATCH, match_id, at, body)
            for k, match_id, body in zip(which.tolist(), match_ids, bodies, strict=True)
        ]
        notifications = add_notifications(db, rows)
        if len(notifications) < len(rows):
            increment(db, 0, "doubled", len(rows) - len(notifications))
        return notifications

    def _policy(self, db: Connection, id: int) -> NotificationPolicy | None:
        policy = self._known.get(id)
        if policy is None:
            row = get_subscription(db, id)
            if row is None:
                return None
            most = get_user_limits(db, row["user"], self.limits).notes_per_minute
            policy = self._known[id] = NotificationPolicy(row["user"], row["name"], row["quiet"], most)
        return policy

    def _suppress(
        self,
        db: Connection,
        matches: pa.Table,
        ids: list[int],
        which: Any,
        known: list[NotificationPolicy | None],
        keep: Any,
        counts: list[tuple[int, str, int]],
    ) -> None:
        """Drops matches of an object within the quiet time after its last notification."""
        ends = self.columns.match_ends(matches)
        quiet: Counter[int] = Counter()
        for row in range(matches.num_rows):
            id, policy = ids[which[row]], known[which[row]]
            if policy is None:
                keep[row] = False
                counts.append((id, "unknown", 1))
                continue
            if not policy.quiet:
                continue
            object, end = self._object(matches, row), ends[row]
            until = get_quiet_end(db, id, object)
            if until is not None and end < until and until - policy.quiet <= end:
                keep[row] = False
                quiet[id] += 1
                continue
            set_quiet_end(db, id, object, end + policy.quiet)
        counts += [(id, "quiet", n) for id, n in quiet.items()]

    def _object(self, matches: pa.Table, row: int) -> str:
        """Returns the sorted keys of all events of a match."""
        key = self.columns.stream.key
        if key is None:
            return ""
        members = matches.column("members")[row].as_py() or []
        return json.dumps(sorted({str(member.get(key)) for member in members}))

    def _throttle(
        self,
        ids: list[int],
        which: Any,
        known: list[NotificationPolicy | None],
        keep: Any,
        counts: list[tuple[int, str, int]],
    ) -> None:
        """Drops matches beyond a user's notifications per minute."""
        now = self.clock()
        by_user: dict[int, list[int]] = {}
        most: dict[int, int] = {}
        for k, policy in enumerate(known):
            if policy is not None:
                by_user.setdefault(policy.user, []).append(k)
                most[policy.user] = max(most.get(policy.user, 0), policy.per_minute)
        for user, own in by_user.items():
            since, so_far = self._minute.get(user, (now, 0))
            if now - since >= _MINUTE or now < since:
                since, so_far = now, 0
            rows = np.flatnonzero(keep & np.isin(which, own))
            left = max(0, most[user] - so_far)
            if len(rows) > left:
                out = rows[left:]
                keep[out] = False
                dropped = Counter(which[out].tolist())
                counts += [(ids[k], "throttled", n) for k, n in dropped.items()]
                rows = rows[:left]
            self._minute[user] = since, so_far + len(rows)

    def announce_start(self, db: Connection, id: int, moment: Any) -> tuple[list[Notification], dict[str, Any]]:
        """Announces that a subscription sees events from now on."""
        at = self.clock()
        started = {"moment": moment, "at": format_time(at)}
        return self._announce(db, id, STARTED, started, at), started

    def announce_end(self, db: Connection, id: int, reason: str) -> list[Notification]:
        """Announces that a subscription sees no more events."""
        at = self.clock()
        return self._announce(db, id, ENDED, {"reason": reason, "at": format_time(at)}, at)

    def _announce(self, db: Connection, id: int, kind: str, content: dict[str, Any], at: float) -> list[Notification]:
        policy = self._policy(db, id)
        assert policy is not None
        body = orjson.dumps({"kind": kind, "subscription": id, "name": policy.name, **content})
        return add_notifications(db, [(id, policy.user, kind, None, at, body)])


def _sort(matches: pa.Table) -> pa.Table:
    """Sorts by end time and subscription, so that numbering is the same after a crash."""
    if matches.num_rows < 2:
        return matches
    kind = matches.schema.field("end").type
    whole = pa.types.is_timestamp(kind) or pa.types.is_integer(kind)
    ends = matches.column("end").cast(pa.int64() if whole else pa.float64())
    ids = matches.column("subscription").cast(pa.int64())
    order = np.lexsort((ids.to_numpy(), ends.to_numpy()))
    return matches.take(pa.array(order))


class TransactionOutput:
    """Notifications and events of one transaction, published after its commit."""

    def __init__(self) -> None:
        self.notifications: list[Notification] = []
        self.events: list[pa.Table] = []
        self.ahead = False  # the matcher has processed events of an unfinished job

    def add(self, notifications: Sequence[Notification]) -> int:
        self.notifications += notifications
        return len(notifications)

    def mark(self) -> tuple[int, int]:
        self.ahead = False
        return len(self.notifications), len(self.events)

    def discard_after(self, mark: tuple[int, int]) -> None:
        del self.notifications[mark[0] :], self.events[mark[1] :]

    def take(self) -> tuple[list[Notification], list[pa.Table]]:
        """Returns and clears the output of a committed transaction."""
        output = self.notifications, self.events
        self.notifications, self.events = [], []
        return output
