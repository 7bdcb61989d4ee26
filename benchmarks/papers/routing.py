"""From one event to the matching ones of a million atoms.

`python -m benchmarks.papers.routing [--quick]`. Of the atoms 40 % ask for a type and an id, 30 %
for a type and a region, 20 % for a type, a range and a region, 10 % for a type and one or two
ranges; there are 20 types, 200,000 ids and four numbers, and regions are convex polygons of four
to eight corners, mostly some hundred metres wide, in a square of a thousand kilometres.

- *even*: atoms and events lie anywhere; *cities*: in 50 crowded places, ten matches an event.
- Beside them *trying all*, on fewer events: a compiled loop over the atoms of the event's type,
  whose rows lie as they were added, or copied type by type. What it finds for these events must be
  what routing finds.
- *changes*: single adds and cancels at full size, while the table grows; also with the texts of
  regions, whose reading and checking is then part of an add.

Time is that of the processor, for latencies too; of routing it is the best of some runs, from
Arrow tables to pairs of row and atom. Kernels are compiled before. The million regions' texts are
not read: they are laid out as arrays beforehand.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.console import Console

from benchmarks.machine import machine
from benchmarks.tables import Sheet
from ensue.ir.subscription import EventTest, Predicate, PredicateType, Region, RegionTest, SpatialRelation
from ensue.kernels.jit import kernel
from ensue.kernels.regions import point_test
from ensue.operators.subscriptions.atom_index import AtomIndex
from ensue.vector.event_table import StreamSchema, create_schema
from ensue.vector.geo_regions import Regions

RESULTS = Path(__file__).parent.parent / "results"
WORLD = 1_000_000.0  # metres
TYPES = [f"kind {k}" for k in range(20)]
IDS = 200_000
NUMBERS = [f"number{k}" for k in range(4)]
CITIES, SPREAD = 50, 3_300.0
SHARES = (0.4, 0.3, 0.2, 0.1)
ARITH, STRING = PredicateType.ARITH, PredicateType.STRING

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Points(NamedTuple):
    """Where events happened."""

    x: Floats
    y: Floats
    first: Ints


class Corners(NamedTuple):
    """Convex polygons: polygon k has the corners from `first[k]` up to `first[k + 1]`."""

    first: Ints
    x: Floats
    y: Floats


def spots(random: np.random.Generator, count: int, cities: Floats | None) -> tuple[Floats, Floats]:
    """Anywhere, or around cities."""
    if cities is None:
        return random.uniform(0, WORLD, count), random.uniform(0, WORLD, count)
    home = cities[random.integers(0, len(cities), count)]
    return home[:, 0] + random.normal(0, SPREAD, count), home[:, 1] + random.normal(0, SPREAD, count)


def polygons(random: np.random.Generator, count: int, cities: Floats | None) -> Corners:
    radius = np.exp(random.normal(np.log(400), 1.2, count)).clip(20, 40_000)
    x, y = spots(random, count, cities)
    corners = random.integers(4, 9, count)
    first = np.zeros(count + 1, np.int64)
    np.cumsum(corners, out=first[1:])
    own = np.repeat(np.arange(count), corners)
    place = np.arange(first[-1]) - first[own]
    angle = 2 * np.pi * (place + random.uniform(0, 0.6, first[-1])) / corners[own]
    return Corners(first, x[own] + radius[own] * np.cos(angle), y[own] + radius[own] * 0.7 * np.sin(angle))


def regions_of(corners: Corners) -> Regions:
    """A table of the polygons, called 0, 1, ..."""
    first, x, y = corners
    count = len(first) - 1
    sizes = np.diff(first)
    rows = np.zeros((count, 10))
    rows[:, 1] = np.minimum.reduceat(x, first[:-1])
    rows[:, 2] = np.minimum.reduceat(y, first[:-1])
    rows[:, 3] = np.maximum.reduceat(x, first[:-1])
    rows[:, 4] = np.maximum.reduceat(y, first[:-1])
    rows[:, 5:7] = (rows[:, 1:3] + rows[:, 3:5]) / 2
    begins = first[:-1] + 2 * np.arange(count)  # a ring has a head, and its first corner twice
    rows[:, 8], rows[:, 9] = begins, 1
    rings = np.zeros((first[-1] + 2 * count, 2))
    rings[begins, 0] = sizes + 1
    own = np.repeat(np.arange(count), sizes)
    places = begins[own] + 1 + np.arange(first[-1]) - first[own]
    rings[places, 0], rings[places, 1] = x, y
    rings[begins + 1 + sizes] = rings[begins + 1]
    names = [str(k).encode() for k in range(count)]
    return Regions.from_arrays(
        "plane",
        {
            "rows": rows,
            "corners": rings,
            "uses": np.ones(count, np.int64),
            "text_offsets": np.cumsum([0, *map(len, names)], dtype=np.int64),
            "texts": np.frombuffer(b"".join(names), np.uint8),
        },
    )


def text_of(corners: Corners, k: int) -> str:
    begin, end = corners.first[k], corners.first[k + 1]
    ring = [*range(begin, end), begin]
    return f"POLYGON (({', '.join(f'{corners.x[c]} {corners.y[c]}' for c in ring)}))"


def atoms_of(random: np.random.Generator, kinds: Ints, region: Callable[[int], str]) -> Iterator[EventTest]:
    """Atoms of the four kinds; `region` gives the text of the n-th region."""
    count = len(kinds)
    types = [Predicate(STRING, "type", "=", name) for name in TYPES]
    columns = [
        kinds,
        random.integers(0, len(TYPES), count),
        random.integers(0, IDS, count),
        random.integers(0, len(NUMBERS), count),
        random.uniform(0, 100, count),
        random.uniform(5, 60, count),
        np.exp(random.normal(np.log(0.05), 1.0, count)),
        random.random(count) < 0.5,
        random.uniform(0, 80, count),
    ]
    used = 0
    for kind, type, id, number, low, wide, narrow, both, other in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        asked, places = [types[type]], ()
        if kind == 0:
            asked.append(Predicate(ARITH, "id", "=", id))
        if kind >= 2:
            asked += _between(NUMBERS[number], low, low + (wide if kind == 2 else narrow))
        if kind == 3 and both:
            asked += _between(NUMBERS[(number + 1) % len(NUMBERS)], other, other + 20)
        if kind in (1, 2):
            places = (RegionTest(SpatialRelation.INSIDE, Region(region(used))),)
            used += 1
        yield EventTest(tuple(asked), places)


def _between(name: str, low: float, high: float) -> list[Predicate]:
    return [Predicate(ARITH, name, ">=", low), Predicate(ARITH, name, "<=", high)]


def events_of(random: np.random.Generator, count: int, cities: Floats | None) -> tuple[pa.Table, Points]:
    types = random.integers(0, len(TYPES), count).astype(np.int32)
    table = pa.table(
        {
            "t": np.arange(count),
            "kind": pa.DictionaryArray.from_arrays(types, pa.array(TYPES)),
            "id": random.integers(0, IDS, count),
            **{name: random.uniform(0, 100, count) for name in NUMBERS},
        }
    )
    return table, Points(*spots(random, count, cities), np.arange(count + 1))


def shape() -> StreamSchema:
    events, _ = events_of(np.random.default_rng(0), 1, None)
    return create_schema(events.schema, time="t", type="kind", order=())


@kernel(nogil=True)
def _loop(rows: Any, order: Any, begins: Any, regions: Any, types: Any, ids: Any, numbers: Any, x: Any, y: Any) -> Any:
    """Tries the atoms of each event's type: id, ranges, box, and at last the region."""
    found = np.empty(1024, np.int64)
    n = 0
    for e in range(len(types)):
        for at in range(begins[types[e]], begins[types[e] + 1]):
            k = order[at]
            if rows[k, 0] >= 0 and rows[k, 0] != ids[e]:
                continue
            passed = True
            for field in range(1, 7, 3):
                if rows[k, field] >= 0:
                    value = numbers[e, int(rows[k, field])]
                    if value < rows[k, field + 1] or value > rows[k, field + 2]:
                        passed = False
            if passed and rows[k, 7] >= 0:
                passed = (
                    rows[k, 8] <= x[e]
                    and x[e] <= rows[k, 10]
                    and rows[k, 9] <= y[e]
                    and y[e] <= rows[k, 11]
                    and point_test(regions, int(rows[k, 7]), 0, 0, 0.0, 0.0, x[e], y[e], 0)
                )
            if passed:
                if n == len(found):
                    more = np.empty(2 * n, np.int64)
                    more[:n] = found
                    found = more
                found[n] = (e << 32) | k
                n += 1
    return found[:n]


def loop_rows(wanted: Sequence[EventTest], regions: Regions) -> tuple[Floats, Ints]:
    """The atoms as rows of a table for the loop, and their types."""
    rows = np.full((len(wanted), 12), -1.0)
    types = np.empty(len(wanted), np.int64)
    for row, atom, k in zip(rows, wanted, range(len(wanted)), strict=True):
        type, *others = atom.predicates
        types[k] = TYPES.index(str(type.value))
        if others and others[0].name == "id":
            row[0] = others.pop(0).value
        for place, (low, high) in enumerate(_pairs(others)):
            row[1 + 3 * place : 4 + 3 * place] = NUMBERS.index(low.name), low.value, high.value
        for test in atom.places:
            row[7] = int(test.region.text)
            row[8:] = regions.table.rows[int(test.region.text), 1:5]
    return rows, types


def _pairs(predicates: Sequence[Predicate]) -> Iterator[tuple[Predicate, Predicate]]:
    return zip(predicates[::2], predicates[1::2], strict=True)


def try_all(
    wanted: Sequence[EventTest], regions: Regions, events: pa.Table, places: Points
) -> tuple[dict[str, float], set[tuple[int, int]]]:
    """Processor seconds of both loops, and the pairs they find."""
    rows, types = loop_rows(wanted, regions)
    order = np.argsort(types, kind="stable")
    begins = np.searchsorted(types[order], np.arange(len(TYPES) + 1))
    asked = (
        begins,
        regions.table,
        events["kind"].chunk(0).indices.to_numpy(),
        events["id"].to_numpy(),
        np.stack([events[name].to_numpy() for name in NUMBERS], 1),
        places.x,
        places.y,
    )
    seconds, found = {}, []
    for name, arranged, listed in (("as added", rows, order), ("type by type", rows[order], np.arange(len(rows)))):
        _loop(arranged[:1], listed[:1], np.zeros_like(begins), *asked[1:])  # compiled
        began = time.process_time()
        pairs = _loop(arranged, listed, *asked)
        seconds[name] = time.process_time() - began
        atoms = pairs & 0xFFFFFFFF if name == "as added" else order[pairs & 0xFFFFFFFF]
        found.append(set(zip((pairs >> 32).tolist(), atoms.tolist(), strict=True)))
    assert found[0] == found[1]
    return seconds, found[0]


def spread(name: str, atoms: int, events: int, tried: int, times: int) -> dict[str, Any]:
    """One distribution of atoms and events: built, routed, compared with trying all."""
    random = np.random.default_rng(1)
    cities = random.uniform(0, WORLD, (CITIES, 2)) if name == "cities" else None
    kinds = random.choice(4, atoms, p=SHARES)
    regions = regions_of(polygons(random, int(np.isin(kinds, (1, 2)).sum()), cities))
    wanted = list(atoms_of(random, kinds, str))
    index = AtomIndex(shape(), regions, 0)
    began = time.process_time()
    slots = index.add_many(wanted)
    build = time.process_time() - began
    assert slots.tolist() == list(range(atoms))
    table, places = events_of(np.random.default_rng(2), events, cities)
    index.route(table.slice(0, 10), None)  # compiled
    seconds, pairs = [], 0
    before = index.get_counters()
    for _ in range(times):
        began = time.process_time()
        rows, _ = index.route(table, places)
        seconds.append(time.process_time() - began)
        pairs = len(rows)
    hits = [(b - a) / events / times for a, b in zip(before, index.get_counters(), strict=True)]
    fewer = table.slice(0, tried)
    peers, expected = try_all(wanted, regions, fewer, places)
    rows, slots = index.route(fewer, places)
    assert set(zip(rows.tolist(), slots.tolist(), strict=True)) == expected, "other matches"
    result = {
        "name": name,
        "atoms": atoms,
        "events": events,
        "matches": pairs,
        "matches_per_event": pairs / events,
        "build_cpu_seconds": build,
        "cpu_seconds": min(seconds),
        "events_per_second": events / min(seconds),
        "per_event": dict(zip(index.get_counters()._fields, hits, strict=True)),
        "bytes_per_atom": (index.nbytes + regions.nbytes) / atoms,
        "tried": {
            name: {
                "events": tried,
                "matches": len(expected),
                "cpu_seconds": peer,
                "events_per_second": tried / peer,
                "ratio": (events / min(seconds)) / (tried / peer),
            }
            for name, peer in peers.items()
        },
        "one_event_us": one_at_a_time(index, table, places, min(2_000, events)),
    }
    del wanted
    gc.collect()
    gc.freeze()  # what a benchmark keeps of its own is not searched for garbage
    if name == "even":
        result["changes"] = changes(index, random, atoms)
    return result


def one_at_a_time(index: AtomIndex, table: pa.Table, places: Points, count: int) -> dict[str, Any]:
    taken = []
    for k in range(count):
        event, place = table.slice(k, 1), Points(places.x[k:], places.y[k:], np.arange(2))
        began = time.thread_time()
        index.route(event, place)
        taken.append(time.thread_time() - began)
    return percentiles(taken)


def changes(index: AtomIndex, random: np.random.Generator, atoms: int) -> dict[str, Any]:
    """Single adds until the table has grown, and cancels of as many others."""
    count = max(2_000, atoms // 12)
    kinds = random.choice(4, count, p=SHARES)
    corners = polygons(random, int(np.isin(kinds, (1, 2)).sum()), None)
    new = list(atoms_of(random, kinds, lambda k: text_of(corners, k)))
    size = len(index._arrays["keys"])
    adds, apart, grown = [], [], 0
    for atom in new:
        clock = time.thread_time()
        rows = [index._regions.add(test.region) for test in atom.places]  # type: ignore[union-attr]
        read = time.thread_time() - clock
        clock = time.thread_time()
        index.add(atom)  # its regions are known by now
        taken = time.thread_time() - clock
        apart.append(taken)
        adds.append(taken + read)
        for row in rows:
            index._regions.release(row)  # type: ignore[union-attr]
        grown += index._arrays.growing
    cancels = []
    for slot in random.permutation(atoms)[:count].tolist():
        clock = time.thread_time()
        index.cancel(slot)
        cancels.append(time.thread_time() - clock)
    return {
        "count": count,
        "while_growing": grown,
        "table_grew": len(index._arrays["keys"]) > size,
        "add_us": percentiles(adds),
        "add_without_reading_regions_us": percentiles(apart),
        "cancel_us": percentiles(cancels),
    }


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    p50, p99, most = np.percentile(seconds, [50, 99, 100]) * 1e6
    return {"p50": p50, "p99": p99, "max": most}


def sheets(report: dict[str, Any]) -> list[Sheet]:
    spreads, changed = report["spreads"], report["spreads"][0]["changes"]
    return [
        Sheet(
            f"{spreads[0]['atoms']:,} atoms, one core",
            ("", "events/s", "matches an event", "over trying all", "laid out by type", "bytes an atom"),
            tuple(
                (
                    row["name"],
                    f"{row['events_per_second']:,.0f}",
                    f"{row['matches_per_event']:.1f}",
                    f"{row['tried']['as added']['ratio']:,.0f}x",
                    f"{row['tried']['type by type']['ratio']:,.0f}x",
                    f"{row['bytes_per_atom']:.0f}",
                )
                for row in spreads
            ),
        ),
        Sheet(
            "One at a time, microseconds",
            ("", "p50", "p99", "most"),
            tuple(
                (name, *(f"{figures[p]:,.0f}" for p in ("p50", "p99", "max")))
                for name, figures in (
                    ("add", changed["add_us"]),
                    ("add, regions read before", changed["add_without_reading_regions_us"]),
                    ("cancel", changed["cancel_us"]),
                    ("route an event", spreads[0]["one_event_us"]),
                )
            ),
        ),
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer atoms and events")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    atoms, events, tried = (20_000, 10_000, 50) if options.quick else (1_000_000, 200_000, 300)
    report: dict[str, Any] = {
        "machine": machine(),
        "quick": options.quick,
        "counted": "processor seconds from Arrow tables to pairs; kernels compiled before",
        "spreads": [spread(name, atoms, events, tried, 3) for name in ("even", "cities")],
    }
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "papers_routing.json"
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for sheet in sheets(report):
        Console().print(sheet.rich())


if __name__ == "__main__":
    main()
