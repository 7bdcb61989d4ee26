"""Algebra to text: the canonical spelling of a query, which parses back to the same query."""

from collections.abc import Sequence
from dataclasses import replace

from ensue.algebra.correlation import ArchiveJoin, Correlation
from ensue.algebra.form import is_input
from ensue.algebra.pattern import Pattern
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import Expr
from ensue.algebra.query import Equivalence, Query
from ensue.algebra.text import (
    show_after,
    show_columns,
    show_condition,
    show_expr,
    show_name,
    show_pattern,
    show_range,
    show_returned,
    show_whole,
    show_window,
)
from ensue.algebra.tower import Definition, Tower
from ensue.algebra.walk import kleenes, positives
from ensue.languages.sql.join_text import show_joined


def show(query: Query | Correlation | Definition | Tower) -> str:
    """The whole query, a clause a line; of a hierarchy, every statement."""
    if isinstance(query, Correlation) and query.of_clauses:
        return show_joined(query)
    match query:
        case Definition(name=name, query=defined):
            return show(replace(defined, name=name))
        case Tower(definitions=definitions, query=top, emit=emit):
            emitted = [f"EMIT {', '.join(map(show_name, emit))}"] if emit else []
            return ";\n\n".join([*map(show, definitions), *emitted, show(top)])
        case Query():
            shown = show_pattern(query.pattern) if query.whole is None else _apart(query.pattern)
            lines = [*_named(query), f"PATTERN {shown}", *_matched(query)]
            columns = show_columns(query)
        case Correlation(live=live, joins=joins):
            assert isinstance(live, Query)
            lines = [*_named(live), f"PATTERN {_apart(live.pattern)}", *_matched(live)]
            lines += [line for join in joins for line in _joined(join)]
            columns = [show_returned(column) for column in query.returns]
    if columns:
        total = query.whole is not None and query.whole.keys == ()
        lines.append(f"RETURN {'TOTAL ' if total else ''}" + ", ".join(columns))
    if query.having is not None:
        lines.append(f"HAVING {show_expr(query.having)}")
    if query.limit is not None:
        lines.append(f"LIMIT {query.limit.count}")
    if query.whole is not None:
        lines += show_whole(query.whole)
    if isinstance(query, Query) and query.choose is not None:
        lines.append(f"CHOOSE {query.choose.choice.value}")
    return "\n".join(lines)


def _named(query: Query) -> list[str]:
    return [] if query.name is None else [f"EVENT {show_name(query.name)} AS"]


def _apart(pattern: Pattern) -> str:
    """A pattern in brackets, so that its last word is not read with those of the next clause."""
    shown = show_pattern(pattern)
    return f"SEQ({shown})" if is_input(pattern) else shown


def _matched(query: Query) -> list[str]:
    lines = _where(query)
    if query.within is not None:
        lines.append(f"WITHIN {show_window(query.within)}")
    if query.after is not None:
        lines.append(f"AFTER MATCH SKIP {show_after(query.after)}")
    return lines


def _joined(join: ArchiveJoin) -> list[str]:
    """A JOIN ARCHIVE: what it looks for, where, and what ties it to the live match."""
    assert isinstance(join.query, Query)
    head = f"{join.kind.value} ARCHIVE {show_name(join.archive)} {_apart(join.query.pattern)}"
    last = "" if join.last is None else f" LAST {join.last}"
    inside = [*_matched(join.query), show_range(join.range) + last]
    inside += _led("ON", _conditions(join.on, join.equivalence))
    return [head, *(f"    {line}" for line in inside)]


def _where(query: Query) -> list[str]:
    conditions = _conditions(query.where, query.equivalence)
    if query.strategy is Strategy.ANY:
        return _led("WHERE", conditions)
    lists = kleenes(query.pattern)
    members = ", ".join(
        show_name(atom.variable) + ("[]" if atom.variable in lists else "")
        for atom in positives(query.pattern)
    )
    head = f"WHERE {query.strategy.value}({members}) {{"
    return [head, *_led("   ", conditions), "}"] if conditions else [head + " }"]


def _led(word: str, conditions: Sequence[str]) -> list[str]:
    """Conditions behind a word, each on a line of its own."""
    first = [f"{word} {condition}" for condition in conditions[:1]]
    return first + [f"    and {condition}" for condition in conditions[1:]]


def _conditions(conjuncts: Sequence[Expr], equivalence: Sequence[Equivalence]) -> list[str]:
    conditions = [show_condition(conjunct) for conjunct in conjuncts]
    if equivalence:
        fields = ", ".join(show_name(e.field_name) for e in equivalence)
        conditions.insert(0, f"[{fields}]")
    return conditions
