"""A result while it is put together: where its events, times and values are found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ensue.algebra.predicate import Aggregate, At, Field
from ensue.plan.physical_rules.features import Place
from ensue.source.expressions import Feature, Text
from ensue.source.kernel_inputs import Frame
from ensue.structures.tree.records import Records


class Bound(Protocol):
    """The event of a variable."""

    @property
    def row(self) -> str: ...

    def time(self, which: str) -> str: ...

    def feature(self, feature: Feature) -> Text: ...


@dataclass(frozen=True, slots=True)
class AtHand:
    """The event that has just come."""

    frame: Frame

    @property
    def row(self) -> str:
        return "row"

    def time(self, which: str) -> str:
        return {"start": "s", "end": "t"}[which]

    def feature(self, feature: Feature) -> Text:
        return self.frame.value(feature), self.frame.ok(feature)


@dataclass(frozen=True, slots=True)
class Kept:
    """An event that an entry of the arena knows: it is the event, or holds it among others."""

    records: Records
    list: str
    variable: str
    node: str
    alone: bool

    @property
    def row(self) -> str:
        if self.alone:
            return self.records.get("row", self.node)
        return self.records.kept_row(self.list, self.variable, self.node)

    def time(self, which: str) -> str:
        if self.alone:
            return self.records.get(which, self.node)
        return self.records.kept_time(self.list, self.variable, which, self.node)

    def feature(self, feature: Feature) -> Text:
        return self.records.kept_feature(self.list, self.variable, feature, self.node)


@dataclass(frozen=True, slots=True)
class Part:
    """A result of a node. Its last event is the one at hand, or it stands in the arena."""

    events: Mapping[str, Bound]  # of plain variables
    chains: Mapping[str, str]  # of Kleene variables: the entry of the chain; "-1": no events
    first: str  # the row of its first event
    last: str  # of its last one
    start: str
    end: str
    index: str  # the partition's count at its first event, where events are counted
    rip: str = "-1"
    begins: str = ""  # as the operator's F says; empty: its start
    ends: str = ""
    head: str = ""  # the row that counts where it begins, if several parts begin at that time
    tail: str = ""  # likewise where it ends
    # what operators say of their results, by the name of the result and of the attribute
    attributes: Mapping[tuple[str, str], Callable[[], str]] = field(default_factory=dict)

    @property
    def opens(self) -> str:
        return self.begins or self.start

    @property
    def closes(self) -> str:
        return self.ends or self.end

    @property
    def heads(self) -> str:
        return self.head or self.first

    @property
    def tails(self) -> str:
        return self.tail or self.last

    # -------------------------------------------------------------------------- conditions

    def feature(self, place: Place, feature: Feature) -> Text:
        variable, at, _ = place
        assert at is At.ONLY
        return self.events[variable].feature(feature)

    def aggregate(self, aggregate: Aggregate, feature: Feature | None) -> Text:
        match aggregate.argument:
            case Field(variable=variable, name=str(name)) if feature is None:
                return self.attributes[variable, name](), None
            case None if aggregate.variable in self.events:
                return "1", None  # no match goes without one of its plain events
        raise AssertionError(f"no aggregates in a join tree: {aggregate} {feature}")
