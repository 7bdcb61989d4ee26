"""Results of a join tree's nodes as entries of the arena, and the rollback of an event."""

from collections.abc import Callable
from dataclasses import replace

from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.state_layout import SourceWriter, store_value
from ensue.physical.join_tree.nodes import PlacedNode
from ensue.physical.join_tree.operator_results import PartialResult, StoredEvent, TreeResults
from ensue.physical.join_tree.records import TreeRecords
from ensue.planner.physical_plan import LeafNode


class TreeEntries:
    """Writes and reads the entries of results."""

    def __init__(self, frame: KernelContext, records: TreeRecords, results: TreeResults) -> None:
        self.frame = frame
        self.records = records
        self.results = results

    def keep(self, out: SourceWriter, spot: PlacedNode, part: PartialResult) -> None:
        node, records = f"n{spot.called}", self.records
        values = {"first": part.first, "start": part.start, "index": part.index, "rip": part.rip}
        records.add(out, spot.list, node, values)
        if not isinstance(spot.node, LeafNode):
            for variable, event in part.events.items():
                out(f"{records.stored_row(spot.list, variable, node)} = {event.row}")
            for variable, chain in part.chains.items():
                out(f"{records.stored_chain(spot.list, variable, node)} = {chain}")
        slots = set(records.slots[spot.list])
        for variable, event in part.events.items():
            for which in ("start", "end"):
                if (variable, which) in slots:
                    time = records.stored_time(spot.list, variable, which, node)
                    out(f"{time} = {event.time(which)}")
        self.results.keep(out, spot, part, node)
        if not spot.starts_naturally:
            out(f"{records.stored_time(spot.list, '', 'start', node)} = {part.opens}")
        if not spot.ends_naturally:
            out(f"{records.stored_time(spot.list, '', 'end', node)} = {part.closes}")
        for feature in self.frame.features.all():
            for variable in part.events:
                if (variable, f"f{feature.number}") in slots:
                    place = records.stored_feature(spot.list, variable, feature, node)
                    store_value(out, place, part.events[variable].feature(feature))

    def part(self, spot: PlacedNode, node: str) -> PartialResult:
        records = self.records
        alone = isinstance(spot.node, LeafNode)
        events = {
            leaf.variable: StoredEvent(records, spot.list, leaf.variable, node, alone)
            for leaf in spot.leaves()
            if not leaf.kleene
        }
        chains = {
            leaf.variable: (node if alone else records.stored_chain(spot.list, leaf.variable, node))
            for leaf in spot.leaves()
            if leaf.kleene
        }
        part = PartialResult(
            events,
            chains,
            records.get("first", node),
            records.get("row", node),
            records.get("start", node),
            records.get("end", node),
            records.get("index", node) if self.frame.counts else "",
            records.get("rip", node),
        )
        part = self.results.restore(spot, part, node)
        if not spot.starts_naturally:
            part = replace(part, begins=records.stored_time(spot.list, "", "start", node))
        if not spot.ends_naturally:
            part = replace(part, ends=records.stored_time(spot.list, "", "end", node))
        return part

    def join(self, out: SourceWriter, parent: PlacedNode, left: PartialResult, right: PartialResult) -> PartialResult:
        """The result of two matching parts; the current event is its last one."""
        number = parent.called

        def least(name: str, first: str, second: str) -> str:
            out(f"{name}{number} = {first}")
            with out.block(f"if {second} < {name}{number}:"):
                out(f"{name}{number} = {second}")
            return f"{name}{number}"

        first, start, index = left.first, left.start, left.index
        if not parent.in_order:
            first = least("first", left.first, right.first)
            start = least("start", left.start, right.start)
            if self.frame.counts:
                index = least("index", left.index, right.index)
        result = PartialResult(
            {**left.events, **right.events}, {**left.chains, **right.chains}, first, "row", start, "t", index, left.rip
        )
        return self.results.join(out, parent, left, right, result)


# Rollback of an event for which the room was too small.


def write_limits(out: SourceWriter) -> None:
    """Writes the table sizes before the loop."""
    out("last_entry = A.shape[0] - 1", "last_match = O.shape[0] - 1", "short = 0")


def write_rollback(
    out: SourceWriter, frame: KernelContext, records: TreeRecords, event: Callable[[SourceWriter], None]
) -> None:
    """Writes the processing of an event, and its rollback if the room was too small."""
    out("old_entries = atop", "old_matches = otop")
    event(out)
    out.note("", "too little room for the results of the event: roll back, and ask for more")
    with out.block("if short != 0:"):
        out("code = NEEDS_INSTANCES if short == SHORT_OF_ENTRIES else NEEDS_OUTPUT")
        with out.block("while atop > old_entries:"):
            out("atop -= 1")
            previous = records.get("previous", "atop")
            with out.block("for list in range(tops.shape[1]):"):
                out(f"tops[k, list] = {previous} if tops[k, list] == atop else tops[k, list]")
        out("otop = old_matches")
        if frame.counts:
            out("counts[k] = idx - 1")
        out("break")
