"""Prints queries in the pattern language, which parses back to the same query."""

import re
from collections.abc import Sequence
from dataclasses import replace

from ensue.ir.archive_join import ArchiveJoin, ArchiveJoinQuery, LookbackRange
from ensue.ir.expression import MATCHES, Expr, FieldRef, Literal
from ensue.ir.hierarchy import Definition, Hierarchy
from ensue.ir.pattern import GROUPS, And, Atom, Kleene, MaxGap, Maybe, Not, OperatorCall, Or, Pattern, Repeat, Seq, Then
from ensue.ir.query import Equivalence, Query, ResultModifiers, ReturnItem, SortKey
from ensue.ir.selection import AfterMatch, ByEvents, ByTime, ByUnits, MatchOrder, Strategy, Window
from ensue.ir.traits import is_input, is_then
from ensue.ir.traversal import get_kleene_variables, iterate_positive_atoms
from ensue.ir.values import format_duration, is_unit
from ensue.printing.expression_printer import (
    SUM,
    format_condition,
    format_expr,
    format_name,
    format_order,
    format_quantifier,
)
from ensue.schema import Types, TypeUnion

# Words that the parser does not accept as types after THEN.
_READ_WITH_THEN = re.compile(
    r"(strict|partition|next|any|then|using|limit|choose|left|anti|join|from|range)\b", re.IGNORECASE
)


def format_query(query: Query | ArchiveJoinQuery | Definition | Hierarchy) -> str:
    """Prints a query, one clause per line; for a hierarchy all statements."""
    if isinstance(query, ArchiveJoinQuery) and query.has_row_pattern_sides:
        from ensue.printing.sql_printer import format_archive_join

        return format_archive_join(query)
    match query:
        case Definition(name=name, query=defined):
            return format_query(replace(defined, name=name))
        case Hierarchy(definitions=definitions, query=top, emit=emit):
            emitted = [f"EMIT {', '.join(map(format_name, emit))}"] if emit else []
            return ";\n\n".join([*map(format_query, definitions), *emitted, format_query(top)])
        case Query():
            shown = format_pattern(query.pattern) if query.whole is None else _bracket(query.pattern)
            lines = [*_format_event(query), f"PATTERN {shown}", *_format_match(query)]
            columns = format_columns(query)
        case ArchiveJoinQuery(live=live, joins=joins):
            assert isinstance(live, Query)
            lines = [*_format_event(live), f"PATTERN {_bracket(live.pattern)}", *_format_match(live)]
            lines += [line for join in joins for line in _format_join(join)]
            columns = [format_return_item(column) for column in query.returns]
    if columns:
        total = query.whole is not None and query.whole.keys == ()
        lines.append(f"RETURN {'TOTAL ' if total else ''}" + ", ".join(columns))
    if query.having is not None:
        lines.append(f"HAVING {format_expr(query.having)}")
    if query.limit is not None:
        lines.append(f"LIMIT {query.limit.count}")
    if query.whole is not None:
        lines += format_result_modifiers(query.whole)
    if isinstance(query, Query) and query.choose is not None:
        lines.append(f"CHOOSE {query.choose.choice.value}")
    return "\n".join(lines)


def _format_event(query: Query) -> list[str]:
    return [] if query.name is None else [f"EVENT {format_name(query.name)} AS"]


def _bracket(pattern: Pattern) -> str:
    """Prints a pattern in brackets, which separate its last word from the next clause."""
    shown = format_pattern(pattern)
    return f"SEQ({shown})" if is_input(pattern) else shown


def _format_match(query: Query) -> list[str]:
    lines = _where(query)
    if query.within is not None:
        lines.append(f"WITHIN {format_window(query.within)}")
    if query.after is not None:
        lines.append(f"AFTER MATCH SKIP {format_after_match(query.after)}")
    return lines


def _format_join(join: ArchiveJoin) -> list[str]:
    """Prints a JOIN ARCHIVE clause."""
    assert isinstance(join.query, Query)
    head = f"{join.kind.value} ARCHIVE {format_name(join.archive)} {_bracket(join.query.pattern)}"
    last = "" if join.last is None else f" LAST {join.last}"
    inside = [*_format_match(join.query), format_range(join.range) + last]
    inside += _format_conditions("ON", _conditions(join.on, join.equivalence))
    return [head, *(f"    {line}" for line in inside)]


def _where(query: Query) -> list[str]:
    conditions = _conditions(query.where, query.equivalence)
    if query.strategy is Strategy.ANY:
        return _format_conditions("WHERE", conditions)
    lists = get_kleene_variables(query.pattern)
    members = ", ".join(
        format_name(atom.variable) + ("[]" if atom.variable in lists else "")
        for atom in iterate_positive_atoms(query.pattern)
    )
    head = f"WHERE {query.strategy.value}({members}) {{"
    return [head, *_format_conditions("   ", conditions), "}"] if conditions else [head + " }"]


def _format_conditions(word: str, conditions: Sequence[str]) -> list[str]:
    """Prints conditions after a keyword, one per line."""
    first = [f"{word} {condition}" for condition in conditions[:1]]
    return first + [f"    and {condition}" for condition in conditions[1:]]


def _conditions(conjuncts: Sequence[Expr], equivalence: Sequence[Equivalence]) -> list[str]:
    conditions = [format_condition(conjunct) for conjunct in conjuncts]
    if equivalence:
        fields = ", ".join(format_name(e.field_name) for e in equivalence)
        conditions.insert(0, f"[{fields}]")
    return conditions


def format_types(types: Types) -> str:
    """Prints the event types of a variable.

    >>> [format_types(types) for types in ("A", "any", TypeUnion(("A", "B")), TypeUnion())]
    ['A', '"any"', '(A|B)', 'ANY']
    """
    match types:
        case str():
            return f'"{types}"' if types.upper() == "ANY" else format_name(types)
        case TypeUnion(names=()):
            return "ANY"
        case TypeUnion(names=names):
            return f"({'|'.join(map(format_types, names))})"


def format_pattern(pattern: Pattern) -> str:
    """Prints a pattern in functional form.

    >>> format_pattern(Seq((Kleene(Atom("Stock", "a"), 1, None), Not(Atom("Halt", "h")))))
    'SEQ(Stock+ a[], !Halt h)'
    """
    match pattern:
        case Atom(type=type_, variable=variable):
            return f"{format_types(type_)} {format_name(variable)}"
        case Kleene(atom=atom, inner=Strategy() as inner):
            again = format_separator(inner, pattern.pause)
            return f"({format_pattern(atom)} {again}){_quantifier(pattern)}{_format_until(pattern)}"
        case Kleene(atom=atom):
            variable = format_name(atom.variable)
            return f"{format_types(atom.type)}{_quantifier(pattern)} {variable}[]{_format_until(pattern)}"
        case Repeat(part=part):
            shown = format_pattern(part)
            if pattern.inner is not None:
                again = format_separator(pattern.inner, pattern.pause)
                return f"({shown} {again}){_quantifier(pattern)}{_format_until(pattern)}"
            grouped = shown if format_head(part) in GROUPS else f"({shown})"
            return f"{grouped}{_quantifier(pattern)}{_format_until(pattern)}"
        case Maybe(part=Atom(type=type_, variable=variable)):
            return f"{format_types(type_)}? {format_name(variable)}"
        case Maybe(part=part):
            return f"({format_pattern(part)})?"
        case Not(part=part, interval=interval):
            shown = f"!{format_pattern(part)}"
            if interval is None:
                return shown
            ends = format_expr(interval.after, SUM), format_expr(interval.until, SUM)
            return f"{shown} FROM {ends[0]} TO {ends[1]}"
        case Seq(parts=parts):
            first, *others = (f"{' ' if is_then(part) else ', '}{format_pattern(part)}" for part in parts)
            return f"SEQ({first.removeprefix(', ')}{''.join(others)})" if parts else "SEQ()"
        case Then(part=part):
            shown = format_pattern(part)
            unit = isinstance(pattern.pause, ByUnits) and is_unit(shown.partition(" ")[0])
            apart = f"({shown})" if unit or _READ_WITH_THEN.match(shown) else shown
            return f"{format_head(pattern)} {apart}"
        case And(parts=parts) | Or(parts=parts):
            return f"{format_head(pattern)}({', '.join(map(format_pattern, parts))})"
        case OperatorCall(operator=operator, inputs=inputs, parameters=parameters, variable=variable):
            inside = [*map(format_pattern, inputs), *(format_expr(p) for p in parameters)]
            return f"{format_name(operator.name)}({', '.join(inside)}) {format_name(variable)}"


def format_head(pattern: Pattern) -> str:
    """Prints a node without its parts, for pictures and messages."""
    match pattern:
        case Seq() | And() | Or() | Not():
            return type(pattern).__name__.upper()
        case Maybe():
            return "?"
        case Repeat():
            return _quantifier(pattern)
        case Then(part=Not()):
            return "THEN"
        case Then(how=how, pause=pause):
            return format_separator(how, pause)
        case Atom() | Kleene() | OperatorCall():
            return format_pattern(pattern)


def format_separator(how: Strategy, pause: MaxGap | None = None) -> str:
    """Prints the separator of two parts.

    >>> format_separator(Strategy.PARTITION), format_separator(Strategy.ANY, ByUnits(5))
    ('THEN', 'THEN ANY WITHIN 5')
    """
    word = "THEN" if how is Strategy.PARTITION else f"THEN {how.name}"
    return word if pause is None else f"{word} WITHIN {format_window(pause)}"


def _format_until(loop: Kleene | Repeat) -> str:
    if loop.until is None:
        return ""
    shown = format_pattern(loop.until.part)
    word = _READ_WITH_THEN.match(shown)  # the parser would take it for the next part
    return f" UNTIL {shown}" if word is None or word[0] == "ANY" else f' UNTIL "{word[0]}"{shown[word.end() :]}'


def _quantifier(loop: Kleene | Repeat) -> str:
    return format_quantifier(loop.least, loop.most) + loop.leave.value


def format_window(window: Window) -> str:
    """Prints the length of a window.

    >>> format_window(ByTime(300_000_000_000)), format_window(ByEvents(20))
    ('5 minutes', '20 EVENTS')
    """
    match window:
        case ByTime(nanoseconds=length):
            return format_duration(length)
        case ByUnits(amount=amount):
            return repr(amount)
        case ByEvents(count=count):
            return f"{count} EVENTS"


def format_range(range_: LookbackRange) -> str:
    """Prints the RANGE clause of an archive join.

    >>> format_range(LookbackRange(ByUnits(30), near=ByUnits(1)))
    'RANGE BETWEEN 30 AND 1 BEFORE START'
    """
    far, anchor = format_window(range_.far), range_.anchor.value
    if range_.near is None:
        return f"RANGE {far} BEFORE {anchor}"
    return f"RANGE BETWEEN {far} AND {format_window(range_.near)} BEFORE {anchor}"


def format_after_match(after: AfterMatch) -> str:
    """Prints the target of AFTER MATCH SKIP."""
    shown = after.to.value
    if after.variable is not None:
        shown += f" {format_name(after.variable)}"
    return shown if after.order is MatchOrder.END else f"{shown} IN ORDER OF {after.order.value}"


def format_columns(query: Query) -> list[str]:
    """Prints the columns of RETURN."""
    shown = [*(("EXISTS",) if query.exists else ()), *map(format_return_item, query.returns)]
    if query.all_events:
        shown = [*shown[:-1], f"{shown[-1]} ALL EVENTS"] if shown else ["ALL EVENTS"]
    return shown


def format_return_item(returned: ReturnItem) -> str:
    """Prints a column of RETURN, with AS if its name differs from the default."""
    if returned.every and returned.name == MATCHES:
        return "*"
    text = format_return_expr(returned)
    if returned.every:
        assert isinstance(returned.expr, FieldRef)
        prefixed = returned.name != returned.expr.variable
        return f"{text}.*" + (f" AS {format_name(returned.name)}" if prefixed else "")
    name = text if returned.over is not None else get_default_name(returned.expr)
    if returned.name in (name, ""):
        return text
    return f"{text} AS {format_name(returned.name)}"


def format_return_expr(returned: ReturnItem) -> str:
    """Prints a column of RETURN without its name."""
    if returned.over is None:
        return format_expr(returned.expr)
    if returned.expr == Literal(True):
        return "COUNT(*)"
    return format_expr(replace(returned.over, argument=returned.expr))


def format_result_modifiers(whole: ResultModifiers) -> list[str]:
    """Prints GROUP BY, ORDER BY and FETCH FIRST, one clause per line."""
    lines = []
    if whole.keys:
        lines.append(f"GROUP BY {', '.join(map(format_expr, whole.keys))}")
    if whole.order:
        lines.append(f"ORDER BY {', '.join(map(format_sort_key, whole.order))}")
    if whole.first is not None:
        lines.append(f"FETCH FIRST {whole.first} ROWS ONLY")
    return lines


def format_sort_key(key: SortKey) -> str:
    """Prints a key of ORDER BY."""
    return format_order(format_expr(key.expr), key.descending, key.nulls_first)


def get_default_name(expr: Expr) -> str:
    """Returns the name of the column `RETURN expr` without AS.

    >>> from ensue.ir.expression import Aggregate
    >>> get_default_name(FieldRef("a", "price")), get_default_name(Aggregate("count", "a", None))
    ('price', 'count(a)')
    """
    if isinstance(expr, FieldRef):
        return expr.name if expr.name is not None else expr.variable
    return format_expr(expr)
