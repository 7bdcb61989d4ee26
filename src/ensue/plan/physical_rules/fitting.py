"""Which structures know what a node of a pattern means: here a new one is let into plans.

What a structure makes of the nodes it knows, it asks of their forms.
"""

from collections.abc import Iterator

from ensue.algebra.form import Form, form, present
from ensue.algebra.pattern import (
    And,
    Apply,
    Atom,
    Kleene,
    Leave,
    Maybe,
    Not,
    Or,
    Pattern,
    Repeat,
    Seq,
    Then,
)
from ensue.algebra.policy import Strategy
from ensue.algebra.text import show_head
from ensue.algebra.walk import positives

STACKS, RUNS, TREE, COMPACT = "stacks", "runs", "tree", "compact"
BY_START = "AFTER MATCH IN ORDER OF START needs runs: only they know which match began first"
_PLURAL = {
    STACKS: "instance stacks",
    RUNS: "runs",
    TREE: "join trees",
    COMPACT: "compact structures",
}


def structures(pattern: Pattern) -> frozenset[str]:
    """The structures that know this node, whatever its parts are; without any, the reference."""
    match pattern:
        case Atom() | Seq() | Not():
            return frozenset({STACKS, RUNS, TREE, COMPACT})
        case Repeat() | Then():
            return frozenset({RUNS})
        case Kleene(leave=Leave.GREEDY | Leave.RELUCTANT) | Kleene(inner=Strategy()):
            return frozenset({RUNS})
        case Kleene(until=Not()):
            return frozenset({RUNS})
        case Kleene() | And():
            return frozenset({RUNS, TREE, COMPACT})
        case Maybe() | Or():
            return frozenset({RUNS, COMPACT})
        case Apply():
            return frozenset({TREE})


def unknown(pattern: Pattern, structure: str) -> Pattern | None:
    """The first node of a match that a structure does not know, if there is one.

    >>> unknown(Seq((Atom("A", "a"), Maybe(Atom("B", "b")))), TREE)
    Maybe(part=Atom(type='B', variable='b'))
    """
    return next((node for node in _nodes(pattern) if structure not in structures(node)), None)


def why_unknown(pattern: Pattern, structure: str) -> str | None:
    """Why a structure cannot take a pattern: it has a node that the structure does not know."""
    node = unknown(pattern, structure)
    return None if node is None else f"{show_head(node)}: not supported by {_PLURAL[structure]}"


def _nodes(pattern: Pattern) -> Iterator[Pattern]:
    """The node and those inside it; what is negated has a plan of its own."""
    yield pattern
    for part in present(pattern):
        yield from _nodes(part)


# ------------------------------------------------------------------------- join trees


def is_leaf(pattern: Pattern) -> bool:
    """Whether a tree has nothing to join in it: one event, or several under one variable.

    What a tree does not take has been refused before.
    """
    match form(pattern):
        case Form.EVENT | Form.LIST:
            return True
        case Form.RESULT | Form.SEQUENCE | Form.TOGETHER:
            return False
        case Form.LOOP | Form.OPTION | Form.CHOICE | Form.ABSENCE:
            raise ValueError("only sequences and conjunctions of events can be joined")


def leaf_of(pattern: Pattern) -> str:
    """The variable of a leaf."""
    return next(positives(pattern)).variable
