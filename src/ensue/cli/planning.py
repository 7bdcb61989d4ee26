"""Options that say how a query is run: statistics, rules switched off, a structure."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import ensue
from ensue.algebra.correlation import Correlation
from ensue.algebra.query import Query
from ensue.algebra.tower import Tower
from ensue.cli.terminal import UsageError

MEASURE = "measure"


def planning_options(parser: ArgumentParser) -> None:
    """Adds the options."""
    group = parser.add_argument_group("how the query runs; the matches are always the same")
    group.add_argument(
        "--statistics",
        metavar="FILE.json",
        help="statistics of the stream, to choose the plan; "
        f"'{MEASURE}' measures them on the events",
    )
    group.add_argument(
        "--off",
        metavar="RULE",
        action="append",
        default=[],
        help="switch off a rule of the planner; repeat it for several",
    )
    group.add_argument(
        "--structure", metavar="NAME", help="stacks, runs, tree, compact or reference"
    )


def planning_of(
    options: Namespace, query: Query | Tower | Correlation, events: Any, columns: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of `ensue.match` that say how to run a query."""
    return {
        "statistics": _statistics(options.statistics, query, events, columns),
        "off": tuple(options.off),
        "structure": options.structure,
    }


def _statistics(
    given: str | None, query: Query | Tower | Correlation, events: Any, columns: dict[str, Any]
) -> "ensue.Statistics | None":
    if given is None:
        return None
    if given == MEASURE:
        if events is None:
            raise UsageError("--statistics measure needs events: name some with --events")
        if isinstance(query, Tower):
            raise UsageError("--statistics measure takes one query, and these are several")
        if isinstance(query, Correlation):
            assert isinstance(query.live, Query)
            query = query.live  # archives are looked at by themselves
        return ensue.statistics(events, query, **columns)
    try:
        return ensue.Statistics.read(Path(given).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read statistics from {given}: {error}") from None
