"""The subscriptions, regions and targets of users, and the set that is matched.

All of it is called in the core thread, inside a transaction.
"""

import json
import math
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from sqlite3 import Connection
from typing import Any

from ensue.api import Subscriptions
from ensue.errors import EnsueError, QueryError, ServiceError
from ensue.service import corners, secrets
from ensue.service.access import limits_of
from ensue.service.columns import Columns
from ensue.service.matching.contract import Matching
from ensue.service.noting import Noting
from ensue.service.refusals import ConflictError, NotFoundError, OverLimitError
from ensue.service.settings import Limits
from ensue.service.store import audit, keys, regions, targets
from ensue.service.store import subscriptions as store
from ensue.service.store.counters import count
from ensue.service.store.subscriptions import ACTIVE, ENDED, PAUSED
from ensue.service.subscribed import Subscribed
from ensue.service.templating import filled
from ensue.service.turn import Turn
from ensue.service.wanted import Unset, Wanted
from ensue.workload.subscriptions.catalogue.change import Change

_LONGEST_NAME = 200
_NAMELESS = "\0"  # until its number is known


@dataclass(frozen=True, slots=True)
class _Added:
    """A subscription that is in the file, and not yet in the set."""

    change: Change
    warnings: tuple[str, ...]


class Catalogue:
    """What users have asked for."""

    def __init__(
        self,
        columns: Columns,
        matching: Matching,
        limits: Limits,
        noting: Noting,
        shared_regions: Mapping[str, str],
        turn: Turn,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.columns = columns
        self.matching = matching
        self.limits = limits
        self.noting = noting
        self.shared_regions = dict(shared_regions)
        self.turn = turn
        self.clock = clock
        self._reading = Subscriptions(**columns.subscriptions())

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
        users = {wanted.user for wanted in several}
        known = {user: self._regions_of(db, user) for user in users}
        added = [self._add(db, wanted, known[wanted.user]) for wanted in several]
        return self._begin_all(db, added)

    def subscribe_each(
        self,
        db: Connection,
        user: int,
        several: Sequence[Wanted | EnsueError],
        key: str | None,
        digest: bytes,
    ) -> list[Subscribed | EnsueError]:
        """Adds those subscriptions of a user that can be, as one version of the set.

        The others are errors, some of them before. The same key and request again: what was
        answered then.
        """
        if key is not None:
            known = keys.answered(db, user, key, digest)
            if known is not None:
                return [self._answered(db, user, one) for one in json.loads(known)]
        known_regions = self._regions_of(db, user)
        outcomes: list[_Added | EnsueError] = []
        for wanted in several:
            if isinstance(wanted, EnsueError):
                outcomes.append(wanted)
                continue
            db.execute("SAVEPOINT item")
            try:
                outcomes.append(self._add(db, wanted, known_regions))
            except EnsueError as error:
                db.execute("ROLLBACK TO item")
                outcomes.append(error)
            db.execute("RELEASE item")
        added = [one for one in outcomes if isinstance(one, _Added)]
        made = iter(self._begin_all(db, added) if added else ())
        found = [next(made) if isinstance(one, _Added) else one for one in outcomes]
        for one in found:
            if isinstance(one, Subscribed):
                audit.record(db, user, "subscribe", f"subscription {one.id}", one.name)
        if key is not None:
            answer = [one.id if isinstance(one, Subscribed) else str(one) for one in found]
            keys.remember(db, user, key, digest, json.dumps(answer))
        return found

    def _answered(self, db: Connection, user: int, one: int | str) -> Subscribed | EnsueError:
        return self._own(db, one, user) if isinstance(one, int) else ServiceError(one)

    def _regions_of(self, db: Connection, user: int) -> dict[str, str]:
        return {**self.shared_regions, **regions.regions_of(db, user)}

    def _add(self, db: Connection, wanted: Wanted, known: Mapping[str, str]) -> "_Added":
        """Writes a subscription down, with its targets, within the quotas of its user."""
        warnings: list[str] = []
        wanted, change = self._read(wanted, known, warnings)
        id = self._insert(db, wanted, change, corners.count(change), self.clock())
        for target in wanted.targets:
            self._add_target(db, id, wanted.user, target.kind, target.config)
        self._require_quotas(db, {wanted.user})
        return _Added(replace(change, name=str(id)), tuple(warnings))

    def _begin_all(self, db: Connection, added: Sequence["_Added"]) -> list[Subscribed]:
        """Has subscriptions that were written down see the next events."""
        self._change(db, [one.change for one in added])
        made = []
        for one in added:
            id = int(one.change.name)
            self._begin(db, id)
            row = store.subscription_of(db, id)
            assert row is not None
            made.append(Subscribed.of(row, warnings=one.warnings))
        return made

    def _read(
        self, wanted: Wanted, known: Mapping[str, str], said: list[str] | None
    ) -> tuple[Wanted, Change]:
        """A subscription that is asked for, with the text of its template, as a change."""
        if wanted.template is not None:
            if wanted.text is not None:
                raise ServiceError("a subscription needs a text or a template, not both")
            done = filled(wanted.template, wanted.values, self.columns)
            quiet = done.quiet if wanted.quiet is None else wanted.quiet
            wanted = replace(
                wanted, text=done.text, quiet=quiet, language="opsl", title=done.title
            )
        if not wanted.text or not wanted.text.strip():
            raise QueryError("a subscription needs a text", hint="OPSL, or the name of a template")
        name = wanted.name or wanted.title
        if len(name) > _LONGEST_NAME:
            raise ServiceError(f"a name has at most {_LONGEST_NAME} characters")
        for what, value in (("quiet", wanted.quiet), ("expires", wanted.expires)):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ServiceError(f"{what}={value!r} is not a time")
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
        return (*self._read(wanted, self._regions_of(db, wanted.user), said), said)

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
                f"you already have a subscription '{name}'\n"
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
                    f"the regions of a user's subscriptions may have at most "
                    f"{limits.corners_per_user} corners, and these would be {corners_now}\n"
                    "  hint: simplify the regions, or ask for a higher quota",
                )

    def _change(self, db: Connection, changes: Sequence[Change]) -> None:
        """Changes the set. If what follows fails, the matcher is built again: that is dear."""
        version = store.keep_changes(db, changes)
        self.turn.ahead = True
        self.matching.change(version, changes)

    def _begin(self, db: Connection, id: int) -> None:
        """A subscription sees events from this moment of the stream on."""
        self.noting.forget(id)
        notes, started = self.noting.began(db, id, self.columns.shown(self.matching.now))
        store.change_subscription(db, id, started=json.dumps(started))
        self.turn.tell(notes)

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
            wanted, change = self._read(wanted, self._regions_of(db, user), None)
            kept = json.dumps({"name": template, "values": dict(values)}) if template else None
            row |= {
                "text": wanted.text, "language": change.language, "template": kept,
                "regions": json.dumps(dict(change.regions)), "corners": corners.count(change),
                "quiet": wanted.quiet if "quiet" in given or template else quiet,
            }  # fmt: skip
        try:
            store.change_subscription(db, id, **row, changed=self.clock())
        except sqlite3.IntegrityError:
            raise ConflictError(f"you already have a subscription '{name}'") from None
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
            self.turn.tell(self.noting.ended(db, id, "paused"))
            audit.record(db, user, "pause", f"subscription {id}", "")
            self._change(db, [Change.cancel(str(id))])
        return self._own(db, id, user)

    def pause_over(self, db: Connection, ids: Sequence[int], reason: str) -> None:
        """Pauses subscriptions that exceed a limit, and tells their users."""
        for id in ids:
            row = store.subscription_of(db, id)
            assert row is not None
            store.change_subscription(db, id, state=PAUSED, reason=reason, changed=self.clock())
            self.turn.tell(self.noting.ended(db, id, f"paused: {reason}"))
            audit.record(db, row["user"], "pause", f"subscription {id}", reason)
            count(db, id, "paused")
        self._change(db, [Change.cancel(str(id)) for id in ids])

    def resume(self, db: Connection, id: int, user: int) -> Subscribed:
        """Puts a subscription that was paused back into the set."""
        found = self._going(db, id, user)
        if found.state == PAUSED:
            change = Change.add(
                str(id), found.text, language=found.language, regions=dict(found.regions)
            )
            self.matching.check(change)
            store.change_subscription(db, id, state=ACTIVE, reason=None, changed=self.clock())
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
        self.turn.tell(self.noting.ended(db, id, reason))
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


def only_set(**given: Any) -> dict[str, Any]:
    """What was given to be changed."""
    return {name: value for name, value in given.items() if not isinstance(value, Unset)}
