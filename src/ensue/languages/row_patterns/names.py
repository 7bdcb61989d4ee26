"""What may be named in a clause: the variables of its pattern, and its SUBSETs."""

from collections.abc import Mapping
from dataclasses import dataclass

from ensue.errors import QueryError, did_you_mean
from ensue.span import Span


@dataclass(frozen=True, slots=True)
class Names:
    """The variables of a pattern, and the SUBSETs of them."""

    variables: tuple[str, ...]
    subsets: Mapping[str, tuple[str, ...]]

    def members(self, name: str, span: Span) -> tuple[str, ...]:
        """The variables that a name stands for."""
        if name in self.variables:
            return (name,)
        if name in self.subsets:
            return self.subsets[name]
        raise QueryError(
            f"there is no variable '{name}' in the pattern",
            hint=did_you_mean(name, (*self.variables, *self.subsets)),
            span=span,
        )
