"""One round of a target: what it has to send goes out, and what has become of it is summed up."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from ensue.service.delivery.addresses import RefusedDelivery
from ensue.service.delivery.contract import Sink, Undelivered
from ensue.service.delivery.waits import Chance, Waits
from ensue.service.notes import Note
from ensue.service.store.targets import FAILING, OFF, Failed, Outcome, Work

_log = logging.getLogger(__name__)


@runtime_checkable
class Separate(Protocol):
    """A sink that takes every note by itself: one that fails does not hold up the others."""

    at_once: int  # notes on their way at a time


@dataclass(slots=True)
class Tally:
    """What has become of the notes of a round. Those it does not name were not tried."""

    sent: list[int] = field(default_factory=list)
    failed: dict[int, Undelivered] = field(default_factory=dict)
    stopped: Undelivered | None = None  # why the target gets nothing more for now


class Round:
    """Notes on their way to a target. `cut` ends it, and what was on its way counts as untried."""

    def __init__(self, work: Work, sink: Sink, stopping: Callable[[], bool]) -> None:
        self._work = work
        self._sink = sink
        self._stopping = stopping
        self._flying: set[asyncio.Task[Undelivered | None]] = set()
        self._cut = False

    def cut(self) -> None:
        """Waits no longer for those on their way."""
        self._cut = True
        for one in self._flying:
            one.cancel()

    async def run(self) -> Tally:
        """Sends all, or until the target has to wait."""
        if isinstance(self._sink, Separate):
            return await self._apart(self._sink.at_once)
        return await self._in_order()

    async def _in_order(self) -> Tally:
        notes = [*(due.note for due in self._work.due), *self._work.fresh]
        if not notes or self._stopping():
            return Tally()
        flying = self._start(notes)
        await asyncio.wait({flying})
        self._flying.discard(flying)
        if flying.cancelled():
            return Tally()
        problem = flying.result()
        sent = len(notes) if problem is None else min(problem.sent, len(notes) - 1)
        return Tally([note.number for note in notes[:sent]], stopped=problem)

    async def _apart(self, at_once: int) -> Tally:
        """Sends notes side by side, and fewer where it goes wrong.

        A failure does not say whether the note or the receiver is to blame. So once all that
        was on its way is back, one other note goes alone, a fresh one if there is one: if it
        arrives the round goes on, else the target has to wait.
        """
        due, fresh = deque(due.note for due in self._work.due), deque(self._work.fresh)
        tally = Tally()
        width = 1 if self._work.target.state == FAILING else at_once
        doubt: Undelivered | None = None  # the last answer, if it was a bad one
        alone = False  # the note on its way is to settle the doubt
        numbers: dict[asyncio.Task[Undelivered | None], int] = {}
        while True:
            while (due or fresh) and len(numbers) < width and not self._over(tally):
                alone = doubt is not None
                note = (fresh if fresh and (alone or not due) else due).popleft()
                numbers[self._start([note])] = note.number
            if not numbers:
                break
            done, _ = await asyncio.wait(numbers, return_when=asyncio.FIRST_COMPLETED)
            for one in sorted(done, key=numbers.__getitem__):
                number = numbers.pop(one)
                self._flying.discard(one)
                if one.cancelled():
                    continue
                problem = one.result()
                if problem is None:
                    tally.sent.append(number)
                    width, doubt = min(at_once, 2 * width), None
                    continue
                tally.failed[number] = problem
                if alone or _final(problem):
                    tally.stopped = problem
                width, doubt = 1, problem
        # Nothing was left to settle the doubt: the target waits as long as the note.
        tally.stopped = tally.stopped or doubt
        return tally

    def _over(self, tally: Tally) -> bool:
        return tally.stopped is not None or self._cut or self._stopping()

    def _start(self, notes: Sequence[Note]) -> asyncio.Task[Undelivered | None]:
        flying = asyncio.create_task(_sent(self._sink, notes))
        self._flying.add(flying)
        if self._cut:
            flying.cancel()
        return flying


async def _sent(sink: Sink, notes: Sequence[Note]) -> Undelivered | None:
    """Sends notes; gives what went wrong."""
    try:
        await sink.send(notes)
    except Undelivered as error:
        return error
    except Exception as error:  # noqa: BLE001 - a sink that breaks is shown as a target that fails
        _log.exception("a sink broke at note %d", notes[0].number)
        return Undelivered(f"the sink broke: {type(error).__name__}: {error}")
    return None


# ------------------------------------------------------------------------------- summed up


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a note is tried, and how long a target waits in between."""

    waits: Waits
    attempts: int | None  # then it is a dead letter; None: for ever


def summed_up(work: Work, tally: Tally, patience: Patience, now: float, chance: Chance) -> Outcome:
    """What is to be written down after a round."""
    target, waits = work.target, patience.waits
    attempts = {due.note.number: due.attempts for due in work.due}
    failed: dict[int, Failed] = {}
    for number, problem in tally.failed.items():
        tries = attempts.get(number, 0) + 1
        wait = waits.after(tries, chance, problem.retry_after)
        dead = patience.attempts is not None and tries >= patience.attempts
        failed[number] = Failed(tries, now + wait, problem.why, dead)
    sent = set(tally.sent)
    cursor = target.cursor
    for note in work.fresh:
        if note.number not in sent and note.number not in failed:
            break
        cursor = note.number
    # Sent behind one that was cut off: it goes again, so it is not counted yet.
    known = {number for number in sent if number <= cursor or number in attempts}
    missed = [*tally.failed.values()] or ([tally.stopped] if tally.stopped else [])
    refused = sum(isinstance(problem, RefusedDelivery) for problem in missed)
    counted = {
        "delivered": len(known),
        "failed": len(missed) - refused,
        "refused": refused,
        "dead": sum(one.dead for one in failed.values()),
        "expired": len(work.lost),
    }
    settled = frozenset(known & attempts.keys()) | frozenset(work.lost)
    outcome = Outcome(target, cursor, settled, failed, counted=counted)
    return _stands(outcome, tally, waits, now, chance, again_only=attempts.keys() >= failed.keys())


def _stands(
    outcome: Outcome, tally: Tally, waits: Waits, now: float, chance: Chance, *, again_only: bool
) -> Outcome:
    """The same with how the target stands now."""
    before, problem = outcome.target, tally.stopped
    if problem is None and tally.sent:
        return outcome
    if problem is None:
        return replace(
            outcome,
            state=before.state,
            reason=before.reason,
            failures=before.failures,
            next_at=before.next_at,
        )
    failures = 1 if tally.sent else before.failures + 1
    if problem.gone:
        return replace(outcome, state=OFF, reason=problem.why, failures=failures)
    if tally.failed and again_only and not _final(problem):
        # Maybe only these notes cannot be taken: a fresh one may try at once.
        failures, at = max(1, before.failures), None
    else:
        at = now + waits.after(failures, chance, problem.retry_after)
    return replace(outcome, state=FAILING, reason=problem.why, failures=failures, next_at=at)


def _final(problem: Undelivered) -> bool:
    """Whether it is said of the target, whatever the note."""
    asked = problem.retry_after is not None
    return problem.gone or asked or isinstance(problem, RefusedDelivery)
