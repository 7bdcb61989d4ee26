"""Random query texts whose parts say how they follow each other, over `support.streams`."""

import re
from random import Random

from support.groups import random_groups
from support.queries import random_query, random_repeats
from support.streams import PLAIN, TYPES, Nature

WORDS = (", ", " THEN ", " THEN STRICT ", " THEN NEXT ", " THEN NEXT ", " THEN ANY ", " THEN ANY ")


def random_edges(random: Random, nature: Nature = PLAIN, types: str = TYPES) -> str:
    """The text of a query with words between its parts; some of them are no valid queries.

    >>> print(random_edges(Random(1)))
    SEQ(... THEN ...
    """
    write = random.choice((random_query, random_query, random_groups, random_repeats))
    text = write(random, nature, types)
    while "), " not in text and not re.search(r"\w(\[\])?, [^!]", text.split(" WHERE ")[0]):
        text = write(random, nature, types)
    # the pattern is all before the first clause
    pattern, *clauses = re.split(r"(?= WHERE | WITHIN | AFTER | HAVING )", text, maxsplit=1)
    mixed = re.sub(r", (?!!)", lambda _: random.choice(WORDS), pattern)
    mixed = re.sub(
        r"(\w)([+*]|\{[\d,]+\})([?+]?) (\w+)\[\]", lambda m: _loop(random, *m.groups()), mixed
    )
    if " THEN " not in mixed:
        mixed = re.sub(r", (?!!)", " THEN NEXT ", mixed, count=1)
    return mixed + "".join(clauses)


def _loop(random: Random, type: str, times: str, leave: str, variable: str) -> str:
    """A Kleene variable, or one that says how its events follow each other."""
    if random.random() < 0.6:
        return f"{type}{times}{leave} {variable}[]"
    return f"({type} {variable}{random.choice(WORDS[1:]).rstrip()}){times}{leave}"
