"""The cell magic `%%ensue`: a query in a cell of its own, over the tables of a notebook."""

import shlex
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from ensue import api
from ensue.errors import EnsueError, EventError, did_you_mean
from ensue.languages.parameters import Parameters
from ensue.languages.sql.clauses import claims_sql
from ensue.languages.sql.named_tables import named_tables
from ensue.languages.sql.tokens import Dialect
from ensue.runners.worlds import World, library_of, world_of

if TYPE_CHECKING:
    from argparse import Namespace

_ROWS = 20  # of an Arrow table that are shown
_WIDEST = 120  # characters of a cell
_ID = 10  # characters of a match id


def load_ipython_extension(ipython: Any) -> None:
    """Makes `%%ensue` known, after `%load_ext ensue`, and shows Arrow tables as tables."""

    def ensue(line: str, cell: str) -> Any:
        try:
            return _answer(ipython, _arguments(line), cell)
        except EnsueError as error:
            raise _shown_as_text(error) from None

    ensue.__doc__ = _parser().format_help()
    ipython.register_magic_function(ensue, magic_kind="cell", magic_name="ensue")
    html = ipython.display_formatter.formatters["text/html"]
    html.for_type_by_name("pyarrow.lib", "Table", table_html)
    if not ipython.custom_exceptions:
        ipython.set_custom_exc((Exception,), _shown)


def _shown(shell: Any, kind: Any, error: Exception, traceback: Any, tb_offset: Any = None) -> Any:
    """How a notebook shows an error: what a task of Spark says for us, without Spark's pages."""
    if library_of(error) in ("pyspark", "py4j") and "ensue.errors." in str(error):
        from ensue.runners.spark.failure import failure

        kind, error = EnsueError, failure(error).with_traceback(traceback)
    shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)


def table_html(table: Any) -> str:
    """The first rows of an Arrow table; match ids are short, and in full when pointed at."""
    from ensue.results.readable import readable, rows

    def cell(name: str, value: Any) -> str:
        text = "" if value is None else readable(value)
        if name == "match_id" and isinstance(value, str):
            return f'<td title="{escape(text)}"><code>{escape(text[:_ID])}</code></td>'
        shown = text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
        return f'<td style="text-align:left" title="{escape(text)}">{escape(shown)}</td>'

    heads = "".join(f"<th>{escape(name)}</th>" for name in table.column_names)
    body = "".join(
        "<tr>" + "".join(cell(name, value) for name, value in row.items()) + "</tr>"
        for row in rows(table.slice(0, _ROWS))
    )
    more = f", the first {_ROWS} shown" if table.num_rows > _ROWS else ""
    count = f"<p>{table.num_rows:,} rows, {table.num_columns} columns{more}</p>"
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{count}"


def _shown_as_text(error: EnsueError) -> EnsueError:
    """The same error, of which a notebook shows what it says and not where it was raised."""
    error._render_traceback_ = lambda: str(error).splitlines()  # type: ignore[method-assign]
    return error


def _parser() -> Any:
    from IPython.core import magic_arguments

    made: Any = magic_arguments.MagicArgumentParser  # it has no types
    parser = made(
        "%%ensue",
        description="Runs the query in the cell: SQL with MATCH_RECOGNIZE over tables that are "
        "variables, or a pattern, or a clause alone, over --events. :gap in a query is the value "
        "of the variable gap.",
        add_help=False,
    )
    parser.add_argument("name", nargs="?", help="the variable that the result is put into")
    parser.add_argument("--events", metavar="VARIABLE", help="the table of events")
    parser.add_argument("--time", metavar="COLUMN", help="the time of an event, or START,END")
    parser.add_argument("--type", metavar="COLUMN", help="the type of an event")
    parser.add_argument("--order", metavar="COLUMN,COLUMN", help="orders events of the same time")
    parser.add_argument("--spark", action="store_true", help="run it on Spark")
    return parser


def _arguments(line: str) -> "Namespace":
    from IPython.core.error import UsageError

    try:
        given: Namespace = _parser().parse_args(shlex.split(line))
    except ValueError as error:
        raise UsageError(f"%%ensue {line}: {error}") from None
    if given.name is not None and not given.name.isidentifier():
        raise UsageError(f"%%ensue {given.name}: the result needs the name of a variable")
    return given


def _answer(shell: Any, given: "Namespace", cell: str) -> Any:
    run = _sql if claims_sql(cell) else _match
    found = run(shell.user_ns, given, cell)
    if given.name is not None:
        shell.push({given.name: found})
    return found


# ---------------------------------------------------------------------- SQL


def _sql(variables: Mapping[str, Any], given: "Namespace", cell: str) -> Any:
    for option in ("events", "time", "type", "order"):
        if getattr(given, option):
            raise EventError(
                f"--{option} is not needed for SQL: its tables are the variables that it "
                "names, and ORDER BY gives the order of rows"
            )
    session = _session(variables) if given.spark else None
    dialect = Dialect.DUCKDB if session is None else Dialect.SPARK
    tables = _tables(variables, named_tables(cell, dialect))
    if session is not None:
        tables = {name: _on_spark(session, table) for name, table in tables.items()}
    return api.sql(cell, params=_parameters(variables), tables=tables, spark=session)


def _parameters(variables: Mapping[str, Any]) -> Any:
    """`:gap` in a cell is the variable `gap`."""
    known = {name: value for name, value in variables.items() if not name.startswith("_")}
    return Parameters(known, lambda name: f"set the variable: {name} = ...", each=False)


def _tables(variables: Mapping[str, Any], named: Iterable[str]) -> dict[str, Any]:
    """The variables that are tables and that a query names: as it is written, or in any case."""
    found: dict[str, Any] = {}
    spelled = {name.lower(): name for name in variables}
    for name in named:
        variable = name if name in variables else spelled.get(name.lower())
        if variable is not None and _is_table(variables[variable]):
            found.setdefault(name.lower(), variables[variable])
    return found


# ---------------------------------------------------------------------- patterns


def _match(variables: Mapping[str, Any], given: "Namespace", cell: str) -> Any:
    events = _events(variables, given.events)
    if given.spark:
        session = _session(variables)
        if isinstance(events, Mapping):
            events = {name: _on_spark(session, table) for name, table in events.items()}
        else:
            events = _on_spark(session, events)
    columns = {"time": _time(given.time), "type": given.type}
    order = tuple(name.strip() for name in (given.order or "").split(",") if name.strip())
    values = _parameters(variables)
    return api.match(events, cell, params=values, **columns, order=order)


def _events(variables: Mapping[str, Any], name: str | None) -> Any:
    tables = [n for n, value in variables.items() if not n.startswith("_") and _is_table(value)]
    if name is None:
        hint = f"%%ensue --events {tables[-1] if tables else 'VARIABLE'}"
        raise EventError(f"a pattern needs a table of events\n  hint: {hint}")
    if name not in variables:
        hint = did_you_mean(name, tables) or "pass a table, or a dict with one for each type"
        raise EventError(f"--events {name}: there is no such variable\n  hint: {hint}")
    return variables[name]


def _time(text: str | None) -> str | tuple[str, str] | None:
    if text is None or "," not in text:
        return text
    start, _, end = text.partition(",")
    return (start.strip(), end.strip())


# ---------------------------------------------------------------------- tables


def _is_table(value: object) -> bool:
    """Whether it is a table of pandas, Polars, DuckDB, Arrow or Spark; a column is none."""
    match world_of(value), library_of(value):
        case (World.ARROW, "pandas" | "polars"):
            return False
        case (World.ARROW, "pyarrow"):
            return type(value).__name__ in ("Table", "RecordBatch", "RecordBatchReader")
        case (World.ARROW, _):
            return hasattr(value, "__arrow_c_stream__") and hasattr(value, "columns")
        case (World.SPARK, _):
            return type(value).__name__ == "DataFrame"
        case _:
            return True


def _session(variables: Mapping[str, Any]) -> Any:
    """The session that the notebook calls `spark`, or the one that runs, or a new one."""
    named = variables.get("spark")
    if world_of(named) is World.SPARK:
        return named
    from ensue.runners.spark.session import embedded

    return embedded()


def _on_spark(session: Any, table: Any) -> Any:
    """A DataFrame of a table that is none yet."""
    if world_of(table) is World.SPARK:
        return table
    from ensue.runners.tables import without_index

    return session.createDataFrame(without_index(table))
