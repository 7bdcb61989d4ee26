"""How large the regions of a subscription are."""

import re

from ensue.workload.subscriptions.catalogue.change import Change

_PAIR = re.compile(r"[-+.\dE]+\s+[-+.\dE]+")


def count(change: Change) -> int:
    """The corners of the regions that a subscription names or writes out.

    >>> text = "@(CIRCLE (0 0, 5))(ARITH:id = 1)"
    >>> count(Change.add("a", text, regions={"R": "POLYGON ((0 0, 1 0, 1 1, 0 0))"}))
    5
    """
    texts = list(change.regions.values())
    if change.text is not None:
        texts.append(change.text)
    upper = (text.upper() for text in texts)
    return sum(len(_PAIR.findall(t)) for t in upper if "POLYGON" in t or "CIRCLE" in t)
