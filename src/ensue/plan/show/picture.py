"""The plan of a query as a picture."""

from ensue.algebra.text import (
    show_after,
    show_condition,
    show_expr,
    show_name,
    show_pattern,
    show_window,
)
from ensue.plan.physical import Automaton, Compact, Plan, Reference, Stacks, Tree
from ensue.plan.physical_rules.compact import as_automaton
from ensue.plan.show.drawing.automaton import draw_automaton
from ensue.plan.show.drawing.canvas import DIM, LINE, Canvas, wrapped
from ensue.plan.show.drawing.joins import draw_joins
from ensue.plan.show.drawing.legend import LONG, Legend
from ensue.plan.show.drawing.stacks import draw_stacks
from ensue.plan.show.drawing.tree import draw_tree
from ensue.plan.show.explain import held_together, is_rule, lapse_texts

MOST_STATES = 32  # a larger automaton is shown as its pattern


def picture(plan: Plan) -> str:
    """SVG: the automaton with its tests, the stacks, the join tree, or the pattern.

    >>> from ensue.algebra.pattern import Atom
    >>> from ensue.algebra.query import Query
    >>> picture(Plan(Query(Atom("A", "a")), Reference("an example"))).startswith("<svg")
    True
    """
    return drawn(plan).svg(show_pattern(plan.query.pattern))


def drawn(plan: Plan) -> Canvas:
    """The same, to be put somewhere."""
    canvas, legend = Canvas(), Legend(plan)
    match plan.structure:
        case Automaton(states=states) if len(states) > MOST_STATES:
            draw_tree(canvas, plan.query.pattern)
            conditions = [show_condition(c) for c in plan.query.where]
            legend.tests += conditions
            legend.remarks.append(f"runs along an automaton of {len(states)} states")
        case Automaton():
            draw_automaton(canvas, legend, plan, plan.structure)
        case Stacks():
            draw_stacks(canvas, legend, plan, plan.structure)
        case Tree(root=root):
            draw_joins(canvas, legend, plan, root)
        case Compact():
            draw_automaton(canvas, legend, plan, as_automaton(plan.structure))
            legend.remarks.append(held_together(plan.structure))
        case Reference(reason=reason):
            draw_tree(canvas, plan.query.pattern)
            legend.tests += [show_condition(c) for c in plan.query.where]
            legend.remarks.append(f"slower exact path, because of {reason}")
    legend.remarks += _on_finished_matches(plan)
    legend.remarks += [note for note in plan.notes if not is_rule(note)]
    legend.draw(canvas)
    _head(canvas, plan)
    return canvas


def _head(canvas: Canvas, plan: Plan) -> None:
    """The pattern and its clauses, above everything else."""
    query = plan.query
    clauses = [query.strategy.value]
    if query.equivalence:
        clauses.append(f"[{', '.join(show_name(e.field_name) for e in query.equivalence)}]")
    if query.within is not None:
        clauses.append(f"within {show_window(query.within)}")
    pattern = wrapped(show_pattern(query.pattern), LONG)
    x, y = canvas.left, canvas.top - 24 - LINE * len(pattern)
    for line in pattern:
        canvas.text((x, y), line, bold=True)
        y += LINE
    canvas.text((x, y), "  ·  ".join(clauses), color=DIM)


def _on_finished_matches(plan: Plan) -> list[str]:
    lines = [f"on finished matches: {show_condition(c)}" for c in plan.residual]
    lines += lapse_texts(plan.query.pattern)
    if plan.query.after is not None:
        lines.append(f"after a match skip {show_after(plan.query.after)}")
    if plan.query.choose is not None:
        lines.append(f"choose {plan.query.choose.choice.value.lower()}")
    if plan.query.having is not None:
        lines.append(f"having {show_expr(plan.query.having)}")
    return lines
