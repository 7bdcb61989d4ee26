"""How a MATCH_RECOGNIZE clause is run, in words."""

from collections.abc import Iterator
from dataclasses import dataclass

from ensue.algebra.row_patterns.recognition import SkipTo
from ensue.plan.row_patterns.automaton import END, Choice
from ensue.plan.row_patterns.plan import RowPlan

MOST_ENTRIES = 60  # that are listed


@dataclass(frozen=True, slots=True)
class ClauseWords:
    """Parts of a clause as its language writes them."""

    pattern: str
    partition: tuple[str, ...]
    order: tuple[str, ...]
    within: str | None
    alone: tuple[tuple[str, ...], ...]  # by variable: what rows decide
    matched: tuple[tuple[str, ...], ...]  # and what the match decides


def explained_clause(plan: RowPlan, words: ClauseWords, *, compiled: bool | None) -> str:
    """The plan of a clause; `compiled`: whether a kernel judges what rows alone do not decide
    (None: that depends on the columns)."""
    parts = [_head(plan, words), _conditions(plan, words, compiled), _automaton(plan), _kept(plan)]
    return "\n\n".join("\n".join(part) for part in parts)


def _head(plan: RowPlan, words: ClauseWords) -> Iterator[str]:
    skip = plan.recognition.skip
    to = skip.to.value if skip.name is None else f"{skip.to.value} {skip.name}"
    yield f"pattern    {words.pattern}"
    yield f"rows       {plan.recognition.rows.value}"
    yield f"after      a match the search goes on {_where(skip.to, to)}"
    yield f"partition  {', '.join(words.partition) or 'none: all rows are one'}"
    yield f"order      {', '.join(words.order) or 'none: as rows come'}"
    yield f"window     {'none' if words.within is None else f'less than {words.within}'}"


def _where(to: SkipTo, text: str) -> str:
    match to:
        case SkipTo.PAST_LAST:
            return "behind its last row"
        case SkipTo.NEXT:
            return "at the row behind its first"
        case SkipTo.FIRST | SkipTo.LAST:
            return text.replace("TO FIRST", "at its first row of").replace(
                "TO LAST", "at its last row of"
            )


def _conditions(plan: RowPlan, words: ClauseWords, compiled: bool | None) -> Iterator[str]:
    width = max(len(name) for name in plan.automaton.variables)
    yield "scan: one bit a row and variable, for whole columns"
    for name, conditions in zip(plan.automaton.variables, words.alone, strict=True):
        yield f"  {name:<{width}}  {' AND '.join(conditions) or 'every row'}"
    if plan.decided_by_rows:
        yield "rows alone decide: one pass back and one forth, without coming back to a choice"
        return
    how = {
        True: "evaluated by a compiled kernel",
        False: "evaluated by their plain meaning, row by row: slower",
        None: "evaluated by a compiled kernel if it supports all of them",
    }[compiled]
    yield f"conditions on the match, {how}"
    for name, conditions in zip(plan.automaton.variables, words.matched, strict=True):
        if conditions:
            yield f"  {name:<{width}}  {' AND '.join(conditions)}"
    if words.within is not None:
        yield f"  every row is less than {words.within} behind the first"


def _automaton(plan: RowPlan) -> Iterator[str]:
    entries = plan.automaton.entries
    yield f"automaton of {_count(len(entries), 'entry', 'entries')}, the preferred choice first"
    for number, choices in enumerate(entries[:MOST_ENTRIES]):
        told = "; ".join(_choice(choice, plan.automaton.variables) for choice in choices)
        yield f"  {number}: {told or 'no way on'}"
    if len(entries) > MOST_ENTRIES:
        yield f"  and {len(entries) - MOST_ENTRIES:,} more"


def _choice(choice: Choice, variables: tuple[str, ...]) -> str:
    at = " at the first row" if choice.at_start else ""
    at += " behind the last row" if choice.at_end else ""
    if choice.variable == END:
        return f"match{at}"
    left_out = ", left out of the result" if choice.excluded else ""
    return f"{variables[choice.variable]} to {choice.entry}{at}{left_out}"


def _kept(plan: RowPlan) -> Iterator[str]:
    longest = plan.automaton.longest
    length = "of any length" if longest is None else f"of at most {_count(longest, 'row')}"
    yield f"a match is {length}"
    yield (
        f"it looks back {_count(plan.back, 'row')} before its own, and ahead "
        f"{_count(plan.awaited, 'row')} behind them"
    )
    yield f"streams: {_streams(plan, longest)}"


def _streams(plan: RowPlan, longest: int | None) -> str:
    if plan.automaton.looks_at_the_end:
        return "refused, since $ needs the last row of a partition"
    if not plan.recognition.order:
        return "refused without an ORDER BY that starts with the event time column"
    if plan.recognition.within is not None:
        return "a row is decided by later rows, or when time has passed its window"
    if longest is None:
        return (
            "live, rows are kept for as long as they may become a match; on Spark refused "
            "without WITHIN or bounded quantifiers"
        )
    further = max(0, longest - 1) + plan.awaited
    return f"a row is decided by {_count(further, 'further row')} of its partition at the latest"


def _count(number: int, one: str, several: str | None = None) -> str:
    """A number of things.

    >>> _count(1, "row"), _count(2_000, "row"), _count(0, "entry", "entries")
    ('1 row', '2,000 rows', '0 entries')
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
