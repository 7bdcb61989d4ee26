"""The interface of a query language: its name, its parser and its printer."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.hierarchy import Definition, Hierarchy
from ensue.ir.query import Query
from ensue.ir.row_pattern import RowPatternQuery
from ensue.ir.subscription import Subscription
from ensue.ir.user_operator import UserOperator
from ensue.parser.parameters import NO_PARAMETERS, Parameters

NO_REGIONS: Mapping[str, str] = MappingProxyType({})


class ParseFunction(Protocol):
    """Parses a text to the IR, or raises a QueryError that points into the text.

    Imported files are searched in `folder`, by default the current one. `definitions` and
    `operators` are known in addition to the registered ones, and `regions` by their names in
    languages that have them. `parameters` hold the values of its `:names`.
    """

    def __call__(
        self,
        text: str,
        folder: Path | None = None,
        *,
        definitions: Iterable[Definition] = (),
        operators: Iterable[UserOperator] = (),
        regions: Mapping[str, str] = NO_REGIONS,
        parameters: Parameters = NO_PARAMETERS,
    ) -> Query | Hierarchy | ArchiveJoinQuery | Subscription | RowPatternQuery: ...


@dataclass(frozen=True, slots=True)
class Language:
    """A query language.

    `claims` decides by the beginning of a text whether it is in this language; it also claims
    invalid texts of the language, so that the language reports their errors. `show` prints the
    canonical form of a query, which parses back to the same query.
    """

    name: str
    claims: Callable[[str], bool]
    parse: ParseFunction
    show: Callable[[Query | Hierarchy | ArchiveJoinQuery | Subscription | RowPatternQuery], str]
