"""Do fields tie all events of a subscription to each other? Then it has a key."""

from ensue.algebra.alternatives import Alternative, Compared
from ensue.algebra.event_test import EventTest

Tie = tuple[int, str]  # a part, and the field of it that has the key's value


def tie(way: Alternative) -> Tie | None:
    """A part and its field that are equal to a field of every other part; None: there is none.

    An event alone is tied to nothing.
    """
    events = {n for n, part in enumerate(way.parts) if isinstance(part, EventTest)}
    classes: dict[Tie, set[Tie]] = {}
    for condition in way.conditions:
        if isinstance(condition, Compared) and condition.operator == "=":
            mine, other = (
                (condition.part, condition.name),
                (condition.other, condition.other_name),
            )
            joined = classes.get(mine, {mine}) | classes.get(other, {other})
            classes |= dict.fromkeys(joined, joined)
    if len(events) < 2:
        return None
    tied = [one for one in classes.values() if {part for part, _ in one} == events]
    return min(min(one) for one in tied) if tied else None
