"""The plan of a pipeline: stages, which send complex events to later stages."""

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

_MAX_CACHED = 8
_cache: "OrderedDict[bytes, PipelinePlan]" = OrderedDict()  # unpickled in this process, by digest


@dataclass(frozen=True)
class PipelinePlan:
    """An independent part of a workload's plan, sent to its tasks."""

    specs: tuple[QuerySpec, ...]
    source: SourceSchema
    stages: tuple[PipelineStage, ...]
    key_groups: int  # of a partitioned stage
    text: str  # identifies it in a checkpoint
    deliver_late: bool = False
    before: tuple[InputFilter, ...] = ()  # the input of earlier pipelines of the workload

    @property
    def clock(self) -> WatermarkClock:
        return self.source.clock

    @property
    def outputs(self) -> tuple[OutputTable, ...]:
        return tuple(output for stage in self.stages for output in stage.outputs)

    @property
    def types(self) -> frozenset[str] | None:
        """The types of its input events. None: all types."""
        return union_types(stage.reads for stage in self.stages)

    @property
    def split_by_spark(self) -> bool:
        """Whether Spark assigns key groups, and tasks number their events.

        The key groups of complex events are assigned in Python.
        """
        return self.stages[0].arrival == (ARRIVAL,)

    @property
    def grouped_by(self) -> str:
        """The column by which Spark groups the input of tasks; part of checkpoints."""
        return "key_group" if self.split_by_spark else "through"

    @property
    def spreads(self) -> RoutingStage | None:
        """Its first and only stage, if that routes events itself."""
        first = self.stages[0]
        return first if isinstance(first, RoutingStage) else None

    def count_key_groups(self, number: int) -> int:
        return self.key_groups if is_partitioned(self.stages[number]) else 1

    def with_archives(self, number: int, archives: "Mapping[str, Archive]") -> "PipelinePlan":
        """The pipeline with other archives of the same names in a stage."""
        stage = self.stages[number]
        assert isinstance(stage, ArchiveReadingStage)
        stages = list(self.stages)
        stages[number] = stage.with_archives(archives)
        return replace(self, stages=tuple(stages))

    def read_before(self, number: int) -> Sequence[InputFilter]:
        """The input of earlier stages, of this pipeline and of earlier ones."""
        return (*self.before, *(stage.reads for stage in self.stages[:number]))

    def stage_text(self, number: int) -> str:
        """The text that identifies a stage in a checkpoint."""
        from ensue.runtime.job_fingerprint import format_stage

        return format_stage(self.text, number)

    def __reduce__(self) -> tuple[Any, tuple[bytes, bytes]]:
        """A process unpickles a plan once, and caches it by its digest."""
        return _unpickle, (hashlib.sha256(self._packed).digest(), self._packed)

    @cached_property
    def _packed(self) -> bytes:
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        if not any(True for spec in self.specs for _ in spec.operators):
            return pickle.dumps(state)
        from numba import cloudpickle

        with pickle_by_value(self.specs):
            return bytes(cloudpickle.dumps(state))


def _unpickle(digest: bytes, packed: bytes) -> PipelinePlan:
    if digest not in _cache:
        _cache[digest] = PipelinePlan(**pickle.loads(packed))
        while len(_cache) > _MAX_CACHED:
            _cache.popitem(last=False)
    _cache.move_to_end(digest)
    return _cache[digest]
