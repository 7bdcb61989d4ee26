"""Syntax trees of JOIN ARCHIVE to algebra."""

from collections.abc import Sequence

from ensue.algebra.check.correlation import check_last
from ensue.algebra.correlation import Anchor, ArchiveJoin, JoinKind, Range
from ensue.algebra.pattern import Pattern
from ensue.algebra.predicate import Expr
from ensue.algebra.window import ByEvents, ByTime, ByUnits
from ensue.errors import QueryError
from ensue.languages.clauses import Clauses, limit_of, matched
from ensue.languages.expressions import Node, condition, name_of, pieces, span_of
from ensue.languages.windows import window_of


def joined_pattern(node: Node) -> Node:
    """The tree of the pattern that is looked for in the archive."""
    pattern: Node = pieces(node)[2]
    return pattern


def archive_join(
    node: Node, shape: Pattern, text: str, beside: Sequence[Expr] = ()
) -> ArchiveJoin:
    """A JOIN ARCHIVE whose pattern is `shape`, with conditions that stand beside its parts."""
    keyword, name, _, selections, range_, latest, on = pieces(node)
    archive, span = name_of(name), span_of(name)
    if range_ is None:
        raise QueryError(
            f"JOIN ARCHIVE {archive} has no RANGE: how far back may its matches be?",
            hint="add it after the pattern, as in RANGE 30 days BEFORE START",
            span=span,
        )
    conjuncts, equivalence = condition(pieces(on)[0]) if on else ((), ())
    last = limit_of(latest) if latest else None
    if last is not None:
        check_last(last.count, last.span)
    return ArchiveJoin(
        archive=archive,
        query=matched(shape, Clauses.of(pieces(selections)), text, beside),
        range=_range(range_),
        on=conjuncts,
        equivalence=equivalence,
        last=None if last is None else last.count,
        kind=_kind(keyword),
        span=span,
    )


def _kind(keyword: str) -> JoinKind:
    match keyword[:4].upper():
        case "LEFT":
            return JoinKind.LEFT
        case "ANTI":
            return JoinKind.ANTI
        case _:
            return JoinKind.INNER


def _range(node: Node) -> Range:
    far, *near, anchor = pieces(node)
    return Range(
        _length(far),
        Anchor(anchor.upper()),
        _length(near[0]) if near else None,
        span_of(node),
    )


def _length(node: Node) -> ByTime | ByUnits:
    match window_of(node):
        case ByEvents(count=count, span=span):
            raise QueryError(
                "RANGE must be a length of time, not a number of events",
                hint="as in RANGE 30 days BEFORE START; "
                f"the latest {max(count, 1)} of the matches are LAST {max(count, 1)}",
                span=span,
            )
        case length:
            return length
