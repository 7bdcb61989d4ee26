"""Explains how a MATCH_RECOGNIZE clause runs, as text and as a picture of its pattern."""

from collections.abc import Iterator
from dataclasses import dataclass

from ensue.ir.row_pattern import (
    Alternation,
    Concatenation,
    EmptyRowPattern,
    Exclusion,
    PartitionAnchor,
    Permutation,
    Repetition,
    RowSkipTarget,
    RowTerm,
    RowVariable,
    get_term_parts,
)
from ensue.planner.explain.plan_picture import LEGEND_WIDTH, MAX_NAME
from ensue.planner.row_pattern_plan import END, RowPatternPlan, RowTransition
from ensue.svg import LINE, Canvas, TreeBox, cut_text, draw_tree, measure_text, wrap_text

_SKIPS = {
    RowSkipTarget.PAST_LAST: "after its last row",
    RowSkipTarget.NEXT: "at the row after its first",
    RowSkipTarget.FIRST: "at its first row of {}",
    RowSkipTarget.LAST: "at its last row of {}",
}
_TERMS = {
    EmptyRowPattern: "no row",
    Concatenation: "one after the other",
    Alternation: "one of",
    Permutation: "in any order",
    Exclusion: "left out of the rows",
}
MAX_ENTRIES = 60  # of the automaton that are listed
_COMPILED = {
    True: "evaluated by a compiled kernel",
    False: "evaluated by their plain meaning, row by row: slower",
    None: "evaluated by a compiled kernel if it supports all of them",
}


@dataclass(frozen=True, slots=True)
class ClauseTexts:
    """The parts of a clause as its language writes them."""

    pattern: str
    partition: tuple[str, ...]
    order: tuple[str, ...]
    within: str | None
    alone: tuple[tuple[str, ...], ...]  # by variable: conditions on single rows
    matched: tuple[tuple[str, ...], ...]  # by variable: conditions on the match


def explain_row_pattern(plan: RowPatternPlan, texts: ClauseTexts, *, compiled: bool | None) -> str:
    """Explains the plan of a clause.

    `compiled` tells whether a kernel evaluates the conditions on matches; None if that depends on
    the columns.
    """
    sections = (
        _explain_clause(plan, texts),
        _explain_conditions(plan, texts, compiled),
        _explain_automaton(plan),
        _explain_length(plan),
    )
    return "\n\n".join("\n".join(section) for section in sections)


def _explain_clause(plan: RowPatternPlan, texts: ClauseTexts) -> Iterator[str]:
    skip = plan.row_pattern.skip
    yield f"pattern    {texts.pattern}"
    yield f"rows       {plan.row_pattern.rows.value}"
    yield f"after      a match the search continues {_SKIPS[skip.to].format(skip.name)}"
    yield f"partition  {', '.join(texts.partition) or 'none: all rows are one partition'}"
    yield f"order      {', '.join(texts.order) or 'none: order of arrival'}"
    yield f"window     {'none' if texts.within is None else f'less than {texts.within}'}"


def _explain_conditions(plan: RowPatternPlan, texts: ClauseTexts, compiled: bool | None) -> Iterator[str]:
    width = max(len(name) for name in plan.automaton.variables)
    yield "scan: one bit per row and variable, computed for whole columns"
    for name, conditions in zip(plan.automaton.variables, texts.alone, strict=True):
        yield f"  {name:<{width}}  {' AND '.join(conditions) or 'every row'}"
    if plan.is_decided_by_rows:
        yield "single rows decide: one pass backward and one forward, without backtracking"
        return
    yield f"conditions on the match, {_COMPILED[compiled]}"
    for name, conditions in zip(plan.automaton.variables, texts.matched, strict=True):
        if conditions:
            yield f"  {name:<{width}}  {' AND '.join(conditions)}"
    if texts.within is not None:
        yield f"  every row is less than {texts.within} after the first"


def _explain_automaton(plan: RowPatternPlan) -> Iterator[str]:
    entries = plan.automaton.entries
    count = _format_count(len(entries), "entry", "entries")
    yield f"automaton of {count}, the preferred choice first"
    for number, choices in enumerate(entries[:MAX_ENTRIES]):
        shown = "; ".join(_describe_choice(choice, plan.automaton.variables) for choice in choices)
        yield f"  {number}: {shown or 'no transition'}"
    if len(entries) > MAX_ENTRIES:
        yield f"  and {len(entries) - MAX_ENTRIES:,} more"


def _describe_choice(choice: RowTransition, variables: tuple[str, ...]) -> str:
    at = " at the first row" if choice.at_start else ""
    at += " after the last row" if choice.at_end else ""
    if choice.variable == END:
        return f"match{at}"
    excluded = ", left out of the result" if choice.excluded else ""
    return f"{variables[choice.variable]} to {choice.entry}{at}{excluded}"


def _explain_length(plan: RowPatternPlan) -> Iterator[str]:
    longest = plan.automaton.longest
    length = "of any length" if longest is None else f"of at most {_format_count(longest, 'row')}"
    yield f"a match is {length}"
    yield (
        f"it reads {_format_count(plan.back, 'row')} before its own rows, and "
        f"{_format_count(plan.awaited, 'row')} after them"
    )
    yield f"streams: {_describe_streaming(plan, longest)}"


def _describe_streaming(plan: RowPatternPlan, longest: int | None) -> str:
    if plan.automaton.reads_end:
        return "refused, since $ needs the last row of a partition"
    if not plan.row_pattern.order:
        return "refused without an ORDER BY that starts with the event time column"
    if plan.row_pattern.within is not None:
        return "a row is decided by later rows, or when time has passed its window"
    if longest is None:
        return (
            "live, rows are kept while they may become part of a match; refused on Spark "
            "without WITHIN or bounded quantifiers"
        )
    rows = _format_count(max(0, longest - 1) + plan.awaited, "further row")
    return f"a row is decided by {rows} of its partition at the latest"


def _format_count(number: int, noun: str, plural: str | None = None) -> str:
    """Formats a number of things.

    >>> _format_count(1, "row"), _format_count(2_000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


# ---------------------------------------------------------------------------------- picture


def draw_row_pattern(plan: RowPatternPlan, texts: ClauseTexts) -> str:
    """Draws the pattern as a tree of boxes, with the conditions of its variables, as SVG."""
    canvas = Canvas()
    draw_tree(canvas, _build_box(plan.row_pattern.pattern))
    names = plan.automaton.variables
    x, y = canvas.left, canvas.bottom + 2 * LINE
    indent = max(map(measure_text, names)) + 20
    for name, alone, matched in zip(names, texts.alone, texts.matched, strict=True):
        canvas.text((x, y), name, bold=True)
        for line in wrap_text(" AND ".join((*alone, *matched)) or "every row", LEGEND_WIDTH):
            canvas.text((x + indent, y), line, mono=True, size=12)
            y += LINE
    clauses = [f"partition by {', '.join(texts.partition)}"] if texts.partition else []
    clauses += [f"order by {', '.join(texts.order)}"] if texts.order else []
    clauses += [plan.row_pattern.rows.value.lower()]
    clauses += [] if texts.within is None else [f"within less than {texts.within}"]
    canvas.title(wrap_text(f"PATTERN ({texts.pattern})", LEGEND_WIDTH), "  ·  ".join(clauses))
    return canvas.to_svg(texts.pattern)


def _build_box(term: RowTerm) -> TreeBox:
    if isinstance(term, Repetition) and isinstance(term.part, RowVariable):
        return TreeBox(cut_text(f"{term.part.variable}{_format_quantifier(term)}", MAX_NAME))
    children = tuple(map(_build_box, get_term_parts(term)))
    return TreeBox(_name_term(term), children, isinstance(term, Exclusion))


def _name_term(term: RowTerm) -> str:
    match term:
        case RowVariable(variable=variable):
            return cut_text(variable, MAX_NAME)
        case PartitionAnchor(at=at):
            return "^" if at == "start" else "$"
        case Repetition():
            return f"repeated {_format_quantifier(term)}"
        case _:
            return _TERMS[type(term)]


def _format_quantifier(term: Repetition) -> str:
    """Formats a quantifier as the pattern writes it.

    >>> _format_quantifier(Repetition(RowVariable("A"), 1, None))
    '+'
    >>> _format_quantifier(Repetition(RowVariable("A"), 2, 5, False))
    '{2,5}?'
    """
    least, most = term.least, term.most
    text = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
    if text is None:
        text = f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
    return text if term.greedy else f"{text}?"
