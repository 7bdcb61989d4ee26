"""The interface of sinks, their error, and the destination of a notification in a broker."""

from collections.abc import Callable, Sequence
from string import Formatter
from typing import Protocol

from ensue.errors import ServiceError, did_you_mean
from ensue.service.notification import MATCH, Notification


class Sink(Protocol):
    """Delivers the notifications of one target."""

    async def send(self, notifications: Sequence[Notification]) -> None:
        """Returns when all notifications are acknowledged; raises DeliveryError otherwise."""
        ...

    async def close(self) -> None:
        """Releases connections; nothing is sent afterwards."""
        ...


class DeliveryError(Exception):
    """A delivery failed: the reason for the user, and how many notifications were delivered."""

    def __init__(self, why: str, *, sent: int = 0, gone: bool = False, retry_after: float | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent
        self.gone = gone  # the receiver is gone: the target has to be switched off
        self.retry_after = retry_after  # seconds that the receiver requests


PLACEHOLDERS = ("user", "subscription", "kind")


class Destination:
    """A topic or subject with placeholders for user, subscription or kind.

    >>> notification = Notification(12, 7, 3, "match", "a1", 0.0, b"{}")
    >>> Destination("mqtt target: 'topic'", "ensue/{user}/{subscription}").get_address(notification)
    'ensue/3/7'
    """

    def __init__(self, what: str, text: str, problem: Callable[[str], str | None] = lambda _: None) -> None:
        self._text = text
        self._fixed = "{" not in text and "}" not in text
        self._check(what, problem)

    def get_address(self, notification: Notification) -> str:
        if self._fixed:
            return self._text
        return self._text.format(user=notification.user, subscription=notification.subscription, kind=notification.kind)

    def _check(self, what: str, problem: Callable[[str], str | None]) -> None:
        hint = f"a name that may contain {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}"
        try:
            parts = list(Formatter().parse(self._text))
        except ValueError:
            raise ServiceError(f"{what}: '{self._text}' has an unmatched brace\n  hint: {hint}") from None
        for _, name, form, conversion in parts:
            if name is not None and name not in PLACEHOLDERS:
                near = did_you_mean(name, PLACEHOLDERS) or hint
                raise ServiceError(f"{what}: unknown placeholder '{name}'\n  hint: {near}")
            if form or conversion:
                raise ServiceError(f"{what}: '{self._text}' contains a format\n  hint: {hint}")
        wrong = problem(self.get_address(Notification(1, 1, 1, MATCH, None, 0.0, b"")))
        if wrong is not None:
            raise ServiceError(f"{what}: '{self._text}' {wrong}")

    def __repr__(self) -> str:
        return f"Destination({self._text!r})"


def get_message_key(notification: Notification) -> str:
    """The message key: the match, or else the subscription."""
    return notification.match_id or str(notification.subscription)


def get_message_id(notification: Notification) -> str:
    """An id that is equal for all attempts, so that receivers can drop duplicates."""
    return notification.match_id or f"sub_{notification.subscription}_{notification.kind}_{notification.number}"


def get_message_headers(notification: Notification) -> dict[str, str]:
    """The headers of a message."""
    return {
        "kind": notification.kind,
        "subscription": str(notification.subscription),
        "number": str(notification.number),
    }
