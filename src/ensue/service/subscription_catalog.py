"""The catalog of subscriptions, regions and targets, and the set that is matched.

The methods of the catalog are called in the core thread, inside a transaction.
"""

import json
import math
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from sqlite3 import Connection, Row
from typing import Annotated, Any, TypedDict

from pydantic import Field

from ensue.api import Subscriptions
from ensue.errors import EnsueError, QueryError, ServiceError
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.service import secrets
from ensue.service.errors import ConflictError, NotFoundError, OverLimitError
from ensue.service.event_columns import EpochTime, EventColumns
from ensue.service.matching.match_backend import MatchBackend
from ensue.service.notification_rules import NotificationBuilder, TransactionOutput
from ensue.service.settings import ServiceLimits
from ensue.service.store import journal, subscription_store, target_store
from ensue.service.store.database import savepoint
from ensue.service.store.journal import increment
from ensue.service.store.subscription_store import ACTIVE, ENDED, PAUSED
from ensue.service.store.user_store import get_user_limits
from ensue.service.templates import fill_template


@dataclass(frozen=True, slots=True)
class UserSubscription:
    """A subscription of a service."""

    id: int
    user: int
    name: str
    text: str
    state: Annotated[str, Field(description="active, paused or ended")]
    language: str | None = None
    regions: Mapping[str, str] = field(default_factory=dict)
    template: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    quiet: float | None = None  # seconds of the stream's time
    reason: Annotated[str | None, Field(description="why it was paused or has ended")] = None
    created: EpochTime = 0.0
    changed: EpochTime = 0.0
    started: Annotated[Mapping[str, Any] | None, Field(description="time of the stream, and of the clock")] = None
    expires: EpochTime | None = None
    warnings: tuple[str, ...] = ()
    repeated: Annotated[bool, Field(exclude=True)] = False  # answered from the idempotency key

    @classmethod
    def from_row(cls, row: Row, **more: Any) -> "UserSubscription":
        template = json.loads(row["template"]) if row["template"] else {}
        return cls(
            row["id"], row["user"], row["name"], row["text"], row["state"], row["language"],
            json.loads(row["regions"]), template.get("name"), template.get("values", {}),
            row["quiet"], row["reason"], row["created"], row["changed"],
            json.loads(row["started"]) if row["started"] else None, row["expires"], **more,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TargetRequest:
    """A requested target: a webhook, Kafka, MQTT or NATS."""

    kind: str
    config: Mapping[str, Any]

    @classmethod
    def build(cls, target: "TargetArgument") -> "TargetRequest":
        """Builds a request from an argument: the configuration is nested under `config`, or beside `kind`."""
        if isinstance(target, TargetRequest):
            return target
        beside = {name: value for name, value in target.items() if name != "kind"}
        return cls(target["kind"], dict(target.get("config", beside)))


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """A requested subscription: a text, or a template with values."""

    user: int
    name: str | None = None
    text: str | None = None
    language: str | None = None
    regions: Mapping[str, Any] = field(default_factory=dict)
    template: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    quiet: float | None = None
    expires: float | None = None  # seconds since 1970
    targets: Sequence[TargetRequest] = ()
    title: str = "subscription"  # prefix of the default name


TargetArgument = Mapping[str, Any] | TargetRequest


class QueryArguments(TypedDict, total=False):
    """A template with values instead of a text, and the regions and the language of a text."""

    template: str | None
    values: Mapping[str, Any] | None
    regions: Mapping[str, Any] | None
    language: str | None


class SubscriptionArguments(QueryArguments, total=False):
    """The arguments of a new subscription."""

    name: str | None
    expires: datetime | float | None
    quiet: float | None
    targets: Iterable[TargetArgument]


class SubscriptionChanges(TypedDict, total=False):
    """Changes of a subscription; absent ones stay unchanged."""

    name: str
    text: str
    template: str
    values: Mapping[str, Any]
    regions: Mapping[str, Any]
    language: str | None
    expires: datetime | float | None
    quiet: float | None


def compute_expiry(expires: datetime | float | None) -> float | None:
    """Converts a time, or a number of seconds from now, to seconds since 1970."""
    if isinstance(expires, datetime):
        return expires.timestamp()
    return None if expires is None else time.time() + float(expires)


_PAIR = re.compile(r"[-+.\dE]+\s+[-+.\dE]+")


def count_corners(change: SubscriptionChange) -> int:
    """Counts the corners of the regions that a subscription names or contains.

    >>> text = "@(CIRCLE (0 0, 5))(ARITH:id = 1)"
    >>> count_corners(SubscriptionChange.add("a", text, regions={"R": "POLYGON ((0 0, 1 0, 1 1, 0 0))"}))
    5
    """
    texts = list(change.regions.values())
    if change.text is not None:
        texts.append(change.text)
    upper = (text.upper() for text in texts)
    return sum(len(_PAIR.findall(t)) for t in upper if "POLYGON" in t or "CIRCLE" in t)


_LONGEST_NAME = 200
_NAMELESS = "\0"  # until the id is known


# a subscription that is stored and not yet part of the matched set, and its warnings
_Added = tuple[SubscriptionChange, tuple[str, ...]]


class SubscriptionCatalog:
    """The subscriptions of all users."""

    def __init__(
        self,
        columns: EventColumns,
        matching: MatchBackend,
        limits: ServiceLimits,
        notification_builder: NotificationBuilder,
        shared_regions: Mapping[str, str],
        transaction: TransactionOutput,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.columns = columns
        self.matching = matching
        self.limits = limits
        self.notification_builder = notification_builder
        self.shared_regions = dict(shared_regions)
        self.transaction = transaction
        self.clock = clock
        self._reading = Subscriptions(**columns.subscriptions())

    def subscribe(self, db: Connection, request: SubscriptionRequest) -> UserSubscription:
        return self.subscribe_all(db, [request])[0]

    def subscribe_all(self, db: Connection, several: Sequence[SubscriptionRequest]) -> list[UserSubscription]:
        """Adds all subscriptions or none, as one version of the set."""
        users = {request.user for request in several}
        known = {user: self._get_regions(db, user) for user in users}
        added = [self._add(db, request, known[request.user]) for request in several]
        return self._begin_all(db, added)

    def subscribe_each(
        self, db: Connection, user: int, several: Sequence[SubscriptionRequest | Exception]
    ) -> list[UserSubscription | Exception]:
        """Adds the valid subscriptions of a user, as one version of the set; the other items are errors."""
        known_regions = self._get_regions(db, user)
        outcomes: list[_Added | Exception] = []
        for request in several:
            if isinstance(request, Exception):
                outcomes.append(request)
                continue
            try:
                with savepoint(db, "item"):
                    outcomes.append(self._add(db, request, known_regions))
            except EnsueError as error:
                outcomes.append(error)
        started = iter(self._begin_all(db, [each for each in outcomes if not isinstance(each, Exception)]))
        return [each if isinstance(each, Exception) else next(started) for each in outcomes]

    def _get_regions(self, db: Connection, user: int) -> dict[str, str]:
        return {**self.shared_regions, **journal.list_regions(db, user)}

    def _add(self, db: Connection, request: SubscriptionRequest, known: Mapping[str, str]) -> _Added:
        """Stores a subscription and its targets, within the quotas of its user."""
        warnings: list[str] = []
        request, change = self._read(request, known, warnings)
        id = self._insert(db, request, change)
        for target in request.targets:
            self._add_target(db, id, request.user, target.kind, target.config)
        self._require_quotas(db, request.user)
        return replace(change, name=str(id)), tuple(warnings)

    def _begin_all(self, db: Connection, added: Sequence[_Added]) -> list[UserSubscription]:
        """Adds stored subscriptions to the matched set."""
        if not added:
            return []
        self._change(db, [change for change, _ in added])
        started = []
        for change, warnings in added:
            self._begin(db, int(change.name))
            subscription = self.get_own(db, int(change.name), None)
            journal.record_action(db, subscription.user, "subscribe", f"subscription {change.name}", subscription.name)
            started.append(replace(subscription, warnings=warnings))
        return started

    def _read(
        self, request: SubscriptionRequest, known: Mapping[str, str], warnings: list[str] | None
    ) -> tuple[SubscriptionRequest, SubscriptionChange]:
        """Fills the template of a request and parses it into a change of the set."""
        if request.template is not None:
            if request.text is not None:
                raise ServiceError("a subscription needs a text or a template, not both")
            stream = self.columns.template_stream
            template = fill_template(request.template, request.values, stream)
            quiet = template.quiet if request.quiet is None else request.quiet
            request = replace(request, text=template.text, quiet=quiet, language="opsl", title=template.title)
        if not request.text or not request.text.strip():
            raise QueryError("a subscription needs a text", hint="OPSL, or the name of a template")
        name = request.name or request.title
        if len(name) > _LONGEST_NAME:
            raise ServiceError(f"a name has at most {_LONGEST_NAME} characters")
        for what, value in (("quiet", request.quiet), ("expires", request.expires)):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ServiceError(f"{what}={value!r} is not a time")
        all_regions = {**known, **request.regions}
        try:
            change = self._reading.change_of(
                SubscriptionChange.add, name, request.text, all_regions, request.language, warnings
            )
        except QueryError as error:  # the name tells nothing, there is only this subscription
            error.problem = error.problem.removeprefix(f"subscription '{name}': ")
            raise
        self.matching.check(change)
        return request, change

    def check(
        self, db: Connection, request: SubscriptionRequest
    ) -> tuple[SubscriptionRequest, SubscriptionChange, list[str]]:
        """Raises QueryError for an invalid subscription; returns its parsed form and warnings."""
        warnings: list[str] = []
        return (*self._read(request, self._get_regions(db, request.user), warnings), warnings)

    def _insert(self, db: Connection, request: SubscriptionRequest, change: SubscriptionChange) -> int:
        name, now = request.name or "", self.clock()
        columns = {
            "user": request.user, "quiet": request.quiet, "created": now, "changed": now,
            "expires": request.expires, **_query_columns(request, change, request.template, request.values),
        }  # fmt: skip
        try:
            id = subscription_store.add_subscription(db, name=name or _NAMELESS, **columns)
        except sqlite3.IntegrityError:
            raise ConflictError(
                f"you already have a subscription '{name}'\n  hint: choose another name, or change that one"
            ) from None
        if not name:
            subscription_store.change_subscription(db, id, name=f"{request.title} {id}")
        return id

    def _add_target(self, db: Connection, id: int, user: int, kind: str, config: Mapping[str, Any]) -> int:
        most = get_user_limits(db, user, self.limits).targets_per_subscription
        if target_store.count_targets(db, id) >= most:
            raise OverLimitError("targets_per_subscription", f"a subscription has at most {most} targets")
        new = secrets.create_secrets(kind)
        return target_store.add_target(db, id, user, kind, config, now=self.clock(), secrets=new)

    def add_target(self, db: Connection, id: int, user: int, kind: str, config: Mapping[str, Any]) -> int:
        self.get_own(db, id, user)
        target = self._add_target(db, id, user, kind, config)
        journal.record_action(db, user, "add target", f"subscription {id}", kind)
        return target

    def _require_quotas(self, db: Connection, user: int) -> None:
        limits = get_user_limits(db, user, self.limits)
        count_now, corners_now = subscription_store.get_usage(db, user)
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

    def _change(self, db: Connection, changes: Sequence[SubscriptionChange]) -> None:
        """Changes the set; if the rest of the job fails, the matcher is rebuilt at high cost."""
        version = subscription_store.store_changes(db, changes)
        self.transaction.ahead = True
        self.matching.change(version, changes)

    def _begin(self, db: Connection, id: int) -> None:
        """Starts a subscription at the current event time."""
        self.notification_builder.invalidate(id)
        notifications, started = self.notification_builder.announce_start(
            db, id, self.columns.to_json(self.matching.now)
        )
        subscription_store.change_subscription(db, id, started=json.dumps(started))
        self.transaction.add(notifications)

    def get_own(self, db: Connection, id: int, user: int | None) -> UserSubscription:
        """Returns a subscription if it belongs to the user."""
        row = subscription_store.get_subscription(db, id)
        if row is None or (user is not None and row["user"] != user):
            raise NotFoundError(f"there is no subscription {id}")
        return UserSubscription.from_row(row)

    def _get_active(self, db: Connection, id: int, user: int | None) -> UserSubscription:
        current = self.get_own(db, id, user)
        if current.state == ENDED:
            raise ConflictError(f"subscription {id} has ended: {current.reason}")
        return current

    def change(self, db: Connection, id: int, user: int, changes: Mapping[str, Any]) -> UserSubscription:
        """Changes a subscription; another text or other regions discard its partial matches."""
        current = self._get_active(db, id, user)
        name = changes.get("name", current.name)
        expires = changes.get("expires", current.expires)
        quiet = changes.get("quiet", current.quiet)
        template, values = current.template, current.values
        text: str | None = changes.get("text", current.text)
        if "template" in changes or "values" in changes:
            template = changes.get("template", current.template)
            values = changes.get("values", current.values)
            text = None
        elif "text" in changes:
            template = None  # the text of the template was edited
        restart = text is None or not changes.keys().isdisjoint(("text", "regions", "language"))
        row: dict[str, Any] = {"name": name, "expires": expires, "quiet": quiet}
        change: SubscriptionChange | None = None
        if restart:
            language = None if "text" in changes else current.language
            request = SubscriptionRequest(
                user, name, text, changes.get("language", language),
                changes.get("regions", current.regions), template if text is None else None,
                values or {}, changes.get("quiet"), expires,
            )  # fmt: skip
            request, change = self._read(request, self._get_regions(db, user), None)
            row |= _query_columns(request, change, template, values)
            row["quiet"] = request.quiet if "quiet" in changes or template else quiet
        try:
            subscription_store.change_subscription(db, id, **row, changed=self.clock())
        except sqlite3.IntegrityError:
            raise ConflictError(f"you already have a subscription '{name}'") from None
        self.notification_builder.invalidate(id)
        self._require_quotas(db, user)
        journal.record_action(db, user, "change", f"subscription {id}", ", ".join(changes))
        if change is not None and current.state == ACTIVE:
            new = SubscriptionChange.replace(
                str(id), change.text or "", language=change.language, regions=change.regions
            )
            self._change(db, [new])
            self._begin(db, id)
        return self.get_own(db, id, user)

    def pause(self, db: Connection, id: int, user: int) -> UserSubscription:
        """Removes a subscription from the set and discards its partial matches."""
        if self._get_active(db, id, user).state == ACTIVE:
            subscription_store.change_subscription(db, id, state=PAUSED, changed=self.clock())
            self.transaction.add(self.notification_builder.announce_end(db, id, "paused"))
            journal.record_action(db, user, "pause", f"subscription {id}")
            self._change(db, [SubscriptionChange.cancel(str(id))])
        return self.get_own(db, id, user)

    def pause_exceeding(self, db: Connection, ids: Sequence[int], reason: str) -> None:
        """Pauses subscriptions that exceed a limit, and notifies their users."""
        for id in ids:
            user = self.get_own(db, id, None).user
            subscription_store.change_subscription(db, id, state=PAUSED, reason=reason, changed=self.clock())
            self.transaction.add(self.notification_builder.announce_end(db, id, f"paused: {reason}"))
            journal.record_action(db, user, "pause", f"subscription {id}", reason)
            increment(db, id, "paused")
        self._change(db, [SubscriptionChange.cancel(str(id)) for id in ids])

    def resume(self, db: Connection, id: int, user: int) -> UserSubscription:
        """Puts a paused subscription back into the set."""
        current = self._get_active(db, id, user)
        if current.state == PAUSED:
            change = SubscriptionChange.add(
                str(id), current.text, language=current.language, regions=dict(current.regions)
            )
            self.matching.check(change)
            subscription_store.change_subscription(db, id, state=ACTIVE, reason=None, changed=self.clock())
            journal.record_action(db, user, "resume", f"subscription {id}")
            self._change(db, [change])
            self._begin(db, id)
        return self.get_own(db, id, user)

    def cancel(self, db: Connection, id: int, user: int | None, reason: str) -> UserSubscription:
        current = self.get_own(db, id, user)
        if current.state == ENDED:
            return current
        subscription_store.change_subscription(db, id, state=ENDED, reason=reason, changed=self.clock())
        self.transaction.add(self.notification_builder.announce_end(db, id, reason))
        self.notification_builder.invalidate(id)
        subscription_store.forget_quiet(db, id)
        journal.record_action(db, current.user, "end", f"subscription {id}", reason)
        if current.state == ACTIVE:
            self._change(db, [SubscriptionChange.cancel(str(id))])
        return self.get_own(db, id, None)

    def put_region(self, db: Connection, user: int, name: str, text: str, *, apply: bool) -> list[int]:
        """Stores a region; `apply` restarts the subscriptions that name it with the new shape."""
        before = journal.list_regions(db, user).get(name)
        journal.put_region(db, user, name, text)
        journal.record_action(db, user, "put region", f"region {name}")
        changed: list[int] = []
        if apply and before is not None and before != text:
            for row in subscription_store.list_subscriptions(db, user, None, 0, 1 << 40):
                own = json.loads(row["regions"])
                if own.get(name) == before:
                    self.change(db, row["id"], user, {"regions": {**own, name: text}})
                    changed.append(row["id"])
        return changed

    def remove_region(self, db: Connection, user: int, name: str) -> None:
        """Deletes a region; subscriptions that use it keep its shape."""
        if not journal.remove_region(db, user, name):
            raise NotFoundError(f"there is no region '{name}'")
        journal.record_action(db, user, "remove region", f"region {name}")


def _query_columns(
    request: SubscriptionRequest, change: SubscriptionChange, template: str | None, values: Mapping[str, Any]
) -> dict[str, Any]:
    filled = None if template is None else json.dumps({"name": template, "values": dict(values)})
    return {
        "text": request.text, "language": change.language, "template": filled,
        "regions": json.dumps(dict(change.regions)), "corners": count_corners(change),
    }  # fmt: skip
