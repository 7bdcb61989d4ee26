"""Which variables a sequence puts before which."""

from ensue.algebra.form import is_absence, is_list, is_loop, is_sequence, parts
from ensue.algebra.pattern import Pattern
from ensue.algebra.walk import positives


def predecessors(pattern: Pattern) -> dict[str, list[str]]:
    """For each positive variable, those that must have ended before it starts.

    >>> from ensue.algebra.pattern import Atom, Kleene, Seq
    >>> predecessors(Seq((Atom("A", "a"), Kleene(Atom("B", "b"), 1, None))))
    {'a': [], 'b': ['a', 'b']}
    """
    found: dict[str, list[str]] = {a.variable: [] for a in positives(pattern)}

    def visit(node: Pattern) -> None:
        if is_absence(node):
            return
        if is_list(node):
            found[node.atom.variable].append(node.atom.variable)
        if is_loop(node):  # whatever it has taken so far
            inside = [a.variable for a in positives(node)]
            for variable in inside:
                found[variable] = [*inside, *(v for v in found[variable] if v not in inside)]
            return
        if is_sequence(node):
            front: list[str] = []
            for part in parts(node):
                inside = [a.variable for a in positives(part)]
                for variable in inside:
                    found[variable] = [*front, *found[variable]]
                front += inside
        for part in parts(node):
            visit(part)

    visit(pattern)
    return found
