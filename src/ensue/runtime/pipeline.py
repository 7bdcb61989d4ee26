"""Stages one behind the other: complex events go from each to the later ones."""

import hashlib
import pickle
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ensue.cached import cached_property
from ensue.runtime.query_spec import QuerySpec, pickle_by_value
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import (
    ARRIVAL,
    ArchiveReadingStage,
    InputFilter,
    OutputTable,
    PipelineStage,
    RoutingStage,
    is_partitioned,
    union_types,
)
from ensue.runtime.tasks.watermark import WatermarkClock

if TYPE_CHECKING:
    from ensue.archives.archive import Archive

_MOST_KEPT = 8
_kept: "OrderedDict[bytes, Pipeline]" = OrderedDict()  # that came to this process


@dataclass(frozen=True)
class Pipeline:
    """A part of a workload that no other part waits for, planned: all that a task has to know."""

    asked: tuple[QuerySpec, ...]
    source: SourceSchema
    stages: tuple[PipelineStage, ...]
    key_groups: int  # of a stage that has a key
    text: str  # what a checkpoint knows it by
    deliver_late: bool = False
    before: tuple[InputFilter, ...] = ()  # what earlier chains of the workload read

    @property
    def clock(self) -> WatermarkClock:
        return self.source.clock

    @property
    def outputs(self) -> tuple[OutputTable, ...]:
        """What its stages deliver."""
        return tuple(output for stage in self.stages for output in stage.outputs)

    @property
    def types(self) -> frozenset[str] | None:
        """The types of events that come in and matter. None: all of them."""
        return union_types(stage.reads for stage in self.stages)

    @property
    def split_by_spark(self) -> bool:
        """Whether Spark itself says to which key group an event goes, and key groups count their events.

        Where complex events go from stage to stage, their key groups are found out in Python.
        """
        return self.stages[0].arrival == (ARRIVAL,)

    @property
    def grouped_by(self) -> str:
        """The column by which Spark groups what goes to key groups. Checkpoints know it."""
        return "key_group" if self.split_by_spark else "through"

    @property
    def spreads(self) -> RoutingStage | None:
        """Its first stage, if that says itself where events go: then it is the only one."""
        first = self.stages[0]
        return first if isinstance(first, RoutingStage) else None

    def count_key_groups(self, number: int) -> int:
        """How many key groups a stage has."""
        return self.key_groups if is_partitioned(self.stages[number]) else 1

    def with_archives(self, number: int, archives: "Mapping[str, Archive]") -> "Pipeline":
        """The same, where a stage looks things up in other archives of these names."""
        stage = self.stages[number]
        assert isinstance(stage, ArchiveReadingStage)
        stages = list(self.stages)
        stages[number] = stage.with_archives(archives)
        return replace(self, stages=tuple(stages))

    def read_before(self, number: int) -> Sequence[InputFilter]:
        """What stages before read, of this chain and of earlier ones."""
        return (*self.before, *(stage.reads for stage in self.stages[:number]))

    def stage_text(self, number: int) -> str:
        """What a checkpoint knows a stage by."""
        from ensue.runtime.job_fingerprint import format_stage

        return format_stage(self.text, number)

    def __reduce__(self) -> tuple[Any, tuple[bytes, bytes]]:
        """It travels with its plan, and once: a process knows it by its digest."""
        return _arrived, (hashlib.sha256(self._packed).digest(), self._packed)

    @cached_property
    def _packed(self) -> bytes:
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        if not any(True for one in self.asked for _ in one.operators):
            return pickle.dumps(state)
        from numba import cloudpickle

        with pickle_by_value(self.asked):
            return bytes(cloudpickle.dumps(state))


def _arrived(digest: bytes, packed: bytes) -> Pipeline:
    found = _kept.get(digest)
    if found is None:
        found = _kept[digest] = Pipeline(**pickle.loads(packed))
        while len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(digest)
    return found
