"""Where compiled code keeps things: named columns of two tables of numbers, one of each sort."""

from dataclasses import dataclass, field

from ensue.schema import Kind
from ensue.source.expressions import Feature


@dataclass(slots=True)
class Columns:
    """The columns of an arena: whole numbers in one table, floats in another."""

    whole: str  # the name of the int64 table in the source
    real: str  # of the float64 table
    wholes: dict[str, int] = field(default_factory=dict)
    reals: dict[str, int] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)  # the whole numbers that are codes of strings

    def at(self, name: str, row: str, *, real: bool = False) -> str:
        """The text for a value of a row, the column being made where it is new.

        >>> Columns("I", "F").at("row_a", "r")
        'I[r, 0]'
        """
        columns = self.reals if real else self.wholes
        number = columns.setdefault(name, len(columns))
        return f"{self.real if real else self.whole}[{row}, {number}]"

    def has(self, name: str) -> bool:
        return name in self.wholes or name in self.reals

    def widths(self) -> tuple[int, int]:
        return max(1, len(self.wholes)), max(1, len(self.reals))


def value_of(columns: Columns, name: str, row: str, feature: Feature) -> str:
    """A kept feature's value."""
    if feature.kind is Kind.STRING:
        columns.texts.add(name)
    return columns.at(name, row, real=not feature.integral)


def ok_of(columns: Columns, name: str, row: str, nullable: bool) -> str | None:
    """Whether a kept feature has a value; None where every event has one."""
    return f"{columns.at(f'{name}_ok', row)} != 0" if nullable else None


@dataclass(slots=True)
class Source:
    """Lines of Python with their indentation."""

    lines: list[str] = field(default_factory=list)
    depth: int = 0

    def __call__(self, *lines: str) -> None:
        for line in lines:
            self.lines.append("    " * self.depth + line)

    def block(self, head: str) -> "Source":
        """Opens a block: `with source.block("if x:"): ...`."""
        self(head)
        return self

    def __enter__(self) -> "Source":
        self.depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.depth -= 1

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
