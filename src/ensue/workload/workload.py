"""A workload: what is asked of a stream of events, and the plan by which it is found.

It is a DAG. Its nodes are the source of the events and what is matched: queries, and layers of
events that others are made of. Nodes that find all they need in the lanes of one key are a stage,
stages that give each other events a chain, and what comes out are named outputs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ensue.algebra.operator import Operator
from ensue.archives.contract import Archive
from ensue.computed import cached_property
from ensue.errors import QueryError
from ensue.workload.asked import Asked
from ensue.workload.chain import Chain
from ensue.workload.correlations.prepared import NO_PAST, Pasts
from ensue.workload.kept_works import kept_works
from ensue.workload.planned import Wishes, stages_with_archive
from ensue.workload.source import Source
from ensue.workload.stage import Output, Reads, split, types_of
from ensue.workload.text import read, text_of
from ensue.workload.work import Work


@dataclass(frozen=True)
class Workload:
    """Queries over one stream. It is planned once; other processes get the plan."""

    asked: tuple[Asked, ...]
    source: Source
    wishes: Wishes = Wishes()  # noqa: RUF009  it is frozen
    lanes: int = 1  # of a stage that has a key
    deliver_late: bool = False
    pasts: Pasts = NO_PAST

    @property
    def alone(self) -> bool:
        """Whether it is one query of its own, not one of a list."""
        return len(self.asked) == 1 and self.asked[0].name is None

    @cached_property
    def works(self) -> tuple[Work, ...]:
        return kept_works(self.asked, self.source, self.wishes, self.pasts)

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        found = (output for work in self.works for output in work.outputs)
        return tuple(sorted(found, key=lambda output: output.number))

    @property
    def types(self) -> frozenset[str] | None:
        """The types of events that matter. None: all of them."""
        return types_of(work.reads for work in self.works)

    @cached_property
    def chains(self) -> tuple[Chain, ...]:
        """The stages that lanes run, as chains that do not wait for each other."""
        found: list[Chain] = []
        read: tuple[Reads, ...] = ()
        several = [stages for work in self.works for stages in work.chains()]
        if self.wishes.streaming and self.pasts.own is not None:
            if len(several) > 1:
                raise QueryError(
                    "archive= goes with queries that share one key: events that several lanes "
                    "have would be archived several times",
                    hint="ask for the others in a call of their own, without archive=",
                )
            several = [stages_with_archive(several[0], self.source, self.pasts)]
        for stages in several:
            numbers = {output.asked for stage in stages for output in stage.outputs}
            asked = tuple(one for one in self.asked if one.number in numbers)
            lanes = self.lanes if any(map(split, stages)) else 1
            found.append(
                Chain(
                    asked,
                    self.source,
                    stages,
                    lanes,
                    text_of(asked, self.source, self.wishes, lanes, self.pasts),
                    self.deliver_late,
                    read,
                )
            )
            read = (*read, *(stage.reads for stage in stages))
        return tuple(found)

    # ---------------------------------------------------------------------------- its past

    def owning(self, name: str, archive: Archive) -> "Workload":
        """The same where the events belong to an archive."""
        return replace(self, pasts=self.pasts.owning(name, archive))

    def renewed(self) -> "Workload":
        """The same where the archive that the events belong to ends as it does now."""
        return replace(self, pasts=self.pasts.renewed())

    # ---------------------------------------------------------------------------- as text

    @property
    def text(self) -> str:
        """What a saved state of all of it is known by."""
        return text_of(self.asked, self.source, self.wishes, 1, self.pasts)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of all stages; `read` gives the workload back."""
        return tuple(
            chain.stage_text(number)
            for chain in self.chains
            for number in range(len(chain.stages))
        )

    @classmethod
    def read(cls, texts: Iterable[str], operators: Iterable[Operator] = ()) -> "Workload":
        """The workload of a stream, from the texts of its stages.

        Operators of users are known by name and must be the same ones.
        """
        return cls(**read(texts, operators))
