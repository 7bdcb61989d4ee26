"""Names and constants in a kernel's source.

Columns of tables and codes are constants of the kernel's module, which Numba folds. The compiled
text has numbers for variables and fields, so that queries which differ in names only share it; the
readable text has the names of the query.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

# Groups that several structures share.
TOPS = "columns of tops: the newest of each list, by partition"
HEADS = "columns of head: the runs of each state, by partition"

Groups = Mapping[str, Mapping[str, float]]

_WORD = re.compile(r"[A-Za-z_]\w*")


def find_names(text: str) -> set[str]:
    """The names in a piece of source.

    >>> sorted(find_names("A[p0, END] > window"))
    ['A', 'END', 'p0', 'window']
    """
    return set(_WORD.findall(text))


@dataclass(slots=True)
class KernelNames:
    """The names of one kernel.

    >>> compiled, shown = KernelNames(["a", "b"]), KernelNames(["a", "b"], readable=True)
    >>> compiled.variable("b"), shown.variable("b")
    ('1', 'b')
    >>> shown.number("b_ROW", 3, "columns of A")
    'b_ROW'
    >>> print("\\n".join(shown.write_definitions({"b_ROW"})))
    # columns of A
    b_ROW = 3
    """

    variables: Sequence[str] = ()
    fixed: Groups = field(default_factory=dict)  # names that all kernels share
    readable: bool = False
    called: dict[str, str] = field(default_factory=dict)  # variables as parts of other names
    numbers: dict[str, float] = field(init=False)
    groups: dict[str, dict[str, float]] = field(init=False)
    meanings: dict[str, str] = field(default_factory=dict)  # comments of some of them

    def __post_init__(self) -> None:
        for variable in self.variables:
            self.variable(variable)
        self.forget()

    def variable(self, name: str) -> str:
        """A variable of the query, or a result of an operator, as a part of other names."""
        if name not in self.called:
            shown = self.readable and name.isidentifier()
            self.called[name] = name if shown else str(len(self.called))
        return self.called[name]

    def describe(self, variable: str) -> str:
        """The description of a variable that cannot be a part of names: `SEQ(B b, C c)`."""
        return "" if variable.isidentifier() else variable

    def number(self, name: str, value: int, group: str, meaning: str = "") -> str:
        """The name of a number; it gets a suffix if the name has another value already."""
        while name in self.numbers:
            if self.numbers[name] == value:
                return name
            name += "_"
        self.numbers[name] = value
        self.groups.setdefault(group, {})[name] = value
        if meaning:
            self.meanings[name] = " ".join(meaning.splitlines())
        return name

    def forget(self) -> None:
        """Resets the names before a kernel is written again: its columns may move."""
        self.groups = {group: dict(numbers) for group, numbers in self.fixed.items()}
        self.numbers = {name: n for numbers in self.fixed.values() for name, n in numbers.items()}
        self.meanings.clear()

    def write_definitions(self, used: set[str]) -> Iterator[str]:
        """The lines that define the used names, by group."""
        for group, numbers in self.groups.items():
            names = [name for name in numbers if name in used]
            if names and self.readable:
                yield f"# {group}"
            for name in sorted(names, key=numbers.__getitem__):
                meaning = self.meanings.get(name) if self.readable else None
                yield f"{name} = {numbers[name]}" + (f"  # {meaning}" if meaning else "")


# Constants as arguments: queries that differ in constants only share one compiled text.

ARRAYS = ("wholes", "reals")  # the first arguments of such a function


@dataclass(slots=True)
class KernelConstants:
    """The constants of one kernel.

    >>> constants = KernelConstants()
    >>> constants.slot(5), constants.slot(-1.5), constants.slot(7, "window")
    ('whole0', 'real0', 'window')
    >>> constants.slot(7, "window")
    'window'
    >>> list(constants.readings({"whole0", "window"}))
    ['whole0 = wholes[0]', 'window = wholes[1]']
    """

    readable: bool = False  # values are shown beside the names
    wholes: list[int] = field(default_factory=list)
    reals: list[float] = field(default_factory=list)
    places: dict[str, tuple[str, str]] = field(default_factory=dict)  # its array element, its text

    def slot(self, value: float, name: str = "", meaning: str = "") -> str:
        """The name of a number; a named constant has one slot for all its uses."""
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
        """The lines at the top of a function that read its constants."""
        for name, (place, meaning) in self.places.items():
            if name in used:
                yield f"{name} = {place}" + (f"  # {meaning}" if self.readable else "")

    def forget(self) -> None:
        """Resets the constants before a kernel is written again."""
        self.wholes.clear()
        self.reals.clear()
        self.places.clear()

    def mark(self) -> tuple[int, int, int]:
        """The current numbers of integers, floats and names."""
        return len(self.wholes), len(self.reals), len(self.places)

    def after(self, mark: tuple[int, int, int]) -> tuple[float, ...]:
        """The values added since a mark."""
        return (*self.wholes[mark[0] :], *self.reals[mark[1] :])

    def drop_since(self, mark: tuple[int, int, int]) -> None:
        """Drops the constants added since a mark."""
        del self.wholes[mark[0] :], self.reals[mark[1] :]
        for name in list(self.places)[mark[2] :]:
            del self.places[name]

    def arrays(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The values, as arguments of the kernel's functions."""
        return np.array(self.wholes, np.int64), np.array(self.reals, np.float64)
