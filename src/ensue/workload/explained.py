"""How a query or a tower is run: its plan in words, with its kernels, analysed, as a picture.

Without events, the columns are assumed that its expressions ask for.
"""

import pyarrow as pa

from ensue.algebra.query import Query
from ensue.algebra.tower import Tower
from ensue.columns.stream import Shape
from ensue.engine.shown_kernel import shown_kernel, told_of_compiling
from ensue.plan.assume import assumed_schema, plan_without_events
from ensue.plan.physical import Plan
from ensue.plan.planning import Planning
from ensue.plan.show.explain import explain
from ensue.plan.show.explain_memory import told_of_memory
from ensue.plan.show.picture import picture
from ensue.workload.analysed import analysed_query
from ensue.workload.prepared import Prepared, prepare
from ensue.workload.relevance import types_that_matter
from ensue.workload.towers.analysed import analysed_tower
from ensue.workload.towers.explained import assumed_shape, explained, pictured
from ensue.workload.towers.prepare import prepare_tower
from ensue.workload.towers.prepared import PreparedTower
from ensue.workload.towers.work import TowerWork
from ensue.workload.whole_results import matches_of, told_of_whole


class Explained:
    """A query that is looked at, with the shape of its events if it is known."""

    def __init__(self, asked: Query | Tower, shape: Shape | None, planning: Planning) -> None:
        asked, self.finishing = matches_of(asked)
        self.asked = asked
        self.planning = planning
        self.prepared: Prepared | PreparedTower | None = None
        if isinstance(asked, Tower):
            known = assumed_shape(asked) if shape is None else shape
            self.prepared = prepare_tower(asked, known, planning)
        elif shape is not None:
            self.prepared = prepare(asked, shape, planning)

    @property
    def types(self) -> frozenset[str] | None:
        """The types of events that matter. None: all of them."""
        match self.prepared:
            case PreparedTower():
                return TowerWork(self.prepared, ()).reads.types
            case Prepared():
                return types_that_matter((self.prepared,))
            case None:
                return None

    def told(self) -> str:
        """The plan in words."""
        limits = self.planning.limits
        if not limits.evicting:
            return self._plan_told()
        match self.prepared:
            case PreparedTower():
                memory = told_of_memory(None, limits)
            case Prepared(plan=plan):
                memory = told_of_memory(plan, limits)
            case None:
                memory = told_of_memory(self._assumed(), limits)
        return f"{self._plan_told()}\n\n{memory}"

    def _plan_told(self) -> str:
        last = () if self.finishing is None else (told_of_whole(self.finishing),)
        return "\n\n".join([self._matches_told(), *last])

    def _matches_told(self) -> str:
        match self.prepared:
            case PreparedTower():
                return explained(self.prepared)
            case Prepared(plan=plan, shape=shape):
                schema = self.prepared.physical[1]
                return "\n\n".join([explain(plan), *told_of_compiling(plan, schema, shape.unit)])
            case None:
                assert isinstance(self.asked, Query)
                plan, schema = self._assumed(), assumed_schema(self.asked)
                return "\n\n".join([explain(plan), *told_of_compiling(plan, schema, "us")])

    def analysed(self, ordered: pa.Table) -> str:
        """The same, with what was counted in events that are in the order of the stream."""
        assert self.prepared is not None
        match self.prepared:
            case PreparedTower():
                return analysed_tower(self.prepared, ordered)
            case Prepared():
                return analysed_query(self.prepared, ordered)

    def kernels(self) -> str:
        """The source of its kernel, or of the kernel of each layer."""
        match self.prepared:
            case PreparedTower(layers=layers):
                flat = [p.prepared if p.opened is None else p.opened.flat for p in layers]
                return "\n\n\n".join(map(_kernel, flat))
            case Prepared():
                return _kernel(self.prepared)
            case None:
                assert isinstance(self.asked, Query)
                return shown_kernel(self._assumed(), assumed_schema(self.asked))

    def picture(self) -> str:
        """The plan as a drawing."""
        match self.prepared:
            case PreparedTower():
                return pictured(self.prepared)
            case Prepared(plan=plan):
                return picture(plan)
            case None:
                return picture(self._assumed())

    def _assumed(self) -> Plan:
        assert isinstance(self.asked, Query)
        return plan_without_events(self.asked, self.planning)


def _kernel(prepared: Prepared) -> str:
    _, schema = prepared.shape.physical(prepared.query)
    return shown_kernel(prepared.plan, schema, prepared.shape.unit)
