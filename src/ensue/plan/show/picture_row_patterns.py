"""A MATCH_RECOGNIZE clause as a picture: its pattern as a tree, and what rows must be like."""

from ensue.algebra.row_patterns.pattern import (
    Alternation,
    Anchor,
    Concatenation,
    Exclusion,
    Nothing,
    Permutation,
    Repetition,
    Row,
    RowTerm,
    parts_of,
)
from ensue.plan.row_patterns.plan import RowPlan
from ensue.plan.show.drawing.canvas import DIM, LINE, Canvas, short, width_of, wrapped
from ensue.plan.show.drawing.legend import LONG
from ensue.plan.show.drawing.tree import NAME, Box, draw_boxes
from ensue.plan.show.explain_row_patterns import ClauseWords


def picture_clause(plan: RowPlan, words: ClauseWords) -> str:
    """SVG: leaves are variables with their quantifiers, inner nodes how they follow."""
    canvas = Canvas()
    draw_boxes(canvas, _box(plan.recognition.pattern))
    _conditions(canvas, plan, words)
    clauses = [f"partition by {', '.join(words.partition)}"] if words.partition else []
    clauses += [f"order by {', '.join(words.order)}"] if words.order else []
    clauses += [plan.recognition.rows.value.lower()]
    clauses += [] if words.within is None else [f"within less than {words.within}"]
    x, pattern = canvas.left, wrapped(f"PATTERN ({words.pattern})", LONG)
    y = canvas.top - 24 - LINE * len(pattern)
    for line in pattern:
        canvas.text((x, y), line, bold=True)
        y += LINE
    canvas.text((x, y), "  ·  ".join(clauses), color=DIM)
    return canvas.svg(words.pattern)


def _conditions(canvas: Canvas, plan: RowPlan, words: ClauseWords) -> None:
    """What a row must be like to be mapped to each variable, below the tree."""
    names = plan.automaton.variables
    x, y = canvas.left, canvas.bottom + 2 * LINE
    indent = max(width_of(name) for name in names) + 20
    for name, alone, matched in zip(names, words.alone, words.matched, strict=True):
        canvas.text((x, y), name, bold=True)
        for line in wrapped(" AND ".join((*alone, *matched)) or "every row", LONG):
            canvas.text((x + indent, y), line, mono=True, size=12)
            y += LINE


def _box(term: RowTerm) -> Box:
    if isinstance(term, Repetition) and isinstance(term.part, Row):
        return Box(short(f"{term.part.variable}{_quantifier(term)}", NAME))
    return Box(_name(term), tuple(map(_box, parts_of(term))), isinstance(term, Exclusion))


def _name(term: RowTerm) -> str:
    match term:
        case Row(variable=variable):
            return short(variable, NAME)
        case Nothing():
            return "no row"
        case Anchor(at=at):
            return "^" if at == "start" else "$"
        case Concatenation():
            return "one after the other"
        case Alternation():
            return "one of"
        case Permutation():
            return "in any order"
        case Exclusion():
            return "left out of the rows"
        case Repetition():
            return f"repeated {_quantifier(term)}"


def _quantifier(term: Repetition) -> str:
    """How often, as the pattern says it.

    >>> _quantifier(Repetition(Row("A"), 1, None)), _quantifier(Repetition(Row("A"), 2, 5, False))
    ('+', '{2,5}?')
    """
    match term.least, term.most:
        case 0, None:
            text = "*"
        case 1, None:
            text = "+"
        case 0, 1:
            text = "?"
        case least, most:
            text = (
                f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
            )
    return text if term.greedy else f"{text}?"
