"""What a query language is: a name, its texts, and the way from text to algebra and back."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from ensue.algebra.correlation import Correlation
from ensue.algebra.operator import Operator
from ensue.algebra.query import Query
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.subscription import Subscription
from ensue.algebra.tower import Definition, Tower
from ensue.languages.parameters import NO_PARAMETERS, Parameters

NO_REGIONS: Mapping[str, str] = MappingProxyType({})


class Parse(Protocol):
    """Text to algebra, or a QueryError that points into the text.

    Files that the text names are looked for in `folder`, by default the current one;
    `definitions` and `operators` may be used in it beside those that are known, and `regions` by
    their names, in languages that have such. `parameters` have the values of its `:names`.
    """

    def __call__(
        self,
        text: str,
        folder: Path | None = None,
        *,
        definitions: Iterable[Definition] = (),
        operators: Iterable[Operator] = (),
        regions: Mapping[str, str] = NO_REGIONS,
        parameters: Parameters = NO_PARAMETERS,
    ) -> Query | Tower | Correlation | Subscription | Recognition: ...


@dataclass(frozen=True, slots=True)
class Language:
    """A language that queries may be written in.

    `claims` tells whether a text is in it, from how the text begins: a text that is meant for
    the language, but wrong, is to be claimed too, so that its errors are those of the language.
    `show` gives the one spelling of a query, which parses back to the same query.
    """

    name: str
    claims: Callable[[str], bool]
    parse: Parse
    show: Callable[[Query | Tower | Correlation | Subscription | Recognition], str]
