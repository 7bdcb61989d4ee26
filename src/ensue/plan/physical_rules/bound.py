"""Which variables every match binds."""

from ensue.algebra.pattern import And, Apply, Atom, Kleene, Maybe, Not, Or, Pattern, Seq


def always_bound(pattern: Pattern, *, kleene: bool = True) -> set[str]:
    """The variables that no match leaves out; with `kleene=False` only plain ones.

    >>> sorted(always_bound(Seq((Atom("A", "a"), Maybe(Atom("B", "b"))))))
    ['a']
    """
    match pattern:
        case Atom():
            return {pattern.variable}
        case Kleene(atom=atom, least=least):
            return {atom.variable} if least and kleene else set()
        case Seq(parts=parts) | And(parts=parts):
            return {v for p in parts for v in always_bound(p, kleene=kleene)}
        case Apply(inputs=inputs):
            inside = {v for p in inputs for v in always_bound(p, kleene=kleene)}
            return {pattern.variable, *inside}
        case Or() | Maybe() | Not():
            return set()
