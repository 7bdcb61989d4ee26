"""Listeners: what is kept, then what comes, without a gap, without a double."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from ensue.service.errors import OverLimitError
from ensue.service.settings import ServiceLimits
from ensue.service.sse_hub import (
    HEARTBEAT_SECONDS,
    PAGE_SIZE,
    STALL_SECONDS,
    DisconnectedError,
    DisconnectReason,
    NotificationListener,
    SseHub,
)
from ensue.service.store.outbox import MATCH, RESYNC, Notification, OutboxPage
from support.seeds import some
from support.services import run


def note(number: int, user: int = 1, subscription: int = 7) -> Notification:
    return Notification(number, subscription, user, MATCH, f"m{number}", 0.0, b'{"n":%d}' % number)


class Outbox:
    """Notes as a file would keep them, and listeners who hear of each commit a moment later."""

    def __init__(self, limits: ServiceLimits | None = None) -> None:
        self.listeners = SseHub(limits or ServiceLimits())
        self.notes: list[Notification] = []
        self.floor = 0
        self.reads = 0
        self.pause = lambda: asyncio.sleep(0)  # while a read is on its way

    def commit(self, *notes: Notification) -> None:
        self.notes += notes

    def add(self, *notes: Notification) -> None:
        """Commits and tells listeners."""
        self.commit(*notes)
        self.listeners.dispatch(notes)

    def forget(self, up_to: int) -> None:
        self.notes = [one for one in self.notes if one.number > up_to]
        self.floor = up_to

    def reading(self, user: int | None = 1, subscription: int | None = None):
        async def read(after: int, most: int) -> OutboxPage:
            self.reads += 1
            await self.pause()
            found = [
                one
                for one in self.notes
                if one.number > after
                and (user is None or one.user == user)
                and (subscription is None or one.subscription == subscription)
            ][:most]
            newest = max([self.floor, *(one.number for one in self.notes)])
            kept = OutboxPage(found, self.floor, newest)
            await self.pause()
            return kept

        return read

    def listen(self, after: int | None = None, **more) -> NotificationListener:
        given = {"user": 1, **more}
        read = self.reading(given["user"], given.get("subscription"))
        return self.listeners.listen(read, after, **given)


async def numbers(listener: NotificationListener, count: int) -> list[int]:
    """The numbers of the next notes."""
    found: list[int] = []
    while len(found) < count:
        found += [one.number for one, _ in await listener.take()]
    return found


# -------------------------------------------------------------------------------- joining


def test_what_is_kept_comes_before_what_comes():
    async def story():
        box = Outbox()
        box.add(*map(note, range(1, 6)))
        listener = box.listen(after=2)
        assert await numbers(listener, 3) == [3, 4, 5]
        taking = asyncio.create_task(numbers(listener, 2))
        await asyncio.sleep(0.01)
        assert listener.live
        box.add(note(6), note(7))
        assert await taking == [6, 7]
        assert listener.after == 7

    run(story)


def test_without_a_token_it_begins_now():
    async def story():
        box = Outbox()
        box.add(*map(note, range(1, 6)))
        listener = box.listen()
        await listener.begin()
        assert listener.after == 5
        box.add(note(6))
        assert await numbers(listener, 1) == [6]

    run(story)


def test_what_comes_while_now_is_looked_up_is_not_lost():
    async def story():
        box = Outbox(ServiceLimits(buffer=3))
        box.add(note(1))
        for more in (1, 2, 3, 4, 9):
            first = box.notes[-1].number + 1
            listener = box.listen(remote=ServiceLimits(buffer=3))
            new = [note(n) for n in range(first, first + more)]

            async def pause(new=new):
                if new:
                    box.add(new.pop(0))

            box.pause = pause
            found = await numbers(listener, more - len(new) or 1)
            box.pause = lambda: asyncio.sleep(0)
            assert found == list(range(first, first + len(found)))
            box.listeners.leave(listener)

    run(story)


@pytest.mark.parametrize("seed", some(30, 300))
def test_nothing_is_lost_or_doubled_however_commits_and_reads_interleave(seed: int):
    chance = random.Random(seed)
    total = chance.randrange(1, 3 * PAGE_SIZE)

    async def story():
        box = Outbox(ServiceLimits(buffer=chance.choice([1, 5, 10_000])))
        start = chance.randrange(0, total)
        committed: list[Sequence[Notification]] = []

        async def pause() -> None:
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)

        box.pause = pause

        async def commit() -> None:
            number = 0
            while number < total:
                size = min(chance.choice([1, 1, 3, PAGE_SIZE // 2]), total - number)
                piece = [note(number + k + 1, user=chance.choice([1, 2])) for k in range(size)]
                number += size
                box.commit(*piece)
                committed.append(piece)
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
            committed.append([])

        async def dispatch() -> None:
            """Commits are told later, in order."""
            while not committed or committed[0]:
                if committed:
                    box.listeners.dispatch(committed.pop(0))
                await asyncio.sleep(0)

        listener = box.listen(after=start) if start else box.listen(after=0)
        working = [asyncio.create_task(commit()), asyncio.create_task(dispatch())]
        if start:  # a token is of a note that was there
            while len(box.notes) < start:
                await asyncio.sleep(0)
        found: list[int] = []
        while not all(task.done() for task in working) or listener.lag or not listener.live:
            taking = asyncio.create_task(listener.take())
            done, _ = await asyncio.wait({taking, *working}, return_when="FIRST_COMPLETED")
            if taking in done or not taking.cancel():
                found += [one.number for one, _ in taking.result()]
                continue
            await asyncio.wait({taking})
            if not taking.cancelled():
                found += [one.number for one, _ in taking.result()]
            if all(task.done() for task in working):
                listener.request_heartbeat()
                found += [one.number for one, _ in await listener.take()]
        wanted = [one.number for one in box.notes if one.user == 1 and one.number > start]
        assert found == wanted

    run(story)


def test_a_commit_that_is_read_before_it_is_told_is_not_doubled():
    async def story():
        box = Outbox()
        box.commit(note(1), note(2))
        listener = box.listen(after=0)
        assert await numbers(listener, 2) == [1, 2]
        taking = asyncio.create_task(numbers(listener, 1))
        while not listener.live:
            await asyncio.sleep(0)
        box.listeners.dispatch(box.notes)  # only now
        box.add(note(3))
        assert await taking == [3]

    run(story)


def test_a_listener_hears_its_user_or_its_subscription_only():
    async def story():
        box = Outbox()
        mine, narrow = box.listen(after=0), box.listen(after=0, subscription=8)
        foreign = box.listen(after=0, user=2, subscription=8)
        every = box.listen(after=0, user=None)
        everyone = (mine, narrow, foreign, every)
        waiting = [asyncio.create_task(one.take()) for one in everyone]
        await asyncio.sleep(0.01)
        box.add(note(1, 1, 7), note(2, 1, 8), note(3, 2, 9))
        await asyncio.sleep(0.01)
        heard = [[one.number for one, _ in t.result()] if t.done() else [] for t in waiting]
        assert heard == [[1, 2], [2], [], [1, 2, 3]]
        for task in waiting:
            task.cancel()

    run(story)


def test_a_note_is_made_a_frame_once_for_all():
    async def story():
        box = Outbox()
        first, second = box.listen(after=0), box.listen(after=0)
        waiting = [asyncio.create_task(one.take()) for one in (first, second)]
        await asyncio.sleep(0.01)
        box.add(note(1))
        (one,), (other,) = [await task for task in waiting]
        assert one[1] is other[1]
        assert one[1] == b'id: 1\nevent: match\ndata: {"n":1}\n\n'

    run(story)


# -------------------------------------------------------------------------------- resync


@pytest.mark.parametrize("token", [0, 5, 9, 700])
def test_a_token_that_the_outbox_has_no_more_gets_one_resync(token: int):
    async def story():
        box = Outbox()
        box.add(*map(note, range(1, 21)))
        box.forget(10)
        listener = box.listen(after=token)
        found = [one for one, _ in await listener.take()]
        assert [(one.kind, one.number) for one in found] == [(RESYNC, 10)]
        assert await numbers(listener, 10) == list(range(11, 21))
        assert box.listeners.resyncs == 1

    run(story)


def test_a_token_of_the_last_forgotten_note_needs_no_resync():
    async def story():
        box = Outbox()
        box.add(*map(note, range(1, 21)))
        box.forget(10)
        listener = box.listen(after=10)
        assert await numbers(listener, 10) == list(range(11, 21))
        assert box.listeners.resyncs == 0

    run(story)


def test_a_listener_that_retention_overtakes_is_told():
    async def story():
        box = Outbox()
        box.add(*map(note, range(1, 3 * PAGE_SIZE)))
        listener = box.listen(after=0)
        assert await numbers(listener, PAGE_SIZE) == list(range(1, PAGE_SIZE + 1))
        box.forget(2 * PAGE_SIZE)
        (told, _), *_ = await listener.take()
        assert (told.kind, told.number) == (RESYNC, 2 * PAGE_SIZE)
        assert (await numbers(listener, 1))[0] == 2 * PAGE_SIZE + 1

    run(story)


# -------------------------------------------------------------------------------- slow ones


async def live(box: Outbox, **more) -> NotificationListener:
    """A listener that has caught up."""
    listener = box.listen(box.notes[-1].number if box.notes else 0, **more)
    taking = asyncio.create_task(listener.take())
    while not listener.live:
        await asyncio.sleep(0)
    listener.request_heartbeat()
    assert await taking == []
    return listener


def test_one_from_outside_that_is_too_slow_is_cut_and_comes_back():
    async def story():
        box = Outbox()
        few = ServiceLimits(buffer=10)
        listener = await live(box, remote=few)
        aborted: list[bool] = []
        listener.abort = lambda: aborted.append(True)
        listener.writing = True  # the client does not read
        box.add(*map(note, range(1, 11)))
        assert not aborted
        box.add(note(11))
        assert aborted == [True]
        with pytest.raises(DisconnectedError, match="too slow"):
            await listener.take()
        box.listeners.leave(listener)
        assert box.listeners.slow == 1
        again = box.listen(after=listener.after, remote=few)
        assert await numbers(again, 11) == list(range(1, 12))

    run(story)


def test_one_in_this_program_that_is_slow_reads_again():
    async def story():
        box = Outbox(ServiceLimits(buffer=10))
        seen: list[int] = []
        following = box.listeners.follow(box.reading(), 0, user=1)
        box.add(note(1))
        async for one in following:
            seen.append(one.number)
            if one.number == 1:
                box.add(*map(note, range(2, 100)))
            if one.number == 99:
                break
        assert seen == list(range(1, 100))
        assert box.listeners.slow == 0

    run(story)


def test_one_that_catches_up_is_not_cut_however_much_comes():
    async def story():
        box = Outbox()
        box.add(*map(note, range(1, 2 * PAGE_SIZE)))
        listener = box.listen(after=0, remote=ServiceLimits(buffer=1))
        last = 2 * PAGE_SIZE

        async def pause():
            nonlocal last
            if last < 3 * PAGE_SIZE:
                box.add(*map(note, range(last, last + 50)))
                last += 50

        box.pause = pause
        assert await numbers(listener, 3 * PAGE_SIZE - 1) == list(range(1, last))

    run(story)


# -------------------------------------------------------------------------------- looking after


def test_the_silent_give_a_sign_of_life_with_a_token_that_grows():
    async def story():
        box = Outbox()
        listener = await live(box, remote=ServiceLimits())
        box.add(note(1, user=2), note(2, user=2))
        box.listeners.check_listeners(listener.written + HEARTBEAT_SECONDS, None)
        assert await listener.take() == []
        assert listener.after == 2  # notes of others are none that it misses

    run(story)


def test_one_that_has_just_written_gives_no_sign_of_life():
    async def story():
        box = Outbox()
        listener = await live(box, remote=ServiceLimits())
        box.listeners.check_listeners(listener.written + HEARTBEAT_SECONDS - 1, None)
        taking = asyncio.create_task(listener.take())
        await asyncio.sleep(0.01)
        assert not taking.done()
        taking.cancel()

    run(story)


def test_one_that_takes_nothing_of_what_is_written_is_cut():
    async def story():
        box = Outbox()
        listener = await live(box, remote=ServiceLimits())
        listener.writing = True
        box.listeners.check_listeners(listener.written + STALL_SECONDS - 1, None)
        assert listener.why is None
        box.listeners.check_listeners(listener.written + STALL_SECONDS, None)
        assert listener.why is DisconnectReason.slow

    run(story)


def test_who_listens_with_a_token_or_session_that_is_over_is_cut():
    async def story():
        box = Outbox()
        first = await live(box, remote=ServiceLimits(), credential=5)
        second = await live(box, remote=ServiceLimits(), credential=b"session")
        box.listeners.check_listeners(0.0, {b"session"})
        assert (first.why, second.why) == (DisconnectReason.revoked, None)
        box.listeners.revoke(b"session")
        assert second.why is DisconnectReason.revoked

    run(story)


def test_all_end_when_the_service_stops_and_so_does_who_comes_later():
    async def story():
        box = Outbox()
        remote = await live(box, remote=ServiceLimits())
        ended = asyncio.create_task(_all_of(box.listeners.follow(box.reading(), 0, user=1)))
        await asyncio.sleep(0.01)
        box.listeners.close()
        assert await ended == []
        with pytest.raises(DisconnectedError, match="shutting down"):
            await remote.take()
        with pytest.raises(DisconnectedError, match="shutting down"):
            await box.listen(after=0, remote=ServiceLimits()).take()

    run(story)


async def _all_of(following) -> list[Notification]:
    return [one async for one in following]


# -------------------------------------------------------------------------------- how many


def test_a_user_has_so_many_connections_and_no_more():
    async def story():
        box = Outbox()
        two = ServiceLimits(connections_per_user=2)
        first, _ = box.listen(remote=two), box.listen(remote=two, subscription=3)
        with pytest.raises(OverLimitError) as refused:
            box.listen(remote=two)
        assert refused.value.limit == "connections_per_user"
        box.listen(remote=two, user=2)
        box.listen()  # in the program itself
        box.listeners.leave(first)
        box.listeners.leave(first)  # once more is no matter
        assert box.listeners.connections(1) == 1
        box.listen(remote=two)
        box.listeners.close()

    run(story)


def test_a_service_has_so_many_connections_and_no_more():
    async def story():
        box = Outbox(ServiceLimits(connections=2))
        box.listen(remote=ServiceLimits(), user=1)
        box.listen(remote=ServiceLimits(), user=2)
        with pytest.raises(OverLimitError) as refused:
            box.listen(remote=ServiceLimits(), user=3)
        assert refused.value.limit == "connections"
        box.listeners.close()

    run(story)


def test_nothing_is_left_of_those_who_went():
    async def story():
        box = Outbox()
        several = [box.listen(remote=ServiceLimits(), user=n % 3) for n in range(9)]
        several += [box.listen(subscription=n) for n in range(5)] + [box.listen(user=None)]
        assert box.listeners.count == 15
        for listener in several:
            box.listeners.leave(listener)
        assert (box.listeners.count, list(box.listeners)) == (0, [])
        assert not any(box.listeners.connections(n) for n in range(3))
        box.add(note(1))
        box.listeners.close()

    run(story)
