"""Random queries over complex events: hierarchies of one definition for some of the types.

Every choice is taken from the generator that is passed in, as in `support.queries`.
"""

from collections.abc import Callable, Sequence
from random import Random

from support.queries import random_query, random_repeats
from support.streams import PLAIN, Nature

Writer = Callable[[Random, Nature, str], str]
SAME = ("m.x AS x", "m.y AS y", "m.s AS s", "m.k AS k")


WRITERS = (random_query, random_repeats, random_repeats)


def random_lifted(random: Random, nature: Nature = PLAIN, writers: Sequence[Writer] = WRITERS) -> str:
    """The text of a hierarchy whose query on top is any query, with complex events P and perhaps Q.

    >>> print(random_lifted(Random(7)))
    EVENT P AS SEQ(A m) RETURN m.x AS x, m.y AS y, m.s AS s, m.k AS k; AND(A+ a1[], P+ p2[])
    """
    made = random.choice("PPPQ")
    texts = [_single("P", random.choice("AB"))]
    if made == "Q":
        texts.append(_pair(random, nature))
    types = random.choice((f"P{made}", f"B{made}", f"C{made}", f"AC{made}"))
    written = random.choice(writers)
    return "; ".join([*texts, written(random, nature, types)])


def _single(name: str, type: str) -> str:
    """Complex events of one event each, all of whose fields may be missing."""
    return f"EVENT {name} AS SEQ({type} m) RETURN {', '.join(SAME)}"


def _pair(random: Random, nature: Nature) -> str:
    unit = " seconds" if nature.time.startswith("timestamp") else ""
    first, second = random.choice(("AB", "PC", "AA", "CP"))
    fields = [one.replace("m.", random.choice(("u.", "v."))) for one in SAME]
    return f"EVENT Q AS SEQ({first} u, {second} v) WITHIN 3{unit} RETURN {', '.join(fields)}"
