"""What happens in the core thread of a service: events, changes of the set, housekeeping.

All of it runs inside transactions of the file, one piece of work after the other. So events,
matches and changes of the set have one order, which a crash does not change.
"""

import json
import math
import shutil
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import pyarrow as pa

from ensue.api import Subscriptions
from ensue.errors import EventError, QueryError, ServiceError
from ensue.service import corners, secrets
from ensue.service.access import limits_of
from ensue.service.columns import Columns
from ensue.service.intake import Taken
from ensue.service.matching.contract import Matching
from ensue.service.notes import Note
from ensue.service.noting import Noting
from ensue.service.objects import Objects
from ensue.service.pace import Pace
from ensue.service.refusals import (
    ConflictError,
    IntakeStoppedError,
    NotFoundError,
    OverLimitError,
)
from ensue.service.settings import Limits
from ensue.service.store import audit, batches, keys, outbox, positions, regions, targets
from ensue.service.store import subscriptions as store
from ensue.service.store.counters import WHOLE, count, count_all
from ensue.service.store.subscriptions import ACTIVE, ENDED, PAUSED
from ensue.service.subscribed import Published, Subscribed
from ensue.service.templating import filled
from ensue.service.wanted import Unset, Wanted
from ensue.workload.subscriptions.catalogue.change import Change

MOST_ROWS = 50_000  # events that are matched together
RECENT = 100_000  # events by which objects are known at the start
_LONGEST_NAME = 200
_NAMELESS = "\0"  # until its number is known


@dataclass(slots=True)
class Offered:
    """Events that somebody publishes."""

    taken: Taken
    user: int
    producer: str | None = None
    sequences: Sequence[int] | None = None
    answer: "Future[Published]" = field(default_factory=Future)

    def __post_init__(self) -> None:
        # Whoever waits may go away; the events are taken all the same.
        self.answer.set_running_or_notify_cancel()


class Core:
    """The work of a service. Everything but `offer` is called in the core thread."""

    def __init__(
        self,
        path: str,
        columns: Columns,
        matching: Matching,
        limits: Limits,
        shared_regions: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self.columns = columns
        self.matching = matching
        self.limits = limits
        self.shared_regions = dict(shared_regions)
        self.clock = clock
        self.noting = Noting(columns, limits, clock)
        self.objects = Objects(columns)
        self.pace = Pace()
        self.stopped: str | None = None  # why no events are taken
        self.offered: deque[Offered] = deque()
        self.in_hand: list[Offered] = []  # taken from there, not yet answered
        self.newest_event: float | None = None  # its time
        self.last_event_at: float | None = None  # on this machine's clock
        self._new: list[Note] = []  # of the transaction that runs
        self._moved: list[pa.Table] = []
        self._ahead = False  # the matcher has seen what this piece of work has not yet finished
        self._reading = Subscriptions(**columns.subscriptions())
        self._checked_disk = 0.0

    # ---------------------------------------------------------------------------- transactions

    def committed(self) -> list[Note]:
        """What the transaction has told, for listeners."""
        notes, self._new = self._new, []
        moved, self._moved = self._moved, []
        for events in moved:
            self.objects.take(events)
        return notes

    def rolled_back(self, error: BaseException) -> None:
        """Nothing of the transaction is in the file."""
        self._new.clear()
        self._moved.clear()
        self.noting.forget()
        self.matching.failed()
        if isinstance(error, sqlite3.Error):
            self.stopped = f"the file cannot be written: {error}"

    def job(self, work: Callable[[Connection], Any]) -> Callable[[Connection], Any]:
        """A piece of work whose notes are forgotten if it fails."""

        def done(db: Connection) -> Any:
            new, moved, self._ahead = len(self._new), len(self._moved), False
            try:
                return work(db)
            except BaseException:
                del self._new[new:], self._moved[moved:]
                self.noting.forget()
                if self._ahead:
                    self.matching.failed()
                raise

        return done

    def load(self, db: Connection) -> None:
        """Goes on where the file says that it stopped."""
        self.matching.load(db)
        recent = batches.recent_events(db, self.columns.arrow, RECENT)
        self.objects.take(recent)
        if recent.num_rows:
            self.newest_event = float(self.columns.seconds(recent).max())
            self.last_event_at = self.clock()

    # ---------------------------------------------------------------------------- events

    def offer(self, offered: Offered) -> bool:
        """Leaves events for the core thread, from any thread; whether it has to be called."""
        self.offered.append(offered)
        return len(self.offered) == 1

    def take_offered(self, db: Connection) -> list[tuple[Offered, Published | Exception]]:
        """Takes what was offered, as one batch; what came of each."""
        some: list[Offered] = []
        rows = 0
        while self.offered and (not some or rows < MOST_ROWS):
            some.append(self.offered.popleft())
            rows += some[-1].taken.events.num_rows
        self.in_hand = some
        if not some:
            return []
        try:
            self._require_room()
            return list(zip(some, self._apart(db, some), strict=True))
        except Exception as error:  # noqa: BLE001 - whoever offered it is told
            if len(some) == 1 or not db.in_transaction:
                return [(one, error) for one in some]
        return [(one, self._alone(db, one)) for one in some]  # one of them is the cause

    def _alone(self, db: Connection, one: Offered) -> Published | Exception:
        try:
            return self._apart(db, [one])[0]
        except Exception as error:  # noqa: BLE001 - whoever offered it is told
            return error

    def _apart(self, db: Connection, some: list[Offered]) -> list[Published]:
        """Takes offers in a savepoint of their own."""
        db.execute("SAVEPOINT offers")
        try:
            found = self.job(lambda db: self._taken(db, some))(db)
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK TO offers")
                db.execute("RELEASE offers")
            raise
        db.execute("RELEASE offers")
        made: list[Published] = found
        return made

    def _taken(self, db: Connection, some: list[Offered]) -> list[Published]:
        now = self.clock()
        tables, counts = [], []
        for one in some:
            table, repeated, bad = self._new_of(db, one, now)
            tables.append(table)
            counts.append((table.num_rows, repeated, bad))
        events = pa.concat_tables([self.columns.arrow.empty_table(), *tables])
        late: list[int] = [0] * len(some)
        position, notes = 0, 0
        if events.num_rows:
            found = self.matching.feed(db, events)
            self._ahead = True
            if any(found.late):
                late, first = [], 0
                for table in tables:
                    late.append(sum(found.late[first : first + table.num_rows]))
                    first += table.num_rows
                events = events.filter(pa.array([not one for one in found.late]))
                count_all(db, ((s, "late", n) for s, n in found.late_by_subscription.items()))
            position = self._keep(db, events, now)
            if found.matches is not None:
                new = self.noting.matched(db, found.matches)
                self._new += new
                notes = len(new)
            self.last_event_at = now
            self.pace.count(events.num_rows)
        totals = {
            "events": events.num_rows,
            "events_late": sum(late),
            "events_repeated": sum(c[1] for c in counts),
            "events_bad": sum(c[2] for c in counts),
        }
        count_all(db, ((WHOLE, name, n) for name, n in totals.items() if n))
        return [
            Published(rows - behind, repeated, bad, behind, position if rows else 0, notes)
            for (rows, repeated, bad), behind in zip(counts, late, strict=True)
        ]

    def _keep(self, db: Connection, events: pa.Table, now: float) -> int:
        if not events.num_rows:
            return 0
        times = self.columns.seconds(events)
        span = float(times.min()), float(times.max())
        self.newest_event = max(span[1], self.newest_event or span[1])
        self._moved.append(events)
        return batches.keep_batch(db, store.version_of(db), now, events, span)

    def _new_of(self, db: Connection, one: Offered, now: float) -> tuple[pa.Table, int, int]:
        """The events of an offer that were not taken before."""
        taken = one.taken
        if one.sequences is None or one.producer is None:
            self._put_aside(db, one, taken.bad, now)
            return taken.events, 0, len(taken.bad)
        if len(one.sequences) != taken.count:
            raise EventError(
                f"{taken.count} events came with {len(one.sequences)} sequence numbers\n"
                "  hint: one for each event, or the number of the first"
            )
        expected = positions.next_of(db, one.producer, one.user)
        new = set(positions.new_ones(one.sequences, expected))
        rows = [row for row, place in enumerate(taken.places) if place in new]
        table = taken.events
        if len(rows) < table.num_rows:
            table = table.take(pa.array(rows, pa.int64()))
        bad = [b for b in taken.bad if b.place in new]
        self._put_aside(db, one, bad, now)
        if new:
            last = max(one.sequences[place] for place in new)
            positions.move_on(db, one.producer, one.user, last + 1, now)
        return table, taken.count - len(new), len(bad)

    def _put_aside(self, db: Connection, one: Offered, bad: Sequence[Any], now: float) -> None:
        db.executemany(
            "INSERT INTO bad_events (at, user, producer, reason, event) VALUES (?, ?, ?, ?, ?)",
            ((now, one.user, one.producer, b.reason, b.event) for b in bad),
        )

    def advance(self, db: Connection, to: float) -> int:
        """Time has passed without events; how many notes that made."""
        found = self.matching.advance(db, to)
        self._ahead = True
        batches.keep_advance(db, store.version_of(db), self.clock(), to)
        if found.matches is None:
            return 0
        new = self.noting.matched(db, found.matches)
        self._new += new
        return len(new)

    def found_elsewhere(self, db: Connection, matches: pa.Table) -> int:
        """Matches that were found on Spark; how many notes they made."""
        new = self.noting.matched(db, matches)
        self._new += new
        return len(new)

    # ---------------------------------------------------------------------------- subscriptions

    def subscribe(
        self, db: Connection, wanted: Wanted, key: str | None, digest: bytes
    ) -> Subscribed:
        """Adds a subscription. The same key and request again: the one that was made then."""
        if key is not None:
            known = keys.answered(db, wanted.user, key, digest)
            if known is not None:
                return replace(self._own(db, int(known), wanted.user), repeated=True)
        made = self.subscribe_all(db, [wanted])[0]
        if key is not None:
            keys.remember(db, wanted.user, key, digest, str(made.id))
        audit.record(db, wanted.user, "subscribe", f"subscription {made.id}", made.name)
        return made

    def subscribe_all(self, db: Connection, several: Sequence[Wanted]) -> list[Subscribed]:
        """Adds subscriptions, all of them or none, as one version of the set."""
        now = self.clock()
        changes: list[Change] = []
        said: dict[int, list[str]] = {}
        known: dict[int, Mapping[str, str]] = {}
        for wanted in several:
            if wanted.user not in known:
                known[wanted.user] = {**self.shared_regions, **regions.regions_of(db, wanted.user)}
            warned: list[str] = []
            filled_in, change = self._read(wanted, known[wanted.user], warned)
            used = corners.count(change)
            id = self._insert(db, filled_in, change, used, now)
            said[id] = warned
            changes.append(replace(change, name=str(id)))
            for target in wanted.targets:
                self._add_target(db, id, wanted.user, target.kind, target.config)
        self._require_quotas(db, {wanted.user for wanted in several})
        self._change(db, changes)
        made = []
        for change in changes:
            self._begin(db, int(change.name))
            row = store.subscription_of(db, int(change.name))
            assert row is not None
            made.append(Subscribed.of(row, warnings=tuple(said[row["id"]])))
        return made

    def _read(
        self, wanted: Wanted, known: Mapping[str, str], said: list[str] | None
    ) -> tuple[Wanted, Change]:
        """A subscription that is asked for, with the text of its template, as a change."""
        if wanted.template is not None:
            if wanted.text is not None:
                raise ServiceError("a subscription has a text or a template, not both")
            done = filled(wanted.template, wanted.values, self.columns)
            quiet = done.quiet if wanted.quiet is None else wanted.quiet
            wanted = replace(
                wanted, text=done.text, quiet=quiet, language="opsl", title=done.title
            )
        if not wanted.text or not wanted.text.strip():
            raise QueryError("a subscription has a text", hint="OPSL, or the name of a template")
        name = wanted.name or wanted.title
        if len(name) > _LONGEST_NAME:
            raise ServiceError(f"a name has at most {_LONGEST_NAME} characters")
        for what, value in (("quiet", wanted.quiet), ("expires", wanted.expires)):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ServiceError(f"{what}={value!r} is no time")
        given = {**known, **wanted.regions}
        try:
            change = self._reading.change_of(
                Change.add, name, wanted.text, given, wanted.language, said
            )
        except QueryError as error:  # there is only this one: its name says nothing
            error.problem = error.problem.removeprefix(f"subscription '{name}': ")
            raise
        self.matching.check(change)
        return wanted, change

    def check(self, db: Connection, wanted: Wanted) -> tuple[Wanted, Change, list[str]]:
        """QueryError if a subscription cannot be taken; else how it would be read."""
        said: list[str] = []
        known = {**self.shared_regions, **regions.regions_of(db, wanted.user)}
        return (*self._read(wanted, known, said), said)

    def _insert(
        self, db: Connection, wanted: Wanted, change: Change, used: int, now: float
    ) -> int:
        template = None
        if wanted.template is not None:
            template = json.dumps({"name": wanted.template, "values": dict(wanted.values)})
        columns = {
            "user": wanted.user,
            "text": wanted.text,
            "language": change.language,
            "regions": json.dumps(dict(change.regions)),
            "template": template,
            "quiet": wanted.quiet,
            "corners": used,
            "created": now,
            "changed": now,
            "expires": wanted.expires,
        }
        name = wanted.name or ""
        try:
            id = store.add_subscription(db, name=name or _NAMELESS, **columns)
        except sqlite3.IntegrityError:
            raise ConflictError(
                f"you have a subscription '{name}' already\n"
                "  hint: choose another name, or change that one"
            ) from None
        if not name:
            store.change_subscription(db, id, name=f"{wanted.title} {id}")
        return id

    def _add_target(
        self, db: Connection, id: int, user: int, kind: str, config: Mapping[str, Any]
    ) -> int:
        most = limits_of(db, user, self.limits).targets_per_subscription
        have = db.execute("SELECT count(*) FROM targets WHERE subscription = ?", (id,)).fetchone()
        if have[0] >= most:
            raise OverLimitError(
                "targets_per_subscription", f"a subscription has at most {most} targets"
            )
        made = secrets.new_secrets(kind)
        return targets.add_target(db, id, user, kind, config, now=self.clock(), secrets=made)

    def add_target(
        self, db: Connection, id: int, user: int, kind: str, config: Mapping[str, Any]
    ) -> int:
        """One more place where notes of a subscription go, from now on."""
        self._own(db, id, user)
        made = self._add_target(db, id, user, kind, config)
        audit.record(db, user, "add target", f"subscription {id}", kind)
        return made

    def _require_quotas(self, db: Connection, users: set[int]) -> None:
        for user in users:
            limits = limits_of(db, user, self.limits)
            count_now, corners_now = store.used_by(db, user)
            if count_now > limits.subscriptions_per_user:
                raise OverLimitError(
                    "subscriptions_per_user",
                    f"a user has at most {limits.subscriptions_per_user} subscriptions\n"
                    "  hint: cancel some, or ask for a higher quota",
                )
            if corners_now > limits.corners_per_user:
                raise OverLimitError(
                    "corners_per_user",
                    f"the regions of a user's subscriptions have at most "
                    f"{limits.corners_per_user} corners, and these would be {corners_now}\n"
                    "  hint: simplify the regions, or ask for a higher quota",
                )

    def _change(self, db: Connection, changes: Sequence[Change]) -> None:
        """Changes the set. If what follows fails, the matcher is built again: that is dear."""
        version = store.keep_changes(db, changes)
        self._ahead = True
        self.matching.change(version, changes)

    def _begin(self, db: Connection, id: int) -> None:
        if not self.matching.at_once:
            return  # it is told when a micro-batch has seen it
        self.begin(db, id, self.columns.shown(self.matching.now))

    def begin(self, db: Connection, id: int, moment: Any) -> None:
        """A subscription sees events from a moment of the stream on."""
        self.noting.forget(id)
        notes, started = self.noting.began(db, id, moment)
        store.change_subscription(db, id, started=json.dumps(started))
        self._new += notes

    def _own(self, db: Connection, id: int, user: int | None) -> Subscribed:
        """The subscription of a number, if it is the user's."""
        row = store.subscription_of(db, id)
        if row is None or (user is not None and row["user"] != user):
            raise NotFoundError(f"there is no subscription {id}")
        return Subscribed.of(row)

    def _going(self, db: Connection, id: int, user: int | None) -> Subscribed:
        found = self._own(db, id, user)
        if found.state == ENDED:
            raise ConflictError(f"subscription {id} has ended: {found.reason}")
        return found

    def change(self, db: Connection, id: int, user: int, given: Mapping[str, Any]) -> Subscribed:
        """Changes some of a subscription. Another text, or other regions: it begins anew."""
        found = self._going(db, id, user)
        name = given.get("name", found.name)
        expires = given.get("expires", found.expires)
        quiet = given.get("quiet", found.quiet)
        template, values = found.template, found.values
        text: str | None = given.get("text", found.text)
        if "template" in given or "values" in given:
            template = given.get("template", found.template)
            values = given.get("values", found.values)
            text = None
        elif "text" in given:
            template = None  # it was opened and edited
        anew = text is None or "text" in given or "regions" in given or "language" in given
        row: dict[str, Any] = {"name": name, "expires": expires, "quiet": quiet}
        change: Change | None = None
        if anew:
            language = None if "text" in given else found.language
            wanted = Wanted(
                user, name, text, given.get("language", language),
                given.get("regions", found.regions), template if text is None else None,
                values or {}, given.get("quiet"), expires,
            )  # fmt: skip
            known = {**self.shared_regions, **regions.regions_of(db, user)}
            wanted, change = self._read(wanted, known, None)
            kept = json.dumps({"name": template, "values": dict(values)}) if template else None
            row |= {
                "text": wanted.text, "language": change.language, "template": kept,
                "regions": json.dumps(dict(change.regions)), "corners": corners.count(change),
                "quiet": wanted.quiet if "quiet" in given or template else quiet,
            }  # fmt: skip
        try:
            store.change_subscription(db, id, **row, changed=self.clock())
        except sqlite3.IntegrityError:
            raise ConflictError(f"you have a subscription '{name}' already") from None
        self.noting.forget(id)
        self._require_quotas(db, {user})
        audit.record(db, user, "change", f"subscription {id}", ", ".join(given))
        if change is not None and found.state == ACTIVE:
            made = Change.replace(
                str(id), change.text or "", language=change.language, regions=change.regions
            )
            self._change(db, [made])
            self._begin(db, id)
        return self._own(db, id, user)

    def pause(self, db: Connection, id: int, user: int) -> Subscribed:
        """Takes a subscription out of the set; what it has seen is forgotten."""
        if self._going(db, id, user).state == ACTIVE:
            store.change_subscription(db, id, state=PAUSED, changed=self.clock())
            self._new += self.noting.ended(db, id, "paused")
            audit.record(db, user, "pause", f"subscription {id}", "")
            self._change(db, [Change.cancel(str(id))])
        return self._own(db, id, user)

    def resume(self, db: Connection, id: int, user: int) -> Subscribed:
        """Puts a subscription that was paused back into the set."""
        found = self._going(db, id, user)
        if found.state == PAUSED:
            change = Change.add(
                str(id), found.text, language=found.language, regions=dict(found.regions)
            )
            self.matching.check(change)
            store.change_subscription(db, id, state=ACTIVE, changed=self.clock())
            audit.record(db, user, "resume", f"subscription {id}", "")
            self._change(db, [change])
            self._begin(db, id)
        return self._own(db, id, user)

    def cancel(self, db: Connection, id: int, user: int | None, reason: str) -> Subscribed:
        """Ends a subscription."""
        found = self._own(db, id, user)
        if found.state == ENDED:
            return found
        store.change_subscription(db, id, state=ENDED, reason=reason, changed=self.clock())
        self._new += self.noting.ended(db, id, reason)
        self.noting.forget(id)
        db.execute("DELETE FROM quiet WHERE subscription = ?", (id,))
        audit.record(db, found.user, "end", f"subscription {id}", reason)
        if found.state == ACTIVE:
            self._change(db, [Change.cancel(str(id))])
        return self._own(db, id, None)

    # ---------------------------------------------------------------------------- regions

    def put_region(
        self, db: Connection, user: int, name: str, text: str, *, apply: bool
    ) -> list[int]:
        """Keeps a region; `apply`: subscriptions that name it begin anew with its new shape."""
        before = regions.regions_of(db, user).get(name)
        regions.put_region(db, user, name, text)
        audit.record(db, user, "put region", f"region {name}", "")
        changed: list[int] = []
        if apply and before is not None and before != text:
            for row in store.subscriptions_of(db, user, None, 0, 1 << 40):
                own = json.loads(row["regions"])
                if own.get(name) == before:
                    self.change(db, row["id"], user, {"regions": {**own, name: text}})
                    changed.append(row["id"])
        return changed

    def remove_region(self, db: Connection, user: int, name: str) -> None:
        """Forgets a region. Subscriptions that were made with it go on."""
        if not regions.remove_region(db, user, name):
            raise NotFoundError(f"there is no region '{name}'")
        audit.record(db, user, "remove region", f"region {name}", "")

    # ---------------------------------------------------------------------------- housekeeping

    def keep_house(self, db: Connection) -> None:
        """What has to be done now and then."""
        now = self.clock()
        for id in store.expired(db, now):
            self.cancel(db, id, None, "expired")
            count(db, id, "expired")
        if self.matching.save_due:
            self.matching.save(db)
        before = now - self.limits.retention
        gone = outbox.forget_notes(db, before)
        if gone:
            count(db, WHOLE, "notes_forgotten", gone)
        batches.forget_batches(db, before, self.limits.retained_bytes)
        keys.forget(db, at=now)
        audit.forget(db, now - self.limits.audit_age)
        db.execute("DELETE FROM sessions WHERE expires < ?", (now,))
        db.execute(
            "DELETE FROM bad_events WHERE id <= (SELECT max(id) FROM bad_events) - ?",
            (self.limits.bad_events,),
        )
        if self.matching.now is not None:
            db.execute("DELETE FROM quiet WHERE until < ?", (self.matching.now,))
        self._look_at_disk()

    def _look_at_disk(self) -> None:
        """Stops intake before the disk is full, so that delivery and cursors have room."""
        self._checked_disk = time.monotonic()
        free = shutil.disk_usage(Path(self.path).absolute().parent).free
        if free < self.limits.free_bytes:
            least = self.limits.free_bytes >> 20
            self.stopped = f"the disk has {free >> 20} MB left, and it takes {least} to go on"
        else:
            self.stopped = None

    def _require_room(self) -> None:
        if time.monotonic() - self._checked_disk > 1.0 or self.stopped:
            self._look_at_disk()
        if self.stopped:
            raise IntakeStoppedError(
                f"no events are taken: {self.stopped}\n"
                "  hint: make room, or shorten retention; notes that are there are delivered"
            )


def only_set(**given: Any) -> dict[str, Any]:
    """What was given to be changed."""
    return {name: value for name, value in given.items() if not isinstance(value, Unset)}
