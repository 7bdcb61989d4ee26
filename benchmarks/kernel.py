"""The kernel alone: events come scanned, matches are counted and dropped."""

import math
from dataclasses import dataclass

import pyarrow as pa

import ensue
from benchmarks.timing import Clock, Runs, repeated
from benchmarks.workloads import Workload
from ensue.backends.dataframe_libs import read_event_table
from ensue.codegen.kernel_inputs import OUT_TOP
from ensue.engine.engine import Engine
from ensue.engine.scan import ScannedBatch
from ensue.runtime.compiled_query import CompiledQuery, compile_query
from ensue.runtime.stage import SLICE_ROWS
from ensue.vector.event_table import split_table
from ensue.vector.key_codes import KeyCodes


@dataclass(frozen=True, slots=True)
class Compiled:
    """A query ready to run, and how long its kernel took to compile."""

    prepared: CompiledQuery
    seconds: float


@dataclass(slots=True)
class _Replay:
    """Stands in for the scan of an engine: gives what was scanned before, piece by piece."""

    pieces: list[ScannedBatch]
    keys: KeyCodes
    place: int = 0
    known: int = 0  # codes: there are none to forget

    def __call__(self, _: pa.Table) -> ScannedBatch:
        self.place += 1
        return self.pieces[self.place - 1]


def compiled(workload: Workload, events: pa.Table, symbols: int) -> Compiled:
    """Plans and compiles a query; compiling is not part of what is measured later."""
    _, shape = read_event_table(events, time="ts", type=workload.type)
    prepared = compile_query(ensue.parse(workload.text(symbols)), shape)
    clock = Clock()
    with clock:
        prepared.engine().process(events.slice(0, 1_000))
    return Compiled(prepared, clock.seconds)


def measured(prepared: CompiledQuery, events: pa.Table, times: int) -> Runs:
    """The time of the compiled loops: neither scanning nor taking out matches."""
    pieces = split_table(events, SLICE_ROWS)
    first = _engine(prepared)
    scanned = [first.scan(piece) for piece in pieces]

    def run() -> tuple[Clock, int]:
        engine = _engine(prepared)
        engine.scan = _Replay(scanned, first.scan.keys)  # type: ignore[assignment]
        found = _count_and_drop(engine)
        clock = Clock()
        with clock:
            for piece in pieces:
                engine.process(piece)
            engine.on_watermark(math.inf)
        return clock, sum(found)

    return repeated(run, times)


def _engine(prepared: CompiledQuery) -> Engine:
    engine = prepared.engine()
    assert isinstance(engine, Engine), "this query has no kernel"
    return engine


def _count_and_drop(engine: Engine) -> list[int]:
    found: list[int] = []

    def drop() -> None:
        meta = engine.state.meta
        found.append(int(meta[OUT_TOP]))
        meta[OUT_TOP] = 0

    engine.drain = drop  # type: ignore[method-assign]
    return found
