"""The cell magic `%%ensue` runs the query in a cell over the tables of a notebook."""

import shlex
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from ensue import api
from ensue.backends.dataframe_libs import DataFrameLibrary, detect_library, get_package_name, is_table
from ensue.backends.sql_backend import find_tables
from ensue.errors import EnsueError, EventError, did_you_mean
from ensue.parser.parameters import Parameters
from ensue.parser.sql.sql_query import Dialect, claims_sql
from ensue.schema import parse_columns

if TYPE_CHECKING:
    from argparse import Namespace

_ROWS = 20  # shown rows of an Arrow table
_WIDEST = 120  # characters of a cell
_ID = 10  # characters of a match id


def load_ipython_extension(ipython: Any) -> None:
    """Registers `%%ensue` for `%load_ext ensue`, and shows Arrow tables as HTML."""

    def ensue(line: str, cell: str) -> Any:
        try:
            arguments = _arguments(line)
            run = _sql if claims_sql(cell) else _match
            result = run(ipython.user_ns, arguments, cell)
            if arguments.name is not None:
                ipython.push({arguments.name: result})
            return result
        except EnsueError as error:
            # a notebook shows only the message
            lines = str(error).splitlines()
            error._render_traceback_ = lambda: lines  # type: ignore[method-assign]
            raise error from None

    ensue.__doc__ = _parser().format_help()
    ipython.register_magic_function(ensue, magic_kind="cell", magic_name="ensue")
    html = ipython.display_formatter.formatters["text/html"]
    html.for_type_by_name("pyarrow.lib", "Table", render_table)
    if not ipython.custom_exceptions:
        ipython.set_custom_exc((Exception,), _show_error)


def _show_error(shell: Any, kind: Any, error: Exception, traceback: Any, tb_offset: Any = None) -> Any:
    """Shows an error; one that a Spark task raised is shown without Spark's traceback."""
    if get_package_name(error) in ("pyspark", "py4j") and "ensue.errors." in str(error):
        from ensue.backends.spark.spark_errors import translate_error

        kind, error = EnsueError, translate_error(error).with_traceback(traceback)
    shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)


def render_table(table: Any) -> str:
    """Renders the first rows of an Arrow table; match ids are shortened, with the full id as a
    tooltip."""
    from ensue.projection.notification_rows import convert_to_json_rows, format_cell

    def cell(name: str, value: Any) -> str:
        text = "" if value is None else format_cell(value)
        if name == "match_id" and isinstance(value, str):
            return f'<td title="{escape(text)}"><code>{escape(text[:_ID])}</code></td>'
        shown = text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
        return f'<td style="text-align:left" title="{escape(text)}">{escape(shown)}</td>'

    heads = "".join(f"<th>{escape(name)}</th>" for name in table.column_names)
    body = "".join(
        "<tr>" + "".join(cell(name, value) for name, value in row.items()) + "</tr>"
        for row in convert_to_json_rows(table.slice(0, _ROWS))
    )
    more = f", the first {_ROWS} shown" if table.num_rows > _ROWS else ""
    count = f"<p>{table.num_rows:,} rows, {table.num_columns} columns{more}</p>"
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{count}"


def _parser() -> Any:
    from IPython.core import magic_arguments

    create: Any = magic_arguments.MagicArgumentParser  # it has no types
    parser = create(
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
        arguments: Namespace = _parser().parse_args(shlex.split(line))
    except ValueError as error:
        raise UsageError(f"%%ensue {line}: {error}") from None
    if arguments.name is not None and not arguments.name.isidentifier():
        raise UsageError(f"%%ensue {arguments.name}: the result needs the name of a variable")
    return arguments


# ---------------------------------------------------------------------- SQL


def _sql(variables: Mapping[str, Any], arguments: "Namespace", cell: str) -> Any:
    for option in ("events", "time", "type", "order"):
        if getattr(arguments, option):
            raise EventError(
                f"--{option} is not needed for SQL: its tables are the variables that it "
                "names, and ORDER BY gives the order of rows"
            )
    session = _session(variables) if arguments.spark else None
    tables = find_tables(cell, variables, None if session is None else Dialect.SPARK)
    if session is not None:
        tables = {name: _on_spark(session, table) for name, table in tables.items()}
    return api.sql(cell, params=_parameters(variables), tables=tables, spark=session)


def _parameters(variables: Mapping[str, Any]) -> Any:
    """Takes the value of `:gap` in a cell from the variable `gap`."""
    known = {name: value for name, value in variables.items() if not name.startswith("_")}
    return Parameters(known, lambda name: f"set the variable: {name} = ...", each=False)


# ---------------------------------------------------------------------- patterns


def _match(variables: Mapping[str, Any], arguments: "Namespace", cell: str) -> Any:
    events = _events(variables, arguments.events)
    if arguments.spark:
        session = _session(variables)
        if isinstance(events, Mapping):
            events = {name: _on_spark(session, table) for name, table in events.items()}
        else:
            events = _on_spark(session, events)
    columns = {"time": None if arguments.time is None else parse_columns(arguments.time), "type": arguments.type}
    order = tuple(name.strip() for name in (arguments.order or "").split(",") if name.strip())
    values = _parameters(variables)
    known = [value for value in variables.values() if _is_definition(value)]
    return api.match(events, cell, params=values, definitions=known, **columns, order=order)


def _is_definition(value: object) -> bool:
    """Whether a variable of the notebook holds an operator or definitions, for all its cells."""
    if isinstance(value, tuple):
        return bool(value) and all(isinstance(one, api.Definition) for one in value)
    return isinstance(value, api.Definition | api.UserOperator)


def _events(variables: Mapping[str, Any], name: str | None) -> Any:
    tables = [n for n, value in variables.items() if not n.startswith("_") and is_table(value)]
    if name is None:
        hint = f"%%ensue --events {tables[-1] if tables else 'VARIABLE'}"
        raise EventError(f"a pattern needs a table of events\n  hint: {hint}")
    if name not in variables:
        hint = did_you_mean(name, tables) or "pass a table, or a dict with one for each type"
        raise EventError(f"--events {name}: there is no such variable\n  hint: {hint}")
    return variables[name]


# ---------------------------------------------------------------------- tables


def _session(variables: Mapping[str, Any]) -> Any:
    """Returns the notebook's variable `spark`, the running session, or a new one."""
    named = variables.get("spark")
    if detect_library(named) is DataFrameLibrary.SPARK:
        return named
    from ensue.backends.spark.session import get_or_create_session

    return get_or_create_session()


def _on_spark(session: Any, table: Any) -> Any:
    if detect_library(table) is DataFrameLibrary.SPARK:
        return table
    from ensue.backends.dataframe_libs import to_arrow_table

    return session.createDataFrame(to_arrow_table(table))
