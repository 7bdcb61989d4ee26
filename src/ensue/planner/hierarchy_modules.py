"""Modules of a hierarchy inside one flat query: headers and shape of the EH-tree.

A hierarchy whose complex events are inlined is one query; a module names the variables that a
complex event consists of. A join tree over it is an EH-tree: the parts of a module are joined from
the left in the order of the pattern, and each complex event is a subtree. Partial matches before
a complex event wait for it (parked runs), and its results are joined at once, without a buffer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from ensue.errors import QueryError
from ensue.ir.pattern import Pattern
from ensue.ir.selection import Window
from ensue.ir.traits import NodeForm, get_form, get_positive_parts
from ensue.ir.traversal import iterate_positive_atoms
from ensue.planner.capabilities import get_leaf_variable, is_leaf
from ensue.printing.pattern_printer import format_pattern

PRECURSORS = "precursors"  # the name to switch parked runs off by

Shape = str | tuple["Shape", "Shape"]  # of a join tree: a variable, or two shapes joined


@dataclass(frozen=True, slots=True)
class HierarchyModule:
    """The header of a module: an inlined definition.

    Its window must also be a condition of the query: here it only bounds the state.
    """

    name: str  # of the definition
    box: str  # the variable of the complex event
    variables: tuple[str, ...]  # of all its events, including nested complex events
    within: Window | None = None
    level: int = 2  # the top query is level 1
    precursor: str | None = None  # the enclosing complex event; None: the query


def build_hierarchy_shape(pattern: Pattern, modules: Sequence[HierarchyModule]) -> Shape:
    """The shape of a join tree that follows the modules: the EH-tree of a flat pattern.

    >>> from ensue.ir.pattern import Atom, Seq
    >>> abcd = Seq(tuple(Atom(v.upper(), v) for v in "abcd"))
    >>> build_hierarchy_shape(abcd, [HierarchyModule("M", "x", ("b", "c"))])
    (('a', ('b', 'c')), 'd')
    """
    known = {a.variable for a in iterate_positive_atoms(pattern)}
    boxes = {m.box: frozenset(m.variables) & known for m in modules}
    shape = _shape(pattern, [names for names in boxes.values() if names])
    nodes = set(_nodes(shape))
    for module in modules:
        if boxes[module.box] not in nodes:
            raise QueryError(
                f"the module {module.name} ({module.box}) does not fit {format_pattern(pattern)}",
                hint="events of a module are adjacent in the pattern, and modules never overlap",
            )
    return shape


def _shape(pattern: Pattern, boxes: Sequence[frozenset[str]]) -> Shape:
    if is_leaf(pattern):
        return get_leaf_variable(pattern)
    # the inputs of an operator stay in their order
    in_order = get_form(pattern) is not NodeForm.TOGETHER
    return _join(get_positive_parts(pattern), boxes, in_order=in_order)


def _join(parts: Sequence[Pattern], boxes: Sequence[frozenset[str]], *, in_order: bool) -> Shape:
    """Joins the parts of one operator from the left; those of a complex event first."""
    if len(parts) == 1:
        return _shape(parts[0], boxes)
    everything = frozenset().union(*map(_names, parts))
    inner = [box for box in boxes if box < everything]
    sides: list[list[Pattern]] = []
    owners: list[frozenset[str] | None] = []
    for part in parts:
        enclosing = [box for box in inner if _names(part) <= box]
        owner = max(enclosing, key=len, default=None)
        near: Sequence[frozenset[str] | None] = owners[-1:] if in_order else owners
        if owner is not None and owner in near:
            sides[owners.index(owner)].append(part)
        else:
            owners.append(owner)
            sides.append([part])
    shapes = (_join(side, inner, in_order=in_order) for side in sides)
    return reduce(lambda left, right: (left, right), shapes)


def _names(pattern: Pattern) -> frozenset[str]:
    return frozenset(a.variable for a in iterate_positive_atoms(pattern))


def _nodes(shape: Shape) -> Iterator[frozenset[str]]:
    """The variables of every node."""
    if isinstance(shape, str):
        yield frozenset({shape})
        return
    left, right = (list(_nodes(side)) for side in shape)
    yield left[0] | right[0]
    yield from (*left, *right)


def find_enclosing_modules(modules: Sequence[HierarchyModule], names: frozenset[str]) -> tuple[HierarchyModule, ...]:
    """The modules that contain a node with these variables, or whose root it is."""
    return tuple(m for m in modules if names <= set(m.variables))
