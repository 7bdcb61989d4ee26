"""Looking at stored events takes long: a few may do so at a time, the others wait their turn."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ensue.service.refusals import OverLimitError

AT_ONCE = 2  # of the threads that read, so that quick questions are answered meanwhile
OF_A_USER = 6  # that run or wait


class Turns:
    """Who looks at stored events, and who waits to do so."""

    def __init__(self, at_once: int = AT_ONCE, of_a_user: int = OF_A_USER) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._of_a_user = of_a_user
        self._asked: Counter[int] = Counter()

    @asynccontextmanager
    async def one(self, user: int) -> AsyncIterator[None]:
        """A turn of a user, once it has come."""
        if self._asked[user] >= self._of_a_user:
            raise OverLimitError(
                "turns",
                f"{self._of_a_user} questions of this user about stored events wait already\n"
                "  hint: ask again when they are answered",
            )
        self._asked[user] += 1
        try:
            async with self._free:
                yield
        finally:
            self._asked[user] -= 1
            if not self._asked[user]:
                del self._asked[user]
