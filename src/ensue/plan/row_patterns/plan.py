"""The plan of a MATCH_RECOGNIZE clause."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ensue.algebra.row_patterns.pattern import Exclusion, terms
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.row_patterns.values import MatchNumber, Reach
from ensue.computed import cached_property
from ensue.plan.row_patterns.automaton import Automaton, automaton_of
from ensue.plan.row_patterns.conditions import Conditions, conditions_of, shifts_of
from ensue.schema import Kind


@dataclass(frozen=True)
class RowPlan:
    """A clause that is checked against its table, and what follows from it.

    It is pure, and travels to other processes; kernels are made where it runs.
    """

    recognition: Recognition
    columns: Mapping[str, Kind]  # of the table

    @cached_property
    def automaton(self) -> Automaton:
        return automaton_of(self.recognition.pattern)

    @cached_property
    def conditions(self) -> tuple[Conditions, ...]:
        """By variable, in the order of the automaton."""
        return conditions_of(self.recognition)

    @property
    def decided_by_rows(self) -> bool:
        """Whether rows alone say to which variables they may be mapped."""
        return self.recognition.within is None and not any(c.matched for c in self.conditions)

    @property
    def excludes(self) -> bool:
        return any(isinstance(term, Exclusion) for term in terms(self.recognition.pattern))

    @cached_property
    def back(self) -> int:
        """How many rows before a match its conditions and measures look at."""
        return shifts_of(self._reaches())[0]

    @cached_property
    def ahead(self) -> int:
        """How many rows behind a row its conditions look at."""
        of_conditions = (r for d in self.recognition.defines for r in d.value.reaches)
        return shifts_of(of_conditions)[1]

    @cached_property
    def ahead_of_match(self) -> int:
        """How many rows behind a match its measures look at."""
        of_measures = (r for m in self.recognition.measures for r in m.value.reaches)
        return shifts_of(of_measures)[1]

    @property
    def awaited(self) -> int:
        """How many rows have to be there behind a row before it may end a match."""
        return max(self.ahead, self.ahead_of_match)

    @cached_property
    def counts_matches(self) -> bool:
        """Whether it asks for the number of a match."""
        return any(isinstance(reach, MatchNumber) for reach in self._reaches())

    def _reaches(self) -> Iterator[Reach]:
        for value in self.recognition.values:
            yield from value.reaches
