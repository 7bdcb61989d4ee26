"""Results of a join tree's nodes as entries of the arena: written, read, put together."""

from dataclasses import replace

from ensue.plan.physical import Leaf
from ensue.source.kernel_inputs import Frame
from ensue.source.table_columns import Source
from ensue.structures.tree.nodes import Spot
from ensue.structures.tree.operator_results import TreeResults
from ensue.structures.tree.parts import Kept, Part
from ensue.structures.tree.records import Records


class TreeEntries:
    """Writes what entries keep, and says where it is found."""

    def __init__(self, frame: Frame, records: Records, results: TreeResults) -> None:
        self.frame = frame
        self.records = records
        self.results = results

    def keep(self, out: Source, spot: Spot, part: Part) -> None:
        node, records = f"n{spot.called}", self.records
        values = {"first": part.first, "start": part.start, "index": part.index, "rip": part.rip}
        records.add(out, spot.list, node, values)
        if not isinstance(spot.node, Leaf):
            for variable, event in part.events.items():
                out(f"{records.kept_row(spot.list, variable, node)} = {event.row}")
            for variable, chain in part.chains.items():
                out(f"{records.kept_chain(spot.list, variable, node)} = {chain}")
        wanted = set(records.slots[spot.list])
        for variable, event in part.events.items():
            for which in ("start", "end"):
                if (variable, which) in wanted:
                    kept = records.kept_time(spot.list, variable, which, node)
                    out(f"{kept} = {event.time(which)}")
        self.results.keep(out, spot, part, node)
        if not spot.starts_naturally:
            out(f"{records.kept_time(spot.list, '', 'start', node)} = {part.opens}")
        if not spot.ends_naturally:
            out(f"{records.kept_time(spot.list, '', 'end', node)} = {part.closes}")
        for feature in self.frame.features.all():
            for variable in part.events:
                if (variable, f"f{feature.number}") in wanted:
                    place = records.kept_feature(spot.list, variable, feature, node)
                    records.put(out, place, part.events[variable].feature(feature))

    def part(self, spot: Spot, node: str) -> Part:
        records = self.records
        alone = isinstance(spot.node, Leaf)
        events = {
            leaf.variable: Kept(records, spot.list, leaf.variable, node, alone)
            for leaf in spot.leaves()
            if not leaf.kleene
        }
        chains = {
            leaf.variable: (node if alone else records.kept_chain(spot.list, leaf.variable, node))
            for leaf in spot.leaves()
            if leaf.kleene
        }
        part = Part(
            events,
            chains,
            records.get("first", node),
            records.get("row", node),
            records.get("start", node),
            records.get("end", node),
            records.get("index", node) if self.frame.counts else "",
            records.get("rip", node),
        )
        part = self.results.kept(spot, part, node)
        if not spot.starts_naturally:
            part = replace(part, begins=records.kept_time(spot.list, "", "start", node))
        if not spot.ends_naturally:
            part = replace(part, ends=records.kept_time(spot.list, "", "end", node))
        return part

    def joined(self, out: Source, parent: Spot, left: Part, right: Part) -> Part:
        """The result of two parts that fit; the event at hand is its last."""
        number = parent.called

        def least(name: str, one: str, other: str) -> str:
            out(f"{name}{number} = {one}")
            with out.block(f"if {other} < {name}{number}:"):
                out(f"{name}{number} = {other}")
            return f"{name}{number}"

        first, start, index = left.first, left.start, left.index
        if not parent.in_order:
            first = least("first", left.first, right.first)
            start = least("start", left.start, right.start)
            if self.frame.counts:
                index = least("index", left.index, right.index)
        whole = Part(
            {**left.events, **right.events},
            {**left.chains, **right.chains},
            first,
            "row",
            start,
            "t",
            index,
            left.rip,
        )
        return self.results.joined(out, parent, left, right, whole)
