"""Which variables a sequence puts before which."""

from ensue.algebra.pattern import Kleene, Not, Pattern, Seq
from ensue.algebra.walk import parts, positives


def predecessors(pattern: Pattern) -> dict[str, list[str]]:
    """For each positive variable, those that must have ended before it starts.

    >>> from ensue.algebra.pattern import Atom
    >>> predecessors(Seq((Atom("A", "a"), Kleene(Atom("B", "b"), 1, None))))
    {'a': [], 'b': ['a', 'b']}
    """
    found: dict[str, list[str]] = {a.variable: [] for a in positives(pattern)}

    def visit(node: Pattern) -> None:
        if isinstance(node, Not):
            return
        if isinstance(node, Kleene):
            found[node.atom.variable].append(node.atom.variable)
        if isinstance(node, Seq):
            front: list[str] = []
            for part in node.parts:
                inside = [] if isinstance(part, Not) else [a.variable for a in positives(part)]
                for variable in inside:
                    found[variable] = [*front, *found[variable]]
                front += inside
        for part in parts(node):
            visit(part)

    visit(pattern)
    return found
