"""CHOOSE leaves what the reference semantics says, however a stream is cut."""

import re
import warnings
from random import Random

import pytest

import ensue
from ensue.codegen import kernel_cache as cache
from ensue.errors import QueryError
from support.chosen import expected, in_one, in_pieces
from support.negations import random_negations
from support.queries import random_query, random_repeats
from support.seeds import scaled
from support.streams import random_events, random_nature

pytestmark = pytest.mark.filterwarnings("ignore")
WRITERS = (random_query, random_query, random_repeats, random_negations)
CHOICES = ("CHOOSE LATEST", "CHOOSE ONCE")
LEFT_OUT = re.compile(r" (AFTER MATCH SKIP|HAVING|LIMIT|RETURN) .*$")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)


def random_case(random: Random) -> int:
    """The number of matches that all of them find; -1: the query is refused."""
    nature = random_nature(random)
    text = LEFT_OUT.sub("", random.choice(WRITERS)(random, nature))
    text = f"{text} {random.choice(CHOICES)}"
    events = random_events(random, random.randint(3, 10), nature)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = expected(text, events, nature)
    except QueryError:
        return -1
    assert in_one(text, events, nature) == wanted, (text, events.to_pydict())
    assert in_pieces(text, events, nature, random) == wanted, (text, events.to_pydict())
    return len(wanted)


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("block", range(40))
def test_random_queries(block):
    counts = [random_case(Random(25 * block + k)) for k in range(scaled(25))]
    assert sum(count > 0 for count in counts) > 1


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("structure", ["stacks", "runs", "tree", "reference"])
def test_every_structure(structure, choice):
    random = Random(7)
    text = f"SEQ(A a, B b, C c) WHERE [k] and b.x >= a.x WITHIN 9 {choice}"
    found = 0
    for _ in range(8):
        nature = random_nature(random)
        if nature.time not in ("integer", "float"):
            continue
        events = random_events(random, 14, nature)
        wanted = expected(text, events, nature)
        assert in_one(text, events, nature, options=ensue.PlannerOptions(structure=structure)) == wanted
        found += len(wanted)
    assert found


def test_explain_names_it():
    text = "SEQ(A a, B b) WITHIN 9 CHOOSE ONCE"
    events = random_events(Random(1), 5)
    shown = str(ensue.explain(text, events, time="t", type="type"))
    assert "  CHOOSE ONCE: as LATEST" in shown
    waiting = str(ensue.explain("SEQ(A a, !B b) WITHIN 9 CHOOSE LATEST", events, time="t", type="type"))
    assert "because of CHOOSE among matches that wait for time to pass" in waiting
