"""Which objects a text is about, as predicates on the key column."""

import re
from dataclasses import dataclass

from ensue.service.templates.numbers import number_text
from ensue.service.templates.template import TemplateStream

Value = int | float | str

_NAME = re.compile(r"[^\W\d]\w*(-\w+)*")
_SHOWN = 3  # objects that words list


@dataclass(frozen=True, slots=True)
class Key:
    """The column that names objects, as predicates write it."""

    column: str
    is_text: bool

    @classmethod
    def of(cls, stream: TemplateStream) -> "Key":
        assert stream.key is not None
        return cls(stream.key, stream.key_is_text)

    @property
    def field(self) -> str:
        """As it stands behind a type or a variable; always in quotes if it may be misread."""
        if _NAME.fullmatch(self.column) and self.column.upper() not in ("IN", "LIKE", "WITH"):
            return self.column
        return '"' + self.column.replace('"', '""') + '"'

    @property
    def typed(self) -> str:
        return f"{'STRING' if self.is_text else 'ARITH'}:{self.field}"

    @property
    def anybody(self) -> str:
        """What holds for every object: an atom needs a predicate."""
        return f"{self.typed} LIKE '%'" if self.is_text else f"{self.typed} > -1e300"

    def same(self, variable: str) -> str:
        """The object of the event that a variable stands for."""
        return f"{self.typed} = {variable}.{self.field}"

    def another(self, variable: str) -> str:
        """Another object than that of a variable; of two objects one is the first.

        Texts of two events have no order, so there each of the two is.
        """
        return f"{self.typed} {'!=' if self.is_text else '>'} {variable}.{self.field}"

    def none_of(self, values: tuple[Value, ...]) -> str:
        return ", ".join(f"{self.typed} != {_written(value)}" for value in values)


@dataclass(frozen=True, slots=True)
class Objects:
    """Some objects, or all of them.

    >>> trucks = Objects(Key("id", False), (17, 18))
    >>> trucks.first, trucks.same("$a;")
    ('ARITH:id IN (17, 18)', 'ARITH:id IN (17, 18), ARITH:id = $a;.id')
    >>> Objects(Key("name", True), ("O'Neil",)).same("$a;")
    "STRING:name = 'O''Neil'"
    """

    key: Key
    values: tuple[Value, ...] = ()  # none: all objects

    @property
    def single(self) -> bool:
        return len(self.values) == 1

    @property
    def first(self) -> str:
        """Predicates of one of them."""
        if not self.values:
            return self.key.anybody
        if self.single:
            return f"{self.key.typed} = {_written(self.values[0])}"
        return f"{self.key.typed} IN ({', '.join(map(_written, self.values))})"

    def same(self, variable: str) -> str:
        """Predicates of the one that the event of a variable is about."""
        if self.single:
            return self.first
        tied = self.key.same(variable)
        return f"{self.first}, {tied}" if self.values else tied

    @property
    def one(self) -> str:
        """One of them, as the subject of a sentence."""
        return f"one of {self.words}" if len(self.values) > 1 else self.words

    @property
    def words(self) -> str:
        """As people say it, on one line.

        >>> Objects(Key("id", False), (1, 2, 3, 4, 5)).words
        '1, 2, 3 and 2 more'
        """
        if not self.values:
            return "any object"
        shown = [_word(value) for value in self.values[:_SHOWN]]
        rest = len(self.values) - len(shown)
        return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _written(value: Value) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return number_text(value)


def _word(value: Value) -> str:
    """A comment ends where a line does, so a name must not have several."""
    text = value if isinstance(value, str) else number_text(value)
    text = " ".join(text.split())
    return text if len(text) <= 40 else f"{text[:39]}…"
