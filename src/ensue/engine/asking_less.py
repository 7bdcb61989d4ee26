"""What to change in a query that takes too much."""

from ensue.algebra.answers import summarised
from ensue.algebra.policy import Strategy
from ensue.algebra.query import Query
from ensue.algebra.walk import kleenes, of_subsets

PAGE = "docs/strategies.md"


def hint(query: Query, *more: str) -> str:
    """The lines of a message that say what helps."""
    ways = [*asking_less(query), *more]
    return "\n".join(["  hint: try one of these", *(f"    - {way}" for way in ways)])


def asking_less(query: Query) -> list[str]:
    """Changes that make a query hold and find less, the most likely one first.

    >>> from ensue.languages.patterns import parse
    >>> for way in asking_less(parse("SEQ(A+ a[], B b) USING next WITHIN 5")):
    ...     print(way)
    AFTER MATCH SKIP PAST LAST EVENT reports one match, not one for each event that can begin it
    a key, WHERE [column], if all events of a match agree in a column
    a shorter WITHIN
    LIMIT n keeps the first n matches of each last event
    RETURN COUNT(*) counts them without listing them
    """
    ways = []
    if repeated := of_subsets(query.pattern, query.strategy):
        ways.append(
            f"USING next takes the events for {repeated[0]}[] as they come; without it, every "
            f"subset of them is a match. {PAGE} explains the choice"
        )
    elif query.strategy is Strategy.ANY:
        ways.append(
            "USING next takes the next event that fits; without it, every one that fits makes a "
            f"match. {PAGE} explains the choice"
        )
    if kleenes(query.pattern) and query.after is None:
        ways.append(
            "AFTER MATCH SKIP PAST LAST EVENT reports one match, not one for each event that can "
            "begin it"
        )
    if repeated:
        ways.append("a bounded repetition, as in {3,5}")
    if not query.equivalence:
        ways.append("a key, WHERE [column], if all events of a match agree in a column")
    ways.append("a WITHIN" if query.within is None else "a shorter WITHIN")
    if not summarised(query) and query.limit is None:
        ways.append("LIMIT n keeps the first n matches of each last event")
        ways.append("RETURN COUNT(*) counts them without listing them")
    return ways
