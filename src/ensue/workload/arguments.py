"""What a call says of its events and of how to run, beside the query: the same on all runners."""

from dataclasses import dataclass

from ensue.algebra.query import Query
from ensue.columns.stream import Shape, located
from ensue.errors import EventError
from ensue.plan.planning import DEFAULT, Planning
from ensue.workload.query_names import Name, Names, speaking_of
from ensue.workload.timed_out import Bundle, bundle

USUAL = "usual"  # what an argument is by default, where it can be kept


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Where time, type, order and place of events are, and how a query is run over them."""

    time: str | tuple[str, str]
    type: str | None = None
    order: tuple[str, ...] = ()
    location: str | None = None
    bad_events: str = "raise"
    emit_timeouts: bool = False
    planning: Planning = DEFAULT

    def __post_init__(self) -> None:
        if self.bad_events not in ("raise", "drop"):
            raise EventError(f"bad_events is 'raise' or 'drop', not {self.bad_events!r}")

    def bundle(self, query: Query, shape: Shape, *, streaming: bool = False) -> Bundle:
        """A query made ready for events of a shape."""
        return bundle(
            query,
            located(shape, self.location),
            self.planning,
            emit_timeouts=self.emit_timeouts,
            streaming=streaming,
        )


def bundles_of(
    queries: Names, shape: Shape, given: Arguments, *, streaming: bool = False
) -> dict[Name, Bundle]:
    """Queries made ready, or an error that says which cannot be."""
    found = {}
    for name, query in queries.items():
        with speaking_of(name):
            found[name] = given.bundle(query, shape, streaming=streaming)
    return found
