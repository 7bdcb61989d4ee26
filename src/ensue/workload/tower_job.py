"""A tower over a stream, described so that any process can do its part of it."""

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa

from ensue.algebra.operator import Operator
from ensue.algebra.query import Query
from ensue.algebra.tower import Definition, Top, Tower
from ensue.algebra.walk import results
from ensue.columns.stream import Columns, Shape
from ensue.computed import cached_property
from ensue.languages.printing import show
from ensue.plan.planning import DEFAULT, Planning
from ensue.workload.arguments import Arguments
from ensue.workload.pickled_queries import arrived, carried
from ensue.workload.prepare_tower import prepare_tower
from ensue.workload.prepared_tower import PreparedTower
from ensue.workload.query_names import Name
from ensue.workload.stages import PreparedStage, prepare_stages, types_that_matter
from ensue.workload.stream_job import OfEvents, events_again, query_again

_MOST_JOBS = 8
_ready: OrderedDict[str, tuple[PreparedTower, tuple[PreparedStage, ...]]] = OrderedDict()


@dataclass(frozen=True)
class TowerJob(OfEvents):
    """Everything a lane needs to know; what it makes ready is kept where it runs."""

    tower: Tower
    arrow: pa.Schema  # of the events that come in
    time: str | tuple[str, str]
    type: str | None
    order: tuple[str, ...]
    location: str | None
    by_type: Mapping[str, Columns] | None
    lanes: int
    levels: tuple[str, ...] | str | None = None
    trace: bool = False
    streaming: bool = False
    deliver_late: bool = False
    planning: Planning = DEFAULT
    emit_timeouts: bool = False

    def __getstate__(self) -> dict[str, Any]:
        tower = self.tower
        lower = [(d.name, carried(d.query)) for d in tower.definitions]
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        tops = [(top.label, carried(top.query), top.emit) for top in tower.tops]
        return state | {
            "tower": (lower, carried(tower.query), tower.emit, tops),
            "text": self.text,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        lower, top, emit, others = state["tower"]
        definitions = tuple(Definition(name, arrived(query)) for name, query in lower)
        tops = tuple(Top(label, arrived(query), own) for label, query, own in others)
        self.__dict__.update(state, tower=Tower(definitions, arrived(top), emit, tops=tops))

    @property
    def prepared(self) -> PreparedTower:
        return self._made_ready[0]

    @property
    def stages(self) -> tuple[PreparedStage, ...]:
        return self._made_ready[1]

    @property
    def _made_ready(self) -> tuple[PreparedTower, tuple[PreparedStage, ...]]:
        if self.text not in _ready:
            prepared = prepare_tower(
                self.tower, self.shape, self.planning,
                levels=self.levels, trace=self.trace, streaming=self.streaming,
                emit_timeouts=self.emit_timeouts,
            )  # fmt: skip
            _ready[self.text] = prepared, prepare_stages(prepared)
            while len(_ready) > _MOST_JOBS:
                _ready.popitem(last=False)
        return _ready[self.text]

    @property
    def types(self) -> frozenset[str] | None:
        """The types of events that come in and matter. None: all of them."""
        return types_that_matter(self.stages)

    @property
    def delivered(self) -> dict[str, pa.Schema]:
        """The results by level, the query on top last."""
        return self.prepared.delivered

    @property
    def named(self) -> dict[Name, pa.Schema]:
        return dict(self.delivered.items())

    def lanes_of(self, number: int) -> int:
        """How many lanes a stage has."""
        return self.lanes if self.stages[number].stage.key else 1

    # ---------------------------------------------------------------------------- as text

    @cached_property
    def text(self) -> str:
        """The job as text; `read_tower` gives it back."""
        tower = self.tower
        tops = [(top.label, show(top.query), top.emit) for top in tower.tops]
        used = {
            applied.operator.name: applied.operator.fingerprint
            for query in tower.queries
            for applied in results(query.pattern)
        }
        return json.dumps(
            {
                "definitions": {d.name: show(d.query) for d in tower.definitions},
                "query": show(tower.query),
                "emit": tower.emit,
                **({"tops": tops} if tops else {}),
                "levels": self.levels,
                "trace": self.trace,
                **self.described(),
                "lanes": self.lanes,
                **({} if self.planning == DEFAULT else {"planning": self.planning.described()}),
                "streaming": self.streaming,
                **({"emit_timeouts": True} if self.emit_timeouts else {}),
                "arrow": self.columns,
                "operators": used,
            }
        )

    def stage_text(self, number: int) -> str:
        """What a checkpoint knows a stage by."""
        return json.dumps({**json.loads(self.text), "stage": number})


def read_tower(text: str, operators: Iterable[Operator] = ()) -> TowerJob:
    """The job of a text. Its operators are known by name and must be the same ones."""
    job: dict[str, Any] = json.loads(text)
    operators = tuple(operators)

    def query(written: str) -> Query:
        return query_again(written, job["operators"], operators)

    definitions = tuple(Definition(n, query(d)) for n, d in job["definitions"].items())
    tops = tuple(Top(label, query(q), tuple(emit)) for label, q, emit in job.get("tops", ()))
    levels = job["levels"]
    return TowerJob(
        Tower(definitions, query(job["query"]), tuple(job["emit"]), tops=tops),
        **events_again(job),
        lanes=job["lanes"],
        levels=tuple(levels) if isinstance(levels, list) else levels,
        trace=job["trace"],
        streaming=job["streaming"],
        planning=Planning.of(job.get("planning")),
        emit_timeouts=job.get("emit_timeouts", False),
    )


def tower_job(
    tower: Tower,
    shape: Shape,
    given: Arguments,
    lanes: int,
    *,
    levels: Sequence[str] | str | None = None,
    trace: bool = False,
    streaming: bool = False,
    deliver_late: bool = False,
) -> TowerJob:
    """The job of a call. Where no stage has a key there is one lane."""
    asked = levels if levels is None or isinstance(levels, str) else tuple(levels)
    job = TowerJob(
        tower, shape.arrow, given.time, given.type, given.order, given.location, shape.by_type,
        lanes, asked, trace, streaming, deliver_late, given.planning,
    )  # fmt: skip
    return job if any(stage.stage.key for stage in job.stages) else replace(job, lanes=1)
