"""What the structures of plans are expected to cost on a stream."""

from collections.abc import Iterable
from math import expm1, factorial, log1p, prod

from ensue.algebra.policy import Strategy
from ensue.algebra.query import Query
from ensue.algebra.walk import variables
from ensue.plan.estimates.cost import (
    COMPARE,
    EMIT,
    NEW,
    PUSH,
    STEP,
    VISIT,
    Trial,
    trial_of,
    trying,
)
from ensue.plan.estimates.decisions import Estimate
from ensue.plan.estimates.load import MOST, Load
from ensue.plan.estimates.shapes import Joins, leaves
from ensue.plan.physical import (
    Absence,
    Answer,
    Automaton,
    Check,
    Compact,
    Edge,
    Join,
    Node,
    Reference,
    Stacks,
    State,
    Structure,
    Tree,
)
from ensue.plan.physical_rules.compact import as_automaton
from ensue.plan.physical_rules.tree import joins_of, shape_of

STEPS = 16  # through a window, where the growth of runs is followed
WORK = 40_000  # edges looked at altogether while following it
NODE = 15.0  # a node of compact enumeration
ENUMERATE = 25.0  # a match taken out of it


def estimate(structure: Structure, query: Query, load: Load) -> Estimate:
    """What a structure is expected to cost and to keep, and how many matches it finds."""
    match structure:
        case Automaton():
            return of_runs(structure, query.strategy, load)
        case Stacks():
            return of_stacks(structure, load)
        case Tree(root=root):
            conditions = tuple(c.condition for node in joins_of(root) for c in node.checks)
            joins = Joins(query.pattern, conditions, load, ordered=False, early=_early(root))
            return joins.estimate(shape_of(root))
        case Compact():
            return of_answer(structure, load)
        case Reference():
            return Estimate(MOST, MOST, 0.0)


def _early(root: Node) -> bool:
    """Whether the root of a tree tries only what no node below it could try."""
    if not isinstance(root, Join):
        return True
    below = [set(leaves(shape_of(side))) for side in (root.left, root.right)]
    return not any(variables(c.condition) <= names for c in root.checks for names in below)


def of_runs(automaton: Automaton, strategy: Strategy, load: Load) -> Estimate:
    """Every event visits the runs of its partition that wait for it."""
    tests = {edge: _on_the_way(edge, load) for edge in automaton.edges}
    ends = {s.number: _tests(s.checks, s.absences, load) for s in automaton.states}
    leaf = {s.number: not automaton.out_of(s.number) for s in automaton.states}
    alive = _alive(automaton, strategy, load, tests)
    cost = matches = 0.0
    for edge in automaton.edges:
        target = automaton.states[edge.target]
        chance = load.chances[edge.variable]
        tried = chance * (alive[edge.source] if edge.source else 1.0)
        test = tests[edge]
        cost += tried * (test.cost + (VISIT if edge.source else 0.0))
        passed = tried * test.chance
        kept = not leaf[edge.target] or target.checks or target.absences or target.pending
        cost += passed * (NEW if kept else 0.0)
        if target.accepting:
            cost += passed * (ends[edge.target].cost + ends[edge.target].chance * EMIT)
            matches += passed * ends[edge.target].chance
    partial = sum(n for number, n in enumerate(alive) if number and not leaf[number])
    return _capped(cost, partial * load.partitions, matches)


def _on_the_way(edge: Edge, load: Load) -> Trial:
    return _tests(edge.checks, edge.absences, load)


def _tests(checks: Iterable[Check], absences: Iterable[Absence], load: Load) -> Trial:
    tests = [_check(check, load) for check in checks]
    return trying([*tests, *(_absence(a, load) for a in absences)])


def _check(check: Check, load: Load) -> Trial:
    test = trial_of(check.condition, load.statistics)
    if check.each and check.moving is not None:
        events = max(1.0, load.inside(check.moving) / 2)
        return Trial(test.cost + events * VISIT, test.chance)
    return test


def _absence(absence: Absence, load: Load) -> Trial:
    """The chance that nothing forbidden stands in a part of the window."""
    near = load.inside(absence.variable) / 3
    forbidden = near * load.passes(absence.conditions)
    return Trial(COMPARE + VISIT * min(1 + near, MOST), 1 / (1 + forbidden))


def _alive(
    automaton: Automaton, strategy: Strategy, load: Load, tests: dict[Edge, Trial]
) -> list[float]:
    """How many runs of one partition wait in each state."""
    states, edges = automaton.states, [e for e in automaton.edges if e.source]
    begun = [0.0] * len(states)
    for edge in automaton.out_of(0):
        begun[edge.target] += load.chances[edge.variable] * tests[edge].chance
    if strategy in (Strategy.STRICT, Strategy.PARTITION):
        return _adjacent(begun, edges, load, tests)
    begun = [n * load.window for n in begun]
    moved = {e: _moving(e, tests[e].chance, load) for e in edges}
    if strategy is Strategy.NEXT:
        return _leaving(begun, moved, states)
    return _growing(begun, moved)


def _moving(edge: Edge, chance: float, load: Load) -> float:
    """How often an event of a window takes a run along an edge."""
    if edge.source != edge.target:
        return load.inside(edge.variable) * chance
    # each event of a repetition at most doubles its runs: followed in steps, that is not e-fold
    return load.window * log1p(load.chances[edge.variable] * chance)


def _growing(runs: list[float], moved: dict[Edge, float]) -> list[float]:
    """Runs that also stay where they are: followed from their first event to the window's end."""

    def growth(runs: list[float]) -> list[float]:
        grown = [0.0] * len(runs)
        for edge, rate in moved.items():
            grown[edge.target] += runs[edge.source] * rate
        return grown

    steps = max(2, min(STEPS, WORK // (4 * len(moved) + 1)))
    size = 1 / steps
    total = [0.0] * len(runs)
    for _ in range(steps):  # of Runge and Kutta
        k1 = growth(runs)
        half = _moved(runs, k1, size / 2)
        k2 = growth(half)
        other = _moved(runs, k2, size / 2)
        k3 = growth(other)
        after = _moved(runs, k3, size)
        k4 = growth(after)
        for n in range(len(runs)):
            mean = (runs[n] + 2 * half[n] + 2 * other[n] + after[n]) / 6
            total[n] = min(MOST, total[n] + size * mean)
        slope = [(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True)]
        runs = _moved(runs, slope, size)
    return total


def _moved(runs: list[float], slope: list[float], by: float) -> list[float]:
    return [min(MOST, n + by * g) for n, g in zip(runs, slope, strict=True)]


def _leaving(
    begun: list[float], moved: dict[Edge, float], states: tuple[State, ...]
) -> list[float]:
    """Runs that the next fitting event takes along: states are numbered in their order."""
    coming, alive = list(begun), [0.0] * len(begun)
    for state in states[1:]:
        out = {e: rate for e, rate in moved.items() if e.source == state.number}
        away = sum(
            rate
            for e, rate in out.items()
            if e.target != state.number and (not state.open or e.variable in state.open)
        )
        alive[state.number] = coming[state.number] * (-expm1(-away) / away if away else 1.0)
        for edge, rate in out.items():
            if edge.target != state.number:
                coming[edge.target] += alive[state.number] * rate
    return alive


def _adjacent(
    begun: list[float], edges: list[Edge], load: Load, tests: dict[Edge, Trial]
) -> list[float]:
    """Runs that the next event must take, or they are gone."""
    total, runs = list(begun), begun
    for _ in range(64):
        after = [0.0] * len(runs)
        for edge in edges:
            chance = load.chances[edge.variable] * tests[edge].chance
            after[edge.target] += runs[edge.source] * chance
        total = [min(MOST, t + n) for t, n in zip(total, after, strict=True)]
        runs = after
    return total


def of_stacks(stacks: Stacks, load: Load) -> Estimate:
    """Events are pushed; each of the last variable goes through the combinations before it."""
    order = stacks.variables
    last = len(order) - 1
    cost = sum(load.chances[v] * PUSH for v in order[:-1])
    built, passed = 0.0, 1.0
    for place in reversed(range(last)):
        length = last - place
        meeting = prod(load.inside(v) for v in order[place:last]) / factorial(length)
        test = _tests(stacks.checks[place], stacks.absences[place], load)
        for absence in stacks.pushed[place] if stacks.pushed else ():
            passed *= _absence(absence, load).chance  # what it forbids is not there to be met
        built += meeting * passed * (STEP + test.cost)
        passed *= test.chance
    found = load.chances[order[last]] * prod(load.inside(v) for v in order[:last])
    found *= passed / factorial(last)
    cost += load.chances[order[last]] * built + found * EMIT
    negated = {a.variable for group in stacks.absences for a in group}
    kept = sum(load.inside(v) for v in (*order[:-1], *sorted(negated))) * load.partitions
    return _capped(cost, kept, found)


def of_answer(compact: Compact, load: Load) -> Estimate:
    """What a compact structure is asked for: it lists all matches, some, or none."""
    runs = of_runs(as_automaton(compact), Strategy.ANY, load)
    listed = compact.answer is Answer.MATCHES
    matches = runs.matches
    if compact.limit is not None:
        triggers = {s.variable for s in compact.steps if s.target in compact.accepting}
        matches = min(matches, compact.limit * sum(load.chances[v] for v in triggers))
    variables = dict.fromkeys(s.variable for s in compact.steps if s.target in compact.kept)
    return of_compact(variables, load, matches, enumerated=listed)


def of_compact(
    variables: Iterable[str], load: Load, matches: float, *, enumerated: bool = True
) -> Estimate:
    """A few nodes an event, however many partial matches they stand for."""
    variables = tuple(variables)
    cost = sum(load.chances[v] * NODE for v in variables)
    kept = sum(load.inside(v) for v in variables) * load.partitions
    return _capped(cost + (matches * ENUMERATE if enumerated else 0.0), kept, matches)


def _capped(cost: float, partial: float, matches: float) -> Estimate:
    return Estimate(min(cost, MOST), min(partial, MOST), min(matches, MOST))
