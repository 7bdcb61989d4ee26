"""Random MATCH_RECOGNIZE clauses and rows, and what they mean."""

import random
from collections.abc import Callable
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any

import pyarrow as pa

from ensue.engine.row_match.row_partitions import partition_rows
from ensue.engine.row_match.search import RowMatchFinder, SearchState
from ensue.errors import SkipError
from ensue.ir.expression import Binary, Expr, FieldRef, IsNull, Literal
from ensue.ir.row_pattern import (
    CLASSIFIER,
    MATCH_COLUMNS,
    OPERAND,
    ROW,
    Alternation,
    Concatenation,
    Define,
    EmptyRowPattern,
    Exclusion,
    MatchNumber,
    Measure,
    Navigation,
    PartitionAnchor,
    PartitionKey,
    Permutation,
    Repetition,
    RowAggregate,
    RowExpression,
    RowOperand,
    RowPatternQuery,
    RowSkip,
    RowSkipTarget,
    RowSortKey,
    RowsPerMatch,
    RowTerm,
    RowVariable,
    collect_variables,
    iterate_operand_expressions,
)
from ensue.ir.traversal import iterate_nodes
from ensue.planner.row_pattern_plan import RowPatternPlan
from ensue.projection.row_pattern_output import RowPatternProjection
from ensue.reference.row_pattern_matches import build_output_rows
from ensue.runtime.query_kinds import QueryKind
from ensue.schema import ValueKind
from ensue.vector.arrow_types import get_field_kinds

COLUMNS = {"k": ValueKind.STRING, "id": ValueKind.INTEGER, "x": ValueKind.STRING, "v": ValueKind.INTEGER,
           "f": ValueKind.FLOAT}  # fmt: skip
NAMES = "ABCD"


def column(name: str) -> FieldRef:
    return FieldRef(ROW, name)


def value_of(expr: Expr, *reaches: RowOperand) -> RowExpression:
    return RowExpression(expr, reaches)


def reached(number: int = 0) -> FieldRef:
    return FieldRef(OPERAND, str(number))


def a_pattern(rng: random.Random, depth: int = 3) -> RowTerm:
    """A pattern over some variables."""
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        if rng.random() < 0.05:
            return EmptyRowPattern()
        if rng.random() < 0.06:
            return PartitionAnchor(rng.choice(["start", "end"]))
        return RowVariable(rng.choice(NAMES))
    if kind < 0.55:
        return Concatenation(tuple(a_pattern(rng, depth - 1) for _ in range(rng.randint(2, 3))))
    if kind < 0.7:
        return Alternation(tuple(a_pattern(rng, depth - 1) for _ in range(rng.randint(2, 3))))
    if kind < 0.92:
        least = rng.choice([0, 0, 1, 1, 2])
        most = rng.choice([None, None, least + rng.randint(0, 2)])
        return Repetition(a_pattern(rng, depth - 1), least, most, rng.random() < 0.7)
    if kind < 0.96:
        return Permutation(tuple(a_pattern(rng, depth - 1) for _ in range(rng.randint(2, 3))))
    return Exclusion(a_pattern(rng, depth - 1))


def some_variables(rng: random.Random, variables: tuple[str, ...]) -> tuple[str, ...]:
    count = rng.choice([0, 1, 1, 1, 2])
    chosen = rng.sample(variables, min(count, len(variables)))
    return tuple(v for v in variables if v in chosen)


def a_navigation(rng: random.Random, variables: tuple[str, ...], names: list[str], final: bool) -> Navigation:
    return Navigation(
        column(rng.choice(names)),
        some_variables(rng, variables),
        first=rng.random() < 0.4,
        offset=rng.choice([0, 0, 0, 1, 2]),
        shift=rng.choice([0, 0, 0, -1, 1, -2]),
        final=final and rng.random() < 0.4,
    )


def an_aggregate(rng: random.Random, variables: tuple[str, ...], final: bool) -> RowAggregate:
    function = rng.choice(["count", "sum", "avg", "min", "max"])
    argument = column(rng.choice(["v", "f"]))
    none = function == "count" and rng.random() < 0.5
    return RowAggregate(
        function,
        () if none else (argument,),
        some_variables(rng, variables),
        final=final and rng.random() < 0.4,
        only=Binary(">", column("v"), Literal(2)) if rng.random() < 0.15 else None,
    )


def a_condition(rng: random.Random, variable: str, variables: tuple[str, ...], how: str) -> RowExpression:
    """A condition that rows decide, or one that looks at the match (`how` is "matched")."""
    own = Navigation(column("x"), (variable,) if rng.random() < 0.5 else ())
    letter = Binary("=", reached(0), Literal(variable))
    kind = rng.random()
    if how == "alone" or kind < 0.4:
        if kind < 0.6:
            return value_of(letter, own)
        if kind < 0.8:
            before = Navigation(column("v"), (), shift=rng.choice([-1, 1, -2]))
            here = Navigation(column("v"))
            return value_of(Binary(rng.choice(["<", ">="]), reached(0), reached(1)), here, before)
        return value_of(Binary("or", letter, IsNull(reached(1))), own, Navigation(column("v")))
    here = Navigation(column("v"), (variable,))
    if kind < 0.65:
        other = a_navigation(rng, variables, ["v", "f"], final=False)
    else:
        other = an_aggregate(rng, variables, final=False)
    sign = rng.choice(["<", "<=", ">", "!="])
    compared: Expr = Binary(sign, reached(0), reached(1))
    if rng.random() < 0.3:
        compared = Binary("or", compared, IsNull(reached(1)))
    if rng.random() < 0.4:
        return value_of(Binary("and", compared, Binary("=", reached(2), Literal(variable))), here, other, own)
    return value_of(compared, here, other)


def a_measure(rng: random.Random, variables: tuple[str, ...]) -> RowExpression:
    kind = rng.random()
    if kind < 0.4:
        return value_of(reached(), a_navigation(rng, variables, ["id", "x", "v", "f"], True))
    if kind < 0.7:
        return value_of(reached(), an_aggregate(rng, variables, True))
    if kind < 0.8:
        navigation = Navigation(column(CLASSIFIER), some_variables(rng, variables),
                                offset=rng.choice([0, 1]), shift=rng.choice([0, -1, 1]),
                                final=rng.random() < 0.3)  # fmt: skip
        return value_of(reached(), navigation)
    if kind < 0.9:
        return value_of(reached(), MatchNumber())
    return value_of(
        Binary("+", reached(0), reached(1)),
        a_navigation(rng, variables, ["v"], True),
        an_aggregate(rng, variables, True),
    )


def a_clause(rng: random.Random, how: str = "alone", streaming: bool = False) -> RowPatternQuery:
    """A clause over rows of `some_rows`."""
    while True:
        pattern = a_pattern(rng)
        variables = collect_variables(pattern)
        text = repr(pattern)
        if variables and not (streaming and "at='end'" in text):
            break
    defines = [Define(v, a_condition(rng, v, variables, how)) for v in variables if rng.random() < 0.85]
    rows = rng.choice(list(RowsPerMatch))
    if rows is RowsPerMatch.ALL_AND_UNMATCHED and "Exclusion" in repr(pattern):
        rows = RowsPerMatch.ALL
    to = rng.choice(
        [RowSkipTarget.PAST_LAST, RowSkipTarget.PAST_LAST, RowSkipTarget.NEXT, RowSkipTarget.FIRST, RowSkipTarget.LAST]
    )
    name = rng.choice(variables)
    skip = RowSkip(to, name, (name,)) if to in (RowSkipTarget.FIRST, RowSkipTarget.LAST) else RowSkip(to)
    within = rng.choice([2, 4, 7]) if how == "matched" and rng.random() < 0.25 else None
    return RowPatternQuery(
        pattern,
        (PartitionKey(column("k"), "k"),) if rng.random() < 0.7 else (),
        (RowSortKey(column("id")),),
        tuple(Measure(a_measure(rng, variables), f"m{n}") for n in range(rng.randint(1, 4))),
        rows,
        skip,
        (),
        tuple(defines),
        within,
    )


def some_rows(rng: random.Random, most: int = 12) -> pa.Table:
    count = rng.randint(0, most)
    letters = NAMES[: rng.randint(2, 4)]
    return pa.table(
        {
            "k": pa.array([rng.choice(["p", "q", None]) for _ in range(count)], pa.string()),
            "id": pa.array(range(count), pa.int64()),
            "x": pa.array([rng.choice(letters) for _ in range(count)], pa.string()),
            "v": pa.array([rng.choice([1, 2, 3, 4, 5, None]) for _ in range(count)], pa.int64()),
            "f": pa.array([rng.choice([0.5, 1.5, 2.0, None]) for _ in range(count)], pa.float64()),
        }
    )


def written(clause: RowPatternQuery) -> RowPatternQuery:
    """The clause as it can be written: groups of variables have names."""
    groups = {
        reach.variables
        for value in clause.values
        for reach in value.operands
        if not isinstance(reach, MatchNumber) and len(reach.variables) > 1
    }
    named = {f"S{k}": group for k, group in enumerate(sorted(groups))}
    return replace(clause, subsets=tuple(named.items()))


def streamed_clause(rng: random.Random, how: str) -> RowPatternQuery:
    """A clause over rows of which several may be of one time."""
    clause = written(a_clause(rng, how, streaming=True))
    ties = [(), (RowSortKey(column("v")),), (RowSortKey(column("v"), True), RowSortKey(column("x")))]
    return replace(clause, order=(*clause.order, *rng.choice(ties)))


def tied_rows(rng: random.Random) -> pa.Table:
    """Rows in the order of time, some of them equal."""
    table = some_rows(rng, 16)
    times = sorted(rng.randint(0, max(1, table.num_rows // 2)) for _ in range(table.num_rows))
    table = table.set_column(1, "id", pa.array(times, pa.int64()))
    if rng.random() < 0.5 and table.num_rows:
        rows = sorted(rng.choice(range(table.num_rows)) for _ in range(table.num_rows + 2))
        table = table.take(pa.array(rows))
    return table


def recognized(table: pa.Table, row_pattern: RowPatternQuery, kind: QueryKind, **_: Any) -> pa.Table:
    """The table that a clause gives by its meaning: keys, row, measures, under their own names.

    Of ids, which have no meaning, there are none.
    """
    clause = resolve_name(kind.analyze)(row_pattern, get_field_kinds(table.schema))
    order = [by.expr.name for by in clause.order]
    keys = [key.column for key in clause.partition]
    partitions: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in sorted(table.to_pylist(), key=lambda row: [row[name] for name in order]):
        partitions.setdefault(tuple(row[k] for k in keys), []).append(row)
    found = []
    for key, rows in partitions.items():
        for place, measures in resolve_name(kind.reference)(clause, rows):
            own = dict(zip((k.name for k in clause.partition), key, strict=True))
            named = dict(zip((m.name for m in clause.measures), measures, strict=True))
            found.append((own if clause.rows is RowsPerMatch.ONE else rows[place]) | own | named)
    return pa.Table.from_pylist(found) if found else pa.table({})


def meant(row_pattern: RowPatternQuery, table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows that a clause gives by its meaning: its key, its row, its measures."""
    keys = [key.column for key in row_pattern.partition]
    partitions: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in sorted(table.to_pylist(), key=lambda row: row["id"]):
        partitions.setdefault(tuple(row[k] for k in keys), []).append(row)
    found = []
    for key, rows in partitions.items():
        for place, measures in build_output_rows(row_pattern, rows):
            of = () if row_pattern.rows is RowsPerMatch.ONE else (rows[place]["id"],)
            found.append((*key, *of, *measures))
    return found


def found(row_pattern: RowPatternQuery, table: pa.Table) -> list[tuple[Any, ...]]:
    """The same as it is found, by a finder of its own."""
    plan = RowPatternPlan(row_pattern, get_field_kinds(table.schema))
    keys = [key.column for key in row_pattern.partition]
    partitions = partition_rows(table, keys, row_pattern.order)
    result = RowPatternProjection(plan, table.schema)
    whole = result.build_table(
        partitions, RowMatchFinder(plan).find(partitions, SearchState.from_complete(partitions.bounds))
    )
    names = [*(key.name for key in row_pattern.partition)]
    names += [] if row_pattern.rows is RowsPerMatch.ONE else ["id"]
    names += [measure.name for measure in row_pattern.measures]
    return [tuple(row[name] for name in names) for row in whole.to_pylist()]


def outcome(call: Callable[..., list[tuple[Any, ...]]], *given: Any) -> Any:
    """What a call gives in no particular order, or that AFTER MATCH has no way on."""
    try:
        return sorted(call(*given), key=repr)
    except SkipError:
        return "no way on"


def iterate_row_columns(value):
    """Yields the columns that an expression of MEASURES or DEFINE reads."""
    for operand in value.operands:
        for expr in iterate_operand_expressions(operand):
            for node in iterate_nodes(expr):
                if isinstance(node, FieldRef) and node.name not in MATCH_COLUMNS:
                    yield node
