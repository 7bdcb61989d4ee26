"""What things are called in a kernel's text: numbers by name, the variables and fields of a query.

Columns of tables and codes are constants of the kernel's module, which Numba folds. The text that
is compiled knows variables and fields by number, so that queries which differ in nothing but names
share it; the text for a reader has the names of the query.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_WORD = re.compile(r"[^\W\d]\w*")


def words(text: str) -> set[str]:
    """The names in a piece of source.

    >>> sorted(words("A[p0, END] > window"))
    ['A', 'END', 'p0', 'window']
    """
    return set(_WORD.findall(text))


@dataclass(slots=True)
class Names:
    """The names of one kernel.

    >>> compiled, shown = Names(["a", "b"]), Names(["a", "b"], readable=True)
    >>> compiled.variable("b"), shown.variable("b")
    ('1', 'b')
    >>> shown.number("b_ROW", 3)
    'b_ROW'
    >>> list(shown.defined({"b_ROW"}))
    ['b_ROW = 3']
    """

    variables: Sequence[str] = ()
    fixed: Mapping[str, float] = field(default_factory=dict)  # what all kernels call by name
    readable: bool = False
    places: dict[str, int] = field(init=False)
    numbers: dict[str, int] = field(default_factory=dict)  # in the order they were asked for
    meanings: dict[str, str] = field(default_factory=dict)  # of some of them, for a reader

    def __post_init__(self) -> None:
        self.places = {variable: place for place, variable in enumerate(self.variables)}

    def variable(self, name: str) -> str:
        """A variable of the query, or a result of an operator, as a part of other names."""
        place = self.places.setdefault(name, len(self.places))
        return name if self.readable and name.isidentifier() else str(place)

    def number(self, name: str, value: int, meaning: str = "") -> str:
        """The name for a number; another one where the name stands for something else already."""
        while self.fixed.get(name, value) != value or self.numbers.get(name, value) != value:
            name += "_"
        self.numbers[name] = value
        if meaning:
            self.meanings[name] = " ".join(meaning.splitlines())
        return name

    def forget(self) -> None:
        """Before a kernel is written once more: its columns may have other places then."""
        self.numbers.clear()
        self.meanings.clear()

    def defined(self, used: set[str]) -> Iterator[str]:
        """The lines that define the names in use, those that all kernels share first."""
        for name, value in {**self.fixed, **self.numbers}.items():
            if name in used:
                meaning = self.meanings.get(name)
                yield f"{name} = {value}" + (f"  # {meaning}" if self.readable and meaning else "")
