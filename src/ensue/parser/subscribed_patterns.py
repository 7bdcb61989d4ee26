"""Parses pattern queries for sets of subscriptions."""

from ensue.analyzer.output_mode import is_summarized
from ensue.errors import QueryError
from ensue.ir.query import Query
from ensue.ir.traversal import iterate_atoms, iterate_operator_calls
from ensue.parser.definitions import is_single_query, parse_pattern_text
from ensue.parser.opsl.opsl_parser import MAX_TEXT_BYTES

MAX_ATOMS = 64  # of a subscription


def parse_subscribed_query(text: str) -> Query:
    """Parses a query and checks that a set of subscriptions supports it.

    >>> parse_subscribed_query("SEQ(A a, B b) WITHIN 5 RETURN a.x")
    Traceback (most recent call last):
    ensue.errors.QueryError: rows of subscriptions have the events of a match and no other columns
      line 1, column 31
    ...
      hint: leave out RETURN
    """
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        raise QueryError(f"the text has {size} bytes, and a subscription may have at most {MAX_TEXT_BYTES}")
    # Checked before parsing: untrusted texts must not name files.
    query = parse_pattern_text(text) if is_single_query(text) else None
    if not isinstance(query, Query):
        raise QueryError(
            "a set of subscriptions does not support definitions, IMPORT or JOIN ARCHIVE",
            hint="match this query by itself: ensue.match(events, query)",
        )
    if is_summarized(query):
        raise QueryError(
            "COUNT(*) and EXISTS return no matches to notify a subscriber about",
            hint="match this query by itself: ensue.match(events, query)",
            text=text,
        )
    if query.all_events or query.whole is not None:
        raise QueryError(
            "a subscription reports each match, without ALL EVENTS, GROUP BY, ORDER BY or FETCH",
            hint="leave it out",
            text=text,
        )
    if query.returns:
        raise QueryError(
            "rows of subscriptions have the events of a match and no other columns",
            hint="leave out RETURN",
            span=query.returns[0].span,
            text=text,
        )
    for call in iterate_operator_calls(query.pattern):
        raise QueryError(
            f"a set of subscriptions does not support user-defined operators such as {call.operator.name}",
            hint="match this query by itself: ensue.match(events, query)",
            span=call.span,
            text=text,
        )
    count = sum(1 for _ in iterate_atoms(query.pattern))
    if count > MAX_ATOMS:
        raise QueryError(f"the pattern has {count} events, and a subscription may have at most {MAX_ATOMS}")
    return query
