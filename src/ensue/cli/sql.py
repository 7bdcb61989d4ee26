"""`ensue run`, `check` and `explain` of SQL: a query over tables that are files, or a clause."""

import re
import time
from argparse import Namespace
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

import ensue
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.cli import matches
from ensue.cli.event_files import read_local, read_spark, table_files
from ensue.cli.sql_options import require_sql_options
from ensue.cli.stream_counters import many
from ensue.cli.terminal import Exit, UsageError, notice, output
from ensue.cli.text_options import spelling_of
from ensue.errors import QueryError, did_you_mean
from ensue.languages.row_patterns.clause import read_clause
from ensue.languages.sql.query import Clause, ClauseText, SqlQuery
from ensue.runners.event_files import EventFile

Sql = SqlQuery | Recognition


def run(query: Sql, options: Namespace) -> Exit:
    """Runs the query and writes its rows."""
    require_sql_options(options)
    form = matches.chosen_format(options.format, options.output)
    files = _files(query, options, needed=True)
    began = time.perf_counter()
    if options.engine == "spark":
        found = _on_spark(query, files, options, form)
    else:
        found = _answer(query, _read(files, options), options)
    seconds = time.perf_counter() - began
    if found is not None:
        told = _told_apart(found)
        matches.write(told, options.output, form, options.limit, full_ids=options.full_ids)
        notice(f"{many(found.num_rows, 'row', 'rows')} in {seconds:.2f} s")
    if options.output != "-":
        notice(f"written to {options.output}")
    return Exit.FINE


def check(query: Sql, options: Namespace) -> Exit:
    """Says whether the query can be run; with tables, also whether it fits their columns."""
    require_sql_options(options)
    files = _files(query, options, needed=False)
    if files:
        _answer(query, _without_rows(_read(files, options)))
    fits = "the query fits the tables" if files else "the query is valid"
    output().print(f"ok: {fits}")
    return Exit.FINE


def explain(query: Sql, options: Namespace) -> Exit:
    """Prints how each clause is run."""
    require_sql_options(options)
    if options.analyze and not (options.events or options.table):
        raise UsageError("--analyze runs the query: name its tables with --table")
    files = _files(query, options, needed=False)
    tables = _read(files, options) if files else None
    if tables is not None and not options.analyze:
        tables = _without_rows(tables)
    for text in _told(query, tables, options):
        output().print(text, markup=False, soft_wrap=True)
    return Exit.FINE


# ---------------------------------------------------------------------- files and tables


def _files(query: Sql, options: Namespace, *, needed: bool) -> tuple[EventFile, ...]:
    """The files of the tables that the query names."""
    given = table_files([*options.table, *(options.events or ())])
    names = list(dict.fromkeys(str(file.type) for file in given))
    if isinstance(query, Recognition):
        if needed and not given:
            raise UsageError("the clause needs a table: name its file with --table")
        return _of_one_table(given, options)
    if given or needed:
        _require_tables(query, names)
    for name in names:
        if name.lower() not in query.names:
            notice(f"note: the query does not name the table {name}")
    return tuple(file for file in given if str(file.type).lower() in query.names)


def _of_one_table(given: tuple[EventFile, ...], options: Namespace) -> tuple[EventFile, ...]:
    """A clause alone has no name for its table; several files of events are one."""
    named = table_files(options.table) if options.table else ()
    if len({str(file.type).lower() for file in named}) + bool(options.events) > 1:
        raise UsageError(
            "a single MATCH_RECOGNIZE clause reads one table, but several are given\n"
            "  hint: SELECT * FROM name MATCH_RECOGNIZE (...) says which one"
        )
    return tuple(EventFile(file.path) for file in given)


def _require_tables(query: SqlQuery, names: Iterable[str]) -> None:
    """Raises where a clause is over a table that no option gives, before files are read."""
    known = {name.lower() for name in names}
    for clause in query.clauses:
        plain = query.plain_table(clause)
        if plain is not None and plain.lower() not in known:
            problem = f"unknown table '{plain}'"
            hint = _where(plain, names)
            raise QueryError(problem, hint=hint, span=clause.input, text=query.text)


def _where(name: str, names: Iterable[str]) -> str:
    """A hint for a table that is not there."""
    near = did_you_mean(name, names) or ""
    if near.startswith("did you mean"):
        return near
    return f"name its file: --table {name}=FILE"


def _read(files: tuple[EventFile, ...], options: Namespace) -> Any:
    """A table, or those of a query by their names."""
    return read_local(files, spelling_of(options)) if files else {}


def _without_rows(tables: Any) -> Any:
    if isinstance(tables, dict):
        return {name: table.slice(0, 0) for name, table in tables.items()}
    return tables.slice(0, 0)


# ---------------------------------------------------------------------- answers


def _answer(query: Sql, tables: Any, options: Namespace | None = None) -> Any:
    limits: dict[str, Any] = {}
    if options is not None:
        limits = {"memory": options.memory, "max_matches": options.max_matches}
    if isinstance(query, Recognition):
        return ensue.match(tables, query, **limits)
    return _asked(query, tables, **limits)


def _told_apart(found: pa.Table) -> pa.Table:
    """SQL may give several columns one name; files, and who reads them, may not.

    >>> _told_apart(pa.table([[1], [2], [3]], names=["a", "b", "a"])).column_names
    ['a', 'b', 'a_2']
    """
    taken = set(found.column_names)
    names: list[str] = []
    for name in found.column_names:
        if name in names:
            name = next(n for k in count(2) if (n := f"{name}_{k}") not in taken)
            taken.add(name)
        names.append(name)
    return found.rename_columns(names)


def _asked(query: SqlQuery, tables: Any, **given: Any) -> Any:
    try:
        return ensue.sql(query.text, params=query.parameters.values, tables=tables, **given)
    except QueryError as error:
        raise _with_option(error, tables) from None


def _with_option(error: QueryError, tables: Iterable[str]) -> QueryError:
    """An engine knows no options of a command: how a table is given, we say."""
    before, name, behind = error.problem.partition("unknown table '")
    if name and not before and not str(error.hint).startswith("did you mean"):
        error.hint = _where(behind.rstrip("'"), tables)
    return error


def _on_spark(query: Sql, files: tuple[EventFile, ...], options: Namespace, form: str) -> Any:
    from ensue.runners.spark import session as spark_session

    notice("starting Spark ...")
    limits = {"memory": options.memory, "max_matches": options.max_matches}
    tables = read_spark(files, spelling_of(options)) if files else {}
    if isinstance(query, Recognition):
        found = ensue.match(tables, query, **limits)
    else:
        found = _asked(query, tables, spark=spark_session.embedded(), **limits)
    if form == "parquet" and options.output != "-":
        if Path(options.output).exists():
            raise UsageError(f"{options.output} exists; Spark writes a new folder")
        spark_session.write_parquet(found, options.output)
        return None
    return spark_session.collect(found)


# ---------------------------------------------------------------------- clauses


def clauses(query: Sql) -> list[Recognition]:
    """The clauses of a query, read; the first one that cannot be raises."""
    if isinstance(query, Recognition):
        return [query]
    bodies = map(query.body, query.clauses)
    return [read_clause(b.text, b.start, b.end, b.table, b.parameters) for b in bodies]


def _told(query: Sql, tables: Any, options: Namespace) -> list[str]:
    """How each clause is run, as a text."""
    wishes = {"analyze": options.analyze, "kernel": options.kernel}
    if isinstance(query, Recognition):
        return [ensue.explain(query, tables, **wishes)]
    read = clauses(query)
    if tables is None:
        texts: list[str] = [ensue.explain(clause, **wishes) for clause in read]
    else:
        texts = _told_over_tables(query, read, tables, wishes)
    if len(texts) == 1:
        return texts
    return [_heading(query, clause) + texts[clause.number - 1] + "\n" for clause in query.clauses]


def _told_over_tables(
    query: SqlQuery, read: list[Recognition], tables: Any, wishes: dict[str, Any]
) -> list[str]:
    """The query is run, as what one clause finds may be the table of another."""
    from ensue.runners.sql import sql

    texts: list[str] = []

    def recognize(clause: ClauseText, relation: pa.Table) -> pa.Table:
        texts.append(ensue.explain(read[len(texts)], relation, **wishes))
        return _found(clause, relation)

    try:
        sql(query.text, tables=tables, recognize=recognize, parameters=query.parameters)
    except QueryError as error:
        raise _with_option(error, tables) from None
    return texts


def _found(clause: ClauseText, relation: pa.Table) -> pa.Table:
    """What a clause finds, by a query that is nothing but this clause."""
    name = clause.table or "rows"
    quoted = '"' + name.replace('"', '""') + '"'
    body = clause.text[clause.start : clause.end]
    text = f"SELECT * FROM {quoted} MATCH_RECOGNIZE ({body}\n)"
    if clause.asks_ids and "match_id" not in map(str.lower, relation.column_names):
        text += " ORDER BY match_id"  # who names it gets it
    values = clause.parameters.values
    named = {one: values[one] for one in re.findall(r":(\w+)", body) if one in values}
    return ensue.sql(text, params=named, tables={name: relation})


def _heading(query: SqlQuery, clause: Clause) -> str:
    line = query.text.count("\n", 0, clause.keyword.start) + 1
    over = " ".join(clause.input.over(query.text).split())
    if len(over) > 60:
        over = over[:57] + "..."
    return f"clause {clause.number}, line {line}, over {over}\n"
