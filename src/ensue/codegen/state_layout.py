"""Layout of kernel state: named columns of an integer and a float table; and a source writer."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from ensue.codegen.expressions import Feature, ValueText, add_brackets, join_tests
from ensue.codegen.names import KernelNames, find_names
from ensue.ir.expression import FieldRef
from ensue.schema import ValueKind

_TABLES = ("I", "F", "N", "NF", "A", "AF", "K", "KF", "L", "LF", "O", "P")
_GROUPS = {table: f"columns of {table}" for table in _TABLES}


@dataclass(slots=True)
class StateColumns:
    """The columns of an arena: integers in one table, floats in another.

    Saved states identify a column by its key; in the source it has a name.
    """

    whole: str  # the name of the int64 table in the source
    real: str  # of the float64 table
    names: KernelNames = field(default_factory=KernelNames)
    prefix: str = ""  # of its columns' names, if several tables have the same ones
    wholes: dict[str, int] = field(default_factory=dict)
    reals: dict[str, int] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)  # integer columns with codes of strings
    called: dict[str, str] = field(default_factory=dict)  # names by key, without the prefix

    def at(self, key: str, row: str, *, real: bool = False, name: str = "", here: str = "") -> str:
        """The text for a value of a row; a new column is added.

        `name` is the name of the column from now on, `here` its name in this text only.

        >>> StateColumns("I", "F", prefix="RUN_").at("row_a", "r", name="a_ROW")
        'I[r, RUN_a_ROW]'
        """
        columns = self.reals if real else self.wholes
        number = columns.setdefault(key, len(columns))
        name = here or self.called.setdefault(key, name or key.upper())
        table = self.real if real else self.whole
        name = self.names.number(self.prefix + name, number, _GROUPS[table])
        return f"{table}[{row}, {name}]"

    def list_values(self, row: str) -> list[tuple[str, str]]:
        """All values of a row, by key."""
        wholes = [(key, self.at(key, row)) for key in self.wholes]
        return wholes + [(key, self.at(key, row, real=True)) for key in self.reals]

    def has(self, name: str) -> bool:
        return name in self.wholes or name in self.reals

    def widths(self) -> tuple[int, int]:
        return max(1, len(self.wholes)), max(1, len(self.reals))


def write_value(columns: StateColumns, key: str, row: str, feature: Feature, name: str, nullable: bool) -> ValueText:
    """The value of a stored feature, and whether it is not null."""
    if feature.kind is ValueKind.STRING:
        columns.texts.add(key)
    text = columns.at(key, row, real=not feature.integral, name=name)
    if columns.names.readable and not isinstance(feature.expr, FieldRef):
        columns.names.meanings[columns.prefix + name] = feature.description
    flag = f"{columns.at(f'{key}_ok', row, name=f'{name}_OK')} != 0" if nullable else None
    return text, flag


def get_output_column(names: KernelNames, columns: Sequence[str], column: str, table: str = "OUT") -> str:
    """The name of a column of matches: `row_a`, `node_a`, `count_a`."""
    kind, variable = column.split("_", 1)
    name, number = names.variable(variable), list(columns).index(column)
    group = _GROUPS["O" if table == "OUT" else "P"]
    return names.number(f"{table}_{name}_{kind.upper()}", number, group)


Test = tuple[str, str]  # with a comment


@dataclass(slots=True)
class SourceWriter:
    """Lines of Python with their indentation."""

    lines: list[str] = field(default_factory=list)
    depth: int = 0
    readable: bool = False  # with comments
    begun: list[int] = field(default_factory=list)  # first lines of the open blocks

    def __call__(self, *lines: str) -> None:
        indent = "    " * self.depth
        self.lines += [indent + line if line else "" for line in lines]

    def note(self, *lines: str) -> None:
        """Writes a comment, in readable sources only."""
        if self.readable:
            for line in lines:
                self(f"# {' '.join(line.splitlines())}" if line else "")

    def block(self, head: str) -> "SourceWriter":
        """Opens a block: `with source.block("if x:"): ...`."""
        self(head)
        return self

    def when(self, *tests: str | Test) -> AbstractContextManager[object]:
        """A block for when all tests hold; without tests, no block."""
        commented = [(test, "") if isinstance(test, str) else test for test in tests]
        commented = [test for test in commented if test[0] != "True"]
        if not commented:
            return nullcontext()
        self.all_hold("if ", commented, ":")
        return self

    def all_hold(self, head: str, tests: Sequence[Test], tail: str = "") -> None:
        """Writes the conjunction of tests; in readable sources one per line, with comments."""
        if not self.readable or len(tests) <= 1:
            self.note(*(meaning for _, meaning in tests if meaning))
            self(f"{head}{join_tests([text for text, _ in tests])}{tail}")
            return
        with self.block(f"{head}("):
            for place, (text, meaning) in enumerate(tests):
                self.note(*([meaning] if meaning else []))
                self(f"{'and ' if place else ''}{add_brackets(text)}")
        self(f"){tail}")

    def __enter__(self) -> "SourceWriter":
        self.depth += 1
        self.begun.append(len(self.lines))
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_empty(self.begun.pop()):
            self("pass")
        self.depth -= 1

    def _is_empty(self, begin: int) -> bool:
        """Whether no line follows a position, except comments."""
        if not self.readable:
            return begin == len(self.lines)
        return all(line.strip()[:1] in ("", "#") for line in self.lines[begin:])

    def words(self) -> set[str]:
        """The names in its lines, without comments."""
        if not self.readable:
            return find_names("\n".join(self.lines))
        return find_names("\n".join(n for n in self.lines if not n.lstrip().startswith("#")))

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def store_value(out: SourceWriter, place: ValueText, value: ValueText) -> None:
    """Writes the assignment of a value and its null flag, as `write_value` returns them."""
    out(f"{place[0]} = {value[0]}")
    if place[1] is not None:
        out(f"{place[1].removesuffix(' != 0')} = {value[1] or 'True'}")


def list_output_columns(variables: Iterable[tuple[str, bool]]) -> tuple[str, ...]:
    """The columns of matches for variables, each with whether it is a Kleene variable."""
    kinds = {True: ("node", "count"), False: ("row",)}
    return tuple(f"{kind}_{name}" for name, kleene in variables for kind in kinds[kleene])
