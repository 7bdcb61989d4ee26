"""How a stream of matches was made, so that it can be made anew with more that it has to do."""

import weakref
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from ensue.errors import EventError
from ensue.workload.arguments import Arguments
from ensue.workload.workload import Workload


@dataclass(frozen=True)
class Recipe:
    """What `ensue.match` was given for a stream."""

    workload: Workload
    frame: DataFrame
    given: Arguments


# by identity: mappings have no hash, and a DataFrame might compare its columns
_known: dict[int, tuple[weakref.ref[Any], Recipe]] = {}


def note(matches: object, recipe: Recipe) -> None:
    """Keeps the recipe for as long as the matches are there."""
    number = id(matches)
    _known[number] = weakref.ref(matches, lambda _: _known.pop(number, None)), recipe


def known_recipe(matches: object) -> Recipe | None:
    """The recipe of what `ensue.match` gave; None: these matches are not it."""
    there, recipe = _known.get(id(matches), (None, None))
    return None if there is None or there() is not matches else recipe


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
