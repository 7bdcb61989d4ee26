"""Splices nested sequences, conjunctions and disjunctions of one kind into their parent."""

from dataclasses import replace

from ensue.algebra.form import (
    Form,
    form,
    is_absence,
    is_sequence,
    optional,
    parts,
    plain,
    with_parts,
)
from ensue.algebra.pattern import Pattern
from ensue.algebra.query import Query
from ensue.algebra.walk import rewrite


def flatten(query: Query) -> Query:
    """`SEQ(A a, SEQ(B b, C c))` is `SEQ(A a, B b, C c)`.

    A negation keeps what it stands between: `SEQ(A a, SEQ(!B b, C c))` is left as it is.

    >>> from ensue.algebra.pattern import Atom, Seq
    >>> a, b, c = Atom("A", "a"), Atom("B", "b"), Atom("C", "c")
    >>> flatten(Query(Seq((a, Seq((b, c)))))).pattern == Seq((a, b, c))
    True
    """
    return replace(query, pattern=rewrite(query.pattern, _spliced))


def _spliced(pattern: Pattern) -> Pattern:
    if not plain(pattern):
        return pattern
    inner = parts(pattern)
    match form(pattern):
        case Form.OPTION:
            return inner[0] if _alike(pattern, inner[0]) else pattern
        case Form.SEQUENCE | Form.TOGETHER | Form.CHOICE:
            flat: list[Pattern] = []
            for part in inner:
                flat += parts(part) if _alike(pattern, part) and _closed(part) else (part,)
            return flat[0] if len(flat) == 1 else with_parts(pattern, tuple(flat))
        case Form.EVENT | Form.LIST | Form.LOOP | Form.RESULT | Form.ABSENCE:
            return pattern


def _alike(pattern: Pattern, part: Pattern) -> bool:
    return form(part) is form(pattern) and plain(part)


def _closed(pattern: Pattern) -> bool:
    """Whether its negations mean the same among the parts of its parent."""
    inner = parts(pattern)
    negated = [k for k, part in enumerate(inner) if is_absence(part)]
    if not is_sequence(pattern):
        return not negated
    return all(
        not all(map(optional, inner[:k])) and not all(map(optional, inner[k:])) for k in negated
    )
