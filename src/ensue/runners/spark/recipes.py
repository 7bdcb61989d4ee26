"""How a stream of matches was made, so that it can be made anew with more that it has to do.

These facts are kept beside a DataFrame, not on it: over Spark Connect, a DataFrame answers any
name with a column.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyspark.sql import DataFrame

from ensue.errors import EventError
from ensue.workload.arguments import Arguments
from ensue.workload.workload import Workload

Around = Callable[[DataFrame], DataFrame]
T = TypeVar("T")


@dataclass(frozen=True)
class Recipe:
    """What `ensue.match` was given for a stream."""

    workload: Workload
    frame: DataFrame
    given: Arguments


class FrameNotes(Generic[T]):
    """What is known of DataFrames and mappings of them, for as long as they are there.

    They are found by identity: mappings have no hash, and a DataFrame might compare its columns.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], T]] = {}

    def put(self, frames: object, fact: T) -> None:
        number = id(frames)
        self._known[number] = weakref.ref(frames, lambda _: self._known.pop(number, None)), fact

    def get(self, frames: object, default: T) -> T:
        there, fact = self._known.get(id(frames), (None, default))
        return default if there is None or there() is not frames else fact


_recipes = FrameNotes[Recipe | None]()
_arounds = FrameNotes[Around | None]()


def note(matches: object, recipe: Recipe) -> None:
    """Keeps the recipe for as long as the matches are there."""
    _recipes.put(matches, recipe)


def known_recipe(matches: object) -> Recipe | None:
    """The recipe of what `ensue.match` gave; None: these matches are not it."""
    return _recipes.get(matches, None)


def recipe_of(matches: object, what: str) -> Recipe:
    """The recipe of what `ensue.match` gave; `what` it is wanted for."""
    recipe = known_recipe(matches)
    if recipe is None:
        raise EventError(
            f"{what} needs the result of ensue.match for a stream, but these matches were "
            "changed since\n"
            "  hint: pass them unchanged; a function as output gets each micro-batch and can "
            "change it there"
        )
    return recipe


# ----------------------------------- what SQL does with matches, for those left when a stream ends


def note_around(frame: DataFrame, around: Around | None) -> DataFrame:
    """A stream that is made of matches by `around`; None: of more than one clause's."""
    _arounds.put(frame, around)
    return frame


def around_of(frame: object) -> Around:
    """How a stream is made of its matches: as they are, unless somebody has said otherwise."""
    around = _arounds.get(frame, lambda matches: matches)
    if around is None:
        raise EventError(
            "flush=True takes a query with one MATCH_RECOGNIZE over one stream: what is left of "
            "several clauses would have to be joined once more\n"
            "  hint: leave flush=True out, or start a stream for each clause"
        )
    return around
