"""THEN between all parts means what the strategy of that name means for the whole query.

But for NEXT where parts may be missing: THEN NEXT speaks of its own event only.
"""

from random import Random

import pytest

from ensue import reference as semantics
from ensue.ir.selection import Strategy
from ensue.parser.pattern_parser import parse
from ensue.reference import Event

PARTS = ("A a", "B b", "C c", "A? d", "B? e", "(B f | C g)")


def stream(random: Random) -> list[Event]:
    return [Event(n, random.choice("AABBCX"), n, n, {"k": random.choice("pq"), "x": n % 3}) for n in range(8)]


@pytest.mark.parametrize("how", Strategy, ids=lambda how: how.name)
@pytest.mark.parametrize("filled", Strategy, ids=lambda how: how.name)
def test_a_word_everywhere_is_a_strategy(how, filled):
    random, seen = Random(f"{how} {filled}"), 0
    for _ in range(15):
        required = [part for part in PARTS if "?" not in part and "|" not in part]
        first, *others = random.sample(required if how is Strategy.NEXT else PARTS, 3)
        where = random.choice(("", " WHERE [k]", " WHERE [k] and a.x <= b.x"))
        if "a.x" in where and not {"A a", "B b"} <= {first, *others}:
            where = " WHERE [k]"
        word = "THEN" if how is Strategy.PARTITION else f"THEN {how.name}"
        mixed = parse(f" {word} ".join([first, *others]) + f" USING {filled.name}{where}")
        whole = parse(f"SEQ({', '.join([first, *others])}) USING {how.name}{where}")
        events = stream(random)
        found = semantics.find_matches(mixed, events)
        assert found == semantics.find_matches(whole, events)
        seen += bool(found)
    assert seen
