"""One delivery attempt of a target: sending its pending notifications, and the outcome."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from ensue.service.delivery.addresses import RefusedDeliveryError
from ensue.service.delivery.retry_queue import Backoff, RandomSource
from ensue.service.delivery.sink import DeliveryError, Sink
from ensue.service.store import target_store
from ensue.service.store.outbox import Notification

_log = logging.getLogger(__name__)


@runtime_checkable
class ConcurrentSink(Protocol):
    """A sink that takes notifications independently: a failure does not block the others."""

    at_once: int  # concurrent requests


@dataclass(slots=True)
class AttemptResult:
    """The results of an attempt; notifications that it does not name were not tried."""

    sent: list[int] = field(default_factory=list)
    failed: dict[int, DeliveryError] = field(default_factory=dict)
    stopped: DeliveryError | None = None  # why the target is suspended


class DeliveryAttempt:
    """A running attempt; `cut` cancels it, and unanswered notifications count as untried."""

    def __init__(self, work: target_store.PendingDeliveries, sink: Sink, stopping: Callable[[], bool]) -> None:
        self._work = work
        self._sink = sink
        self._stopping = stopping
        self._pending: set[asyncio.Task[DeliveryError | None]] = set()
        self._cut = False

    def cut(self) -> None:
        self._cut = True
        for task in self._pending:
            task.cancel()

    async def run(self) -> AttemptResult:
        """Sends all notifications, or stops when the target fails."""
        if isinstance(self._sink, ConcurrentSink):
            return await self._send_concurrently(self._sink.at_once)
        return await self._send_in_order()

    async def _send_in_order(self) -> AttemptResult:
        notifications = [*(due.notification for due in self._work.due), *self._work.fresh]
        if not notifications or self._stopping():
            return AttemptResult()
        task = self._start(notifications)
        await asyncio.wait({task})
        self._pending.discard(task)
        if task.cancelled():
            return AttemptResult()
        problem = task.result()
        sent = len(notifications) if problem is None else min(problem.sent, len(notifications) - 1)
        return AttemptResult([notification.number for notification in notifications[:sent]], stopped=problem)

    async def _send_concurrently(self, at_once: int) -> AttemptResult:
        """Sends notifications concurrently, with less concurrency after failures.

        A failure does not tell whether the notification or the receiver is the cause. So after
        all pending ones have returned, another one is sent alone, preferably a new one: if it
        succeeds the attempt continues, otherwise the target is suspended.
        """
        due, fresh = deque(due.notification for due in self._work.due), deque(self._work.fresh)
        result = AttemptResult()
        width = 1 if self._work.target.state == target_store.FAILING else at_once
        doubt: DeliveryError | None = None  # the last failure without a later success
        alone = False  # the pending notification decides about the receiver
        numbers: dict[asyncio.Task[DeliveryError | None], int] = {}
        while True:
            while (due or fresh) and len(numbers) < width and not self._over(result):
                alone = doubt is not None
                notification = (fresh if fresh and (alone or not due) else due).popleft()
                numbers[self._start([notification])] = notification.number
            if not numbers:
                break
            done, _ = await asyncio.wait(numbers, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=numbers.__getitem__):
                number = numbers.pop(task)
                self._pending.discard(task)
                if task.cancelled():
                    continue
                problem = task.result()
                if problem is None:
                    result.sent.append(number)
                    width, doubt = min(at_once, 2 * width), None
                    continue
                result.failed[number] = problem
                if alone or _concerns_target(problem):
                    result.stopped = problem
                width, doubt = 1, problem
        # No notification was left to decide: the target waits as long as the failed one.
        result.stopped = result.stopped or doubt
        return result

    def _over(self, result: AttemptResult) -> bool:
        return result.stopped is not None or self._cut or self._stopping()

    def _start(self, notifications: Sequence[Notification]) -> asyncio.Task[DeliveryError | None]:
        task = asyncio.create_task(_send(self._sink, notifications))
        self._pending.add(task)
        if self._cut:
            task.cancel()
        return task


async def _send(sink: Sink, notifications: Sequence[Notification]) -> DeliveryError | None:
    """Sends notifications and returns the error, if any."""
    try:
        await sink.send(notifications)
    except DeliveryError as error:
        return error
    except Exception as error:  # noqa: BLE001 - a broken sink is reported as a failing target
        _log.exception("a sink failed at notification %d", notifications[0].number)
        return DeliveryError(f"the sink failed: {type(error).__name__}: {error}")
    return None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retry policy: attempts per notification, and the backoff."""

    backoff: Backoff
    attempts: int | None  # until it is a dead letter; None: unlimited


def compute_outcome(
    work: target_store.PendingDeliveries, result: AttemptResult, policy: RetryPolicy, now: float, chance: RandomSource
) -> target_store.DeliveryOutcome:
    """Computes the outcome to record after an attempt."""
    target, backoff = work.target, policy.backoff
    attempts = {due.notification.number: due.attempts for due in work.due}
    failed: dict[int, target_store.FailedDelivery] = {}
    for number, problem in result.failed.items():
        tries = attempts.get(number, 0) + 1
        wait = backoff.after(tries, chance, problem.retry_after)
        dead = policy.attempts is not None and tries >= policy.attempts
        failed[number] = target_store.FailedDelivery(tries, now + wait, problem.why, dead)
    sent = set(result.sent)
    cursor = target.cursor
    for notification in work.fresh:
        if notification.number not in sent and notification.number not in failed:
            break
        cursor = notification.number
    # Those sent after a cancelled one are sent again, so they are not counted yet.
    known = {number for number in sent if number <= cursor or number in attempts}
    missed = [*result.failed.values()] or ([result.stopped] if result.stopped else [])
    refused = sum(isinstance(problem, RefusedDeliveryError) for problem in missed)
    counted = {
        "delivered": len(known),
        "failed": len(missed) - refused,
        "refused": refused,
        "dead": sum(failure.dead for failure in failed.values()),
        "expired": len(work.lost),
    }
    settled = frozenset(known & attempts.keys()) | frozenset(work.lost)
    outcome = target_store.DeliveryOutcome(target, cursor, settled, failed, counted=counted)
    retried_only = attempts.keys() >= failed.keys()
    return _with_state(outcome, result, backoff, now, chance, retried_only=retried_only)


def _with_state(
    outcome: target_store.DeliveryOutcome,
    result: AttemptResult,
    backoff: Backoff,
    now: float,
    chance: RandomSource,
    *,
    retried_only: bool,
) -> target_store.DeliveryOutcome:
    """Adds the new state of the target."""
    before, problem = outcome.target, result.stopped
    if problem is None and result.sent:
        return outcome
    if problem is None:
        unchanged = ("state", "reason", "failures", "next_at")
        return replace(outcome, **{name: getattr(before, name) for name in unchanged})
    failures = 1 if result.sent else before.failures + 1
    if problem.gone:
        return replace(outcome, state=target_store.OFF, reason=problem.why, failures=failures)
    if result.failed and retried_only and not _concerns_target(problem):
        # Maybe only these notifications are rejected, so a new one may be tried at once.
        failures, at = max(1, before.failures), None
    else:
        at = now + backoff.after(failures, chance, problem.retry_after)
    return replace(outcome, state=target_store.FAILING, reason=problem.why, failures=failures, next_at=at)


def _concerns_target(problem: DeliveryError) -> bool:
    """Whether the error concerns the target, not the notification."""
    delayed = problem.retry_after is not None
    return problem.gone or delayed or isinstance(problem, RefusedDeliveryError)
