"""Results of users' operators in a join tree: their times, attributes and last events."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ensue.algebra.operator import TIMES
from ensue.algebra.predicate import Expr, Field
from ensue.algebra.walk import references
from ensue.plan.physical import Join, Leaf
from ensue.plan.physical_rules.operators import Function
from ensue.plan.physical_rules.user_operators import EVENT, LAST, WHOLE
from ensue.schema import Kind
from ensue.source.expressions import Text
from ensue.source.kernel_inputs import Frame
from ensue.source.names import Names
from ensue.source.table_columns import Columns, Source
from ensue.structures.tree.nodes import Spot
from ensue.structures.tree.parts import Part
from ensue.structures.tree.records import REAL, Records
from ensue.structures.tree.records import WHOLE as WHOLES

REALS = (Kind.FLOAT, Kind.DECIMAL)
Later = Callable[[], str]


@dataclass(slots=True)
class Memory:
    """What repeats keep of their last event and the result that it repeats, by partition."""

    names: Names
    columns: Columns = field(init=False)

    def __post_init__(self) -> None:
        self.columns = Columns("L", "LF", self.names, "LATEST_")

    @property
    def width(self) -> int:
        return len(self.columns.wholes)

    def there(self, spot: Spot) -> str:
        """Not 0 once it has fired."""
        return self.columns.at(f"{spot.number} there", "k", name=f"{spot.number}_THERE")

    def value(self, spot: Spot, name: str, *, real: bool) -> str:
        told = f"{spot.number}_{self.names.variable(name)}"
        return self.columns.at(f"{spot.number} {name}", "k", real=real, name=told)


class TreeResults:
    """Writes what the Q and F of operators add to the nodes of a tree."""

    def __init__(self, frame: Frame, records: Records) -> None:
        self.frame = frame
        self.records = records
        self.memory = Memory(frame.names)

    # -------------------------------------------------------------------------- questions

    def fits(self, spot: Spot, parts: tuple[Part, ...]) -> list[str]:
        """When Q is true of the parts of a node, and F can be asked."""
        assert not isinstance(spot.node, Leaf)
        fits = spot.node.operator.fits
        tests = self.can_be_asked(spot, parts)
        if fits is not None:
            tests.append(_called(fits, self._arguments(fits, spot, parts)))
        return tests

    def can_be_asked(self, spot: Spot, parts: tuple[Part, ...]) -> list[str]:
        """When all that Q and F name is there."""
        assert not isinstance(spot.node, Leaf)
        operator, tests = spot.node.operator, []
        if operator.fits is not None:
            tests += _there(self._arguments(operator.fits, spot, parts))
        if operator.builds is not None:
            # the result itself has times in any case
            tests += _there(self._arguments(operator.builds, spot, (*parts, parts[0])))
        return list(dict.fromkeys(tests))

    def fires(self, spot: Spot, part: Part) -> tuple[list[str], str]:
        """The lines that let a repeat take note of an event, and when it fires at it."""
        assert not isinstance(spot.node, Leaf)
        function, name = spot.node.operator.fits, f"fires{spot.number}"
        assert function is not None
        call = _called(function, self._arguments(function, spot, (part,)))
        lines = [f"{name} = {self.memory.there(spot)} == 0 or {call}"]
        own = {attribute.name for attribute in spot.node.operator.attributes}
        for argument in function.arguments:
            if argument.side == LAST and argument.name not in own:
                value, _ = self._argument(spot, (part,), EVENT, argument.name)
                lines.append(f"{self._last(spot, argument.name)} = {value}")
        return lines, name

    def made(self, spot: Spot, parts: tuple[Part, ...], whole: Part) -> tuple[list[str], Part]:
        """The lines that compute a result, and the result; `whole` is what it is made of."""
        if not spot.is_made or not self._is_asked_for(spot):
            return [], whole
        assert not isinstance(spot.node, Leaf)
        operator, lines, name = spot.node.operator, [], f"made{spot.number}"
        if operator.builds is not None:
            call = _called(
                operator.builds, self._arguments(operator.builds, spot, (*parts, whole))
            )
            lines.append(f"{name} = {call}")
            if not operator.starts_naturally:
                whole = replace(whole, begins=f"{name}[BEGINS]")
            if not operator.ends_naturally:
                whole = replace(whole, ends=f"{name}[ENDS]")
        whole = result = replace(whole, head="", tail="")
        variable = spot.node.variable or ""
        attributes: dict[tuple[str, str], Later] = dict(whole.attributes)
        attributes[variable, "start"] = lambda: result.opens
        attributes[variable, "end"] = lambda: result.closes
        for place, attribute in enumerate(operator.attributes, 2):
            said = f"MADE_{spot.number}_{self.frame.names.variable(attribute.name)}"
            number = self.frame.names.number(said, place, "places in a result of an operator")
            attributes[variable, attribute.name] = _at(f"{name}[{number}]")
        result = replace(whole, attributes=attributes)
        if spot.remembers:
            lines += self._remember(spot, result)
        return lines, result

    def _is_asked_for(self, spot: Spot) -> bool:
        """Whether anything looks at its results: of a match only the events leave the tree."""
        assert not isinstance(spot.node, Leaf)
        late = any(self.is_late(check.condition, spot) for check in spot.node.checks)
        return spot.parent is not None or spot.remembers or late

    def _remember(self, spot: Spot, result: Part) -> Iterator[str]:
        assert not isinstance(spot.node, Leaf)
        yield f"{self.memory.there(spot)} = 1"
        for attribute in spot.node.operator.attributes:
            value = result.attributes[spot.node.variable or "", attribute.name]()
            yield f"{self._last(spot, attribute.name)} = {value}"

    def _last(self, spot: Spot, name: str) -> str:
        assert not isinstance(spot.node, Leaf)
        own = {a.name: a.kind in REALS for a in spot.node.operator.attributes}
        own |= dict.fromkeys(TIMES, self.frame.real_time)
        if name not in own:
            (leaf,) = spot.leaves()
            own[name] = not self.frame.features.of(Field(leaf.variable, name)).integral
        return self.memory.value(spot, name, real=own[name])

    def is_late(self, condition: Expr, spot: Spot) -> bool:
        """Whether a condition can only be tried when a node's result is made."""
        assert not isinstance(spot.node, Leaf)
        variable = spot.node.variable
        return spot.remembers or any(r.variable == variable for r in references(condition))

    # -------------------------------------------------------------------------- arguments

    def _arguments(self, function: Function, spot: Spot, parts: tuple[Part, ...]) -> list[Text]:
        return [self._argument(spot, parts, a.side, a.name) for a in function.arguments]

    def _argument(self, spot: Spot, parts: tuple[Part, ...], side: int, name: str) -> Text:
        if side == WHOLE:
            return (parts[-1].start if name == "start" else parts[-1].end), None
        if spot.remembers:
            if side == LAST:
                return self._last(spot, name), None
            side = 0
        inner, part = spot.parts[side], parts[side]
        if name in TIMES:
            return (part.opens if name == "start" else part.closes), None
        return self._read(inner, part, name)

    def _read(self, spot: Spot, part: Part, name: str) -> Text:
        """What a part has under a name: a field of its event, or an attribute of its result."""
        if not isinstance(spot.node, Leaf):
            key = (spot.node.variable or "", name)
            if key in part.attributes:
                return part.attributes[key](), None
        (leaf,) = spot.leaves()
        feature = self.frame.features.of(Field(leaf.variable, name))
        return part.events[leaf.variable].feature(feature)

    # -------------------------------------------------------------------------- what is kept

    def keep(self, out: Source, spot: Spot, part: Part, node: str) -> None:
        """Keeps of a result what conditions and functions further up ask for."""
        sorts = dict(self._attributes(spot))
        for variable, what in list(self.records.slots[spot.list]):
            if what.startswith("@"):
                key = (variable, what[1:])
                out(f"{self._slot(spot, key, sorts[key], node)} = {part.attributes[key]()}")
        if not spot.natural and not spot.is_made:
            out(f"{self._end(spot, 'head', node)} = {part.heads}")
            out(f"{self._end(spot, 'tail', node)} = {part.tails}")

    def kept(self, spot: Spot, part: Part, node: str) -> Part:
        """A result that stands in the arena, with what is kept of it."""
        attributes = {
            key: self._kept_later(spot, key, sort, node) for key, sort in self._attributes(spot)
        }
        if not spot.natural and not spot.is_made:
            part = replace(
                part, head=self._end(spot, "head", node), tail=self._end(spot, "tail", node)
            )
        return replace(part, attributes=attributes)

    def _attributes(self, spot: Spot) -> Iterator[tuple[tuple[str, str], str]]:
        """The attributes of all results in a part, with the sort of column for each."""
        for inner in spot.walk():
            if isinstance(inner.node, Leaf) or not inner.is_made:
                continue
            name = inner.node.variable or ""
            for time in TIMES:
                yield (name, time), REAL if self.frame.real_time else WHOLES
            for attribute in inner.node.operator.attributes:
                yield (name, attribute.name), REAL if attribute.kind in REALS else WHOLES

    def _kept_later(self, spot: Spot, key: tuple[str, str], sort: str, node: str) -> Later:
        return lambda: self._slot(spot, key, sort, node)

    def _slot(self, spot: Spot, key: tuple[str, str], sort: str, node: str) -> str:
        return self.records.slot(spot.list, (key[0], f"@{key[1]}"), sort, node)

    def _end(self, spot: Spot, which: str, node: str) -> str:
        return self.records.slot(spot.list, ("", which), WHOLES, node)

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
        n = spot.called
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
    return lambda: text


def _called(function: Function, values: list[Text]) -> str:
    return f"{function.name}({', '.join(value for value, _ in values)})"


def _there(values: list[Text]) -> list[str]:
    """When every value that a function is called with is there."""
    return [ok for _, ok in values if ok is not None]
