"""One delivery attempt of a target: sending its pending notifications, and the outcome."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

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


class DeliveryAttempt:
    """An attempt with its results; `cut` cancels it, and notifications without an answer were not tried."""

    def __init__(
        self,
        work: target_store.PendingDeliveries,
        backoff: Backoff,
        attempts: int | None,  # until a notification is a dead letter; None: unlimited
        stopping: Callable[[], bool],
    ) -> None:
        self._work = work
        self._backoff, self._attempts = backoff, attempts
        self._stopping = stopping
        self._pending: set[asyncio.Task[DeliveryError | None]] = set()
        self._cut = False
        self.sent: list[int] = []
        self.failed: dict[int, DeliveryError] = {}
        self.stopped: DeliveryError | None = None  # why the target is suspended

    def cut(self) -> None:
        self._cut = True
        for task in self._pending:
            task.cancel()

    async def run(self, sink: Sink) -> None:
        """Sends all notifications, or stops when the target fails."""
        if isinstance(sink, ConcurrentSink):
            await self._send_concurrently(sink, sink.at_once)
        else:
            await self._send_in_order(sink)

    async def _send_in_order(self, sink: Sink) -> None:
        notifications = [*(notification for notification, _ in self._work.due), *self._work.fresh]
        if not notifications or self._stopping():
            return
        task = self._start(sink, notifications)
        await asyncio.wait({task})
        self._pending.discard(task)
        if task.cancelled():
            return
        self.stopped = task.result()
        sent = len(notifications) if self.stopped is None else min(self.stopped.sent, len(notifications) - 1)
        self.sent = [notification.number for notification in notifications[:sent]]

    async def _send_concurrently(self, sink: Sink, at_once: int) -> None:
        """Sends notifications concurrently, with less concurrency after failures.

        A failure does not tell whether the notification or the receiver is the cause. So after
        all pending ones have returned, another one is sent alone, preferably a new one: if it
        succeeds the attempt continues, otherwise the target is suspended.
        """
        due, fresh = deque(notification for notification, _ in self._work.due), deque(self._work.fresh)
        width = 1 if self._work.target.state == target_store.FAILING else at_once
        doubt: DeliveryError | None = None  # the last failure without a later success
        alone = False  # the pending notification decides about the receiver
        numbers: dict[asyncio.Task[DeliveryError | None], int] = {}
        while True:
            while (due or fresh) and len(numbers) < width and not self._over():
                alone = doubt is not None
                notification = (fresh if fresh and (alone or not due) else due).popleft()
                numbers[self._start(sink, [notification])] = notification.number
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
                    self.sent.append(number)
                    width, doubt = min(at_once, 2 * width), None
                    continue
                self.failed[number] = problem
                if alone or _concerns_target(problem):
                    self.stopped = problem
                width, doubt = 1, problem
        # No notification was left to decide: the target waits as long as the failed one.
        self.stopped = self.stopped or doubt

    def _over(self) -> bool:
        return self.stopped is not None or self._cut or self._stopping()

    def _start(self, sink: Sink, notifications: Sequence[Notification]) -> asyncio.Task[DeliveryError | None]:
        task = asyncio.create_task(_send(sink, notifications))
        self._pending.add(task)
        if self._cut:
            task.cancel()
        return task

    def compute_outcome(self, now: float, chance: RandomSource) -> target_store.DeliveryOutcome:
        """Computes what is to be recorded of the attempt, with the new state of the target."""
        target, work = self._work.target, self._work
        attempts = {notification.number: tries for notification, tries in work.due}
        failed: dict[int, target_store.FailedDelivery] = {}
        for number, problem in self.failed.items():
            tries = attempts.get(number, 0) + 1
            wait = self._backoff.after(tries, chance, problem.retry_after)
            dead = self._attempts is not None and tries >= self._attempts
            failed[number] = target_store.FailedDelivery(tries, now + wait, problem.why, dead)
        sent = set(self.sent)
        cursor = target.cursor
        for notification in work.fresh:
            if notification.number not in sent and notification.number not in failed:
                break
            cursor = notification.number
        # Those sent after a cancelled one are sent again, so they are not counted yet.
        known = {number for number in sent if number <= cursor or number in attempts}
        missed = [*self.failed.values()] or ([self.stopped] if self.stopped else [])
        refused = sum(isinstance(problem, RefusedDeliveryError) for problem in missed)
        counted = {
            "delivered": len(known),
            "failed": len(missed) - refused,
            "refused": refused,
            "dead": sum(failure.dead for failure in failed.values()),
            "expired": len(work.lost),
        }
        settled = frozenset(known & attempts.keys()) | frozenset(work.lost)
        retried_only = attempts.keys() >= failed.keys()
        state = self._compute_state(now, chance, retried_only=retried_only)
        return target_store.DeliveryOutcome(target, cursor, settled, failed, counted=counted, **state)

    def _compute_state(self, now: float, chance: RandomSource, *, retried_only: bool) -> dict[str, Any]:
        before, problem = self._work.target, self.stopped
        if problem is None:
            unchanged = () if self.sent else ("state", "reason", "failures", "next_at")
            return {name: getattr(before, name) for name in unchanged}
        failures = 1 if self.sent else before.failures + 1
        if problem.gone:
            return {"state": target_store.OFF, "reason": problem.why, "failures": failures}
        if self.failed and retried_only and not _concerns_target(problem):
            # Maybe only these notifications are rejected, so a new one may be tried at once.
            failures, at = max(1, before.failures), None
        else:
            at = now + self._backoff.after(failures, chance, problem.retry_after)
        return {"state": target_store.FAILING, "reason": problem.why, "failures": failures, "next_at": at}


async def _send(sink: Sink, notifications: Sequence[Notification]) -> DeliveryError | None:
    try:
        await sink.send(notifications)
    except DeliveryError as error:
        return error
    except Exception as error:  # noqa: BLE001 - a broken sink is reported as a failing target
        _log.exception("a sink failed at notification %d", notifications[0].number)
        return DeliveryError(f"the sink failed: {type(error).__name__}: {error}")
    return None


def _concerns_target(problem: DeliveryError) -> bool:
    """Whether the error concerns the target, not the notification."""
    delayed = problem.retry_after is not None
    return problem.gone or delayed or isinstance(problem, RefusedDeliveryError)
