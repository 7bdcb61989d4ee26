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
    mixed = re.sub(r"(\w)([+*]|\{[\d,]+\})([?+]?) (\w+)\[\]", lambda m: _loop(random, *m.groups()), mixed)
    if " THEN " not in mixed:
        mixed = re.sub(r", (?!!)", " THEN NEXT ", mixed, count=1)
    if random.random() < 0.5:
        unit = " seconds" if nature.time.startswith("timestamp") else ""
        mixed, tied = _guarded(random, mixed, types, unit)
        if tied and not any(" WHERE " in clause for clause in clauses):
            clauses = [f" WHERE {tied}", *clauses]
    return mixed + "".join(clauses)


def _guarded(random: Random, pattern: str, types: str, unit: str) -> tuple[str, str]:
    """The pattern with some of UNTIL, pauses, and negations; and a condition on them."""
    names = iter(f"n{k}" for k in range(99))

    def until(m: re.Match[str]) -> str:
        stop = f" UNTIL {random.choice(types)} {next(names)}"
        return m[0] + (stop if random.random() < 0.5 else "")

    def paused(m: re.Match[str]) -> str:
        words = m[0].rstrip()
        return f"{words} WITHIN {random.randint(1, 4)}{unit} " if random.random() < 0.25 else m[0]

    def barred(m: re.Match[str]) -> str:
        bar = f" THEN !{random.choice(types)} {next(names)}"
        return (bar if random.random() < 0.2 else "") + m[0]

    def negated(m: re.Match[str]) -> str:
        bar = f"!{random.choice(types)} {next(names)}, "
        return m[0] + (bar if random.random() < 0.3 else "")

    pattern = re.sub(r"\w([+*]|\{[\d,]+\})[?+]? \w+\[\]", until, pattern)
    pattern = re.sub(r"(?<=\))([+*]|\{[\d,]+\})[?+]?", until, pattern)
    pattern = re.sub(r" THEN( NEXT| ANY| STRICT)? (?!\))", paused, pattern)
    pattern = re.sub(r" THEN(?= NEXT| ANY)", barred, pattern)
    pattern = re.sub(r"(?<=[ (])\((?=\w+ \w)", negated, pattern)
    used = re.findall(r"\bn\d+\b", pattern)
    first = re.search(r"\b[A-Z] (\w+)(?=[, )])", pattern)
    if not used or not first or random.random() < 0.5:
        return pattern, ""
    single = re.findall(r"\b[A-Z]\?? (\w+)(?=[, )])", pattern)
    of = random.choice((f"{first[1]}.x", f"{first[1]}.x", f"count({random.choice(single)})"))
    return pattern, f"{random.choice(used)}.x > {of}"


def _loop(random: Random, type: str, times: str, leave: str, variable: str) -> str:
    """A Kleene variable, or one that says how its events follow each other."""
    if random.random() < 0.6:
        return f"{type}{times}{leave} {variable}[]"
    return f"({type} {variable}{random.choice(WORDS[1:]).rstrip()}){times}{leave}"
