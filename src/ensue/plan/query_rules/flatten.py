"""Splices nested sequences, conjunctions and disjunctions of one kind into their parent."""

from dataclasses import replace

from ensue.algebra.check.arrangement import optional
from ensue.algebra.pattern import And, Maybe, Not, Or, Pattern, Seq
from ensue.algebra.query import Query
from ensue.algebra.walk import rewrite


def flatten(query: Query) -> Query:
    """`SEQ(A a, SEQ(B b, C c))` is `SEQ(A a, B b, C c)`.

    A negation keeps what it stands between: `SEQ(A a, SEQ(!B b, C c))` is left as it is.

    >>> from ensue.algebra.pattern import Atom
    >>> a, b, c = Atom("A", "a"), Atom("B", "b"), Atom("C", "c")
    >>> flatten(Query(Seq((a, Seq((b, c)))))).pattern == Seq((a, b, c))
    True
    """
    return replace(query, pattern=rewrite(query.pattern, _spliced))


def _spliced(pattern: Pattern) -> Pattern:
    match pattern:
        case Maybe(part=Maybe() as inner):
            return inner
        case Seq(parts=parts) | And(parts=parts) | Or(parts=parts):
            kind = type(pattern)
            flat: list[Pattern] = []
            for part in parts:
                flat += part.parts if isinstance(part, kind) and _closed(part) else (part,)
            return flat[0] if len(flat) == 1 else replace(pattern, parts=tuple(flat))
        case _:
            return pattern


def _closed(pattern: Seq | And | Or) -> bool:
    """Whether its negations mean the same among the parts of its parent."""
    negated = [k for k, part in enumerate(pattern.parts) if isinstance(part, Not)]
    if not isinstance(pattern, Seq):
        return not negated
    return all(
        not all(map(optional, pattern.parts[:k])) and not all(map(optional, pattern.parts[k:]))
        for k in negated
    )
