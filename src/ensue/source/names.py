"""What things are called in a kernel's text: numbers by name, the variables and fields of a query.

Columns of tables and codes are constants of the kernel's module, which Numba folds. The text that
is compiled knows variables and fields by number, so that queries which differ in nothing but names
share it; the text for a reader has the names of the query.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

# Groups that several structures have.
TOPS = "columns of tops: the newest of each list, by partition"
HEADS = "columns of head: the runs of each state, by partition"

Groups = Mapping[str, Mapping[str, float]]

_WORD = re.compile(r"[A-Za-z_]\w*")


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
    >>> shown.number("b_ROW", 3, "columns of A")
    'b_ROW'
    >>> print("\\n".join(shown.defined({"b_ROW"})))
    # columns of A
    b_ROW = 3
    """

    variables: Sequence[str] = ()
    fixed: Groups = field(default_factory=dict)  # what all kernels call by name
    readable: bool = False
    called: dict[str, str] = field(default_factory=dict)  # variables as parts of other names
    numbers: dict[str, float] = field(init=False)
    groups: dict[str, dict[str, float]] = field(init=False)
    meanings: dict[str, str] = field(default_factory=dict)  # of some of them, for a reader

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

    def told(self, variable: str) -> str:
        """What is to be said of a variable that other names do not show: `SEQ(B b, C c)`."""
        return "" if variable.isidentifier() else variable

    def number(self, name: str, value: int, group: str, meaning: str = "") -> str:
        """The name for a number; another one where the name stands for something else already."""
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
        """Before a kernel is written once more: its columns may have other places then."""
        self.groups = {group: dict(numbers) for group, numbers in self.fixed.items()}
        self.numbers = {name: n for numbers in self.fixed.values() for name, n in numbers.items()}
        self.meanings.clear()

    def defined(self, used: set[str]) -> Iterator[str]:
        """The lines that define the names in use, group by group."""
        for group, numbers in self.groups.items():
            found = [name for name in numbers if name in used]
            if found and self.readable:
                yield f"# {group}"
            for name in sorted(found, key=numbers.__getitem__):
                meaning = self.meanings.get(name) if self.readable else None
                yield f"{name} = {numbers[name]}" + (f"  # {meaning}" if meaning else "")
