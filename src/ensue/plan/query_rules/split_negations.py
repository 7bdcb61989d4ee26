"""Turns the negation of a disjunction into negations of its parts."""

from dataclasses import replace

from ensue.algebra.pattern import And, Not, Or, Pattern, Seq
from ensue.algebra.query import Query
from ensue.algebra.walk import atoms, rewrite, variables


def split_negations(query: Query) -> Query:
    """`SEQ(A a, !OR(B b, C c), D d)` is `SEQ(A a, !B b, !C c, D d)`.

    Conditions that tie `b` to `c` keep the negation whole.

    >>> from ensue.algebra.pattern import Atom
    >>> a, b, c, d = (Atom(t, t.lower()) for t in "ABCD")
    >>> split_negations(Query(Seq((a, Not(Or((b, c))), d)))).pattern == Seq((a, Not(b), Not(c), d))
    True
    """

    def split(pattern: Pattern) -> Pattern:
        if not isinstance(pattern, Seq | And):
            return pattern
        parts: list[Pattern] = []
        for part in pattern.parts:
            match part:
                case Not(part=Or(parts=options)) if not _tied(query, options):
                    parts += [Not(option, part.span) for option in options]
                case _:
                    parts.append(part)
        return replace(pattern, parts=tuple(parts))

    return replace(query, pattern=rewrite(query.pattern, split))


def _tied(query: Query, options: tuple[Pattern, ...]) -> bool:
    groups = [{a.variable for a in atoms(option)} for option in options]
    return any(
        sum(bool(variables(condition) & group) for group in groups) > 1
        for condition in query.where
    )
