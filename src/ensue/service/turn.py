"""What the transaction that runs has brought so far."""

from collections.abc import Sequence

import pyarrow as pa

from ensue.service.notes import Note


class Turn:
    """Notes and events of one transaction. Nobody hears of them before they are on disk."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.events: list[pa.Table] = []
        self.ahead = False  # the matcher has seen what a piece of work has not yet finished

    def tell(self, notes: Sequence[Note]) -> int:
        """Notes to be told; how many."""
        self.notes += notes
        return len(notes)

    def mark(self) -> tuple[int, int]:
        """Where a piece of work begins."""
        self.ahead = False
        return len(self.notes), len(self.events)

    def back_to(self, mark: tuple[int, int]) -> None:
        """Forgets what a piece of work that failed has brought."""
        del self.notes[mark[0] :], self.events[mark[1] :]

    def over(self) -> tuple[list[Note], list[pa.Table]]:
        """All of it, once it is on disk."""
        found = self.notes, self.events
        self.notes, self.events = [], []
        return found
