"""Results of users' operators in a join tree: their times, attributes and latest values."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ensue.algebra.operator import TIMES
from ensue.algebra.pattern import Apply as Applied
from ensue.algebra.predicate import Expr, Field
from ensue.algebra.walk import references, results
from ensue.compile.expressions import Text
from ensue.compile.frame import Frame
from ensue.compile.layout import Columns, Source
from ensue.compile.tree_nodes import Spot
from ensue.compile.tree_parts import Part
from ensue.compile.tree_records import REAL, WHOLE, Records
from ensue.plan import user_operators
from ensue.plan.operators import Function
from ensue.plan.physical import Join, Leaf
from ensue.plan.user_operators import remembered
from ensue.schema import Kind

REALS = (Kind.FLOAT, Kind.DECIMAL)
Later = Callable[[], Text]


@dataclass(slots=True)
class Memory:
    """What repeats keep of their latest result, by partition."""

    columns: Columns = field(default_factory=lambda: Columns("L", "LF"))

    @property
    def width(self) -> int:
        return len(self.columns.wholes)

    def there(self, spot: Spot) -> str:
        """Not 0 once it has fired."""
        return self.columns.at(f"{spot.number} there", "k")

    def value(self, spot: Spot, name: str, kind: Kind) -> str:
        return self.columns.at(f"{spot.number} {name}", "k", real=kind in REALS)


class TreeResults:
    """Writes what operators of users add to the nodes of a tree."""

    def __init__(self, frame: Frame, records: Records) -> None:
        self.frame = frame
        self.records = records
        self.memory = Memory()
        self.applied = {a.variable: a for a in results(frame.plan.query.pattern)}

    def of(self, spot: Spot) -> Applied | None:
        """The operator of a user at a node, if there is one."""
        if isinstance(spot.node, Leaf) or spot.node.variable is None:
            return None
        return self.applied[spot.node.variable]

    # -------------------------------------------------------------------------- questions

    def fits(self, spot: Spot, parts: tuple[Part, ...]) -> list[str]:
        """When Q is true of the parts of a node."""
        applied = self.of(spot)
        function = None if isinstance(spot.node, Leaf) else spot.node.operator.fits
        if function is None or applied is None:
            return []
        call = self._call(function, spot, parts)
        if not spot.remembers:
            return [call]
        return [f"({self.memory.there(spot)} == 0 or {call})"]

    def made(self, spot: Spot, parts: tuple[Part, ...], whole: Part) -> tuple[list[str], Part]:
        """The lines that compute a result, and the result; `whole` is what it is made of."""
        applied = self.of(spot)
        if applied is None:
            return [], whole
        assert not isinstance(spot.node, Leaf)
        lines: list[str] = []
        name = f"made{spot.number}"
        function = spot.node.operator.builds
        if function is not None:
            lines.append(f"{name} = {self._call(function, spot, (*parts, whole))}")
            whole = replace(whole, begins=f"{name}[0]", ends=f"{name}[1]", head="", tail="")
        elif not spot.natural:
            whole = replace(whole, head="", tail="")
        variable, result = applied.variable, whole
        attributes: dict[tuple[str, str], Later] = dict(whole.attributes)
        attributes[variable, "start"] = lambda: (result.opens, None)
        attributes[variable, "end"] = lambda: (result.closes, None)
        for place, (attribute, _) in enumerate(applied.operator.z, 2):
            attributes[variable, attribute] = _at(f"{name}[{place}]")
        result = replace(whole, attributes=attributes)
        if spot.remembers:
            lines += self._remember(spot, applied, result)
        return lines, result

    def _remember(self, spot: Spot, applied: Applied, result: Part) -> Iterator[str]:
        yield f"{self.memory.there(spot)} = 1"
        columns = {r.field: r.column for r in applied.reads[0]}
        for name, kind in remembered(applied):
            if (applied.variable, name) in result.attributes:
                value = result.attributes[applied.variable, name]()[0]
            else:
                value = self._read(spot.parts[0], result, columns[name])[0]
            yield f"{self.memory.value(spot, name, kind)} = {value}"

    def is_late(self, condition: Expr, spot: Spot) -> bool:
        """Whether a condition can only be tried when a node's result is made."""
        if self.of(spot) is None:
            return False
        assert not isinstance(spot.node, Leaf)
        variable = spot.node.variable
        return spot.remembers or any(r.variable == variable for r in references(condition))

    # -------------------------------------------------------------------------- arguments

    def _call(self, function: Function, spot: Spot, parts: tuple[Part, ...]) -> str:
        values = [self._argument(spot, parts, a.side, a.name) for a in function.arguments]
        return f"{function.name}({', '.join(values)})"

    def _argument(self, spot: Spot, parts: tuple[Part, ...], side: int, name: str) -> str:
        if side == user_operators.WHOLE:
            return parts[-1].start if name == "start" else parts[-1].end
        if spot.remembers:
            applied = self.of(spot)
            assert applied is not None
            if side == user_operators.LAST:
                return self.memory.value(spot, name, dict(remembered(applied))[name])
            side = 0
        inner, part = spot.parts[side], parts[side]
        if name in TIMES:
            return part.opens if name == "start" else part.closes
        return self._read(inner, part, name)[0]

    def _read(self, spot: Spot, part: Part, name: str) -> Text:
        """What a part has under a name: a field of its event, or an attribute of its result."""
        if not isinstance(spot.node, Leaf):
            key = (spot.node.variable or "", name)
            if key in part.attributes:
                return part.attributes[key]()
        (leaf,) = spot.leaves()
        feature = self.frame.features.of(Field(leaf.variable, name))
        return part.events[leaf.variable].feature(feature)

    # -------------------------------------------------------------------------- what is kept

    def keep(self, out: Source, spot: Spot, part: Part, node: str) -> None:
        """Keeps of a result what conditions and functions further up ask for."""
        for variable, what in list(self.records.slots[spot.list]):
            if what.startswith("@"):
                place = self._slot(spot, variable, what[1:], node)
                out(f"{place} = {part.attributes[variable, what[1:]]()[0]}")
        if not spot.natural and self.of(spot) is None:
            out(f"{self._end(spot, 'head', node)} = {part.heads}")
            out(f"{self._end(spot, 'tail', node)} = {part.tails}")

    def kept(self, spot: Spot, part: Part, node: str) -> Part:
        """A result that stands in the arena, with what is kept of it."""
        attributes: dict[tuple[str, str], Later] = {}
        for inner in spot.walk():
            applied = self.of(inner)
            if applied is not None:
                for name in (*TIMES, *dict(applied.operator.z)):
                    attributes[applied.variable, name] = self._kept_later(
                        spot, applied.variable, name, node
                    )
        if not spot.natural and self.of(spot) is None:
            part = replace(
                part, head=self._end(spot, "head", node), tail=self._end(spot, "tail", node)
            )
        return replace(part, attributes=attributes)

    def _kept_later(self, spot: Spot, variable: str, name: str, node: str) -> Later:
        return lambda: (self._slot(spot, variable, name, node), None)

    def _slot(self, spot: Spot, variable: str, name: str, node: str) -> str:
        applied = self.applied[variable]
        kind = applied.time if name in TIMES else dict(applied.operator.z)[name]
        sort = REAL if kind in REALS else WHOLE
        return self.records.slot(spot.list, (variable, f"@{name}"), sort, node)

    def _end(self, spot: Spot, which: str, node: str) -> str:
        return self.records.slot(spot.list, ("", which), WHOLE, node)

    # -------------------------------------------------------------------------- order

    def joined(self, out: Source, spot: Spot, left: Part, right: Part, whole: Part) -> Part:
        """When parts of which one is a result that stands where F says lie together."""
        whole = replace(whole, attributes={**left.attributes, **right.attributes})
        if spot.natural:
            return whole
        assert isinstance(spot.node, Join)
        if spot.is_sequence:
            return replace(
                whole, begins=left.opens, ends=right.closes, head=left.heads, tail=right.tails
            )
        n = spot.number
        out(f"open{n} = {left.opens}", f"head{n} = {left.heads}")
        tie = f"({right.opens} == open{n} and {right.heads} < head{n})"
        with out.block(f"if {right.opens} < open{n} or {tie}:"):
            out(f"open{n} = {right.opens}", f"head{n} = {right.heads}")
        out(f"close{n} = {left.closes}", f"tail{n} = {left.tails}")
        tie = f"({right.closes} == close{n} and {right.tails} > tail{n})"
        with out.block(f"if {right.closes} > close{n} or {tie}:"):
            out(f"close{n} = {right.closes}", f"tail{n} = {right.tails}")
        return replace(
            whole, begins=f"open{n}", ends=f"close{n}", head=f"head{n}", tail=f"tail{n}"
        )


def before(left: Part, right: Part) -> str:
    """When one part is before the other, by the times that operators gave them."""
    tie = f"({left.closes} == {right.opens} and {left.tails} < {right.heads})"
    return f"({left.closes} < {right.opens} or {tie})"


def _at(text: str) -> Later:
    return lambda: (text, None)
