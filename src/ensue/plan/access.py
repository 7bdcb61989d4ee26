"""How an archive is accessed: the four ways, what each costs, and which is taken (R10)."""

from dataclasses import dataclass

ACCESSES = ("eager", "lazy", "grouped", "archive_first")


@dataclass(frozen=True, slots=True)
class Decision:
    """The way that is taken."""

    access: str
