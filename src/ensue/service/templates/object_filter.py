"""Predicates on the key column that select objects."""

import re
from dataclasses import dataclass

from ensue.service.templates.template import TemplateStream, format_number

Value = int | float | str

_NAME = re.compile(r"[^\W\d]\w*(-\w+)*")
_SHOWN = 3  # objects listed in a description


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """The key column, as predicates write it."""

    column: str
    is_text: bool

    @classmethod
    def from_stream(cls, stream: TemplateStream) -> "KeyColumn":
        assert stream.key is not None
        return cls(stream.key, stream.key_is_text)

    @property
    def field(self) -> str:
        """The column name after a type or a variable, quoted if it could be misread."""
        if _NAME.fullmatch(self.column) and self.column.upper() not in ("IN", "LIKE", "WITH"):
            return self.column
        return '"' + self.column.replace('"', '""') + '"'

    @property
    def typed(self) -> str:
        return f"{'STRING' if self.is_text else 'ARITH'}:{self.field}"

    @property
    def anybody(self) -> str:
        """A predicate that holds for every object, since an atom needs one."""
        return f"{self.typed} LIKE '%'" if self.is_text else f"{self.typed} > -1e300"

    def write_same_object(self, variable: str) -> str:
        """A predicate for the object of a variable's event."""
        return f"{self.typed} = {variable}.{self.field}"

    def write_different_object(self, variable: str) -> str:
        """A predicate for another object than that of a variable, with each pair once.

        Strings of two events cannot be ordered, so there each pair appears twice.
        """
        return f"{self.typed} {'!=' if self.is_text else '>'} {variable}.{self.field}"

    def write_exclusion(self, values: tuple[Value, ...]) -> str:
        return ", ".join(f"{self.typed} != {_literal(value)}" for value in values)


@dataclass(frozen=True, slots=True)
class ObjectSelection:
    """Some objects, or all.

    >>> trucks = ObjectSelection(KeyColumn("id", False), (17, 18))
    >>> trucks.first, trucks.write_same_object("$a;")
    ('ARITH:id IN (17, 18)', 'ARITH:id IN (17, 18), ARITH:id = $a;.id')
    >>> ObjectSelection(KeyColumn("name", True), ("O'Neil",)).write_same_object("$a;")
    "STRING:name = 'O''Neil'"
    """

    key: KeyColumn
    values: tuple[Value, ...] = ()  # empty: all objects

    @property
    def single(self) -> bool:
        return len(self.values) == 1

    @property
    def first(self) -> str:
        """Predicates for any of the objects."""
        if not self.values:
            return self.key.anybody
        if self.single:
            return f"{self.key.typed} = {_literal(self.values[0])}"
        return f"{self.key.typed} IN ({', '.join(map(_literal, self.values))})"

    def write_same_object(self, variable: str) -> str:
        """Predicates for the object of a variable's event."""
        if self.single:
            return self.first
        tied = self.key.write_same_object(variable)
        return f"{self.first}, {tied}" if self.values else tied

    @property
    def one(self) -> str:
        """One of the objects, as the subject of a sentence."""
        return f"one of {self.words}" if len(self.values) > 1 else self.words

    @property
    def words(self) -> str:
        """A description in one line.

        >>> ObjectSelection(KeyColumn("id", False), (1, 2, 3, 4, 5)).words
        '1, 2, 3 and 2 more'
        """
        if not self.values:
            return "any object"
        shown = [_label(value) for value in self.values[:_SHOWN]]
        rest = len(self.values) - len(shown)
        return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _literal(value: Value) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return format_number(value)


def _label(value: Value) -> str:
    """Formats a value in one line, since it is part of a comment."""
    text = value if isinstance(value, str) else format_number(value)
    text = " ".join(text.split())
    return text if len(text) <= 40 else f"{text[:39]}…"
