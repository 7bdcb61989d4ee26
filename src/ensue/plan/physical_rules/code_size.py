"""How long the kernel of an automaton gets, and so which form it takes.

A kernel with code for each edge is the fastest, and compiling takes about 5 ms a line. With many
edges those that are alike share their code (`structures/runs/shared.py`).
"""

from ensue.algebra.policy import Strategy
from ensue.plan.physical import Automaton, Edge

MOST_LINES = 445  # with code for each edge: up to about 3 s to compile
MOST_WAYS = 62  # edges out of a state, where alike ones share their code: bits of a number


def shares_code(automaton: Automaton, strategy: Strategy) -> bool:
    """Whether alike edges share their code, as code for each would take too long to compile."""
    ways = max(len(automaton.out_of(state.number)) for state in automaton.states)
    return ways <= MOST_WAYS and lines_with_own_code(automaton, strategy) > MOST_LINES


def lines_with_own_code(automaton: Automaton, strategy: Strategy) -> int:
    """About how many lines a kernel with code for each edge has: three quarters to four thirds."""
    bound = {variable for state in automaton.states for variable in state.bound}
    open_ = {variable for state in automaton.states for variable in state.open}
    columns = 3 + len(bound) + 3 * len(open_)
    lines = 90 + columns + sum(8 + 30 * len(state.pending) for state in automaton.states)
    lines += sum(_lines(edge, automaton, columns) for edge in automaton.edges)
    # where runs always wait on, nothing is written for when they do not
    return lines * 4 // 5 if strategy is Strategy.ANY else lines


def _lines(edge: Edge, automaton: Automaton, columns: int) -> int:
    target = automaton.states[edge.target]
    waits = target.checks or target.absences or target.pending
    lines = 2 * len(edge.checks) + 6 * sum(check.each for check in edge.checks)
    lines += 15 * (len(edge.absences) + len(target.absences))
    if edge.source and not waits and not automaton.out_of(edge.target):
        return lines + 18 + columns  # a match, at once
    return lines + 28 + columns * (2 if target.accepting else 1)
