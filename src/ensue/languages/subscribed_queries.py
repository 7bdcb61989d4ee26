"""Texts of the pattern language as members of a set of subscriptions."""

from ensue.algebra.answers import summarised
from ensue.algebra.query import Query
from ensue.algebra.walk import atoms, results
from ensue.errors import QueryError
from ensue.languages.opsl import LONGEST
from ensue.languages.table import PATTERNS
from ensue.languages.towers import is_one_query

MOST_ATOMS = 64  # of a subscription


def subscribed_query(text: str) -> Query:
    """The query of a text, as far as a set of subscriptions can have it.

    >>> subscribed_query("SEQ(A a, B b) WITHIN 5 RETURN a.x")
    Traceback (most recent call last):
    ensue.errors.QueryError: rows of subscriptions have the events of a match and no other columns
      line 1, column 31
    ...
      hint: leave out RETURN
    """
    size = len(text.encode())
    if size > LONGEST:
        raise QueryError(
            f"the text has {size} bytes, and a subscription may have at most {LONGEST}"
        )
    # Looked at before anything is read: texts of strangers must not name files.
    found = PATTERNS.parse(text) if is_one_query(text) else None
    if not isinstance(found, Query):
        raise QueryError(
            "a set of subscriptions does not support definitions, IMPORT or JOIN ARCHIVE",
            hint="match this query by itself: ensue.match(events, query)",
        )
    if summarised(found):
        raise QueryError(
            "COUNT(*) and EXISTS return no matches to notify a subscriber about",
            hint="match this query by itself: ensue.match(events, query)",
            text=text,
        )
    if found.all_events or found.whole is not None:
        raise QueryError(
            "a subscription tells of each match: no ALL EVENTS, and nothing of the whole result",
            hint="leave it out",
            text=text,
        )
    if found.returns:
        raise QueryError(
            "rows of subscriptions have the events of a match and no other columns",
            hint="leave out RETURN",
            span=found.returns[0].span,
            text=text,
        )
    for applied in results(found.pattern):
        raise QueryError(
            "a set of subscriptions does not support user-defined operators such as "
            f"{applied.operator.name}",
            hint="match this query by itself: ensue.match(events, query)",
            span=applied.span,
            text=text,
        )
    count = sum(1 for _ in atoms(found.pattern))
    if count > MOST_ATOMS:
        raise QueryError(
            f"the pattern has {count} events, and a subscription may have at most {MOST_ATOMS}"
        )
    return found
