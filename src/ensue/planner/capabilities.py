"""The capability matrix: which structures support which pattern nodes.

A new node enters plans here; the structures compile the nodes they support by their forms.
"""

from collections.abc import Iterator

from ensue.ir.pattern import And, Atom, Kleene, LoopExit, Maybe, Not, OperatorCall, Or, Pattern, Repeat, Seq, Then
from ensue.ir.selection import Strategy
from ensue.ir.traits import NodeForm, get_form, get_parts, get_positive_parts, is_input, is_list, is_optional
from ensue.ir.traversal import iterate_positive_atoms
from ensue.printing.pattern_printer import format_head

STACKS, RUNS, TREE, COMPACT = "stacks", "runs", "tree", "compact"
BY_START = "AFTER MATCH IN ORDER OF START needs runs: only they know which match began first"
_PLURAL = {STACKS: "instance stacks", TREE: "join trees", COMPACT: "compact structures"}


def list_structures(pattern: Pattern) -> frozenset[str]:
    """Structures that support this node, regardless of its parts; empty: only the reference."""
    match pattern:
        case Atom() | Seq() | Not():
            return frozenset({STACKS, RUNS, TREE, COMPACT})
        case Repeat() | Then() | Kleene(inner=Strategy()) | Kleene(until=Not()):
            return frozenset({RUNS})
        case Kleene(leave=LoopExit.GREEDY | LoopExit.RELUCTANT):
            return frozenset({RUNS})
        case Kleene() | And():
            return frozenset({RUNS, TREE, COMPACT})
        case Maybe() | Or():
            return frozenset({RUNS, COMPACT})
        case OperatorCall():
            return frozenset({TREE})


def find_unsupported(pattern: Pattern, structure: str) -> Pattern | None:
    """Finds the first positive node of a pattern that a structure does not support.

    >>> find_unsupported(Seq((Atom("A", "a"), Maybe(Atom("B", "b")))), TREE)
    Maybe(part=Atom(type='B', variable='b'))
    """
    return next((node for node in _nodes(pattern) if structure not in list_structures(node)), None)


def why_unsupported(pattern: Pattern, structure: str) -> str | None:
    """Why a structure cannot run a pattern, if it does not support one of its nodes."""
    node = find_unsupported(pattern, structure)
    return None if node is None else f"{format_head(node)}: not supported by {_PLURAL.get(structure, structure)}"


def _nodes(pattern: Pattern) -> Iterator[Pattern]:
    """The node and its positive descendants; a negated part has its own plan."""
    yield pattern
    for part in get_positive_parts(pattern):
        yield from _nodes(part)


# Join trees


def is_leaf(pattern: Pattern) -> bool:
    """Whether a tree has nothing to join in it: one event, or several of one variable.

    The planner has refused patterns that a tree does not support before.
    """
    match get_form(pattern):
        case NodeForm.EVENT | NodeForm.LIST:
            return True
        case NodeForm.RESULT | NodeForm.SEQUENCE | NodeForm.TOGETHER:
            return False
        case NodeForm.LOOP | NodeForm.OPTION | NodeForm.CHOICE | NodeForm.ABSENCE:
            raise ValueError("only sequences and conjunctions of events can be joined")


def get_leaf_variable(pattern: Pattern) -> str:
    """The variable of a leaf."""
    return next(iterate_positive_atoms(pattern)).variable


def find_always_bound(pattern: Pattern, *, kleene: bool = True) -> set[str]:
    """Finds the variables that every match binds; with `kleene=False` only plain ones.

    >>> from ensue.ir.pattern import Atom, Maybe, Seq
    >>> sorted(find_always_bound(Seq((Atom("A", "a"), Maybe(Atom("B", "b"))))))
    ['a']
    """
    if is_list(pattern):
        return {pattern.atom.variable} if kleene and not is_optional(pattern) else set()
    form = get_form(pattern)
    if form in (NodeForm.OPTION, NodeForm.CHOICE, NodeForm.ABSENCE):
        return set()
    if form is NodeForm.LOOP and (not kleene or is_optional(pattern)):
        return set()
    inside = {v for p in get_parts(pattern) for v in find_always_bound(p, kleene=kleene)}
    return {pattern.variable, *inside} if is_input(pattern) else inside
