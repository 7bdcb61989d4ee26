"""Absences with intervals of their own, judged on matches that a kernel finds without them."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from ensue.algebra.form import is_lapse, parts, with_parts
from ensue.algebra.lapses import interval_ends, lapses
from ensue.algebra.pattern import Pattern
from ensue.algebra.predicate import At, Binary, Call, Expr, Field, Literal
from ensue.algebra.query import Query
from ensue.algebra.walk import atoms, positives, variables
from ensue.schema import Kind, Schema

_POSITIONS = (At.ONLY, At.NTH, At.LAST)


def why_not_on_matches(query: Query, schema: Schema, absent: Iterable[Expr]) -> str | None:
    """Why the intervals of a query cannot be tried on finished matches, if they cannot."""
    negated = {a.variable for negation, _ in lapses(query.pattern) for a in atoms(negation)}
    if is_lapse(query.pattern) or not _has_events(query.pattern):
        return "a pattern, or a part of it, that is only an absence"
    if query.choose is not None:
        return "CHOOSE among matches that wait for time to pass"
    if any(variables(condition) & negated for condition in absent):
        return "a condition between the events of a match and one that its interval forbids"
    if schema.time_kind not in (Kind.INTEGER, Kind.FLOAT, Kind.TIMESTAMP):
        return f"intervals in a time of kind {schema.time_kind.value}"
    if not all(_computed(end, schema) for end in interval_ends(query.pattern)):
        return "an end of an interval that is not a time of an event plus or minus a length"
    return None


def _has_events(pattern: Pattern) -> bool:
    """Whether something is left of every part without the intervals in it."""
    return is_lapse(pattern) or (
        any(positives(pattern)) and all(_has_events(p) for p in parts(pattern) if parts(p))
    )


def _computed(end: Expr, schema: Schema) -> bool:
    match end:
        case Field(name=name, at=at):
            return name in (schema.start, schema.end) and at in _POSITIONS
        case Literal(value=bool() | str() | None):
            return False
        case Literal(value=float()):
            return schema.time_kind is Kind.FLOAT
        case Literal(value=int(value)):
            return abs(value) < 2**53
        case Literal(value=datetime() | timedelta()):
            return True
        case Binary(operator="+" | "-", left=left, right=right):
            return _computed(left, schema) and _computed(right, schema)
        case Call(function="greatest" | "least", arguments=arguments):
            return all(_computed(one, schema) for one in arguments)
        case _:
            return False


def without_lapses(query: Query) -> Query:
    """The query whose matches are judged by intervals afterwards.

    >>> from ensue.algebra.pattern import And, Atom, Interval, Not
    >>> lapse = Not(Atom("C", "c"), interval=Interval(Literal(1), Literal(2)))
    >>> without_lapses(Query(And((Atom("A", "a"), lapse)))).pattern
    Atom(type='A', variable='a')
    """
    negated = {a.variable for negation, _ in lapses(query.pattern) for a in atoms(negation)}
    where = tuple(c for c in query.where if not variables(c) & negated)
    return replace(query, pattern=_left(query.pattern), where=where)


def _left(pattern: Pattern) -> Pattern:
    inner = parts(pattern)
    left = tuple(_left(part) for part in inner if not is_lapse(part))
    if len(left) == 1 < len(inner):
        return left[0]
    return with_parts(pattern, left) if inner else pattern
