"""Random query texts some of whose variables take events of several types."""

import re
from random import Random

from support.edges import random_edges
from support.groups import random_groups
from support.queries import random_query, random_repeats
from support.streams import PLAIN, TYPES, Nature


def random_any_types(random: Random, nature: Nature = PLAIN, types: str = TYPES) -> str:
    """The text of a query with ANY and (A|B) in the place of some types.

    >>> print(random_any_types(Random(2)))
    SEQ(...|...
    """
    write = random.choice((random_query, random_query, random_edges, random_groups, random_repeats))
    text = write(random, nature, types)
    # the pattern is all before the first clause
    pattern, *clauses = re.split(
        r"(?= WHERE | WITHIN [\d.]+ *(?:EVENTS|AFTER|HAVING|$)| AFTER | HAVING )", text, maxsplit=1
    )

    def several(m: re.Match[str]) -> str:
        chance = random.random()
        if chance < 0.2 and not pattern[: m.start()].endswith("THEN "):  # there ANY is how
            return "ANY"
        if chance < 0.5:
            return f"({'|'.join(random.sample(sorted({*types, 'X'}), 2))})"
        return m[0]

    mixed = re.sub(r"\b[A-Z](?=([+*?]|\{[\d,]+\})*[?+]? [a-z])", several, pattern)
    return mixed + "".join(clauses)
