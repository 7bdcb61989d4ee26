"""A pipeline drives the matchers of stages; its plan is what Spark's tasks receive."""

import hashlib
import math
import pickle
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ensue.cached import cached_property
from ensue.engine.memory_budget import Usage, sum_usage
from ensue.runtime.query_spec import QuerySpec, pickle_by_value
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import (
    ARRIVAL,
    ArchiveReadingStage,
    InputFilter,
    OutputTable,
    PipelineStage,
    RoutingStage,
    StageInput,
    StageMatcher,
    TableMatcher,
    is_partitioned,
    union_types,
)
from ensue.runtime.tasks.watermark import WatermarkClock

if TYPE_CHECKING:
    from ensue.archives.archive import Archive

Found = list[pa.Table]  # the result of a matcher


def run_to_end(matcher: TableMatcher, batch: StageInput) -> Found:
    """Returns the result of all events of a table or of a key group."""
    return _concat_pairs(matcher.process(batch), matcher.on_watermark(math.inf))


def _concat_pairs(first: Found, last: Found) -> Found:
    """Concatenates the results of a matcher; [] is none."""
    if not first or not last:
        return first or last
    pairs = zip(first, last, strict=True)
    return [
        pa.concat_tables(pair) if pair[0].num_rows and pair[1].num_rows else pair[not pair[0].num_rows]
        for pair in pairs
    ]


class Pipeline:
    """Drives the matchers of stages that read the same events.

    A live stream, a task of a Spark stream and the service feed it batch by batch, in stream order.
    """

    def __init__(self, stages: Sequence[PipelineStage], key_group: int = 0, key_groups: int = 1) -> None:
        self.stages = tuple(stages)
        self._key_groups = key_group, key_groups
        self.matchers = self._create_matchers()
        self._outputs = {output.number: output for stage in stages for output in stage.outputs}
        self._fresh = True  # whether the matchers are empty

    def _create_matchers(self) -> list[StageMatcher]:
        return [stage.matcher(*self._key_groups) for stage in self.stages]

    def process(self, batch: StageInput, now: float | None = None, *, always: bool = False) -> list[Found]:
        """Returns the matches that the next events and then the watermark `now` complete.

        A matcher hears of a watermark that completes nothing only if `always` is set.
        """
        self._fresh = False
        results = []
        for matcher in self.matchers:
            found = matcher.process(batch) if batch.events.num_rows or batch.complex_events else []
            due = matcher.next_timer()
            if now is not None and (always or (due is not None and due < now)):
                found = _concat_pairs(found, matcher.on_watermark(now))
            results.append(found)
        return results

    def iterate_outputs(self, results: Sequence[Found]) -> Iterator[tuple[OutputTable, pa.Table]]:
        """The delivered tables of a result, in their delivered form."""
        for stage, found in zip(self.stages, results, strict=True):
            for number, table in stage.iterate_outputs(found) if found else ():
                yield self._outputs[number], self._outputs[number].convert(table)

    def next_timer(self) -> float | None:
        """The watermark after which there are matches without further events; None: none."""
        return min((t for m in self.matchers if (t := m.next_timer()) is not None), default=None)

    @property
    def usage(self) -> Usage:
        return sum_usage(matcher.usage for matcher in self.matchers)

    def snapshot(self) -> dict[str, bytes]:
        """The serialized state of each matcher."""
        return {f"part {k}": matcher.snapshot() for k, matcher in enumerate(self.matchers)}

    def restore(self, blobs: Mapping[str, bytes]) -> None:
        """Restores serialized matchers; changes nothing if one of them cannot be restored."""
        # empty matchers are reused: large ones are slow to create
        matchers = self.matchers if self._fresh else self._create_matchers()
        try:
            for k, matcher in enumerate(matchers):
                matcher.restore(blobs[f"part {k}"])
        except BaseException:
            if self._fresh:
                self.matchers = self._create_matchers()
            raise
        self.matchers, self._fresh = matchers, False


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
