"""Runs a task for one micro-batch."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns, time_ns

from ensue.archives.delta_writer import write_files
from ensue.archives.parquet_writer import AddedFile
from ensue.runtime.pipeline import PipelinePlan
from ensue.runtime.stage import ArchiveBuffer, ArchiveWritingStage, IsolatingMatcher, LookupCounters, PipelineStage
from ensue.runtime.tasks.load_shedding import DROPPED, FROM, TO, compute_share
from ensue.runtime.tasks.task import Task
from ensue.runtime.tasks.task_state import StoredTask, TaskCache, TaskStateStore, TaskStep
from ensue.runtime.tasks.watermark import fits_spark_watermark
from ensue.runtime.tasks.wire_format import (
    Control,
    ControlMessage,
    Message,
    StepInput,
    StreamClock,
    pack_files,
    pack_late_events,
    pack_outputs,
    pack_shed_keys,
)


def write_archive_files(task: Task, stage: PipelineStage) -> list[AddedFile]:
    """Writes the recent events of a task to the stream's archive, if there are enough."""
    sink = stage.archiving if isinstance(stage, ArchiveWritingStage) else None
    if sink is None or task.watermark is None or not isinstance(task.matcher, ArchiveBuffer):
        return []
    batch = task.matcher.hand_over(task.watermark, sink.rows, sink.age)
    if batch is None:
        return []
    return write_files(sink.archive, batch.events, batch.first, "key_group")


def get_lookup_counters(task: Task) -> LookupCounters:
    """The archive reads of a task so far, and its recent events."""
    matcher = task.matcher
    return matcher.get_lookup_counters() if isinstance(matcher, ArchiveBuffer) else LookupCounters()


@dataclass(frozen=True, slots=True)
class TaskCounters:
    """The counters of a task in a micro-batch, and its current size."""

    events: int
    late: int
    before_cut: int  # part of the history, or of the stream's own archive
    matches: int
    partial_matches: int
    waiting: int  # events after the watermark
    state_bytes: int
    written_bytes: int
    rebuilt: int  # tasks that were rebuilt from the store
    probes: int  # reads of archives
    files_read: int
    rows_read: int
    recent: int  # events that are not in the stream's own archive yet
    archived: int  # events that were archived now
    misses: int  # spilled keys that an event arrived for
    stored_keys: int  # spilled keys
    stored_bytes: int  # of their events
    shed_events: int
    shed_keys: int
    shed_partial_matches: int
    matching_us: int
    busy_us: int


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The output of a task, and the watermark (in milliseconds) of its next timer."""

    sent: list[Message]
    timer_before: int | None
    timer: int | None
    counters: TaskCounters


def run_task(
    store: TaskStateStore,
    chain: PipelinePlan,
    number: int,
    watermark_ms: int,
    blobs: Sequence[bytes] = (),
    next_ms: int | None = None,
    cache: TaskCache = TaskCache(),  # noqa: B008  it has no state of its own
    of_batch: StreamClock = StreamClock(),  # noqa: B008  it is frozen
    *,
    steps: Sequence[StepInput] = (),
    require_no_gap: bool = False,
    wall_ms: int | None = None,
    place: int = 0,
) -> TaskResult:
    """Feeds events to a task, advances its watermark, and stores it.

    `watermark_ms` is the watermark of the micro-batch, which decides which events are late.
    `next_ms` is the watermark after it: later events will not be earlier, so the task can match up
    to it already. None: it is unknown.

    `of_batch` has the oldest and newest events of the micro-batch on any task. The oldest one is
    for the task that has to `require_no_gap` between history and stream, the newest one decides,
    compared with `wall_ms`, whether keys are shed.

    `steps` are those of a sender, which decides watermark and version of each, in place of all of that.

    `place` is the number of the task in its stage.
    """
    begun = perf_counter_ns()
    clock = chain.clock
    late_before = clock.watermark(watermark_ms)
    now = late_before if next_ms is None or next_ms <= watermark_ms > 0 else clock.time(next_ms)
    stored = StoredTask(store, chain, number, cache, place)
    task, timer_before = stored.task, stored.head.timer
    opened = perf_counter_ns()
    before = task.waiting_events, task.oldest, task.version
    lookups, misses = get_lookup_counters(task), task.spilled.misses
    share = 0.0
    if task.limits.shed_ms is not None and of_batch.newest_ms is not None:
        wall_ms = time_ns() // 1_000_000 if wall_ms is None else wall_ms
        share = compute_share(wall_ms - of_batch.newest_ms, task.limits.shed_ms)
    given = [TaskStep(s.blobs, None, s.clock.watermark, s.clock.version, in_order=True) for s in steps]
    given = given or [TaskStep(blobs, late_before, now, of_batch.version, of_batch.oldest, shed=share)]
    results = stored.process(given)
    task, shed = stored.task, results[-1][0].shed  # a sender sheds nothing
    accepted, found = [a for a, _ in results], [f for _, f in results]
    if require_no_gap:
        task.require_no_gap(now)
    looked = get_lookup_counters(task).subtract(lookups)
    files = write_archive_files(task, chain.stages[number])
    matched = perf_counter_ns()
    due = None if steps else task.due()
    timer = None if due is None else clock.timer(due)
    changed = bool(blobs or steps) or any(t.num_rows for tables in found for t in tables)
    changed |= (task.waiting_events, task.oldest, task.version) != before
    # a watermark beyond Spark's is not in Spark's checkpoint
    changed |= next_ms is not None and not fits_spark_watermark(next_ms)
    if not steps:
        keys = 0.0 if shed.listed is None else shed.listed.drop_columns([FROM, TO, DROPPED])
        given = [replace(given[0], watermark=task.watermark, shed=keys)]
    if changed or files or stored.fresh or timer != timer_before:
        written = stored.keep(given, timer, whole=bool(files))
    else:
        stored.remember()
        written = 0
    spilled, usage = task.spilled, task.usage
    counters = TaskCounters(
        events=sum(a.events for a in accepted),
        late=sum(a.late.num_rows for a in accepted),
        before_cut=sum(a.before_cut for a in accepted) + looked.before_cut,
        matches=sum(task.stage.matches(tables) for tables in found if tables),
        partial_matches=usage.partial_matches,
        waiting=task.waiting_events,
        state_bytes=usage.state_bytes,
        written_bytes=written,
        rebuilt=int(stored.rebuilt),
        probes=looked.probes,
        files_read=looked.files,
        rows_read=looked.rows,
        recent=get_lookup_counters(task).recent,
        archived=sum(file.rows for file in files),
        misses=spilled.misses - misses,
        stored_keys=spilled.keys,
        stored_bytes=spilled.bytes,
        shed_events=shed.events,
        shed_keys=shed.keys,
        shed_partial_matches=shed.partial_matches,
        matching_us=(matched - opened) // 1_000,
        busy_us=(perf_counter_ns() - begun) // 1_000,
    )
    sent: list[Message] = []
    for step, tables in enumerate(found):
        packed = list(pack_outputs(chain, number, tables)) if tables else []
        if steps and (packed or step == len(steps) - 1):  # whose results follow
            sent.append(ControlMessage(len(chain.stages), 0, Control.CLOCK, steps[step].clock.pack()))
        sent += packed
        sent += pack_late_events(chain, accepted[step].late) if chain.deliver_late else ()
    if isinstance(task.matcher, IsolatingMatcher) and (report := task.matcher.report()):
        sent.append(ControlMessage(len(chain.stages), 0, Control.SUBSCRIPTIONS, json.dumps(report).encode()))
    sent += pack_files(chain, files)
    sent += pack_shed_keys(chain, shed.listed)
    return TaskResult(sent, timer_before, timer, counters)
