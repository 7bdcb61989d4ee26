"""The modules of a hierarchy of events inside one flat query: the EH-Tree's headers and shape.

A tower whose boxes are replaced by their patterns is one query; the modules say which of its
variables a box stood for. A join tree over it is an EH-Tree: the parts of a module are joined from
the left in the order of the pattern, and each box is a subtree of its own. What stands before a
box waits for it (parked runs), and what the box finds is joined at once, without a buffer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ensue.algebra.form import Form, form, present
from ensue.algebra.pattern import Pattern
from ensue.algebra.text import show_pattern
from ensue.algebra.walk import positives
from ensue.algebra.window import ByEvents, ByTime, ByUnits, Window
from ensue.errors import QueryError
from ensue.plan.physical_rules.fitting import is_leaf, leaf_of

PRECURSORS = "precursors"  # the name to switch parked runs off by

Shape = str | tuple["Shape", "Shape"]  # of a join tree: a variable, or two shapes joined


@dataclass(frozen=True, slots=True)
class Module:
    """The header of a module: a definition in the place of one box.

    Its window must also be a condition of the query: here it only says what may be forgotten.
    """

    name: str  # of the definition
    box: str  # the variable that stood for it
    variables: tuple[str, ...]  # of all events under it, those of its own boxes too
    within: Window | None = None
    level: int = 2  # the query on top is level 1
    precursor: str | None = None  # the box whose module it stands in; None: the query

    # ------------------------------------------------------------------------ as plain values

    def described(self) -> dict[str, Any]:
        """As plain values; `of` gives it back.

        >>> m = Module("Incident", "x", ("x_a", "x_b"), ByUnits(5))
        >>> Module.of(m.described()) == m
        True
        """
        return {
            "name": self.name,
            "box": self.box,
            "variables": list(self.variables),
            "within": _described(self.within),
            "level": self.level,
            "precursor": self.precursor,
        }

    @classmethod
    def of(cls, described: dict[str, Any]) -> "Module":
        """From plain values."""
        values = described | {
            "variables": tuple(described["variables"]),
            "within": _window(described["within"]),
        }
        return cls(**values)


def _described(window: Window | None) -> list[Any] | None:
    match window:
        case None:
            return None
        case ByTime(nanoseconds=length):
            return ["time", length]
        case ByUnits(amount=length):
            return ["units", length]
        case ByEvents(count=length):
            return ["events", length]


def _window(described: Sequence[Any] | None) -> Window | None:
    if described is None:
        return None
    kind, length = described
    kinds: dict[str, type[Window]] = {"time": ByTime, "units": ByUnits, "events": ByEvents}
    return kinds[kind](length)


# --------------------------------------------------------------------------------------- shape


def tower_shape(pattern: Pattern, modules: Sequence[Module]) -> Shape:
    """The shape of a join tree that follows the modules: the EH-Tree of a flat pattern.

    >>> from ensue.algebra.pattern import Atom, Seq
    >>> abcd = Seq(tuple(Atom(v.upper(), v) for v in "abcd"))
    >>> tower_shape(abcd, [Module("M", "x", ("b", "c"))])
    (('a', ('b', 'c')), 'd')
    """
    known = {a.variable for a in positives(pattern)}
    boxes = {m.box: frozenset(m.variables) & known for m in modules}
    shape = _shape(pattern, [names for names in boxes.values() if names])
    there = set(_nodes(shape))
    for module in modules:
        if boxes[module.box] not in there:
            raise QueryError(
                f"the module {module.name} ({module.box}) does not fit {show_pattern(pattern)}",
                hint="the events of a module stand together, and modules never overlap",
            )
    return shape


def _shape(pattern: Pattern, boxes: Sequence[frozenset[str]]) -> Shape:
    if is_leaf(pattern):
        return leaf_of(pattern)
    # the inputs of an operator stay in their order
    in_order = form(pattern) is not Form.TOGETHER
    return _joined(present(pattern), boxes, in_order=in_order)


def _joined(parts: Sequence[Pattern], boxes: Sequence[frozenset[str]], *, in_order: bool) -> Shape:
    """Parts of one operator, from the left; those of a box are joined first."""
    if len(parts) == 1:
        return _shape(parts[0], boxes)
    everything = frozenset().union(*map(_names, parts))
    inner = [box for box in boxes if box < everything]
    sides: list[list[Pattern]] = []
    owners: list[frozenset[str] | None] = []
    for part in parts:
        around = [box for box in inner if _names(part) <= box]
        owner = max(around, key=len, default=None)
        near: Sequence[frozenset[str] | None] = owners[-1:] if in_order else owners
        if owner is not None and owner in near:
            sides[owners.index(owner)].append(part)
        else:
            owners.append(owner)
            sides.append([part])
    first, *others = [_joined(side, inner, in_order=in_order) for side in sides]
    for other in others:
        first = (first, other)
    return first


def _names(pattern: Pattern) -> frozenset[str]:
    return frozenset(a.variable for a in positives(pattern))


def _nodes(shape: Shape) -> Iterator[frozenset[str]]:
    """The variables of every node."""
    if isinstance(shape, str):
        yield frozenset({shape})
        return
    left, right = (list(_nodes(side)) for side in shape)
    yield left[0] | right[0]
    yield from (*left, *right)


# --------------------------------------------------------------------------------------- nodes


def around(modules: Sequence[Module], names: frozenset[str]) -> tuple[Module, ...]:
    """The modules that a node with these variables lies in, or is the root of."""
    return tuple(m for m in modules if names <= set(m.variables))
