"""The plan of a tower as text: its layers, how each box is found, and the plan of each matcher."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ensue.algebra.text import show_name, show_pattern, show_window
from ensue.algebra.tower import Tower
from ensue.plan.estimates.decisions import figure
from ensue.plan.physical import Plan
from ensue.plan.show.explain import explain
from ensue.plan.towers.boxes import BoxChoice

ON_TOP = "the query"


@dataclass(frozen=True, slots=True)
class Matcher:
    """A layer that has a matcher of its own, alone or with what is in its boxes."""

    name: str
    plan: Plan
    delivered: bool
    waits: bool  # its time is behind: a layer below is only known when a window is over


def explain_tower(
    tower: Tower,
    boxes: Sequence[BoxChoice],
    matchers: Sequence[Matcher],
    keys: Sequence[str] = (),
    more: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """How a tower is run, from the query on top down to what comes in.

    `more` is told behind the plans of matchers, by their names.
    """
    layers = len(tower.definitions) + len(tower.on_top)
    lines = [f"tower of {layers} layers, {_matchers(len(matchers))}"]
    seen: set[str] = set()
    for name in tower.on_top:
        lines += _layer(tower, name, boxes, matchers, "  ", seen)
    lines += keys
    for matcher in reversed(matchers):
        lines += ["", f"--- {called(matcher.name, tower)} ---", explain(matcher.plan)]
        lines += ["", more[matcher.name]] if matcher.name in more else []
    return "\n".join(lines)


def _matchers(count: int) -> str:
    return "one matcher" if count == 1 else f"{count} matchers"


def called(name: str, tower: Tower) -> str:
    """What a reader calls a layer."""
    label = next((top.label for top in tower.tops if top.layer == name), name)
    if name in tower.on_top:
        return ON_TOP if not label else f"{ON_TOP} {show_name(label)}"
    return show_name(name)


def _layer(
    tower: Tower,
    name: str,
    boxes: Sequence[BoxChoice],
    matchers: Sequence[Matcher],
    indent: str,
    seen: set[str],
) -> Iterator[str]:
    query = tower.on_top.get(name)
    below = query is None
    if query is None:
        query = next(d.query for d in tower.definitions if d.name == name)
    if name in seen:
        yield f"{indent}{called(name, tower)}: as above"
        return
    seen.add(name)
    facts = [show_pattern(query.pattern)]
    facts += [f"[{e.field_name}]" for e in query.equivalence]
    if query.within is not None:
        facts.append(f"within {show_window(query.within)}")
    matcher = next((m for m in matchers if m.name == name), None)
    if matcher is not None and matcher.delivered and below:
        facts.append("delivered")
    if matcher is not None and matcher.waits:
        facts.append("waits for what is below it")
    yield f"{indent}{called(name, tower)}: {', '.join(facts)}"
    for box in boxes:
        if box.layer == name:
            yield f"{indent}  box {show_name(box.variable)}: {_way(box)}"
            yield from _layer(tower, box.type, boxes, matchers, indent + "    ", seen)


def _way(box: BoxChoice) -> str:
    way = "top-down" if box.top_down else "bottom-up"
    why = f", {box.why}" if box.why else ""
    if box.costs is not None and box.costs[0] < box.costs[1]:
        why += f" (costs {figure(box.costs[0])} against {figure(box.costs[1])} all bottom-up)"
    return way + why
