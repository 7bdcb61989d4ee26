"""Which matches become notes: what is quiet or too much is counted, never just gone."""

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from ensue.service.access import limits_of
from ensue.service.columns import Columns, iso
from ensue.service.notes import ENDED, MATCH, STARTED, Note
from ensue.service.settings import Limits
from ensue.service.store.counters import count, count_all
from ensue.service.store.outbox import Row, add_notes
from ensue.service.store.subscriptions import subscription_of
from ensue.service.wording import bodies

_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Known:
    """What notes of a subscription need."""

    user: int
    name: str
    quiet: float | None
    per_minute: int


class Noting:
    """Makes notes of matches. All of it runs in the core thread, inside a transaction."""

    def __init__(
        self, columns: Columns, limits: Limits, clock: Callable[[], float] = time.time
    ) -> None:
        self.columns = columns
        self.limits = limits
        self.clock = clock
        self.found: dict[int, int] = {}  # matches that came last, by subscription
        self._known: dict[int, Known] = {}
        self._minute: dict[int, tuple[float, int]] = {}  # user: since when, how many

    def forget(self, subscription: int | None = None) -> None:
        """What is known of a subscription, or of all, has changed."""
        if subscription is None:
            self._known.clear()
        else:
            self._known.pop(subscription, None)

    # ---------------------------------------------------------------------------- matches

    def matched(self, db: Connection, matches: pa.Table) -> list[Note]:
        """Notes of matches that subscribers are told of; the others are counted."""
        self.found = {}
        if not matches.num_rows:
            return []
        matches = _in_order(matches)
        codes = matches.column("subscription").combine_chunks().dictionary_encode()
        codes = codes.combine_chunks() if isinstance(codes, pa.ChunkedArray) else codes
        ids = [int(name) for name in codes.dictionary.to_pylist()]
        which = codes.indices.to_numpy(zero_copy_only=False)
        known = [self._of(db, id) for id in ids]
        counted = np.bincount(which, minlength=len(ids))
        self.found = dict(zip(ids, counted.tolist(), strict=True))
        told: list[tuple[int, str, int]] = [(id, "matches", n) for id, n in self.found.items()]
        kept = np.ones(matches.num_rows, np.bool_)
        if any(one is None or one.quiet for one in known):
            self._hush(db, matches, ids, which, known, kept, told)
        self._throttle(ids, which, known, kept, told)
        count_all(db, told)
        if not kept.any():
            return []
        if not kept.all():
            matches = matches.filter(pa.array(kept))
            which = which[kept]
        names = {id: one.name for id, one in zip(ids, known, strict=True) if one is not None}
        at = self.clock()
        match_ids = matches.column("match_id").to_pylist()
        rows: list[Row] = []
        for k, match_id, body in zip(
            which.tolist(), match_ids, bodies(matches, names), strict=True
        ):
            one = known[k]
            assert one is not None
            rows.append((ids[k], one.user, MATCH, match_id, at, body))
        notes = add_notes(db, rows)
        if len(notes) < len(rows):
            count(db, 0, "doubled", len(rows) - len(notes))
        return notes

    def _of(self, db: Connection, id: int) -> Known | None:
        found = self._known.get(id)
        if found is None:
            row = subscription_of(db, id)
            if row is None:
                return None
            most = limits_of(db, row["user"], self.limits).notes_per_minute
            found = self._known[id] = Known(row["user"], row["name"], row["quiet"], most)
        return found

    def _hush(
        self,
        db: Connection,
        matches: pa.Table,
        ids: list[int],
        which: Any,
        known: list[Known | None],
        kept: Any,
        told: list[tuple[int, str, int]],
    ) -> None:
        """Leaves out matches of an object that its subscription was told of a short while ago."""
        ends = self._ends(matches)
        quiet: Counter[int] = Counter()
        for row in range(matches.num_rows):
            id, one = ids[which[row]], known[which[row]]
            if one is None:
                kept[row] = False
                told.append((id, "unknown", 1))
                continue
            if not one.quiet:
                continue
            object, end = self._object(matches, row), ends[row]
            found = db.execute(
                "SELECT until FROM quiet WHERE subscription = ? AND object = ?", (id, object)
            ).fetchone()
            if found is not None and end < found[0] and found[0] - one.quiet <= end:
                kept[row] = False
                quiet[id] += 1
                continue
            db.execute(
                "INSERT INTO quiet VALUES (?, ?, ?) ON CONFLICT (subscription, object) "
                "DO UPDATE SET until = excluded.until",
                (id, object, end + one.quiet),
            )
        told += [(id, "quiet", n) for id, n in quiet.items()]

    def _ends(self, matches: pa.Table) -> list[float]:
        column = matches.column("end")
        if self.columns.calendar:
            micros = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)))
            return [v / 1e6 for v in micros.cast(pa.int64()).to_pylist()]
        return [float(v) for v in column.to_pylist()]

    def _object(self, matches: pa.Table, row: int) -> str:
        """Whose match it is: the objects of all its events, each once."""
        key = self.columns.stream.key
        if key is None:
            return ""
        members = matches.column("members")[row].as_py() or []
        return json.dumps(sorted({str(member.get(key)) for member in members}))

    def _throttle(
        self,
        ids: list[int],
        which: Any,
        known: list[Known | None],
        kept: Any,
        told: list[tuple[int, str, int]],
    ) -> None:
        """Leaves out what is beyond a user's notes a minute."""
        now = self.clock()
        by_user: dict[int, list[int]] = {}
        for k, one in enumerate(known):
            if one is not None:
                by_user.setdefault(one.user, []).append(k)
        for user, own in by_user.items():
            most = max(one.per_minute for k in own if (one := known[k]) is not None)
            since, so_far = self._minute.get(user, (now, 0))
            if now - since >= _MINUTE or now < since:
                since, so_far = now, 0
            rows = np.flatnonzero(kept & np.isin(which, own))
            left = max(0, most - so_far)
            if len(rows) > left:
                out = rows[left:]
                kept[out] = False
                told += [(ids[k], "throttled", n) for k, n in Counter(which[out].tolist()).items()]
                rows = rows[:left]
            self._minute[user] = since, so_far + len(rows)

    # ---------------------------------------------------------------------------- begin and end

    def began(self, db: Connection, id: int, moment: Any) -> tuple[list[Note], dict[str, Any]]:
        """Says that a subscription sees events from now on."""
        at = self.clock()
        started = {"moment": moment, "at": iso(at)}
        return self._said(db, id, STARTED, started, at), started

    def ended(self, db: Connection, id: int, reason: str) -> list[Note]:
        """Says that a subscription sees no more events."""
        at = self.clock()
        return self._said(db, id, ENDED, {"reason": reason, "at": iso(at)}, at)

    def _said(
        self, db: Connection, id: int, kind: str, what: dict[str, Any], at: float
    ) -> list[Note]:
        known = self._of(db, id)
        assert known is not None
        body = orjson.dumps({"kind": kind, "subscription": id, "name": known.name, **what})
        return add_notes(db, [(id, known.user, kind, None, at, body)])


def _in_order(matches: pa.Table) -> pa.Table:
    """By time, then by subscription: the same after a crash, whichever way they were found."""
    if matches.num_rows < 2:
        return matches
    ends = matches.column("end").cast(pa.int64() if _calendar(matches) else pa.float64())
    ids = matches.column("subscription").cast(pa.int64())
    order = np.lexsort((ids.to_numpy(), ends.to_numpy()))
    return matches.take(pa.array(order))


def _calendar(matches: pa.Table) -> bool:
    kind = matches.schema.field("end").type
    return bool(pa.types.is_timestamp(kind) or pa.types.is_integer(kind))
