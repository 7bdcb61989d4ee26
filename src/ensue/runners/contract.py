"""What a runner is: it reads events of its world, and runs a workload over them."""

from collections.abc import Mapping
from typing import Any, Protocol

from ensue.algebra.query import Query
from ensue.plan.estimates.statistics import Statistics
from ensue.workload.arguments import Arguments
from ensue.workload.query_names import Name
from ensue.workload.source import Source
from ensue.workload.workload import Workload


class Runner(Protocol):
    """A module that runs workloads: `local`, `spark.batch`, `spark.stream`."""

    @property
    def STREAMING(self) -> bool:  # noqa: N802  a constant of the module
        """Whether events keep coming."""

    def read(self, events: Any, given: Arguments, /) -> tuple[Any, Source]:
        """The events as one table or frame of the runner's world, and what is known of them."""

    def lanes(self, frame: Any, given: Arguments, /) -> int:
        """How many lanes a stage has that a key splits."""

    def run(self, workload: Workload, frame: Any, given: Arguments, /) -> Mapping[Name, Any]:
        """The outputs of a workload by name."""

    def measured(
        self, events: Any, query: Query, given: Arguments, /, *, sample: int, seed: int
    ) -> Statistics:
        """What the events look like to a query."""
