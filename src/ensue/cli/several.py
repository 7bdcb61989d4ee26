"""`ensue run` with several queries: one scan of the events, one output for each query."""

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import ensue
from ensue.algebra.correlation import Correlation
from ensue.algebra.query import Query
from ensue.algebra.tower import Tower
from ensue.cli import event_files
from ensue.cli.levels import ALL, checked, form_of_several, places_of, write_each
from ensue.cli.limits import limits_of
from ensue.cli.parameters import parameters_of
from ensue.cli.past_options import past_of
from ensue.cli.query_text import read_pattern
from ensue.cli.run import event_columns, require_events
from ensue.cli.sql_options import require_no_stream, require_pattern_options
from ensue.cli.terminal import Exit, UsageError, notice
from ensue.cli.text_options import spelling_of
from ensue.languages.parameters import Parameters
from ensue.languages.query_files import is_file

_OF_ONE = ("trace", "picture")


def run_several(options: Namespace) -> Exit:
    """Finds the matches of all queries and writes those of each."""
    require_no_stream(options)
    given = [name for name in _OF_ONE if getattr(options, name)]
    if given:
        raise UsageError(f"--{given[0]} goes with one query at a time")
    parameters = parameters_of(options)
    queries = named_queries(options.query, parameters)
    parameters.require_used()
    require_pattern_options(options)
    if options.output != "-":
        places_of(queries)  # a name that is none of a file shows before events are read
    form_of_several(options, "several queries")
    require_events(options)
    files = event_files.event_files(options.events)
    began = time.perf_counter()
    run = _on_spark if options.engine == "spark" else _here
    found = run(queries, files, options)
    seconds = time.perf_counter() - began
    write_each(found, options)
    notice(f"{len(queries)} queries in {seconds:.2f} s")
    if options.output != "-":
        notice(f"written to {options.output}")
    return Exit.FINE


def named_queries(
    arguments: list[str], parameters: Parameters
) -> dict[str, Query | Tower | Correlation]:
    """The queries by their own names, else by those of their files, else by number."""
    read = [read_pattern(argument, parameters) for argument in arguments]
    for query in read:
        checked(query)
    own = [(query.query if isinstance(query, Tower) else query).name for query in read]
    files = [Path(a).stem if is_file(a) else None for a in arguments]
    for names in (own, files):
        if None not in names and len(set(names)) == len(names):
            return {str(name): query for name, query in zip(names, read, strict=True)}
    return {f"query{number}": query for number, query in enumerate(read, 1)}


def _levels(named: str | None) -> dict[str, Any]:
    """The argument of `ensue.match` that says which levels are delivered, too."""
    if named is None or named == ALL:
        return {} if named is None else {"levels": ALL}
    return {"levels": [name.strip() for name in named.split(",")]}


def _here(queries: dict[str, Any], files: Any, options: Namespace) -> dict[str, Any]:
    events = event_files.read_local(files, spelling_of(options))
    columns = event_columns(events, options)
    found: dict[str, Any] = ensue.match(
        events,
        queries,
        **columns,
        **limits_of(options),
        **past_of(options, columns),
        **_levels(options.levels),
        bad_events=options.bad_events,
        emit_timeouts=options.timeouts,
        flat=options.flat,
        progress=True,
    )
    return found


def _on_spark(queries: dict[str, Any], files: Any, options: Namespace) -> dict[str, Any]:
    from ensue.runners.spark import session as spark_session

    notice("starting Spark ...")
    events = event_files.read_spark(files, spelling_of(options))
    columns = event_columns(events, options)
    found = ensue.match(
        events,
        queries,
        **columns,
        **limits_of(options),
        **past_of(options, columns),
        **_levels(options.levels),
        bad_events=options.bad_events,
        emit_timeouts=options.timeouts,
        flat=options.flat,
    ).cache()
    return {name: spark_session.collect(found[name]) for name in found}
