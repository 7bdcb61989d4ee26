"""AFTER MATCH, CHOOSE, HAVING, LIMIT, COUNT(*) and EXISTS together leave what the reference semantics says.

The patterns end in all ways: matches of one last event may be decided at different times.
"""

import re
import warnings
from random import Random

import pytest

from ensue.codegen import kernel_cache as cache
from ensue.errors import QueryError, SkipError
from support.chosen import expected, in_one, in_pieces
from support.negations import random_negations
from support.pipelines import random_values
from support.queries import random_query, random_repeats
from support.seeds import scaled
from support.streams import Nature, random_events, random_nature

pytestmark = pytest.mark.filterwarnings("ignore")
WRITERS = (random_query, random_query, random_repeats, random_negations)
LEFT_OUT = re.compile(r" (AFTER MATCH SKIP|HAVING|LIMIT|RETURN) .*$")
AFTER = (
    "PAST LAST EVENT", "TO NEXT EVENT", "PAST LAST EVENT IN ORDER OF START", "TO NEXT EVENT IN ORDER OF START",
)  # fmt: skip


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)


def random_end(random: Random, pattern: str) -> str:
    """A pattern that ends with an absence, with an interval or without, or a greedy loop, now and then."""
    events = re.findall(r"(?<!!)\b[A-C] ([a-z]\w*)(?=[, )])", pattern)
    kind = random.choice("ABC")
    begin, end = (f"{random.choice(events or ['a'])}.end + {random.randint(0, 4)}" for _ in "ab")
    ends = ("", "", f", !{kind} zz", f", {kind}++ zz[]", f", !{kind} zz FROM {begin} TO {end}")
    return f"{pattern[:-1]}{random.choice(ends)})" if pattern.startswith("SEQ(") and events else pattern


def random_selection(random: Random, nature: Nature) -> str:
    """A query with some of the clauses that select or count matches."""
    text = LEFT_OUT.sub("", random.choice(WRITERS)(random, nature))
    pattern, *clauses = re.split(r"(?= WHERE | WITHIN | USING )", text, maxsplit=1)
    text = random_end(random, pattern) + "".join(clauses)
    values = random_values(random, text)
    parts = {
        f" AFTER MATCH SKIP {random.choice(AFTER)}": 0.4,
        random.choice((" RETURN COUNT(*)", " RETURN COUNT(*)", " RETURN EXISTS")): 0.5,
        f" HAVING {random.choice(values or ['1'])} > 0": 0.3,
        random.choice((" LIMIT 1", " LIMIT 2")): 0.4,
        random.choice((" CHOOSE LATEST", " CHOOSE LATEST", " CHOOSE ONCE")): 0.3,
    }
    return text + "".join(part for part, chance in parts.items() if random.random() < chance)


def random_case(random: Random) -> int:
    """The number of results that all of them find; -1: the query is refused."""
    nature = random_nature(random)
    text = random_selection(random, nature)
    events = random_events(random, random.randint(3, 10), nature)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = expected(text, events, nature)
    except (QueryError, SkipError):
        return -1
    assert in_one(text, events, nature) == wanted, (text, events.to_pydict())
    assert in_pieces(text, events, nature, random) == wanted, (text, events.to_pydict())
    return len(wanted)


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("block", range(40))
def test_random_selections(block):
    counts = [random_case(Random(25 * block + k)) for k in range(scaled(25))]
    assert sum(count > 0 for count in counts) > 1
