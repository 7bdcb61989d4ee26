"""The table of nodes: equal ones of different subscriptions are one row of it."""

from collections import Counter
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ensue.algebra.event_test import EventTest
from ensue.algebra.subscription import Region, Select, Where
from ensue.errors import QueryError
from ensue.kernels import node_tables as layout
from ensue.kernels.node_tables import Nodes
from ensue.plan.subscriptions.joins import Root
from ensue.plan.subscriptions.nodes import (
    Absence,
    FieldTest,
    Join,
    Leaf,
    Node,
    PlaceTest,
    Sieve,
    Test,
    TimeTest,
)
from ensue.workload.subscriptions.nodes.growing import Growing
from ensue.workload.subscriptions.nodes.saved import Numbers, load, save

WHERE = {Where.INSIDE: 0, Where.OVERLAP: 1, Where.SAME: 2, Where.DISTANCE: 3}
COMPARISON = {None: 0, "<": 0, "=": 1, ">": 2}
OPERATOR = {"=": 0, "!=": 1, "<": 2, "<=": 3, ">": 4, ">=": 5}
SELECT = {Select.LATEST: layout.LATEST, Select.ONCE: layout.ONCE, Select.ALL: layout.ALL}


class Places(Protocol):
    """Who knows regions by number."""

    def add(self, region: Region, /) -> int: ...
    def release(self, number: int, /) -> None: ...


class Leaves(Protocol):
    """Who brings events to leaves."""

    def add(self, atom: EventTest, /) -> int: ...
    def cancel(self, slot: int, /) -> None: ...


@dataclass(slots=True)
class Row:
    """What is known of a node beside its row in the arrays."""

    node: int
    key: bytes
    users: int  # nodes above and subscriptions
    children: tuple[tuple[int, int], ...]  # (node, edge)
    tests: tuple[int, int]
    regions: tuple[int, ...]
    slot: int = -1  # of a leaf


class NodeTable:
    """The nodes of all subscriptions. Nothing is compiled when one is added."""

    def __init__(self, time: Any, regions: Places | None, leaves: Leaves) -> None:
        self.regions = regions
        self.leaves = leaves
        self.fields: dict[str, int] = {}  # that are compared between events
        self.rows: MutableMapping[bytes, Row] = {}
        self.by_number: list[Row | None] | Numbers = []
        self.leaf_of = Growing((), np.int32, -1)  # by slot: the node
        # absences of no event, which begin by themselves, and the version that has them
        self.seeds: dict[int, int] = {}
        self._since_now = 0  # the version that subscriptions are added for
        self.changes = 0
        self.asked = 0  # how often a node was asked for: what is more than there are was saved
        self.free_tests: dict[int, list[int]] = {}
        self._kind = Growing((), np.int8)
        self._edges = Growing((), np.int32, -1)
        self._users = Growing((), np.int32, -1)
        self._tests = Growing((2,), np.int64)
        self._waits = Growing((3,), np.float64, -np.inf)
        self._only_latest = Growing((), np.int8)
        self._simple = Growing((), np.int8)
        self._absence = Growing((4,), np.int64)
        self._absence_times = Growing((2,), time)
        self._height = Growing((), np.int32)
        self._lanes = Growing((), np.uint64)
        self._not_latest = Growing((), np.int32)  # nodes above, and subscribers that want all
        self._edge = Growing((5,), np.int32, -1)
        self._edge_before = Growing((), np.int32, -1)
        self._edge_child = Growing((), np.int32, -1)
        self._free_edges: list[int] = []
        self._user = Growing((4,), np.int32, -1)
        self._user_before = Growing((), np.int32, -1)
        self._free_users: list[int] = []
        self._select = Growing((), np.int8)
        self._since = Growing((), np.int64)
        self._lane = Growing((), np.int32)
        self._hash = Growing((), np.uint64)  # of what a subscription asks for
        self.lanes = 1  # that new subscriptions are dealt out to
        self._test = Growing((6,), np.int64)
        self._test_time = Growing((2,), time)
        self._test_number = Growing((2,), np.float64)
        self.gone: list[int] = []  # nodes that nobody asks for, until their state is dropped too
        self.gone_subscriptions: list[int] = []
        self._free: list[int] = []
        self._free_subscriptions: list[int] = []
        self._user_node = Growing((), np.int32)  # of a place of a user
        self.placed: MutableMapping[int, tuple[int, ...]] = {}  # subscription -> places of users

    # ---------------------------------------------------------------------------- subscriptions

    def subscribe(
        self, roots: Iterable[Root], select: Select, since: int, lane: int | None = None
    ) -> int:
        """A subscription to the values of some nodes; its number. Equal ones share a lane."""
        roots = tuple(dict.fromkeys(roots))
        hashed = int.from_bytes(min(root.node.key for root in roots)[:8], "big")
        lane = hashed % self.lanes if lane is None else lane
        self._since_now = since
        if self._free_subscriptions:
            number = self._free_subscriptions.pop()
        else:
            number = self._select.add()
            self._since.add()
            self._lane.add()
            self._hash.add()
        self._select.array[number] = SELECT[select]
        self._since.array[number] = since
        self._lane.array[number] = lane
        self._hash.array[number] = hashed
        self.placed[number] = ()
        try:
            for root in roots:
                place = self._use(self.add(root.node, lane), number, root)
                self.placed[number] += (place,)
        except QueryError:
            self.cancel(number)
            raise
        self.changes += 1
        return number

    def cancel(self, number: int) -> None:
        """Takes a subscription away. Its number stays unused until its state is dropped."""
        for place in self.placed.pop(number):
            node = int(self._user_node.array[place])
            self._unlink(self._user, self._user_before, self._users, node, place)
            self._free_users.append(place)
            if self._wants_all(place):
                self._not_latest.array[node] -= 1
                self._judge(node)
            self._release(node)
        self.gone_subscriptions.append(number)
        self.changes += 1

    def looking_at(self, leaves: Iterable[int]) -> set[int]:
        """The numbers of the subscriptions that events at these leaves may matter to."""
        found: set[int] = set()
        seen = set(leaves)
        left = list(seen)
        while left:
            node = left.pop()
            user, edge = self._users.array[node], self._edges.array[node]
            while user >= 0:
                found.add(int(self._user.array[user, 1]))
                user = self._user.array[user, 0]
            while edge >= 0:
                above = int(self._edge.array[edge, 1])
                if above not in seen:
                    seen.add(above)
                    left.append(above)
                edge = self._edge.array[edge, 0]
        return found

    def shares(self, counts: Any) -> dict[int, float]:
        """What each subscription holds of so many values by node, where shared ones are divided.

        >>> table = NodeTable(np.int64, None, None)
        >>> table.shares(np.zeros(0))
        {}
        """
        below: dict[int, set[int]] = {}
        users: Counter[int] = Counter()
        for number in self.placed:
            left = [int(self._user_node.array[place]) for place in self.placed[number]]
            seen: set[int] = set()
            while left:
                node = left.pop()
                if node not in seen:
                    seen.add(node)
                    row = self.by_number[node]
                    left += [child for child, _ in row.children] if row is not None else []
            below[number] = {node for node in seen if counts[node]}
            users.update(below[number])
        each = {node: float(counts[node]) / count for node, count in users.items()}
        return {number: sum(each[n] for n in nodes) for number, nodes in below.items() if nodes}

    def _use(self, node: int, subscription: int, root: Root) -> int:
        place = self._free_users.pop() if self._free_users else self._user.add()
        if place == self._user_before.count:
            self._user_before.add()
            self._user_node.add()
        self._user_node.array[place] = node
        field = -1 if root.field is None else self._field(root.field)
        self._user.array[place, 1:] = (subscription, root.slot, field)
        self._link(self._user, self._user_before, self._users, node, place)
        if self._wants_all(place):
            self._not_latest.array[node] += 1
            self._judge(node)
        return place

    def _wants_all(self, place: int) -> bool:
        """Whether a user of a node is not done with the newest match."""
        _, subscription, slot, _ = self._user.array[place]
        return bool(self._select.array[subscription] == layout.ALL or slot >= 0)

    # ---------------------------------------------------------------------------- nodes

    def add(self, node: Node, lane: int = 0) -> int:
        """The number of a node, with one user more; it is made if nobody has asked for it."""
        self.asked += 1
        row = self.rows.get(node.key)
        if row is None:
            row = self._made(node, lane)
        else:
            self._mark(row.node, lane)
            for child, _, _ in _sides(node):
                self._patient(child)
        self._wait(row.node, node)
        row.users += 1
        return row.node

    def _made(self, node: Node, lane: int) -> Row:
        children: list[tuple[int, int, tuple[Test, ...]]] = []
        regions: list[int] = []
        slot = -1
        try:  # what does not fit the events is found out here, before anything is changed
            for part, side, tests in _sides(node):
                children.append((self.add(part, lane), side, tests))
            if isinstance(node, Leaf):
                slot = self.leaves.add(node.test)
            elif not isinstance(node, Absence):
                for test in node.tests:
                    if isinstance(test, PlaceTest) and test.region is not None:
                        assert self.regions is not None
                        regions.append(self.regions.add(test.region))
        except QueryError:
            for region in regions:
                assert self.regions is not None
                self.regions.release(region)
            for child, _, _ in children:
                self._release(child)
            raise
        number = self._new()
        row = Row(number, node.key, 0, (), (0, 0), ())
        self.rows[node.key] = row
        self.by_number[number] = row
        match node:
            case Leaf():
                self._kind.array[number] = layout.LEAF
                row.slot = slot
                if row.slot >= self.leaf_of.count:
                    self.leaf_of.add(row.slot + 1 - self.leaf_of.count)
                self.leaf_of.array[row.slot] = number
            case Sieve(_, tests) | Join(_, _, tests):
                sieve = isinstance(node, Sieve)
                self._kind.array[number] = layout.SIEVE if sieve else layout.JOIN
                row.tests = self._written(tests, iter(regions))
                self._tests.array[number] = row.tests
                self._simple.array[number] = isinstance(node, Join) and _simple(node)
            case Absence():
                self._kind.array[number] = layout.ABSENCE
                self._absence.array[number] = (
                    _signed(node.base), _signed(node.since), _signed(node.until), node.until_end,
                )  # fmt: skip
                self._absence_times.array[number] = (node.length, node.at)
                if node.child is None:
                    self.seeds[number] = self._since_now
        row.regions = tuple(regions)
        height = max((self._height.array[child] for child, _, _ in children), default=-1) + 1
        self._height.array[number] = height
        self._lanes.array[number] = np.uint64(1) << np.uint64(lane & 63)
        edges = []
        for child, side, tests in children:
            edge = self._free_edges.pop() if self._free_edges else self._edge.add()
            if edge == self._edge_before.count:
                self._edge_before.add()
                self._edge_child.add()
            self._edge_child.array[edge] = child
            self._edge.array[edge, 1:] = (number, side, *self._written(tests, iter(())))
            self._link(self._edge, self._edge_before, self._edges, child, edge)
            edges.append((child, edge))
            self._not_latest.array[child] += 1
            self._judge(child)
        row.children = tuple(edges)
        self._judge(number)
        return row

    def _new(self) -> int:
        if self._free:
            number = self._free.pop()
            self._waits.array[number] = -np.inf
            self._not_latest.array[number] = 0
            return number
        for column in self._columns():
            number = column.add()
        self.by_number.append(None)
        return number

    def _columns(self) -> tuple[Growing, ...]:
        return (
            self._kind, self._edges, self._users, self._tests, self._waits, self._only_latest,
            self._simple, self._absence, self._absence_times, self._height, self._lanes,
            self._not_latest,
        )  # fmt: skip

    def _mark(self, number: int, lane: int) -> None:
        """A node, and all below it, are part of something in a lane."""
        bit = np.uint64(1) << np.uint64(lane & 63)
        if self._lanes.array[number] & bit:
            return
        self._lanes.array[number] |= bit
        row = self.by_number[number]
        assert row is not None
        for child, _ in row.children:
            self._mark(child, lane)

    def _patient(self, node: Node) -> None:
        """Those below a shared node, too."""
        self._wait(self.rows[node.key].node, node)
        for child, _, _ in _sides(node):
            self._patient(child)

    def _wait(self, number: int, node: Node) -> None:
        """Values of a shared node wait as long as the most patient of its users asks."""
        waits = self._waits.array
        match node:
            case Join():
                waits[number, 0] = max(waits[number, 0], _rounded(node.left_waits))
                waits[number, 1] = max(waits[number, 1], _rounded(node.right_waits))
            case Absence():
                waits[number, 2] = max(waits[number, 2], _rounded(node.bars_wait))
            case _:
                return

    def _judge(self, number: int) -> None:
        """Whether of a join of two events only the newest fit matters."""
        row = self.by_number[number]
        leaves = row is not None and all(
            self._kind.array[child] == layout.LEAF for child, _ in row.children
        )
        only = leaves and self._kind.array[number] == layout.JOIN
        self._only_latest.array[number] = only and self._not_latest.array[number] == 0

    def _release(self, number: int) -> None:
        row = self.by_number[number]
        assert row is not None
        row.users -= 1
        if row.users:
            return
        del self.rows[row.key]
        for child, edge in row.children:
            self._unlink(self._edge, self._edge_before, self._edges, child, edge)
            first, count = self._edge.array[edge, 3:]
            self._drop_tests(int(first), int(count))
            self._free_edges.append(edge)
            self._not_latest.array[child] -= 1
            self._judge(child)
            self._release(child)
        self._drop_tests(*row.tests)
        if row.slot >= 0:
            self.leaves.cancel(row.slot)
            self.leaf_of.array[row.slot] = -1
        for region in row.regions:
            assert self.regions is not None
            self.regions.release(region)
        self.by_number[number] = None
        self.seeds.pop(number, None)
        self.gone.append(number)

    def reuse(self) -> None:
        """The state of what is gone was dropped: its numbers may be used again."""
        self._free += self.gone
        self._free_subscriptions += self.gone_subscriptions
        self.gone, self.gone_subscriptions = [], []

    # ---------------------------------------------------------------------------- tests

    def _written(self, tests: Iterable[Test], regions: Iterator[int]) -> tuple[int, int]:
        """Tests one behind the other: the first, and how many."""
        several = tuple(tests)
        if not several:
            return 0, 0
        free = self.free_tests.get(len(several))
        if free:
            first = free.pop()
        else:
            first = self._test.add(len(several))
            self._test_time.add(len(several))
            self._test_number.add(len(several))
        for place, test in enumerate(several, first):
            self._write(place, test, regions)
        return first, len(several)

    def _write(self, place: int, test: Test, regions: Iterator[int]) -> None:
        row = self._test.array[place]
        match test:
            case TimeTest():
                slots = _signed(test.earlier), _signed(test.later)
                row[:] = (layout.TIME, *slots, test.earlier_end, test.later_end, test.strict)
                self._test_time.array[place] = (test.by, test.at)
            case PlaceTest():
                first = _signed(test.first)
                kind = layout.PLACE
                if test.region is not None:
                    first, kind = next(regions), layout.REGION
                codes = WHERE[test.where], COMPARISON[test.comparison]
                row[:] = (kind, first, _signed(test.second), *codes, 0)
                self._test_number.array[place] = (test.number, test.tolerance)
            case FieldTest():
                row[:] = (
                    layout.FIELD, test.slot, test.other, OPERATOR[test.operator],
                    self._field(test.name), self._field(test.other_name),
                )  # fmt: skip

    def _drop_tests(self, first: int, count: int) -> None:
        if count:
            self.free_tests.setdefault(count, []).append(first)

    def _field(self, name: str) -> int:
        return self.fields.setdefault(name, len(self.fields))

    # ---------------------------------------------------------------------------- lists

    def _link(self, rows: Growing, before: Growing, heads: Growing, head: int, row: int) -> None:
        following = heads.array[head]
        rows.array[row, 0] = following
        before.array[row] = -1
        if following >= 0:
            before.array[following] = row
        heads.array[head] = row

    def _unlink(self, rows: Growing, before: Growing, heads: Growing, head: int, row: int) -> None:
        following, earlier = rows.array[row, 0], before.array[row]
        if earlier >= 0:
            rows.array[earlier, 0] = following
        else:
            heads.array[head] = following
        if following >= 0:
            before.array[following] = earlier

    # ---------------------------------------------------------------------------- arrays

    @property
    def size(self) -> int:
        """How many numbers of nodes there are."""
        return self._kind.count

    @property
    def subscriptions(self) -> int:
        """How many numbers of subscriptions there are."""
        return self._select.count

    def arrays(self) -> Nodes:
        """What the kernel reads. It is up to date until a subscription is added."""
        return Nodes(
            self._kind.array, self._edges.array, self._users.array, self._tests.array,
            self._waits.array, self._only_latest.array, self._simple.array, self._absence.array,
            self._absence_times.array, self._height.array, self._lanes.array, self._edge.array,
            self._user.array, self._select.array, self._since.array, self._lane.array,
            self._test.array, self._test_time.array, self._test_number.array,
        )  # fmt: skip

    # ---------------------------------------------------------------------------- files

    def save(self, folder: Path) -> None:
        """Writes it into an empty folder."""
        save(self, folder)

    @classmethod
    def open(cls, folder: Path, time: Any, regions: Places | None, leaves: Leaves) -> "NodeTable":
        """The table that was saved there. Its files are mapped; changes stay in memory."""
        table = cls(time, regions, leaves)
        load(table, folder)
        return table

    def split(self, lanes: int) -> None:
        """Deals the subscriptions out to so many lanes, equal ones to the same."""
        self.lanes = lanes
        count = self._hash.count
        self._lane.array[:count] = self._hash.array[:count] % np.uint64(lanes)
        bits = self._lanes.array
        bits[:] = 0
        used = np.ones(self._user.count, np.bool_)
        used[self._free_users] = False
        users = np.flatnonzero(used)
        of = self._lane.array[self._user.array[users, 1]].astype(np.uint64) & np.uint64(63)
        np.bitwise_or.at(bits, self._user_node.array[users], np.uint64(1) << of)
        used = np.ones(self._edge.count, np.bool_)
        used[self._free_edges] = False
        edges = np.flatnonzero(used)
        above, below = self._edge.array[edges, 1], self._edge_child.array[edges]
        height = self._height.array[above]
        for level in sorted(set(height.tolist()), reverse=True):  # from the roots down
            here = height == level
            np.bitwise_or.at(bits, below[here], bits[above[here]])
        self.changes += 1

    def alive(self) -> Any:
        """Which nodes somebody asks for."""
        found = np.ones(self.size, np.int8)
        found[[*self.gone, *self._free]] = 0
        return found


def leaves_of(node: Node) -> Iterator[Leaf]:
    """The single events that a node is made of, or barred by."""
    if isinstance(node, Leaf):
        yield node
    for part, _, _ in _sides(node):
        yield from leaves_of(part)


def _sides(node: Node) -> list[tuple[Node, int, tuple[Test, ...]]]:
    """What a node is made of, on which side, and the tests of a side."""
    match node:
        case Leaf():
            return []
        case Sieve(child):
            return [(child, layout.LEFT_SIDE, ())]
        case Join(left, right):
            return [(left, layout.LEFT_SIDE, ()), (right, layout.RIGHT_SIDE, ())]
        case Absence(child):
            below: list[tuple[Node, int, tuple[Test, ...]]] = []
            if child is not None:
                below.append((child, layout.LEFT_SIDE, ()))
            return below + [(bar.node, layout.BAR, bar.tests) for bar in node.bars]


def _simple(join: Join) -> bool:
    """Whether it is of two events, and each test about times of one or the other."""
    return (
        isinstance(join.left, Leaf)
        and isinstance(join.right, Leaf)
        and all(isinstance(t, TimeTest) and {t.earlier, t.later} <= {0, 1, 2} for t in join.tests)
    )


def _signed(slots: int) -> int:
    """64 bits as a signed number."""
    return slots - (1 << 64) if slots >> 63 else slots


def _rounded(waits: float) -> float:
    """A little longer: times are compared as floats."""
    return waits if waits < 0 else waits * (1 + 1e-12) + 1e-9
