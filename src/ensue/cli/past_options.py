"""Options for queries that look back: the archives of JOIN ARCHIVE, and how they are read."""

from argparse import ArgumentParser, Namespace
from typing import Any

import ensue
from ensue.cli.terminal import UsageError
from ensue.plan.access import ACCESSES


def past_options(parser: ArgumentParser) -> None:
    """Adds the options."""
    group = parser.add_argument_group("archives, for queries with JOIN ARCHIVE")
    group.add_argument(
        "--archive",
        metavar="NAME=PLACE",
        action="append",
        default=[],
        help="the archive for JOIN ARCHIVE NAME: a folder of Parquet files or a Delta table, "
        "with the same column names as the events; repeat it for several",
    )
    group.add_argument(
        "--archive-key",
        metavar="COLUMN",
        action="append",
        default=[],
        help="identifies the object of an archived event; archives made by `ensue archive` know "
        "it",
    )
    group.add_argument(
        "--access", choices=ACCESSES, help="how archives are read; default: the cheapest way"
    )
    group.add_argument(
        "--latency",
        metavar="LENGTH",
        help="how long a live match of a stream may wait, to be looked up together with others",
    )


def past_of(options: Namespace, columns: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `ensue.match` that say which archives there are; none, if none are named.

    >>> past_of(Namespace(archive=[], archive_key=[], access=None, latency=None), {})
    {}
    """
    if not options.archive:
        for name in ("archive_key", "access", "latency"):
            if getattr(options, name):
                said = name.replace("_", "-")
                raise UsageError(f"--{said} is about archives: name one with --archive")
        return {}
    archives = dict(_archive(given, options, columns) for given in options.archive)
    return {"archives": archives, "access": options.access, "latency": _latency(options.latency)}


def _archive(given: str, options: Namespace, columns: dict[str, Any]) -> tuple[str, Any]:
    name, sign, place = given.partition("=")
    if not (sign and name.strip() and place.strip()):
        raise UsageError(
            f"--archive {given}: give it the name from the query, as in --archive "
            "trades=/data/trades"
        )
    key = tuple(name.strip() for names in options.archive_key for name in names.split(","))
    try:
        known = ensue.archive(place.strip())  # one that Ensue has made knows its columns
    except ensue.EventError:
        known = ensue.archive(place.strip(), **columns, key=key)
    return name.strip(), known


def _latency(text: str | None) -> str | float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
