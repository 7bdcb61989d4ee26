"""What happens to a task in a micro-batch, whoever calls it."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns, time_ns

from ensue.archives.delta_writer import write_files
from ensue.archives.parquet_writer import AddedFile
from ensue.runtime.pipeline import Pipeline
from ensue.runtime.stage import (
    ArchiveBuffer,
    ArchiveWritingStage,
    LookupCounters,
    PipelineStage,
    SubscriptionVersion,
)
from ensue.runtime.tasks.load_shedding import DROPPED, FROM, TO, compute_share
from ensue.runtime.tasks.task import Task
from ensue.runtime.tasks.task_state import StoredTask, TaskCache, TaskStateStore
from ensue.runtime.tasks.watermark import fits_spark_watermark
from ensue.runtime.tasks.wire_format import (
    PackedTable,
    pack_files,
    pack_late_events,
    pack_outputs,
    pack_shed_keys,
)


def write_archive_files(task: Task, stage: PipelineStage) -> list[AddedFile]:
    """Writes the events that a task has released, if they are enough; none, if they are not."""
    asked = stage.archiving if isinstance(stage, ArchiveWritingStage) else None
    if asked is None or task.watermark is None or not isinstance(task.matcher, ArchiveBuffer):
        return []
    given = task.matcher.hand_over(task.watermark, asked.rows, asked.age)
    return (
        [] if given is None else write_files(asked.archive, given.events, given.first, "key_group")
    )


def get_lookup_counters(task: Task) -> LookupCounters:
    """What a task has read of archives so far, and what it keeps."""
    return (
        task.matcher.looked_up() if isinstance(task.matcher, ArchiveBuffer) else LookupCounters()
    )


@dataclass(frozen=True, slots=True)
class TaskCounters:
    """What a task did, and how large it is now."""

    events: int
    late: int
    before_cut: int  # the history, or the stream's own archive, had them
    matches: int
    partial_matches: int
    waiting: int  # events that the watermark has not passed
    state_bytes: int
    written_bytes: int
    rebuilt: int  # tasks that had to be built from the store
    probes: int  # reads of archives
    files_read: int
    rows_read: int
    recent: int  # events that are not in the stream's own archive yet
    archived: int  # events that are there from now on
    misses: int  # keys that were not in memory when an event of theirs came
    stored_keys: int  # that are not in memory
    stored_bytes: int  # of their events
    shed_events: int  # of keys that were given up, since the stream is behind
    shed_keys: int
    shed_partial_matches: int  # that went with them
    matching_us: int
    busy_us: int


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task delivers, and at which watermark (in milliseconds) it wants to be called."""

    sent: list[PackedTable]  # what it found, for those it goes to
    timer_before: int | None
    timer: int | None
    counters: TaskCounters


def run_task(
    store: TaskStateStore,
    chain: Pipeline,
    number: int,
    watermark_ms: int,
    blobs: Sequence[bytes] = (),
    next_ms: int | None = None,
    shelf: TaskCache = TaskCache(),  # noqa: B008  it has no state of its own
    oldest: float | None = None,
    newest_ms: int | None = None,
    *,
    require_no_gap: bool = False,
    wall_ms: int | None = None,
    place: int = 0,
    version: SubscriptionVersion | None = None,
) -> TaskResult:
    """Gives a task of a stage its events, lets its time pass, and keeps it in its store.

    `watermark_ms` is the watermark of the micro-batch. `next_ms` is the one that it brings about:
    what is late is not measured by it yet, but no event that is not late will come before it, so
    the task need not wait for the next micro-batch to match up to it. None: it is not known.

    `oldest` is the time of the oldest event of the micro-batch on any task, where the task is the
    one that has to `require_no_gap` between a history and the stream.

    `newest_ms` is that of the newest one. How far it is behind the clock, `wall_ms`, says whether
    keys are given up; once it is decided which, that is kept with the task.

    `place` is that of the task among those of its stage, `version` what is asked of it in this
    micro-batch, where that changes.
    """
    begun = perf_counter_ns()
    clock = chain.clock
    late_before = clock.watermark(watermark_ms)
    now = late_before if next_ms is None or next_ms <= watermark_ms > 0 else clock.time(next_ms)
    kept = StoredTask(store, chain, number, shelf, place)
    task, timer_before = kept.task, kept.head.timer
    opened = perf_counter_ns()
    waited, told, known = task.waiting_events, task.oldest, get_lookup_counters(task)
    asked = task.version
    if version is not None:
        task.renew(version)
    missed = task.spilled.misses
    if oldest is not None:
        task.tell_oldest(oldest)
    if require_no_gap:
        task.require_no_gap(now)
    behind = _share(task.limits.shed_ms, newest_ms, wall_ms)
    accepted = task.accept(blobs, late_before, behind)
    shed = accepted.shed
    found = task.release(now) if now is not None else []
    looked = get_lookup_counters(task).since(known)
    files = write_archive_files(task, chain.stages[number])
    matched = perf_counter_ns()
    due = task.due()
    timer = None if due is None else clock.timer(due)
    changed = blobs or any(t.num_rows for t in found) or task.waiting_events != waited
    changed = changed or task.oldest != told or task.version != asked
    # what only tasks and tasks know of the time is not in Spark's checkpoint
    changed = changed or (next_ms is not None and not fits_spark_watermark(next_ms))
    keys = None if shed.listed is None else shed.listed.drop_columns([FROM, TO, DROPPED])
    if changed or files or kept.fresh or timer != timer_before:
        written = kept.keep(late_before, blobs, timer, whole=bool(files), shed=keys)
    else:
        kept.remember()
        written = 0
    spilled = task.spilled
    counters = TaskCounters(
        events=accepted.events,
        late=accepted.late.num_rows,
        before_cut=accepted.before_cut + looked.before_cut,
        matches=task.stage.matches(found) if found else 0,
        partial_matches=task.partial_matches,
        waiting=task.waiting_events,
        state_bytes=task.state_bytes,
        written_bytes=written,
        rebuilt=int(kept.rebuilt),
        probes=looked.probes,
        files_read=looked.files,
        rows_read=looked.rows,
        recent=get_lookup_counters(task).recent,
        archived=sum(file.rows for file in files),
        misses=spilled.misses - missed,
        stored_keys=spilled.keys,
        stored_bytes=spilled.bytes,
        shed_events=shed.events,
        shed_keys=shed.keys,
        shed_partial_matches=shed.partial_matches,
        matching_us=(matched - opened) // 1_000,
        busy_us=(perf_counter_ns() - begun) // 1_000,
    )
    sent = list(pack_outputs(chain, number, found)) if found else []
    sent += pack_late_events(chain, accepted.late) if chain.deliver_late else ()
    sent += pack_files(chain, files)
    sent += pack_shed_keys(chain, shed.listed)
    return TaskResult(sent, timer_before, timer, counters)


def _share(shed_ms: int | None, newest_ms: int | None, wall_ms: int | None) -> float:
    """The share of keys that a task gives up now."""
    if shed_ms is None or newest_ms is None:
        return 0.0
    wall = time_ns() // 1_000_000 if wall_ms is None else wall_ms
    return compute_share(wall - newest_ms, shed_ms)
