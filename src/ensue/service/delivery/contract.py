"""What the service asks of a way to deliver notes, and how one says that it could not."""

from collections.abc import Sequence
from typing import Protocol

from ensue.service.notes import Note


class Sink(Protocol):
    """Takes the notes of one target to where they are wanted."""

    async def send(self, notes: Sequence[Note]) -> None:
        """Returns when all notes are safely there; raises Undelivered otherwise."""
        ...

    async def close(self) -> None:
        """Lets go of connections. Nothing is sent afterwards."""
        ...


class Undelivered(Exception):  # noqa: N818  it is no mistake of anybody
    """Not all notes are there: why, in words for the user, and how many from the front are."""

    def __init__(
        self, why: str, *, sent: int = 0, gone: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent
        self.gone = gone  # the receiver wants no more: the target is to be switched off
        self.retry_after = retry_after  # seconds that the receiver asks to wait
