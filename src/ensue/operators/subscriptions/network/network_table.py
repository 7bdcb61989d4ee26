"""The table of the shared network: equal nodes of different subscriptions are one row."""

from collections import Counter
from collections.abc import Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np

from ensue.errors import QueryError
from ensue.ir.subscription import Select
from ensue.kernels import network_tables
from ensue.kernels.network_tables import NetworkNodes
from ensue.operators.subscriptions.network.network_files import NodeRow, SavedRows, load_network, save_network
from ensue.operators.subscriptions.predicate_index.encoding import COMPARISON, WHERE
from ensue.operators.subscriptions.predicate_index.index import AtomIndex
from ensue.operators.subscriptions.predicate_index.index_arrays import GrowingArray
from ensue.planner.subscription_joins import NetworkRoot
from ensue.planner.subscription_network import (
    FieldTest,
    NetworkAbsence,
    NetworkFilter,
    NetworkJoin,
    NetworkLeaf,
    NetworkNode,
    PlaceTest,
    Test,
    TimeTest,
)
from ensue.vector.geo_regions import Regions

OPERATOR = {"=": 0, "!=": 1, "<": 2, "<=": 3, ">": 4, ">=": 5}
SELECT = {Select.LATEST: network_tables.LATEST, Select.ONCE: network_tables.ONCE, Select.ALL: network_tables.ALL}


class NetworkTable:
    """The nodes of all subscriptions. Adding one compiles no code."""

    def __init__(self, time: Any, regions: Regions, leaves: AtomIndex) -> None:
        self.regions = regions
        self.leaves = leaves
        self.fields: dict[str, int] = {}  # fields that are compared between events
        self.rows: MutableMapping[bytes, NodeRow] = {}
        self.by_number: list[NodeRow | None] | SavedRows = []
        self.leaf_of = GrowingArray((), np.int32, -1)  # by slot: the node
        # absences between moments, which start without an event, with their versions
        self.seeds: dict[int, int] = {}
        self._since_now = 0  # the version of the current change
        self.changes = 0
        self.requests = 0  # for nodes; those beyond the number of nodes were shared
        self.free_tests: dict[int, list[int]] = {}
        self._kind = GrowingArray((), np.int8)
        self._edges = GrowingArray((), np.int32, -1)
        self._users = GrowingArray((), np.int32, -1)
        self._tests = GrowingArray((2,), np.int64)
        self._waits = GrowingArray((3,), np.float64, -np.inf)
        self._only_latest = GrowingArray((), np.int8)
        self._simple = GrowingArray((), np.int8)
        self._absence = GrowingArray((4,), np.int64)
        self._absence_times = GrowingArray((2,), time)
        self._height = GrowingArray((), np.int32)
        self._key_groups = GrowingArray((), np.uint64)
        self._not_latest = GrowingArray((), np.int32)  # parents, and subscriptions that select all
        self._edge = GrowingArray((5,), np.int32, -1)
        self._edge_before = GrowingArray((), np.int32, -1)
        self._edge_child = GrowingArray((), np.int32, -1)
        self._free_edges: list[int] = []
        self._user = GrowingArray((4,), np.int32, -1)
        self._user_before = GrowingArray((), np.int32, -1)
        self._free_users: list[int] = []
        self._select = GrowingArray((), np.int8)
        self._since = GrowingArray((), np.int64)
        self._key_group = GrowingArray((), np.int32)
        self._hash = GrowingArray((), np.uint64)  # of the subscription's nodes
        self.key_groups = 1  # tasks that subscriptions are distributed over
        self._test = GrowingArray((6,), np.int64)
        self._test_time = GrowingArray((2,), time)
        self._test_number = GrowingArray((2,), np.float64)
        self.gone: list[int] = []  # unused nodes, until their state is dropped
        self.gone_subscriptions: list[int] = []
        self._free: list[int] = []
        self._free_subscriptions: list[int] = []
        self._user_node = GrowingArray((), np.int32)  # by position of a user
        self.placed: MutableMapping[int, tuple[int, ...]] = {}  # positions of users

    def subscribe(self, roots: Iterable[NetworkRoot], select: Select, since: int, key_group: int | None = None) -> int:
        """Adds a subscription and returns its number; equal ones share a task."""
        roots = tuple(dict.fromkeys(roots))
        hashed = int.from_bytes(min(root.node.key for root in roots)[:8], "big")
        key_group = hashed % self.key_groups if key_group is None else key_group
        self._since_now = since
        if self._free_subscriptions:
            number = self._free_subscriptions.pop()
        else:
            number = self._select.add()
            self._since.add()
            self._key_group.add()
            self._hash.add()
        self._select.array[number] = SELECT[select]
        self._since.array[number] = since
        self._key_group.array[number] = key_group
        self._hash.array[number] = hashed
        self.placed[number] = ()
        try:
            for root in roots:
                place = self._use(self.add(root.node, key_group), number, root)
                self.placed[number] += (place,)
        except QueryError:
            self.cancel(number)
            raise
        self.changes += 1
        return number

    def cancel(self, number: int) -> None:
        """Removes a subscription. Its number stays unused until its state is dropped."""
        for place in self.placed.pop(number):
            node = int(self._user_node.array[place])
            self._unlink(self._user, self._user_before, self._users, node, place)
            self._free_users.append(place)
            if self._selects_all(place):
                self._not_latest.array[node] -= 1
                self._update_only_latest(node)
            self._release(node)
        self.gone_subscriptions.append(number)
        self.changes += 1

    def find_subscriptions(self, leaves: Iterable[int]) -> set[int]:
        """Returns the subscriptions for which events at these leaves are relevant."""
        numbers: set[int] = set()
        seen = set(leaves)
        remaining = list(seen)
        while remaining:
            node = remaining.pop()
            user, edge = self._users.array[node], self._edges.array[node]
            while user >= 0:
                numbers.add(int(self._user.array[user, 1]))
                user = self._user.array[user, 0]
            while edge >= 0:
                above = int(self._edge.array[edge, 1])
                if above not in seen:
                    seen.add(above)
                    remaining.append(above)
                edge = self._edge.array[edge, 0]
        return numbers

    def shares(self, counts: Any) -> dict[int, float]:
        """Divides the values of nodes among the subscriptions that use them.

        >>> table = NetworkTable(np.int64, None, None)
        >>> table.shares(np.zeros(0))
        {}
        """
        nodes_of: dict[int, set[int]] = {}
        users: Counter[int] = Counter()
        for number in self.placed:
            remaining = [int(self._user_node.array[place]) for place in self.placed[number]]
            seen: set[int] = set()
            while remaining:
                node = remaining.pop()
                if node not in seen:
                    seen.add(node)
                    row = self.by_number[node]
                    remaining += [child for child, _ in row.children] if row is not None else []
            nodes_of[number] = {node for node in seen if counts[node]}
            users.update(nodes_of[number])
        share_of_node = {node: float(counts[node]) / count for node, count in users.items()}
        return {number: sum(share_of_node[n] for n in nodes) for number, nodes in nodes_of.items() if nodes}

    def _use(self, node: int, subscription: int, root: NetworkRoot) -> int:
        place = self._free_users.pop() if self._free_users else self._user.add()
        if place == self._user_before.count:
            self._user_before.add()
            self._user_node.add()
        self._user_node.array[place] = node
        field = -1 if root.field is None else self._field(root.field)
        self._user.array[place, 1:] = (subscription, root.slot, field)
        self._link(self._user, self._user_before, self._users, node, place)
        if self._selects_all(place):
            self._not_latest.array[node] += 1
            self._update_only_latest(node)
        return place

    def _selects_all(self, place: int) -> bool:
        """Whether a user of a node needs more than the newest match."""
        _, subscription, slot, _ = self._user.array[place]
        return bool(self._select.array[subscription] == network_tables.ALL or slot >= 0)

    def add(self, node: NetworkNode, key_group: int = 0) -> int:
        """Returns the number of a node, creates it if needed, and counts one more user."""
        self.requests += 1
        row = self.rows.get(node.key)
        if row is None:
            row = self._create(node, key_group)
        else:
            self._mark_task(row.node, key_group)
            for child, _, _ in _inputs(node):
                self._extend_waits(child)
        self._update_wait(row.node, node)
        row.users += 1
        return row.node

    def _create(self, node: NetworkNode, key_group: int) -> NodeRow:
        children: list[tuple[int, int, tuple[Test, ...]]] = []
        regions: list[int] = []
        slot = -1
        try:  # errors arise here, before anything is changed
            for part, side, tests in _inputs(node):
                children.append((self.add(part, key_group), side, tests))
            if isinstance(node, NetworkLeaf):
                slot = self.leaves.add(node.test)
            elif not isinstance(node, NetworkAbsence):
                for test in node.tests:
                    if isinstance(test, PlaceTest) and test.region is not None:
                        regions.append(self.regions.add(test.region))  # noqa: PERF401 - may fail
        except QueryError:
            for region in regions:
                self.regions.release(region)
            for child, _, _ in children:
                self._release(child)
            raise
        number = self._new()
        row = NodeRow(number, node.key, 0, (), (0, 0), ())
        self.rows[node.key] = row
        self.by_number[number] = row
        match node:
            case NetworkLeaf():
                self._kind.array[number] = network_tables.LEAF
                row.slot = slot
                if row.slot >= self.leaf_of.count:
                    self.leaf_of.add(row.slot + 1 - self.leaf_of.count)
                self.leaf_of.array[row.slot] = number
            case NetworkFilter(_, tests) | NetworkJoin(_, _, tests):
                is_sieve = isinstance(node, NetworkFilter)
                self._kind.array[number] = network_tables.SIEVE if is_sieve else network_tables.JOIN
                row.tests = self._add_tests(tests, iter(regions))
                self._tests.array[number] = row.tests
                self._simple.array[number] = isinstance(node, NetworkJoin) and _is_simple(node)
            case NetworkAbsence():
                self._kind.array[number] = network_tables.ABSENCE
                self._absence.array[number] = (
                    _to_signed(node.base), _to_signed(node.since), _to_signed(node.until), node.until_end,
                )  # fmt: skip
                self._absence_times.array[number] = (node.length, node.at)
                if node.child is None:
                    self.seeds[number] = self._since_now
        row.regions = tuple(regions)
        height = max((self._height.array[child] for child, _, _ in children), default=-1) + 1
        self._height.array[number] = height
        self._key_groups.array[number] = np.uint64(1) << np.uint64(key_group & 63)
        edges = []
        for child, side, tests in children:
            edge = self._free_edges.pop() if self._free_edges else self._edge.add()
            if edge == self._edge_before.count:
                self._edge_before.add()
                self._edge_child.add()
            self._edge_child.array[edge] = child
            self._edge.array[edge, 1:] = (number, side, *self._add_tests(tests, iter(())))
            self._link(self._edge, self._edge_before, self._edges, child, edge)
            edges.append((child, edge))
            self._not_latest.array[child] += 1
            self._update_only_latest(child)
        row.children = tuple(edges)
        self._update_only_latest(number)
        return row

    def _new(self) -> int:
        if self._free:
            number = self._free.pop()
            self._waits.array[number] = -np.inf
            self._not_latest.array[number] = 0
            return number
        for column in (
            self._kind, self._edges, self._users, self._tests, self._waits, self._only_latest,
            self._simple, self._absence, self._absence_times, self._height, self._key_groups,
            self._not_latest,
        ):  # fmt: skip
            number = column.add()
        self.by_number.append(None)
        return number

    def _mark_task(self, number: int, key_group: int) -> None:
        """Marks a node and all below it as used in a task."""
        bit = np.uint64(1) << np.uint64(key_group & 63)
        if self._key_groups.array[number] & bit:
            return
        self._key_groups.array[number] |= bit
        row = self.by_number[number]
        assert row is not None
        for child, _ in row.children:
            self._mark_task(child, key_group)

    def _extend_waits(self, node: NetworkNode) -> None:
        """Updates the waiting times of a shared node and of all below it."""
        self._update_wait(self.rows[node.key].node, node)
        for child, _, _ in _inputs(node):
            self._extend_waits(child)

    def _update_wait(self, number: int, node: NetworkNode) -> None:
        """Sets the waiting time of a shared node to the longest of its users."""
        waits = self._waits.array[number]
        if isinstance(node, NetworkJoin):
            waits[0] = max(waits[0], _add_tolerance(node.left_waits))
            waits[1] = max(waits[1], _add_tolerance(node.right_waits))
        elif isinstance(node, NetworkAbsence):
            waits[2] = max(waits[2], _add_tolerance(node.bars_wait))

    def _update_only_latest(self, number: int) -> None:
        """Updates whether only the newest match of a join of two events is needed."""
        row = self.by_number[number]
        leaves = row is not None and all(self._kind.array[child] == network_tables.LEAF for child, _ in row.children)
        only = leaves and self._kind.array[number] == network_tables.JOIN
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
            self._update_only_latest(child)
            self._release(child)
        self._drop_tests(*row.tests)
        if row.slot >= 0:
            self.leaves.cancel(row.slot)
            self.leaf_of.array[row.slot] = -1
        for region in row.regions:
            self.regions.release(region)
        self.by_number[number] = None
        self.seeds.pop(number, None)
        self.gone.append(number)

    def reuse(self) -> None:
        """Frees the numbers of removed nodes and subscriptions, after their state was dropped."""
        self._free += self.gone
        self._free_subscriptions += self.gone_subscriptions
        self.gone, self.gone_subscriptions = [], []

    def _add_tests(self, tests: Iterable[Test], regions: Iterator[int]) -> tuple[int, int]:
        """Stores tests contiguously and returns the first position and their number."""
        stored = tuple(tests)
        if not stored:
            return 0, 0
        free = self.free_tests.get(len(stored))
        if free:
            first = free.pop()
        else:
            first = self._test.add(len(stored))
            self._test_time.add(len(stored))
            self._test_number.add(len(stored))
        for place, test in enumerate(stored, first):
            self._write(place, test, regions)
        return first, len(stored)

    def _write(self, place: int, test: Test, regions: Iterator[int]) -> None:
        row = self._test.array[place]
        match test:
            case TimeTest():
                slots = _to_signed(test.earlier), _to_signed(test.later)
                row[:] = (network_tables.TIME, *slots, test.earlier_end, test.later_end, test.strict)
                self._test_time.array[place] = (test.by, test.at)
            case PlaceTest():
                first = _to_signed(test.first)
                kind = network_tables.PLACE
                if test.region is not None:
                    first, kind = next(regions), network_tables.REGION
                codes = WHERE[test.where], COMPARISON[test.comparison]
                row[:] = (kind, first, _to_signed(test.second), *codes, 0)
                self._test_number.array[place] = (test.number, test.tolerance)
            case FieldTest():
                row[:] = (
                    network_tables.FIELD, test.slot, test.other, OPERATOR[test.operator],
                    self._field(test.name), self._field(test.other_name),
                )  # fmt: skip

    def _drop_tests(self, first: int, count: int) -> None:
        if count:
            self.free_tests.setdefault(count, []).append(first)

    def _field(self, name: str) -> int:
        return self.fields.setdefault(name, len(self.fields))

    def _link(self, rows: GrowingArray, before: GrowingArray, heads: GrowingArray, head: int, row: int) -> None:
        following = heads.array[head]
        rows.array[row, 0] = following
        before.array[row] = -1
        if following >= 0:
            before.array[following] = row
        heads.array[head] = row

    def _unlink(self, rows: GrowingArray, before: GrowingArray, heads: GrowingArray, head: int, row: int) -> None:
        following, earlier = rows.array[row, 0], before.array[row]
        if earlier >= 0:
            rows.array[earlier, 0] = following
        else:
            heads.array[head] = following
        if following >= 0:
            before.array[following] = earlier

    @property
    def size(self) -> int:
        """The number of node numbers in use."""
        return self._kind.count

    @property
    def subscriptions(self) -> int:
        """The number of subscription numbers in use."""
        return self._select.count

    def arrays(self) -> NetworkNodes:
        """Returns the arrays for the kernel, valid until a subscription is added."""
        return NetworkNodes(
            self._kind.array, self._edges.array, self._users.array, self._tests.array,
            self._waits.array, self._only_latest.array, self._simple.array, self._absence.array,
            self._absence_times.array, self._height.array, self._key_groups.array, self._edge.array,
            self._user.array, self._select.array, self._since.array, self._key_group.array,
            self._test.array, self._test_time.array, self._test_number.array,
        )  # fmt: skip

    def save(self, folder: Path) -> None:
        save_network(self, folder)

    @classmethod
    def open(cls, folder: Path, time: Any, regions: Regions, leaves: AtomIndex) -> "NetworkTable":
        """Opens a saved table. Its files are mapped; changes stay in memory."""
        table = cls(time, regions, leaves)
        load_network(table, folder)
        return table

    def split(self, key_groups: int) -> None:
        """Distributes the subscriptions over this number of tasks, equal ones to the same."""
        self.key_groups = key_groups
        count = self._hash.count
        self._key_group.array[:count] = self._hash.array[:count] % np.uint64(key_groups)
        bits = self._key_groups.array
        bits[:] = 0
        used = np.ones(self._user.count, np.bool_)
        used[self._free_users] = False
        users = np.flatnonzero(used)
        tasks = self._key_group.array[self._user.array[users, 1]].astype(np.uint64)
        task_bits = np.uint64(1) << (tasks & np.uint64(63))
        np.bitwise_or.at(bits, self._user_node.array[users], task_bits)
        used = np.ones(self._edge.count, np.bool_)
        used[self._free_edges] = False
        edges = np.flatnonzero(used)
        above, below = self._edge.array[edges, 1], self._edge_child.array[edges]
        height = self._height.array[above]
        for level in sorted(set(height.tolist()), reverse=True):  # from the roots down
            at_level = height == level
            np.bitwise_or.at(bits, below[at_level], bits[above[at_level]])
        self.changes += 1

    def alive(self) -> Any:
        """Returns which nodes are in use."""
        is_alive = np.ones(self.size, np.int8)
        is_alive[[*self.gone, *self._free]] = 0
        return is_alive


def iterate_leaves(node: NetworkNode) -> Iterator[NetworkLeaf]:
    """Yields the leaves of a node, those of forbidden events included."""
    if isinstance(node, NetworkLeaf):
        yield node
    for part, _, _ in _inputs(node):
        yield from iterate_leaves(part)


def _inputs(node: NetworkNode) -> list[tuple[NetworkNode, int, tuple[Test, ...]]]:
    """Returns the inputs of a node, with the side and the tests of each."""
    match node:
        case NetworkLeaf():
            return []
        case NetworkFilter(child):
            return [(child, network_tables.LEFT_SIDE, ())]
        case NetworkJoin(left, right):
            return [(left, network_tables.LEFT_SIDE, ()), (right, network_tables.RIGHT_SIDE, ())]
        case NetworkAbsence(child):
            below = [] if child is None else [(child, network_tables.LEFT_SIDE, ())]
            return [*below, *((bar.node, network_tables.BAR, bar.tests) for bar in node.bars)]


def _is_simple(join: NetworkJoin) -> bool:
    """Whether a join is of two events, with tests on their times only."""
    return (
        isinstance(join.left, NetworkLeaf)
        and isinstance(join.right, NetworkLeaf)
        and all(isinstance(t, TimeTest) and {t.earlier, t.later} <= {0, 1, 2} for t in join.tests)
    )


def _to_signed(slots: int) -> int:
    """Returns 64 bits as a signed number."""
    return slots - (1 << 64) if slots >> 63 else slots


def _add_tolerance(waits: float) -> float:
    """Adds a tolerance, since times are compared as floats."""
    return waits if waits < 0 else waits * (1 + 1e-12) + 1e-9
