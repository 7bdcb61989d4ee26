"""Routing finds what trying all atoms finds, after any changes."""

import math
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ensue.errors import EventError, QueryError, StateError
from ensue.ir.subscription import (
    EventTest,
    Predicate,
    PredicateType,
    Region,
    RegionTest,
    SpatialRelation,
    VariableField,
)
from ensue.operators.subscriptions import atom_index as arrays
from ensue.operators.subscriptions.atom_index import AtomIndex
from ensue.vector.event_table import unite_tables
from ensue.vector.geo_regions import Regions
from support.routing import SCHEMA, SPACES, Corners, atom, change_at_random, check, event, index_of, routed, shape

ARITH, STRING, BOOL, TIME = PredicateType

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


def asks(*predicates: tuple, places: tuple = ()) -> EventTest:
    return EventTest(tuple(Predicate(*p) for p in predicates), places)


def inside(text: str) -> RegionTest:
    return RegionTest(SpatialRelation.INSIDE, Region(text))


def given(**fields) -> dict:
    return {name: fields.get(name) for name in SCHEMA.names} | {"t": 0}


@pytest.mark.parametrize("space", [0, 1])
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("seed", range(6))
def test_routing_equals_trying_all_whatever_is_added_cancelled_and_saved(
    seed: int, space: int, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(arrays, "_STEP", 256)  # arrays grow often
    assert change_at_random(seed, space, tmp_path, 12) > 0


@pytest.mark.slow
@pytest.mark.parametrize("space", [0, 1])
@pytest.mark.parametrize("seed", range(100, 160))
def test_routing_equals_trying_all_in_more_random_rounds(seed: int, space: int, tmp_path: Path) -> None:
    assert change_at_random(seed, space, tmp_path, 30) > 0


# ---- values


@pytest.mark.parametrize(
    ("field", "operator", "constant", "fits", "others"),
    [
        ("id", "=", 2**53 + 1, [2**53 + 1], [2**53, 2**53 + 2, None]),
        ("id", "=", 2.0**53, [2**53], [2**53 + 1]),
        ("id", "<", 2.0**53, [2**53 - 1], [2**53]),
        ("id", "=", -(2**63), [-(2**63)], [None, 0]),
        ("id", "<=", -(2**63), [-(2**63)], [None, 0]),
        ("id", "!=", 2**63 - 1, [-(2**63), 0], [2**63 - 1, None]),
        ("id", ">", 17.5, [18], [17, None]),
        ("id", "=", 17.5, [], [17, 18]),
        ("id", "!=", 17.5, [17, 18], [None]),
        ("id", "<", 1e300, [2**63 - 1], [None]),
        ("id", "<", math.inf, [2**63 - 1, -(2**63)], [None]),
        ("id", ">", math.nan, [], [0]),
        ("id", "!=", math.nan, [0], [None]),
        ("id", "IN", (1, 2.5, 4.0, None), [1, 4], [2, 3, None]),
        ("small", "<", 10**40, [7], [None]),
        ("speed", "=", 0, [0.0, -0.0], [5e-324, None, math.nan]),
        ("speed", "=", -0.0, [0.0, -0.0], []),
        ("speed", "=", 2**53 + 1, [], [2.0**53]),
        ("speed", "<=", 2**53 + 1, [2.0**53, -math.inf], [2.0**53 + 2, math.nan]),
        ("speed", "<", math.inf, [1e308, -math.inf], [math.inf, math.nan, None]),
        ("speed", ">=", math.inf, [math.inf], [1e308, math.nan]),
        ("speed", "!=", 1.5, [math.nan, math.inf, 0.0], [1.5, None]),
        ("speed", "IN", (1.5, math.nan), [1.5], [math.nan, None]),
        ("speed", ">", 10**400, [math.inf], [1e308]),
        ("id", "<", 10**400, [2**63 - 1], [None]),
        ("speed", "=", None, [], [0.0, None]),
        ("speed", "!=", None, [], [0.0, None]),
    ],
)
def test_numbers_compare_exactly(field, operator, constant, fits, others) -> None:
    index = index_of(asks((ARITH, field, operator, constant)))
    values = [*fits, *others]
    found = routed(index, [given(**{field: value}) for value in values])
    assert found == [(row, 0) for row in range(len(fits))]


def test_texts_that_no_atom_asks_for_satisfy_unequal_alone() -> None:
    index = index_of(
        asks((STRING, "name", "=", "anna")),
        asks((STRING, "name", "!=", "anna")),
        asks((STRING, "name", "LIKE", "%nn%")),
        asks((STRING, "name", ">", "b"), (STRING, "name", "<=", "bob")),
    )
    events = [given(name=name) for name in ("anna", "unseen", None, "bob", "bobby", "b")]
    assert routed(index, events) == [(0, 0), (0, 2), (1, 1), (3, 1), (3, 3), (4, 1), (5, 1)]


def test_contradictions_never_match() -> None:
    never = [
        asks((ARITH, "id", "=", 1), (ARITH, "id", "=", 2)),
        asks((STRING, "kind", "=", "van"), (STRING, "kind", "!=", "van")),
        asks((STRING, "kind", "IN", ("a", "b")), (STRING, "kind", "=", "c")),
        asks((ARITH, "speed", "<", 1), (ARITH, "speed", ">", 1)),
        asks((ARITH, "id", "IN", ())),
    ]
    index = index_of(*never)
    rng = random.Random(1)
    assert routed(index, [event(rng) for _ in range(50)] + [given(id=1, kind="van")]) == []
    for slot in range(len(never)):
        index.cancel(slot)
    assert len(index) == 0


def test_type_means_the_type_column_where_no_column_is_called_so() -> None:
    index = index_of(asks((STRING, "type", "=", "van")))
    assert routed(index, [given(kind="van"), given(kind="bus")]) == [(0, 0)]
    schema = SCHEMA.append(pa.field("type", pa.string()))
    index = index_of(asks((STRING, "type", "=", "x")), of=shape(schema))
    events = pa.Table.from_pylist([given(kind="x") | {"type": "y"}, given(kind="y") | {"type": "x"}], schema)
    assert index.route(events, None)[0].tolist() == [1]


def test_fields_of_several_tables_are_found_in_their_columns() -> None:
    tables = {
        "van": pa.table({"t": [1, 2], "id": [5, 6], "mark": ["a", "b"]}),
        "bus": pa.table({"t": [3], "id": [5], "mark": [7]}),
    }
    events, of = unite_tables(tables, time="t", order=())
    index = index_of(asks((ARITH, "id", "=", 5)), asks((ARITH, "id", "=", 5), (STRING, "type", "=", "bus")), of=of)
    assert [part.tolist() for part in index.route(events, None)] == [[0, 2, 2], [0, 0, 1]]
    with pytest.raises(QueryError, match="different kinds"):
        index.add(asks((ARITH, "mark", "=", 7)))


@pytest.mark.parametrize("power", [-1074, -1022, -60, 0, 52, 53, 62, 63, 500, 1000, 1023])
def test_ranges_of_any_size_and_place(power: int) -> None:
    unit = 2.0**power
    bounds = [(-unit, unit), (unit, math.nextafter(unit, math.inf)), (-1.7e308, 1.7e308)]
    index = index_of(*(asks((ARITH, "speed", ">=", low), (ARITH, "speed", "<=", high)) for low, high in bounds))
    values = [v for pair in bounds for v in pair] + [0.0, unit / 2, -unit / 2, 1e-310, 3e307]
    expected = [
        (row, slot)
        for row, value in enumerate(values)
        for slot, (low, high) in enumerate(bounds)
        if low <= value <= high
    ]
    assert routed(index, [given(speed=value) for value in values]) == expected
    for slot in range(3):
        index.cancel(slot)
    assert index._arrays["table_state"][arrays.predicate_index_hash.ENTRIES] == 0


def test_no_events_and_no_atoms() -> None:
    empty = pa.Table.from_pylist([], SCHEMA)
    assert [len(part) for part in index_of().route(empty, None)] == [0, 0]
    assert routed(index_of(), [given(id=1)]) == []
    index = index_of(asks((ARITH, "id", "=", 1)), asks(places=(inside("CIRCLE (0 0, 5)"),)))
    assert [len(part) for part in index.route(empty, Corners([]))] == [0, 0]
    assert routed(index, [given(id=1)]) == [(0, 0)]  # no places, so no region test holds


def test_an_event_is_found_in_any_slice(monkeypatch) -> None:
    monkeypatch.setattr("ensue.operators.subscriptions.atom_index._SLICE", 3)
    index = index_of(asks((ARITH, "id", "=", 1), places=(inside("CIRCLE (0 0, 5)"),)))
    events = [given(id=k % 2) for k in range(10)]
    places = [[(float(k), 0.0)] for k in range(10)]
    assert routed(index, events, places) == [(1, 0), (3, 0), (5, 0)]


@pytest.mark.parametrize(
    ("predicate", "problem"),
    [
        ((ARITH, "name", "=", 1), "is string"),
        ((STRING, "id", "=", "a"), "is integer"),
        ((BOOL, "on", "=", 1), "another kind"),
        ((ARITH, "id", "=", True), "another kind"),
        ((ARITH, "id", "=", "1"), "another kind"),
        ((TIME, "at", ">", 5), "another kind"),
        ((ARITH, "id", "LIKE", "a%"), "LIKE"),
        ((ARITH, "id", "IN", 5), "IN takes a list"),
        ((ARITH, "id", "=", (5,)), "IN takes a list"),
        ((ARITH, "id", "=", VariableField("x", "id")), "not a constant"),
        ((ARITH, "idd", "=", 5), "unknown field 'idd'"),
    ],
)
def test_a_predicate_that_does_not_fit_its_column_is_refused(predicate, problem) -> None:
    index = index_of()
    with pytest.raises(QueryError, match=problem):
        index.add(asks((STRING, "kind", "=", "van"), predicate))
    good = asks((STRING, "kind", "=", "van"), places=(inside("CIRCLE (0 0, 5)"),))
    with pytest.raises(QueryError, match=problem):
        index.add_many([good, asks(predicate)])
    assert len(index) == 0


@pytest.mark.parametrize("among", [(5,), (5, 6), (5, 9)])
def test_a_list_of_values_and_a_range_of_one_field(among) -> None:
    index = AtomIndex(shape(), Regions(), 0)
    for predicates in ([("=", 9)], [(">", 7)], [(">=", 5), ("<", 9)], [("!=", 5)]):
        asked = [(ARITH, "id", "IN", among), *((ARITH, "id", *predicate) for predicate in predicates)]
        slot = int(index.add_many([asks(*asked)])[0])
        events = [given(id=value) for value in range(12)]
        tests = {"=": int.__eq__, ">": int.__gt__, ">=": int.__ge__, "<": int.__lt__, "!=": int.__ne__}
        wanted = [v for v in range(12) if v in among and all(tests[op](v, c) for op, c in predicates)]
        assert routed(index, events) == [(v, slot) for v in wanted], predicates
        index.cancel(slot)


def test_one_that_does_not_fit_leaves_nothing_behind(monkeypatch) -> None:
    monkeypatch.setattr("ensue.operators.subscriptions.atom_index._BULK", 2)
    regions = Regions()
    index = AtomIndex(shape(), regions, 0)
    good = asks((STRING, "kind", "=", "van"), places=(inside("CIRCLE (0 0, 5)"),))
    bad = asks((STRING, "kind", "=", "bus"), places=(inside("CIRCLE (0 0, -5)"),))
    with pytest.raises(QueryError, match="radius"):
        index.add_many([good, good, good, bad])
    assert (len(index), len(regions), len(index._writer.texts)) == (0, 0, 0)


def test_regions_need_places() -> None:
    index = AtomIndex(shape(), None, 0)
    assert index.add(asks((ARITH, "id", "=", 1))) == 0
    with pytest.raises(QueryError, match="location="):
        index.add(asks(places=(inside("CIRCLE (0 0, 5)"),)))


def test_a_column_of_another_kind_than_declared_is_refused() -> None:
    index = index_of(asks((ARITH, "id", "=", 1)))
    with pytest.raises(EventError, match="'id'"):
        index.route(pa.table({"id": ["a"]}), None)


# ---- places


def test_places_wider_than_all_cells_are_tried_against_every_region() -> None:
    texts = [f"CIRCLE ({k} {k}, 0.001)" for k in range(40)]
    index = index_of(*(asks(places=(RegionTest(SpatialRelation.OVERLAP, Region(t)),)) for t in texts))
    wide = [(-0.5, -0.5), (19.5, -0.5), (19.5, 19.5), (-0.5, 19.5)]
    assert routed(index, [given(), given()], [wide, [(30.0, 30.0)]]) == [*((0, k) for k in range(20)), (1, 30)]


@pytest.mark.parametrize("x", [179.9, -180.0, 180.0, -179.5, 180.5, 540.0, -179.95])
def test_regions_over_180_degrees_find_events_of_both_sides(x: float) -> None:
    over = asks(places=(inside("POLYGON ((179 0, -179 0, -179 2, 179 2, 179 0))"),))
    beside = asks(places=(inside("POLYGON ((170 0, 175 0, 175 2, 170 2, 170 0))"),))
    index = index_of(over, beside, *[over] * 30, space=1)
    found = routed(index, [given()], [[(x, 1.0)]])
    assert found == [(0, k) for k in (0, *range(2, 32))]


def test_borders_count_whatever_the_cells() -> None:
    squares = [2.0**k for k in range(-8, 9)]
    index = index_of(*(asks(places=(inside(f"POLYGON ((0 0, {s} 0, {s} {s}, 0 {s}, 0 0))"),)) for s in squares))
    corners = [[(s, s)] for s in squares]
    found = routed(index, [given()] * len(squares), corners)
    assert found == [(k, m) for k in range(len(squares)) for m in range(k, len(squares))]


# ---- where atoms hang


def test_an_atom_hangs_under_its_id_rather_than_its_type() -> None:
    index = index_of()
    index.add_many(asks((STRING, "kind", "=", "van"), (ARITH, "id", "=", k)) for k in range(2_000))
    assert routed(index, [given(kind="van", id=5)]) == [(0, 5)]
    assert index.get_counters().candidates <= 3


def test_an_atom_hangs_under_its_region_rather_than_under_one_of_two_values() -> None:
    index = index_of()
    index.add_many(asks((BOOL, "on", "=", True), places=(inside(f"CIRCLE ({10 * k} 0, 1)"),)) for k in range(500))
    before = index.get_counters().candidates
    assert routed(index, [given(on=True)], [[(4_000.0, 0.0)]]) == [(0, 400)]
    assert index.get_counters().candidates - before < 100  # the first ones were guesses


def test_only_atoms_without_a_selective_predicate_are_broad() -> None:
    index = index_of(
        asks((STRING, "kind", "=", "van")),
        asks((STRING, "type", "IN", ("van", "bus"))),
        asks((ARITH, "speed", ">", 3)),
        asks((ARITH, "id", "=", 3)),
        asks((ARITH, "speed", ">", 3), (ARITH, "speed", "<", 4)),
        asks(places=(inside("CIRCLE (0 0, 5)"),)),
        asks(places=(RegionTest(SpatialRelation.DISTANCE, Region("CIRCLE (0 0, 5)"), ">", 3.0),)),
        EventTest(()),
    )
    broad = [index.broad(slot) for slot in range(8)]
    assert broad == [True, True, True, False, False, False, True, True]


# ---- growing and giving back


def test_a_table_grows_while_it_is_asked() -> None:
    index = index_of()
    grew = 0
    for k in range(3_000):
        assert index.add(asks((ARITH, "id", "=", k))) == k
        grew += index._arrays.growing
        if k % 97 == 0:
            assert routed(index, [given(id=k), given(id=k // 2), given(id=k + 1)]) == [(0, k), (1, k // 2)]
    assert grew > 50
    assert len(index._arrays["keys"]) == 8_192


def test_cancelled_atoms_give_all_room_back() -> None:
    rng = random.Random(3)
    regions = Regions()
    index = AtomIndex(shape(), regions, 0)
    atoms = [atom(rng, 0) for _ in range(300)]
    slots = index.add_many(atoms).tolist()
    sizes = index.nbytes
    for _ in range(5):
        rng.shuffle(slots)
        for slot in slots:
            index.cancel(slot)
        state = index._arrays["table_state"]
        assert state[arrays.predicate_index_hash.ENTRIES] == 0
        assert state[arrays.predicate_index_hash.USED] + state[arrays.predicate_index_hash.LEFT] == 0
        writer = index._writer
        assert (len(index), len(regions), len(writer.texts)) == (0, 0, 0)
        assert not any(writer.late._shards)
        slots = index.add_many(atoms).tolist()
    assert index.nbytes <= 1.5 * sizes
    assert check(index, dict(zip(slots, atoms, strict=True)), 0, rng, 30) > 0


def test_a_cancelled_slot_cannot_be_cancelled_again() -> None:
    index = index_of(asks((ARITH, "id", "=", 1)), asks((ARITH, "id", "=", 2)))
    index.cancel(0)
    for slot in (0, 2, -1):
        with pytest.raises(KeyError, match=str(slot)):
            index.cancel(slot)
    assert routed(index, [given(id=1), given(id=2)]) == [(1, 1)]


def test_very_long_lists_of_values() -> None:
    many = asks((ARITH, "id", "IN", tuple(range(0, 10_000, 2))))
    index = index_of(many, asks((ARITH, "id", "=", 4)))
    events = [given(id=k) for k in (4, 5, 9_998, None)]
    assert routed(index, events) == [(0, 0), (0, 1), (2, 0)]
    index.cancel(0)
    assert routed(index, events) == [(0, 1)]


# ---- files


def test_files_stay_as_they_are_whatever_is_changed_after_opening(tmp_path: Path) -> None:
    index_of(asks((ARITH, "id", "=", 1)), asks((STRING, "kind", "=", "van"))).save(tmp_path)
    for _ in range(2):
        index = AtomIndex.open(tmp_path, shape(), None, 0)
        index.cancel(0)
        index.add_many(asks((ARITH, "id", "=", k)) for k in range(2, 2_000))
        assert routed(index, [given(id=5, kind="van"), given(id=1)]) == [(0, 1), (0, 4)]


def test_files_for_other_events_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no index"):
        AtomIndex.open(tmp_path, shape(), None, 0)
    index_of(asks((ARITH, "id", "=", 1))).save(tmp_path)
    with pytest.raises(StateError, match="another space"):
        AtomIndex.open(tmp_path, shape(), None, 1)
    other = shape(pa.schema({"t": pa.int64(), "id": pa.string()}), None)
    with pytest.raises(StateError, match="'id'"):
        AtomIndex.open(tmp_path, other, None, 0)


def test_counters_add_up() -> None:
    index = index_of(asks((ARITH, "id", "=", 1)), asks((STRING, "name", "LIKE", "a%")))
    assert routed(index, [given(id=1, name="anna"), given(id=2, name="bob")]) == [(0, 0), (0, 1)]
    hits = index.get_counters()
    assert hits.found == 2
    assert hits.probes >= hits.passed >= 1
    assert hits.candidates >= hits.tested >= hits.found
    assert np.iinfo(np.int32).max > index.nbytes > 0
    assert SPACES == ("plane", "earth")
