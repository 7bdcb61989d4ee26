"""Where compiled code keeps things: named columns of two tables of numbers, one of each sort."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from ensue.algebra.predicate import Field
from ensue.schema import Kind
from ensue.source.expressions import Feature, all_of, bracketed
from ensue.source.names import Names, words

_TABLES = ("I", "F", "N", "NF", "A", "AF", "K", "KF", "L", "LF", "O", "P")
_GROUPS = {table: f"columns of {table}" for table in _TABLES}


@dataclass(slots=True)
class Columns:
    """The columns of an arena: whole numbers in one table, floats in another.

    Saved states know a column by its key; in the source it has a name of its own.
    """

    whole: str  # the name of the int64 table in the source
    real: str  # of the float64 table
    names: Names = field(default_factory=Names)
    prefix: str = ""  # of its columns' names, where several tables have alike ones
    wholes: dict[str, int] = field(default_factory=dict)
    reals: dict[str, int] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)  # the whole numbers that are codes of strings
    called: dict[str, str] = field(default_factory=dict)  # their names, without the prefix

    def at(self, key: str, row: str, *, real: bool = False, name: str = "", here: str = "") -> str:
        """The text for a value of a row, the column being made where it is new.

        `name` is what the column is called from now on, `here` what it is called this time.

        >>> Columns("I", "F", prefix="RUN_").at("row_a", "r", name="a_ROW")
        'I[r, RUN_a_ROW]'
        """
        columns = self.reals if real else self.wholes
        number = columns.setdefault(key, len(columns))
        name = here or self.called.setdefault(key, name or key.upper())
        table = self.real if real else self.whole
        name = self.names.number(self.prefix + name, number, _GROUPS[table])
        return f"{table}[{row}, {name}]"

    def each(self, row: str) -> list[tuple[str, str]]:
        """All values of a row, by key."""
        wholes = [(key, self.at(key, row)) for key in self.wholes]
        return wholes + [(key, self.at(key, row, real=True)) for key in self.reals]

    def has(self, name: str) -> bool:
        return name in self.wholes or name in self.reals

    def widths(self) -> tuple[int, int]:
        return max(1, len(self.wholes)), max(1, len(self.reals))


def value_of(columns: Columns, key: str, row: str, feature: Feature, name: str) -> str:
    """A kept feature's value."""
    if feature.kind is Kind.STRING:
        columns.texts.add(key)
    text = columns.at(key, row, real=not feature.integral, name=name)
    if columns.names.readable and not isinstance(feature.expr, Field):
        columns.names.meanings[columns.prefix + name] = feature.told
    return text


def ok_of(columns: Columns, key: str, row: str, nullable: bool, name: str) -> str | None:
    """Whether a kept feature has a value; None where every event has one."""
    return f"{columns.at(f'{key}_ok', row, name=f'{name}_OK')} != 0" if nullable else None


def output_column(names: Names, columns: Sequence[str], column: str, table: str = "OUT") -> str:
    """The name of a column of matches: `row_a`, `node_a`, `count_a`."""
    kind, variable = column.split("_", 1)
    name, number = names.variable(variable), list(columns).index(column)
    group = _GROUPS["O" if table == "OUT" else "P"]
    return names.number(f"{table}_{name}_{kind.upper()}", number, group)


Test = tuple[str, str]  # and what it means, in words


@dataclass(slots=True)
class Source:
    """Lines of Python with their indentation."""

    lines: list[str] = field(default_factory=list)
    depth: int = 0
    readable: bool = False  # with comments
    begun: list[int] = field(default_factory=list)  # where the open blocks begin

    def __call__(self, *lines: str) -> None:
        indent = "    " * self.depth
        self.lines += [indent + line if line else "" for line in lines]

    def note(self, *lines: str) -> None:
        """A comment, which only a reader gets to see: compiled texts have none."""
        if self.readable:
            for line in lines:
                self(f"# {' '.join(line.splitlines())}" if line else "")

    def block(self, head: str) -> "Source":
        """Opens a block: `with source.block("if x:"): ...`."""
        self(head)
        return self

    def when(self, *tests: str | Test) -> AbstractContextManager[object]:
        """A block for when all tests hold; where there is none, no block."""
        told = [(test, "") if isinstance(test, str) else test for test in tests]
        told = [test for test in told if test[0] != "True"]
        if not told:
            return nullcontext()
        self.all_hold("if ", told, ":")
        return self

    def all_hold(self, head: str, tests: Sequence[Test], tail: str = "") -> None:
        """Writes when all tests hold; for a reader one a line, each with what it means."""
        if not self.readable or len(tests) <= 1:
            self.note(*(meaning for _, meaning in tests if meaning))
            self(f"{head}{all_of([text for text, _ in tests])}{tail}")
            return
        with self.block(f"{head}("):
            for place, (text, meaning) in enumerate(tests):
                self.note(*([meaning] if meaning else []))
                self(f"{'and ' if place else ''}{bracketed(text)}")
        self(f"){tail}")

    def __enter__(self) -> "Source":
        self.depth += 1
        self.begun.append(len(self.lines))
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_empty(self.begun.pop()):
            self("pass")
        self.depth -= 1

    def _is_empty(self, begin: int) -> bool:
        """Whether there is no line from a place on, but for comments."""
        if not self.readable:
            return begin == len(self.lines)
        return all(line.strip()[:1] in ("", "#") for line in self.lines[begin:])

    def words(self) -> set[str]:
        """The names in its lines, comments left out."""
        if not self.readable:
            return words("\n".join(self.lines))
        return words("\n".join(n for n in self.lines if not n.lstrip().startswith("#")))

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
