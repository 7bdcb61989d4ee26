"""A stream that begins with a history: what is asked for, and what a checkpoint says of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensue.errors import EventError, StateError
from ensue.runners.spark.backfill import FOLDER, Past, backfilled, found_past
from ensue.runners.spark.checkpoint_files import has_begun
from ensue.runners.spark.finish import has_state
from ensue.runners.spark.recipes import Recipe

REFUSE, ALLOW = "refuse", "allow"


@dataclass(frozen=True)
class History:
    """What a stream is to begin with."""

    events: Any  # an archive, a DataFrame, or a table
    since: Any = None
    gap: str = REFUSE

    @classmethod
    def given(cls, history: Any, since: Any, gap: str) -> "History | None":
        """As `ensue.start` was given it."""
        if gap not in (REFUSE, ALLOW):
            raise EventError(f"gap is {REFUSE!r} or {ALLOW!r}, not {gap!r}")
        if history is not None:
            return cls(history, since, gap)
        if since is not None or gap != REFUSE:
            raise EventError(
                "since= and gap= need history=: the source decides where the stream itself begins"
            )
        return None

    def matched(self, recipe: Recipe, checkpoint: str, here: Path | None) -> Past:
        """The history up to its cut; it is read once, whatever happens later."""
        if any(chain.spreads is not None for chain in recipe.workload.chains):
            raise EventError(
                "history= is for queries: a subscription only sees events from the moment it "
                "is accepted\n  hint: leave out history="
            )
        session = recipe.frame.sparkSession
        begun = has_state(session, checkpoint) if here is None else has_begun(here)
        past = found_past(session, checkpoint, recipe.workload, begun=begun)
        if past is not None:
            return past
        if begun:
            raise StateError(
                f"the stream of the checkpoint {checkpoint} began without history=\n"
                "  hint: name a new checkpoint, or leave out history= to continue this one"
            )
        return backfilled(recipe, checkpoint, self.events, self.since)


def require_no_history(here: Path | None, checkpoint: str) -> None:
    """Raises StateError if a stream was to begin with a history, and now is to begin without."""
    if here is None or has_begun(here) or not (here / FOLDER / "manifest").exists():
        return
    raise StateError(
        f"the stream of the checkpoint {checkpoint} begins with a history, and has not continued "
        "from there yet\n  hint: pass history= as before, or name a new checkpoint"
    )
