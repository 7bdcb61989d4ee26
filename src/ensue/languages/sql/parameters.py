"""Parameters in the SQL around clauses: engines take their values beside the text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ensue.languages.parameters import Parameters
from ensue.languages.sql.tokens import Sort, Token
from ensue.span import Span

# What a colon stands behind where it is part of something else: x::int, {'a':b}, list[1:n]
_OTHER_COLONS = "'\"`]):["


@dataclass(frozen=True, slots=True)
class Place:
    """`:name` in a text, and whether it is, or is in, the list of an IN."""

    name: str
    span: Span
    behind_in: bool = False  # x IN :names
    listed: bool = False  # x IN (1, :names)


def places_of(tokens: Sequence[Token], pairs: Mapping[int, int], text: str) -> Iterator[Place]:
    """The parameters of a text, those in clauses too.

    >>> from ensue.languages.sql.tokens import tokens_of
    >>> sql = "SELECT x::int, l[1:n] FROM t WHERE x > :low AND y IN (:names)"
    >>> [place.name for place in places_of(*tokens_of(sql), sql)]
    ['low', 'names']
    """
    lists: list[bool] = []
    for number, token in enumerate(tokens):
        before = tokens[number - 1] if number else None
        if token.word == "(" and number in pairs:
            lists.append(before is not None and before.word == "IN")
        elif token.word == ")" and number in pairs:
            lists.pop()
        name = tokens[number + 1] if number + 1 < len(tokens) else None
        if token.word != ":" or name is None or name.start != token.end:
            continue
        sign = text[token.start - 1 : token.start]
        if name.sort is not Sort.WORD or sign.isalnum() or sign in ("_", *_OTHER_COLONS):
            continue
        behind_in = before is not None and before.word == "IN"
        listed = bool(lists) and lists[-1] and before is not None and before.word in ("(", ",")
        yield Place(name.text, Span(token.start, name.end), behind_in, listed)


@dataclass(slots=True)
class Bound:
    """The values of a text that an engine is asked, by the names that they have in it."""

    parameters: Parameters
    mark: str  # before a name: $ for DuckDB, : for Spark
    values: dict[str, object] = field(default_factory=dict)

    def written(self, place: Place) -> str:
        """What stands in the text for a parameter; of a list behind IN a name for each value."""
        found = self.parameters.plain(place.name, place.span)
        if not isinstance(found, list) or not (place.behind_in or place.listed):
            self.values[place.name] = found
            return f"{self.mark}{place.name}"
        names = [f"{place.name}_{number}_of_{len(found)}" for number in range(1, len(found) + 1)]
        self.values |= dict(zip(names, found, strict=True))
        listed = ", ".join(f"{self.mark}{name}" for name in names)
        return f"({listed})" if place.behind_in else listed
