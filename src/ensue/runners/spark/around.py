"""What SQL does with the matches of a stream, for those that are left when the stream ends."""

from collections.abc import Callable

from pyspark.sql import DataFrame

from ensue.errors import EventError

Around = Callable[[DataFrame], DataFrame]
_NAME = "_ensue_around"


def remember(frame: DataFrame, around: Around | None) -> DataFrame:
    """A stream that is made of matches by `around`; None: of more than one clause's."""
    setattr(frame, _NAME, around)
    return frame


def around_of(frame: object) -> Around:
    """How a stream is made of its matches: as they are, unless somebody has said otherwise."""
    around: Around | None = getattr(frame, _NAME, lambda matches: matches)
    if around is None:
        raise EventError(
            "flush=True takes a query with one MATCH_RECOGNIZE over one stream: what is left of "
            "several clauses would have to be joined once more\n"
            "  hint: leave flush=True out, or start a stream for each clause"
        )
    return around
