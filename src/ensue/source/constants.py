"""Constants of a kernel as arguments: queries that differ in them alone share one compiled text.

The writers register a constant where they write it, and write the name they get. `step`, `sweep`
and `settle_all` are given the values in two arrays, and read those they use when they begin.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

ARRAYS = ("wholes", "reals")  # the first arguments of such a function


@dataclass(slots=True)
class Constants:
    """The constants of one kernel.

    >>> constants = Constants()
    >>> constants.slot(5), constants.slot(-1.5), constants.slot(7, "window")
    ('whole0', 'real0', 'window')
    >>> constants.slot(7, "window")
    'window'
    >>> list(constants.readings({"whole0", "window"}))
    ['whole0 = wholes[0]', 'window = wholes[1]']
    """

    readable: bool = False  # the values stand beside the names
    wholes: list[int] = field(default_factory=list)
    reals: list[float] = field(default_factory=list)
    places: dict[str, tuple[str, str]] = field(default_factory=dict)  # where it is, what it is

    def slot(self, value: float, name: str = "", meaning: str = "") -> str:
        """The name of a number; what is given a name of its own has one place for all its uses."""
        if name in self.places:
            return name
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            name, place = name or f"whole{len(self.wholes)}", f"wholes[{len(self.wholes)}]"
            self.wholes.append(value)
        else:
            value = float(value)
            name, place = name or f"real{len(self.reals)}", f"reals[{len(self.reals)}]"
            self.reals.append(value)
        self.places[name] = place, f"{value}: {meaning}" if meaning else str(value)
        return name

    def readings(self, used: set[str]) -> Iterator[str]:
        """The lines at the top of a function that read the constants it uses."""
        for name, (place, told) in self.places.items():
            if name in used:
                yield f"{name} = {place}" + (f"  # {told}" if self.readable else "")

    def forget(self) -> None:
        """Before a kernel is written once more."""
        self.wholes.clear()
        self.reals.clear()
        self.places.clear()

    def mark(self) -> tuple[int, int, int]:
        """How many constants there are: integers, floats and names."""
        return len(self.wholes), len(self.reals), len(self.places)

    def after(self, mark: tuple[int, int, int]) -> tuple[float, ...]:
        """The values that came since."""
        return (*self.wholes[mark[0] :], *self.reals[mark[1] :])

    def back_to(self, mark: tuple[int, int, int]) -> None:
        """Forgets what came since."""
        del self.wholes[mark[0] :], self.reals[mark[1] :]
        for name in list(self.places)[mark[2] :]:
            del self.places[name]

    def arrays(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The values, as functions of the kernel are given them."""
        return np.array(self.wholes, np.int64), np.array(self.reals, np.float64)
