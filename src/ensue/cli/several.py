"""`ensue run` with several queries: one scan of the events, one output for each query."""

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import ensue
from ensue.cli import event_files, matches
from ensue.cli.query_text import query_text
from ensue.cli.run import event_columns, require_no_stream
from ensue.cli.terminal import Exit, UsageError, notice, progress
from ensue.languages.patterns import parse

ENDINGS = {"table": "txt", "json": "jsonl", "csv": "csv", "parquet": "parquet"}


def run_several(options: Namespace) -> Exit:
    """Finds the matches of all queries and writes those of each."""
    require_no_stream(options)
    queries = named_queries(options.query)
    form = options.format or ("table" if options.output == "-" else "parquet")
    if options.output == "-" and form != "table":
        raise UsageError(f"several queries as {form} need a folder: --output FOLDER")
    files = event_files.event_files(options.events)
    began = time.perf_counter()
    run = _on_spark if options.engine == "spark" else _here
    found = run(queries, files, options)
    seconds = time.perf_counter() - began
    for name, table in found.items():
        many = "1 match" if table.num_rows == 1 else f"{table.num_rows:,} matches"
        notice(f"{name}: {many}")
        matches.write(table, _target(options.output, name, form), form, options.limit)
    notice(f"{len(found)} queries in {seconds:.2f} s")
    if options.output != "-":
        notice(f"written to {options.output}")
    return Exit.FINE


def named_queries(arguments: list[str]) -> dict[str, Any]:
    """The queries by their own names, else by those of their files, else by number."""
    read = [parse(query_text(argument)) for argument in arguments]
    own = [query.name for query in read]
    files = [Path(a).stem if "\n" not in a and Path(a).suffix else None for a in arguments]
    for names in (own, files):
        if None not in names and len(set(names)) == len(names):
            return {str(name): query for name, query in zip(names, read, strict=True)}
    return {f"query{number}": query for number, query in enumerate(read, 1)}


def _target(output: str, name: str, form: str) -> str:
    if output == "-":
        return output
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {output}: {error.strerror}") from None
    return str(folder / f"{name}.{ENDINGS[form]}")


def _here(queries: dict[str, Any], files: Any, options: Namespace) -> dict[str, Any]:
    events = event_files.read_local(files)
    columns = event_columns(events, options)
    with progress("matching") as report:
        found: dict[str, Any] = ensue.match(
            events,
            queries,
            **columns,
            bad_events=options.bad_events,
            emit_timeouts=options.timeouts,
            progress=report,
        )
    return found


def _on_spark(queries: dict[str, Any], files: Any, options: Namespace) -> dict[str, Any]:
    from ensue.runners import spark_session

    notice("starting Spark ...")
    events = event_files.read_spark(files)
    found = ensue.match(
        events,
        queries,
        **event_columns(events, options),
        bad_events=options.bad_events,
        emit_timeouts=options.timeouts,
    ).cache()
    return {name: spark_session.collect(found[name]) for name in found}
