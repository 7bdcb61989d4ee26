"""What reading an archive and joining with it takes: the table in `ensue/plan/access_costs.py`.

`python -m benchmarks.access_costs` prints it for this machine. Each figure is the slope, or what
is left at nothing, of processor time against one size; the best of some runs each.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import ensue
from ensue.archives.contract import Archive, Wanted
from ensue.columns.stream import shape_of
from ensue.engine.sampling import sampled
from ensue.plan.access_costs import Costs, Reading
from ensue.plan.estimates.estimates import estimate
from ensue.plan.estimates.load import Load
from ensue.plan.planning import Planning
from ensue.workload.correlations.pieces import Asked
from ensue.workload.correlations.prepare import Wanted as Way
from ensue.workload.correlations.prepare import prepare_correlation
from ensue.workload.correlations.prepared import PreparedCorrelation, pasts_of
from ensue.workload.prepared import Prepared
from ensue.workload.queries.work import matched as all_matches

FILES, OF_A_FILE, KEYS = 16, 65_536, 1_000
QUERY = """
SEQ(A a, B b) WHERE [key] and a.x < 0.1 and b.x < 0.1 WITHIN 5000
JOIN ARCHIVE past SEQ(C c, D d) WHERE [key] and c.x < {x} and d.x < {x} WITHIN 5000
RANGE 10000000 BEFORE START ON [key]"""
COLUMNS = {"time": "t", "type": "type"}


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


def read(archive: Archive, since: int, until: int, keys: int | None) -> tuple[float, pa.Table]:
    """One read of a stretch of time, and what it found."""
    many = 1 if keys is None else keys
    asked = Asked(
        None if keys is None else pa.array(np.arange(keys)),
        np.full(many, since), np.full(many, until),
    )  # fmt: skip
    wanted = Wanted(asked.table(pa.int64(), "us"), None if keys is None else "key")
    return cpu(lambda: archive.read(wanted)), archive.read(wanted).events


def reading(archive: Archive, rows: int, files: int) -> Reading:
    """Four reads that differ in one thing each."""
    part = rows // max(files, 16)
    least, _ = read(archive, 0, 99, 1)
    one, _ = read(archive, 0, part - 1, 1)
    more, _ = read(archive, 0, rows // 2 - 1, 1)
    row = slope(one, more, rows // 2 - part) if not files else 0.0
    of_a_file = 0.0
    if files:
        row = slope(least, one, part - 8_192)
        of_a_file = max(0.0, slope(one, more, files / 2 - 1) - row * part)
    every, found = read(archive, 0, rows // 2 - 1, None)
    looked = every - more
    access = max(0.0, least - of_a_file)
    return Reading(access, of_a_file, row, max(0.0, looked / found.num_rows))


def prepared(live: pa.Table, past: Archive, x: float, access: str) -> PreparedCorrelation:
    """A query over both, with more or fewer archived matches."""
    shape = shape_of(live.schema, time="t", type="type", order=())
    pasts = pasts_of({"past": past}, None)
    query = ensue.parse(QUERY.format(x=x))
    assert isinstance(query, ensue.Correlation)
    return prepare_correlation(query, shape, pasts, Planning(), Way(access))


def comparisons(prepared: Prepared, table: pa.Table) -> float:
    """What the planner expects an event to cost, where it knows the stream."""
    plan = prepared.plan
    load = Load.of(plan.query, plan.roles, sampled(prepared, table))
    return estimate(plan.structure, plan.query, load).cost


def main() -> None:
    rows = FILES * OF_A_FILE
    table = events(rows)
    live = events(rows // 4, rows)
    memory = ensue.archive(table, **COLUMNS, key="key").pinned()
    with tempfile.TemporaryDirectory() as folder:
        for k in range(FILES):
            part = table.slice(k * OF_A_FILE, OF_A_FILE)
            pq.write_table(part, Path(folder) / f"{k:03}.parquet", row_group_size=8_192)
        stored = reading(ensue.archive(folder, **COLUMNS, key="key").pinned(), rows, FILES)
    in_memory = reading(memory, rows, 0)

    few, many = (prepared(live, memory, x, "grouped") for x in (0.02, 1.0))
    lookup, fewer = many.joins[0].lookup, few.joins[0].lookup
    hundred, whole = table.slice(0, 100), table.filter(pa.array(_of_types(table, "CD")))
    lookup.matches(hundred)
    fewer.matches(hundred)
    call = cpu(lambda: fewer.matches(hundred))
    kernels = [cpu(lambda p=one.prepared: p.engine().feed(whole), 5) for one in (fewer, lookup)]
    costs_of = [comparisons(one.prepared, table) for one in (fewer, lookup)]
    comparison = slope(*kernels, whole.num_rows * (costs_of[1] - costs_of[0]))
    found = lookup.matches(whole)
    matched = cpu(lambda: lookup.matches(whole), 3)
    found_live = all_matches((many.live,), live).tables[0]
    one = found_live.slice(0, 1)
    nothing = found.slice(0, 100)
    joining = many.joining
    join = cpu(lambda: joining.joined(one, [nothing]))
    thousand = found_live.slice(0, 1)
    instance = slope(join, cpu(lambda: joining.joined(thousand, [found]), 3), found.num_rows)
    early = found.slice(0, 20_000)
    pairs = joining.joined(found_live, [early])
    paired = cpu(lambda: joining.joined(found_live, [early]), 3)
    pair = (paired - join - early.num_rows * instance) / max(1, pairs.num_rows)
    asked_few, asked_many = (read(memory, 0, 999, keys)[0] for keys in (1, KEYS))
    value_set = pa.array(np.arange(0, KEYS, 2))
    admit = cpu(lambda: pc.is_in(live.column("key"), value_set=value_set)) / live.num_rows
    costs = Costs(
        comparison=comparison,
        event=max(0.0, kernels[0] / whole.num_rows - comparison * costs_of[0]),
        match=slope(kernels[1], matched, found.num_rows),
        call=call,
        join=join,
        instance=instance,
        pair=max(0.0, pair),
        piece=slope(asked_few, asked_many, KEYS - 1),
        admit=admit,
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
