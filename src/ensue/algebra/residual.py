"""What remains of a pattern once some of its events have come."""

from dataclasses import replace

from ensue.algebra.form import is_absence, is_list, optional
from ensue.algebra.pattern import And, Apply, Atom, Kleene, Maybe, Not, Or, Pattern, Seq
from ensue.algebra.walk import rewrite

DONE = Seq(())


def advance(pattern: Pattern, variable: str) -> Pattern | None:
    """What remains after an event for this variable, or None if none may come now.

    Variables are unique in a pattern, so there is only one way to go on.

    >>> a, b = Atom("A", "a"), Atom("B", "b")
    >>> advance(Seq((a, b)), "a") == b, advance(Seq((a, b)), "b")
    (True, None)
    >>> advance(Seq((Maybe(a), b)), "b") == DONE
    True
    """
    match pattern:
        case Atom():
            return DONE if pattern.variable == variable else None
        case Kleene(atom=atom, least=least, most=most):
            if atom.variable != variable:
                return None
            if most == 1:
                return DONE
            return replace(
                pattern, least=max(least - 1, 0), most=None if most is None else most - 1
            )
        case Maybe(part=part):
            return advance(part, variable)
        case Not():
            return None
        case Seq(parts=inner):
            for k, part in enumerate(inner):
                rest = advance(part, variable)
                if rest is not None:
                    return _seq((rest, *inner[k + 1 :]))
                if not optional(part):
                    return None
            return None
        case And(parts=inner):
            for k, part in enumerate(inner):
                rest = advance(part, variable)
                if rest is not None:
                    left = tuple(p for p in (*inner[:k], rest, *inner[k + 1 :]) if p != DONE)
                    return And(left) if left else DONE
            return None
        case Or(parts=inner):
            for part in inner:
                rest = advance(part, variable)
                if rest is not None:
                    return rest
            return None
        case Apply(inputs=inputs):  # its inputs may come in any order
            return advance(And(inputs), variable)


def _seq(inner: tuple[Pattern, ...]) -> Pattern:
    left = tuple(p for p in inner if p != DONE)
    return left[0] if len(left) == 1 and not is_absence(left[0]) else Seq(left)


def uncounted(pattern: Pattern) -> Pattern:
    """The pattern with every Kleene variable open until it is left, however many it may take."""

    def unlimited(node: Pattern) -> Pattern:
        if is_list(node):
            return replace(node, least=min(node.least, 1), most=None)
        return node

    return rewrite(pattern, unlimited)
