"""Turns the negation of a disjunction into negations of its parts."""

from dataclasses import replace

from ensue.algebra.form import Form, form, is_absence, parts, plain, with_parts
from ensue.algebra.pattern import Not, Pattern
from ensue.algebra.query import Query
from ensue.algebra.walk import atoms, rewrite, variables


def split_negations(query: Query) -> Query:
    """`SEQ(A a, !OR(B b, C c), D d)` is `SEQ(A a, !B b, !C c, D d)`.

    Conditions that tie `b` to `c` keep the negation whole.

    >>> from ensue.algebra.pattern import Atom, Or, Seq
    >>> a, b, c, d = (Atom(t, t.lower()) for t in "ABCD")
    >>> split_negations(Query(Seq((a, Not(Or((b, c))), d)))).pattern == Seq((a, Not(b), Not(c), d))
    True
    """

    def split(pattern: Pattern) -> Pattern:
        if form(pattern) not in (Form.SEQUENCE, Form.TOGETHER) or not plain(pattern):
            return pattern
        found: list[Pattern] = []
        for part in parts(pattern):
            options = _options(part)
            if options and not _tied(query, options):
                found += [Not(option, part.span) for option in options]
            else:
                found.append(part)
        return with_parts(pattern, tuple(found))

    return replace(query, pattern=rewrite(query.pattern, split))


def _options(part: Pattern) -> tuple[Pattern, ...]:
    """The alternatives that a negation forbids."""
    forbidden = part.part if is_absence(part) else None
    if forbidden is None or form(forbidden) is not Form.CHOICE or not plain(forbidden):
        return ()
    return parts(forbidden)


def _tied(query: Query, options: tuple[Pattern, ...]) -> bool:
    groups = [{a.variable for a in atoms(option)} for option in options]
    return any(
        sum(bool(variables(condition) & group) for group in groups) > 1
        for condition in query.where
    )
