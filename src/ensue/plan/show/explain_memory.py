"""What becomes of the keys of a stream that memory has no room for."""

from ensue.algebra.text import show_name, show_window
from ensue.plan.evictable import OF_TOWERS, may_wait, why_not_evicted
from ensue.plan.limits import EVICT, Limits, size_text
from ensue.plan.physical import Plan


def told_of_memory(plan: Plan | None, limits: Limits) -> str:
    """In words, for a query; None: one on top of definitions."""
    room = f"{limits.share:.0%} of the machine's" if limits.memory is None else None
    room = room or size_text(limits.memory or 0)
    why = OF_TOWERS if plan is None else why_not_evicted(plan)
    if why is not None or plan is None:
        return f"memory     {room} at most, then a stream stops: {why}"
    query = plan.query
    assert query.within is not None
    keys = ", ".join(show_name(e.field_name) for e in query.equivalence)
    late = query.unfinished or may_wait(query.pattern)
    lines = [
        f"memory     {room}: keys beyond it go to disk, by {limits.evict or EVICT[0]}",
        f"  stored for a key [{keys}] are its events of the last {show_window(query.within)}",
        "  they are matched again before an event of the key"
        + (", and when one of its windows ends" if late else ""),
    ]
    return "\n".join(lines)
