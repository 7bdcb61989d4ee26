"""Splices nested sequences, conjunctions and disjunctions of one kind into their parent."""

from dataclasses import replace

from ensue.algebra.pattern import And, Maybe, Or, Pattern, Seq
from ensue.algebra.query import Query
from ensue.algebra.walk import rewrite


def flatten(query: Query) -> Query:
    """`SEQ(A a, SEQ(B b, C c))` is `SEQ(A a, B b, C c)`.

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
                flat += part.parts if isinstance(part, kind) else (part,)
            return flat[0] if len(flat) == 1 else replace(pattern, parts=tuple(flat))
        case _:
            return pattern
