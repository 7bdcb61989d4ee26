"""Which of the structures that can run a query is taken."""

from collections.abc import Mapping

from ensue.algebra.form import present
from ensue.errors import QueryError
from ensue.plan.estimates.decisions import Candidate, Decision, Estimate
from ensue.plan.estimates.shapes import Joins, leaves, show_shape
from ensue.plan.physical import Structure, Tree
from ensue.plan.physical_rules.fitting import is_leaf
from ensue.plan.physical_rules.tree import shape_of
from ensue.plan.planning import Planning, Shape

NAMES = {
    "stacks": "instance stacks",
    "runs": "runs",
    "tree": "join tree",
    "compact": "compact",
    "reference": "reference",
}

Possible = Mapping[str, tuple[Structure, Estimate]]  # the first is the one taken unknowingly


def cheapest(
    possible: Possible, planning: Planning, *, preferred: bool = False
) -> tuple[Structure, Decision]:
    """The structure that was asked for, else the one with the lowest estimate.

    `preferred`: not all matches are needed, so that the compact one is taken where it can be.
    Where nothing is known about the stream, the first one: assumptions are too weak to leave what
    does well on most streams.
    """
    order = sorted(possible, key=lambda name: possible[name][1].cost)
    why = ""
    if planning.structure is not None:
        chosen, why = planning.structure, "asked for"
    elif preferred and "compact" in possible:
        chosen, why = "compact", "not all matches are needed"
    elif planning.statistics.assumed:
        chosen = next(iter(possible))
        why = "" if chosen == order[0] else "nothing is known about the stream"
    else:
        chosen = order[0]
    if len(possible) == 1 and not why:
        why = "the only one for this query"
    candidates = tuple(Candidate(NAMES[name], possible[name][1]) for name in possible)
    return possible[chosen][0], Decision("structure", NAMES[chosen], candidates, why)


def require_possible(planning: Planning, possible: Mapping[str, object], why: str) -> None:
    """An error if a structure is asked for that cannot run the query."""
    wanted = planning.structure
    if wanted is not None and wanted not in (*possible, "reference"):
        raise QueryError(
            f"structure='{wanted}' cannot run this query: {why}",
            hint=f"possible here: {', '.join((*possible, 'reference'))}",
        )


def shape_decision(tree: Tree, joins: Joins, planning: Planning) -> Decision:
    """Which parts a join tree puts together first, beside the two that go from one end."""
    chosen = shape_of(tree.root)
    names = leaves(chosen)
    other: list[Shape] = [chosen]
    if all(map(is_leaf, present(joins.pattern))):
        ends = (_from_left(names), _from_right(names))
        other += [s for s in dict.fromkeys(ends) if s != chosen]
    why = "asked for" if planning.shape is not None else ""
    if not why and planning.modules:
        why = "as the tower stands"
    if not why and "join_order" in planning.off:
        why = "from the left"
    candidates = tuple(Candidate(show_shape(s), joins.estimate(s)) for s in other)
    return Decision("join_order", show_shape(chosen), candidates, why)


def _from_left(names: tuple[str, ...]) -> Shape:
    shape: Shape = names[0]
    for name in names[1:]:
        shape = (shape, name)
    return shape


def _from_right(names: tuple[str, ...]) -> Shape:
    shape: Shape = names[-1]
    for name in reversed(names[:-1]):
        shape = (name, shape)
    return shape
