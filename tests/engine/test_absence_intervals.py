"""Absences with intervals of their own are what the semantics says, however a stream is cut."""

import warnings
from random import Random

import pytest

from ensue.errors import QueryError
from ensue.source import cache
from support.chosen import expected, in_one, in_pieces
from support.streams import random_events, random_nature

pytestmark = pytest.mark.filterwarnings("ignore")
PATTERNS = {
    "AND(A a, {})": "a",
    "SEQ(A a, B b, {})": "ab",
    "SEQ(A a, {}, B b)": "ab",
    "AND(A a, B b, {})": "ab",
    "SEQ(A a, B? b, {}, C c)": "ac",
    "SEQ(A a, {}, !C n, B b)": "ab",
    "SEQ(A a, B b, !C n, {})": "ab",
    "OR(AND(A a, {}), SEQ(B b, C c))": "a",
    "SEQ(A a, B+ k[], {}, C c)": "ac",
}
WHERE = ("", "", "[k]", "x1.x > 0", "[k] and x1.x >= a.x")
WITHIN = ("", " WITHIN 3", " WITHIN 6")
CHOOSE = ("", "", "", " CHOOSE LATEST", " CHOOSE ONCE")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)


def random_end(random: Random, known: str) -> str:
    field = f"{random.choice(known)}.{random.choice(('start', 'end', 'end'))}"
    if random.random() < 0.2 and len(known) > 1:
        other = f"{random.choice(known)}.end"
        field = f"{random.choice(('greatest', 'least'))}({field}, {other})"
    if random.random() < 0.1:
        return str(random.randint(0, 9))
    return f"{field} {random.choice('+++-')} {random.randint(0, 4)}"


def random_text(random: Random) -> str:
    pattern = random.choice(list(PATTERNS))
    known = PATTERNS[pattern]
    lapses = [
        f"!{random.choice('ABCX')} x{k} FROM {random_end(random, known)} "
        f"TO {random_end(random, known)}"
        for k in (1, 2)[: random.choice((1, 1, 2))]
    ]
    where = random.choice(WHERE)
    within = " WITHIN 5" if "!C n, {}" in pattern else random.choice(WITHIN)
    text = pattern.format(", ".join(lapses)) + (f" WHERE {where}" if where else "")
    return text + within + random.choice(CHOOSE)


def random_case(random: Random) -> int:
    """The number of matches that all of them find; -1: the query is refused."""
    nature = random_nature(random)
    if nature.time not in ("integer", "float"):
        return -1
    text = random_text(random)
    events = random_events(random, random.randint(3, 12), nature)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = expected(text, events, nature)
    except QueryError:
        return -1
    assert in_one(text, events, nature) == wanted, (text, events.to_pydict())
    assert in_pieces(text, events, nature, random) == wanted, (text, events.to_pydict())
    return len(wanted)


@pytest.mark.first_rounds(4)
@pytest.mark.parametrize("block", range(40))
def test_random_queries(block):
    counts = [random_case(Random(40 * block + k)) for k in range(40)]
    assert sum(count > 0 for count in counts) > 4
    assert sum(count == 0 for count in counts) > 1
