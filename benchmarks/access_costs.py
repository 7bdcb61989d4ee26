"""What reading an archive and joining with it takes: the table in `ensue/plan/access_costs.py`.

`python -m benchmarks.access_costs` prints it for this machine. Each figure is the slope, or what
is left at nothing, of processor time against one size; the best of some runs each.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import ensue
from ensue.archives.archive import Archive, ArchiveRead
from ensue.engine.sampling import sample_statistics
from ensue.operators.archive_join.archived_events import ArchiveRanges
from ensue.operators.archive_join.join_planner import compile_archive_join
from ensue.operators.archive_join.joining import CompiledArchiveJoin
from ensue.operators.match.match_operator import match_queries as all_matches
from ensue.options import Archives
from ensue.planner.access_paths import ArchiveCosts, ReadCosts
from ensue.planner.cost_model import Cardinalities, estimate_structure
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.live_matcher import LiveMatcher
from ensue.runtime.query_spec import open_archives
from ensue.vector.event_table import create_schema

ROWS, KEYS = 1_000_000, 1_000
PARTS, BUCKETS = 5, 4  # of the archive in files
NONE = "BB"  # a type that no event has, among those that they have
QUERY = """
SEQ(A a, B b) WHERE [key] and a.x < 0.1 and b.x < 0.1 WITHIN 5000
JOIN ARCHIVE past SEQ(C c, D d) WHERE [key] and c.x < {x} and d.x < {x} WITHIN 5000
RANGE 10000000 BEFORE START ON [key]"""
COLUMNS: dict[str, Any] = {"time": "t", "type": "type"}


def events(count: int, first: int = 0, keys: int = KEYS) -> pa.Table:
    random = np.random.default_rng(count)
    return pa.table(
        {
            "t": np.arange(first, first + count),
            "type": np.array(list("ABCD"))[random.integers(0, 4, count)],
            "key": random.integers(0, keys, count),
            "x": random.random(count),
        }
    )


def cpu(work: Callable[[], object], times: int = 7) -> float:
    """Microseconds of the best run."""
    best = float("inf")
    for _ in range(times):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best * 1e6


def slope(small: float, large: float, more: float) -> float:
    return max(0.0, (large - small) / more)


def read(archive: Archive, since: int, until: int, keys: int | None, types: str = "CD") -> tuple[float, int]:
    """One read of a stretch of time, of all objects or of some, and how much it found."""
    many = 1 if keys is None else keys
    asked = ArchiveRanges(
        None if keys is None else pa.array(np.arange(keys) * KEYS // keys),
        np.full(many, since), np.full(many, until),
    )  # fmt: skip
    named = frozenset([types] if types == NONE else types)
    wanted = ArchiveRead(asked.table(pa.int64(), "us"), None if keys is None else "key", named)
    found = archive.read(wanted).events.num_rows
    return cpu(lambda: archive.read(wanted)), found


def reading(archive: Archive, rows: int) -> ReadCosts:
    """Reads that differ in one thing each; those for a type that no event has find nothing."""
    stored = archive.layout().files
    part = rows // PARTS
    short, last = part // 100, rows - 1
    one, _ = read(archive, last - short, last, 1, NONE)
    longer, _ = read(archive, 0, last, 1, NONE)
    file = slope(one, longer, PARTS - 1) if stored else 0.0
    access = one - file
    opening = access + stored * file
    whole, _ = read(archive, 0, last, None, NONE)
    row = slope(opening, whole, rows)
    every, found = read(archive, 0, last, None)
    event = slope(whole, every, found)
    few, more = (read(archive, last - short, last, keys) for keys in (KEYS // 50, KEYS))
    asked = max(0.0, more[0] - few[0] - event * (more[1] - few[1]))
    listed = 0.0 if stored else asked / (rows * 49 // 50)
    piece = asked / (KEYS * 49 // 50) if stored else 0.0
    half, _ = read(archive, 0, last, KEYS // 2, NONE)
    looked = rows if stored else rows // 2
    picked = slope(opening + KEYS // 2 * piece, half, looked) - listed
    of_half, found = read(archive, 0, last, KEYS // 2)
    keyed = slope(half, of_half, found) - event
    return ReadCosts(access, file, row, max(0.0, picked), listed, event, max(0.0, keyed), piece)


def prepared(live: pa.Table, past: Archive, x: float, access: str) -> CompiledArchiveJoin:
    """A query over both, with more or fewer archived matches."""
    shape = create_schema(live.schema, time="t", type="type", order=())
    pasts = open_archives(Archives({"past": past}, access=access))
    query = ensue.parse(QUERY.format(x=x))
    assert isinstance(query, ensue.ArchiveJoinQuery)
    return compile_archive_join(query, shape, pasts, PlannerOptions())


def comparisons(prepared: CompiledQuery, table: pa.Table) -> float:
    """What the planner expects an event to cost, where it knows the stream."""
    plan = prepared.plan
    load = Cardinalities.estimate(plan.query, plan.roles, sample_statistics(prepared, table))
    return estimate_structure(plan.structure, plan.query, load).cost


def main() -> None:
    rows = ROWS
    table = events(rows)
    live = events(rows // 4, rows)
    memory = ensue.archive(table, **COLUMNS, key="key").pinned()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "past"
        day = rows // PARTS
        ensue.create_archive(place, table, **COLUMNS, key="key", buckets=BUCKETS, day=day)
        stored = reading(ensue.archive(place).pinned(), rows)
    in_memory = reading(memory, rows)

    few, many = (prepared(live, memory, x, "grouped") for x in (0.02, 1.0))
    lookup, fewer = many.joins[0].lookup, few.joins[0].lookup
    hundred, whole = table.slice(0, 100), table.filter(pa.array(_of_types(table, "CD")))
    lookup.matches(hundred)
    fewer.matches(hundred)
    call = cpu(lambda: fewer.matches(hundred))
    kernels = [cpu(lambda p=one.prepared: p.engine().process(whole), 5) for one in (fewer, lookup)]
    costs_of = [comparisons(one.prepared, table) for one in (fewer, lookup)]
    comparison = slope(*kernels, whole.num_rows * (costs_of[1] - costs_of[0]))
    others = table.filter(pa.array(_of_types(table, "AB")))
    scanned = cpu(lambda: fewer.prepared.engine().process(others), 5) / others.num_rows
    found = lookup.matches(whole)
    matched = cpu(lambda: lookup.matches(whole), 3)
    match = slope(kernels[1], matched, found.num_rows)
    half = prepared(live, memory, 0.5, "eager").joins[0].lookup.prepared
    fed = cpu(lambda: LiveMatcher(half).process(whole), 5)
    fed -= match * LiveMatcher(half).process(whole).num_rows
    used = fed / whole.num_rows - scanned - comparison * comparisons(half, table)
    found_live = all_matches((many.live,), live)[0]
    one = found_live.slice(0, 1)
    nothing = found.slice(0, 100)
    joining = many.joining
    join = cpu(lambda: joining.join(one, [nothing]))
    thousand = found_live.slice(0, 1)
    instance = slope(join, cpu(lambda: joining.join(thousand, [found]), 3), found.num_rows)
    early = found.slice(0, 20_000)
    pairs = joining.join(found_live, [early])
    paired = cpu(lambda: joining.join(found_live, [early]), 3)
    pair = (paired - join - early.num_rows * instance) / max(1, pairs.num_rows)
    value_set = pa.array(np.arange(0, KEYS, 8))
    admit = cpu(lambda: live.filter(pc.is_in(live.column("key"), value_set=value_set)))
    costs = ArchiveCosts(
        comparison=comparison,
        event=scanned,
        used=max(0.0, used),
        match=match,
        call=call,
        join=join,
        instance=instance,
        pair=max(0.0, pair),
        admit=admit / live.num_rows,
        memory=in_memory,
        stored=stored,
    )
    print("COSTS = Costs(")
    for name, value in asdict(costs).items():
        if isinstance(value, dict):
            inside = ", ".join(f"{n}={v:.3g}" for n, v in value.items())
            print(f"    {name}=Reading({inside}),")
        else:
            print(f"    {name}={value:.3g},")
    print(")")


def _of_types(table: pa.Table, types: str) -> np.ndarray:
    return np.isin(np.asarray(table.column("type")), list(types))


if __name__ == "__main__":
    main()
