"""The table of the shared network: equal nodes of different subscriptions are one row."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ensue.errors import QueryError, StateError
from ensue.ir.subscription import Select
from ensue.kernels import network_tables
from ensue.kernels.network_tables import NetworkNodes
from ensue.operators.subscriptions.atom_encoder import COMPARISON, WHERE
from ensue.operators.subscriptions.atom_index import AtomIndex
from ensue.operators.subscriptions.growing_columns import Array, Column, GrowingColumns, KeyIndex, read_metadata
from ensue.planner.subscription_network import (
    FieldTest,
    NetworkAbsence,
    NetworkFilter,
    NetworkJoin,
    NetworkLeaf,
    NetworkNode,
    NetworkRoot,
    PlaceTest,
    Test,
    TimeTest,
)
from ensue.vector.geo_regions import Regions

OPERATOR = {"=": 0, "!=": 1, "<": 2, "<=": 3, ">": 4, ">=": 5}
SELECT = {Select.LATEST: network_tables.LATEST, Select.ONCE: network_tables.ONCE, Select.ALL: network_tables.ALL}
FORMAT = 1  # of the files
_ABOUT = "table.json"
_LINK = Column(np.int32, fill=-1)
_PARTS = ("_nodes", "_edges", "_users", "_subscriptions", "_tests", "leaf_of", "keys")
_PLAIN = ("key_groups", "changes", "requests", "fields", "gone", "gone_subscriptions")


class NetworkTable:
    """The nodes of all subscriptions. Adding one compiles no code."""

    def __init__(self, time: Any, regions: Regions, leaves: AtomIndex) -> None:
        self.regions = regions
        self.leaves = leaves
        self.time = np.dtype(time)
        self.fields: dict[str, int] = {}  # fields that are compared between events
        # absences between moments, which start without an event, with their versions
        self.seeds: dict[int, int] = {}
        self._since_now = 0  # the version of the current change
        self.changes = 0
        self.requests = 0  # for nodes; those beyond the number of nodes were shared
        self.key_groups = 1  # tasks that subscriptions are distributed over
        self.gone: list[int] = []  # unused nodes, until their state is dropped
        self.gone_subscriptions: list[int] = []
        self.free_tests: dict[int, list[int]] = {}
        self.leaf_of = GrowingColumns(node=_LINK)  # by slot of the index
        self._nodes = GrowingColumns(
            kind=Column(np.int8), edges=_LINK, users=_LINK, tests=Column(np.int64, 2),
            waits=Column(np.float64, 3, -np.inf), only_latest=Column(np.int8), simple=Column(np.int8),
            absence=Column(np.int64, 4), absence_times=Column(time, 2), height=Column(np.int32),
            key_groups=Column(np.uint64),
            key=Column(np.uint64, 2),
            used=Column(np.int32),  # how many nodes above and subscriptions use it
            not_latest=Column(np.int32),  # how many of them need more than its newest match
            inputs=_LINK,  # its first edge from a node below
            slot=_LINK,  # of a leaf in the index
        )  # fmt: skip
        self._edges = GrowingColumns(
            edge=Column(np.int32, 5, -1), before=_LINK, child=_LINK, sibling=_LINK  # the next edge to the same node
        )  # fmt: skip
        self._users = GrowingColumns(user=Column(np.int32, 4, -1), before=_LINK, node=_LINK, sibling=_LINK)
        self._subscriptions = GrowingColumns(
            select=Column(np.int8), since=Column(np.int64), key_group=Column(np.int32),
            hash=Column(np.uint64),  # of its nodes
            users=_LINK,  # its first place among the users of nodes
        )  # fmt: skip
        self._tests = GrowingColumns(
            test=Column(np.int64, 6), test_time=Column(time, 2), test_number=Column(np.float64, 2)
        )  # fmt: skip
        self.keys = KeyIndex(self._nodes)

    # ---------------------------------------------------------------------------- subscriptions

    def subscribe(self, roots: Iterable[NetworkRoot], select: Select, since: int, key_group: int | None = None) -> int:
        """Adds a subscription and returns its number; equal ones share a task."""
        roots = tuple(dict.fromkeys(roots))
        hashed = int.from_bytes(min(root.node.key for root in roots)[:8], "big")
        key_group = hashed % self.key_groups if key_group is None else key_group
        self._since_now = since
        number = self._subscriptions.take()
        row = self._subscriptions
        row["select"][number] = SELECT[select]
        row["since"][number] = since
        row["key_group"][number] = key_group
        row["hash"][number] = hashed
        try:
            for root in roots:
                self._use(self.add(root.node, key_group), number, root)
        except QueryError:
            self.cancel(number)
            raise
        self.changes += 1
        return number

    def cancel(self, number: int) -> None:
        """Removes a subscription. Its number stays unused until its state is dropped."""
        for place in list(_iterate(self._users["sibling"], self._subscriptions["users"][number])):
            node = int(self._users["node"][place])
            _unlink(self._users["user"], self._users["before"], self._nodes["users"], node, place)
            self._users.unused.append(place)
            if self._selects_all(place):
                self._need_all(node, -1)
            self._release(node)
        self._subscriptions["users"][number] = -1
        self.gone_subscriptions.append(number)
        self.changes += 1

    def _use(self, node: int, subscription: int, root: NetworkRoot) -> None:
        users, of = self._users, self._subscriptions["users"]
        place = users.take()
        users["node"][place] = node
        users["sibling"][place], of[subscription] = of[subscription], place
        field = -1 if root.field is None else self._field(root.field)
        users["user"][place, 1:] = (subscription, root.slot, field)
        _link(users["user"], users["before"], self._nodes["users"], node, place)
        if self._selects_all(place):
            self._need_all(node, 1)

    def _selects_all(self, place: int) -> bool:
        """Whether a user of a node needs more than the newest match."""
        _, subscription, slot, _ = self._users["user"][place]
        return bool(self._subscriptions["select"][subscription] == network_tables.ALL or slot >= 0)

    def find_subscriptions(self, leaves: Iterable[int]) -> set[int]:
        """Returns the subscriptions for which events at these leaves are relevant."""
        numbers: set[int] = set()
        seen = set(leaves)
        remaining = list(seen)
        user, edge = self._users["user"], self._edges["edge"]
        while remaining:
            node = remaining.pop()
            numbers |= {int(user[place, 1]) for place in _iterate(user[:, 0], self._nodes["users"][node])}
            above = {int(edge[e, 1]) for e in _iterate(edge[:, 0], self._nodes["edges"][node])} - seen
            seen |= above
            remaining += above
        return numbers

    def shares(self, counts: Any) -> dict[int, float]:
        """Divides the values of nodes among the subscriptions that use them.

        >>> table = NetworkTable(np.int64, None, None)
        >>> table.shares(np.zeros(0))
        {}
        """
        nodes_of: dict[int, set[int]] = {}
        users: Counter[int] = Counter()
        firsts = self._subscriptions["users"][: self.subscriptions]
        for number in np.flatnonzero(firsts >= 0).tolist():
            remaining = [int(self._users["node"][p]) for p in _iterate(self._users["sibling"], firsts[number])]
            seen: set[int] = set()
            while remaining:
                node = remaining.pop()
                if node not in seen:
                    seen.add(node)
                    remaining += [child for child, _ in self.list_inputs(node)]
            nodes_of[number] = {node for node in seen if counts[node]}
            users.update(nodes_of[number])
        share_of_node = {node: float(counts[node]) / count for node, count in users.items()}
        return {number: sum(share_of_node[n] for n in nodes) for number, nodes in nodes_of.items() if nodes}

    # ---------------------------------------------------------------------------- nodes

    def add(self, node: NetworkNode, key_group: int = 0) -> int:
        """Returns the number of a node, creates it if needed, and counts one more user."""
        self.requests += 1
        number = self.keys.find(node.key)
        if number < 0:
            number = self._create(node, key_group)
        else:
            self._mark_task(number, key_group)
            for child, _, _ in _list_inputs(node):
                self._extend_waits(child)
        self._update_wait(number, node)
        self._nodes["used"][number] += 1
        return number

    def _create(self, node: NetworkNode, key_group: int) -> int:
        children: list[tuple[int, int, tuple[Test, ...]]] = []
        regions: list[int] = []
        slot = -1
        try:  # errors arise here, before anything is changed
            for part, side, tests in _list_inputs(node):
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
        number, row = self._nodes.take(), self._nodes
        self.keys.add(node.key, number)
        match node:
            case NetworkLeaf():
                row["kind"][number] = network_tables.LEAF
                row["slot"][number] = slot
                self.leaf_of.reach(slot + 1)
                self.leaf_of["node"][slot] = number
            case NetworkFilter(_, tests) | NetworkJoin(_, _, tests):
                is_sieve = isinstance(node, NetworkFilter)
                row["kind"][number] = network_tables.SIEVE if is_sieve else network_tables.JOIN
                row["tests"][number] = self._add_tests(tests, iter(regions))
                row["simple"][number] = isinstance(node, NetworkJoin) and _is_simple(node)
            case NetworkAbsence():
                row["kind"][number] = network_tables.ABSENCE
                row["absence"][number] = (
                    _to_signed(node.base), _to_signed(node.since), _to_signed(node.until), node.until_end,
                )  # fmt: skip
                row["absence_times"][number] = (node.length, node.at)
                if node.child is None:
                    self.seeds[number] = self._since_now
        height = max((row["height"][child] for child, _, _ in children), default=-1) + 1
        row["height"][number] = height
        row["key_groups"][number] = np.uint64(1) << np.uint64(key_group & 63)
        edges = self._edges
        for child, side, tests in reversed(children):  # so that the edges are listed in their order
            edge = edges.take()
            edges["child"][edge] = child
            edges["sibling"][edge], row["inputs"][number] = row["inputs"][number], edge
            edges["edge"][edge, 1:] = (number, side, *self._add_tests(tests, iter(())))
            _link(edges["edge"], edges["before"], row["edges"], child, edge)
            self._need_all(child, 1)
        self._need_all(number, 0)
        return number

    def list_inputs(self, number: int) -> list[tuple[int, int]]:
        """Returns the nodes below a node, each with the edge from it."""
        inputs, edge = [], int(self._nodes["inputs"][number])
        while edge >= 0:
            inputs.append((int(self._edges["child"][edge]), edge))
            edge = int(self._edges["sibling"][edge])
        return inputs

    def count_users(self, key: bytes) -> int:
        """Returns how many nodes and subscriptions use the node with a key."""
        number = self.keys.find(key)
        return int(self._nodes["used"][number]) if number >= 0 else 0

    def _mark_task(self, number: int, key_group: int) -> None:
        """Marks a node and all below it as used in a task."""
        bit = np.uint64(1) << np.uint64(key_group & 63)
        if self._nodes["key_groups"][number] & bit:
            return
        self._nodes["key_groups"][number] |= bit
        for child, _ in self.list_inputs(number):
            self._mark_task(child, key_group)

    def _extend_waits(self, node: NetworkNode) -> None:
        """Updates the waiting times of a shared node and of all below it."""
        self._update_wait(self.keys.find(node.key), node)
        for child, _, _ in _list_inputs(node):
            self._extend_waits(child)

    def _update_wait(self, number: int, node: NetworkNode) -> None:
        """Sets the waiting time of a shared node to the longest of its users."""
        waits = self._nodes["waits"][number]
        if isinstance(node, NetworkJoin):
            waits[0] = max(waits[0], _add_tolerance(node.left_waits))
            waits[1] = max(waits[1], _add_tolerance(node.right_waits))
        elif isinstance(node, NetworkAbsence):
            waits[2] = max(waits[2], _add_tolerance(node.bars_wait))

    def _need_all(self, number: int, more: int) -> None:
        """Counts users that need more than the newest match of a node; of a join of two events, it may be enough."""
        row = self._nodes
        row["not_latest"][number] += more
        only = row["kind"][number] == network_tables.JOIN and row["not_latest"][number] == 0
        kinds = (row["kind"][child] for child, _ in self.list_inputs(number)) if only else ()
        row["only_latest"][number] = only and all(kind == network_tables.LEAF for kind in kinds)

    def _release(self, number: int) -> None:
        row = self._nodes
        row["used"][number] -= 1
        if row["used"][number]:
            return
        self.keys.remove(self.keys.get_key(number))
        for child, edge in self.list_inputs(number):
            _unlink(self._edges["edge"], self._edges["before"], row["edges"], child, edge)
            self._drop_tests(*self._edges["edge"][edge, 3:].tolist())
            self._edges.unused.append(edge)
            self._need_all(child, -1)
            self._release(child)
        row["inputs"][number] = -1
        self._drop_tests(*row["tests"][number].tolist())
        slot = int(row["slot"][number])
        if slot >= 0:
            self.leaves.cancel(slot)
            self.leaf_of["node"][slot] = -1
        self.seeds.pop(number, None)
        self.gone.append(number)

    def reuse(self) -> None:
        """Frees the numbers of removed nodes and subscriptions, after their state was dropped."""
        self._nodes.unused += self.gone
        self._subscriptions.unused += self.gone_subscriptions
        self.gone, self.gone_subscriptions = [], []

    def alive(self) -> Any:
        """Returns which nodes are in use."""
        is_alive = np.ones(self.size, np.int8)
        is_alive[[*self.gone, *self._nodes.unused]] = 0
        return is_alive

    # ---------------------------------------------------------------------------- tests

    def _add_tests(self, tests: Iterable[Test], regions: Iterator[int]) -> tuple[int, int]:
        """Stores tests contiguously and returns the first position and their number."""
        stored = tuple(tests)
        if not stored:
            return 0, 0
        free = self.free_tests.get(len(stored))
        first = free.pop() if free else self._tests.extend(len(stored))
        for place, test in enumerate(stored, first):
            self._write(place, test, regions)
        return first, len(stored)

    def _write(self, place: int, test: Test, regions: Iterator[int]) -> None:
        row = self._tests["test"][place]
        match test:
            case TimeTest():
                slots = _to_signed(test.earlier), _to_signed(test.later)
                row[:] = (network_tables.TIME, *slots, test.earlier_end, test.later_end, test.strict)
                self._tests["test_time"][place] = (test.by, test.at)
            case PlaceTest():
                first = _to_signed(test.first)
                kind = network_tables.PLACE
                if test.region is not None:
                    first, kind = next(regions), network_tables.REGION
                codes = WHERE[test.where], COMPARISON[test.comparison]
                row[:] = (kind, first, _to_signed(test.second), *codes, 0)
                self._tests["test_number"][place] = (test.number, test.tolerance)
            case FieldTest():
                row[:] = (
                    network_tables.FIELD, test.slot, test.other, OPERATOR[test.operator],
                    self._field(test.name), self._field(test.other_name),
                )  # fmt: skip

    def _drop_tests(self, first: int, count: int) -> None:
        if not count:
            return
        self.free_tests.setdefault(count, []).append(first)
        for row in self._tests["test"][first : first + count].tolist():
            if row[network_tables.KIND] == network_tables.REGION:
                self.regions.release(row[network_tables.SLOTS_A])

    def _field(self, name: str) -> int:
        return self.fields.setdefault(name, len(self.fields))

    # ---------------------------------------------------------------------------- the whole table

    @property
    def size(self) -> int:
        """The number of node numbers in use."""
        return self._nodes.count

    @property
    def subscriptions(self) -> int:
        """The number of subscription numbers in use."""
        return self._subscriptions.count

    def get_keys(self, numbers: Any) -> Array:
        """Returns the keys of nodes."""
        return np.asarray(self._nodes["key"][numbers])

    def arrays(self) -> NetworkNodes:
        """Returns the arrays for the kernel, valid until a subscription is added."""
        n, s, t = self._nodes, self._subscriptions, self._tests
        return NetworkNodes(
            n["kind"], n["edges"], n["users"], n["tests"], n["waits"], n["only_latest"], n["simple"], n["absence"],
            n["absence_times"], n["height"], n["key_groups"], self._edges["edge"], self._users["user"], s["select"],
            s["since"], s["key_group"], t["test"], t["test_time"], t["test_number"],
        )  # fmt: skip

    def counters(self) -> dict[str, int]:
        """Returns the counts of nodes and of shared ones."""
        numbers = np.fromiter(self.keys, np.int64, len(self.keys))
        return {
            "nodes": len(numbers),
            "nodes_shared": int((self._nodes["used"][numbers] - 1).sum()),
            "leaves": int((self._nodes["slot"][numbers] >= 0).sum()),
        }

    def save(self, folder: Path) -> None:
        """Writes the table to an empty folder."""
        for name in _PARTS:
            getattr(self, name).save(folder / name)
        plain = {name: getattr(self, name) for name in _PLAIN}
        plain |= {"free_tests": list(self.free_tests.items()), "seeds": list(self.seeds.items())}
        (folder / _ABOUT).write_text(json.dumps({"format": FORMAT, "time": self.time.str, **plain}))

    @classmethod
    def open(cls, folder: Path, time: Any, regions: Regions, leaves: AtomIndex) -> "NetworkTable":
        """Opens a saved table. Its files are mapped; changes stay in memory."""
        table, metadata = cls(time, regions, leaves), read_metadata(folder / _ABOUT)
        if metadata["format"] != FORMAT:
            raise StateError(
                f"{folder} holds a table of nodes of format {metadata['format']}, and this release "
                f"reads {FORMAT}\n  hint: use the release that wrote it"
            )
        if metadata["time"] != table.time.str:
            raise StateError(f"{folder} holds a table of nodes for another time column")
        for name in _PARTS:
            getattr(table, name).open(folder / name)
        for name in _PLAIN:
            setattr(table, name, metadata[name])
        table.free_tests, table.seeds = dict(metadata["free_tests"]), dict(metadata["seeds"])
        return table

    def split(self, key_groups: int) -> None:
        """Distributes the subscriptions over this number of tasks, equal ones to the same."""
        self.key_groups = key_groups
        row = self._subscriptions
        row["key_group"][:] = row["hash"] % np.uint64(key_groups)
        bits = self._nodes["key_groups"]
        bits[:] = 0
        users = self._users.list_used()
        tasks = row["key_group"][self._users["user"][users, 1]].astype(np.uint64)
        np.bitwise_or.at(bits, self._users["node"][users], np.uint64(1) << (tasks & np.uint64(63)))
        edges = self._edges.list_used()
        above, below = self._edges["edge"][edges, 1], self._edges["child"][edges]
        height = self._nodes["height"][above]
        for level in sorted(set(height.tolist()), reverse=True):  # from the roots down
            at_level = height == level
            np.bitwise_or.at(bits, below[at_level], bits[above[at_level]])
        self.changes += 1


def iterate_leaves(node: NetworkNode) -> Iterator[NetworkLeaf]:
    """Yields the leaves of a node, those of forbidden events included."""
    if isinstance(node, NetworkLeaf):
        yield node
    for part, _, _ in _list_inputs(node):
        yield from iterate_leaves(part)


def _list_inputs(node: NetworkNode) -> list[tuple[NetworkNode, int, tuple[Test, ...]]]:
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


# ---------------------------------------------------------------------------- linked lists


def _iterate(following: Array, row: int) -> Iterator[int]:
    """Yields a row and those that follow it in its list."""
    while row >= 0:
        yield int(row)
        row = following[row]


def _link(rows: Array, before: Array, heads: Array, head: int, row: int) -> None:
    """Puts a row, whose first column is the next row, at the front of a list."""
    following = heads[head]
    rows[row, 0] = following
    before[row] = -1
    if following >= 0:
        before[following] = row
    heads[head] = row


def _unlink(rows: Array, before: Array, heads: Array, head: int, row: int) -> None:
    following, earlier = rows[row, 0], before[row]
    if earlier >= 0:
        rows[earlier, 0] = following
    else:
        heads[head] = following
    if following >= 0:
        before[following] = earlier
