"""Options that say how much a query may hold and find."""

from argparse import ArgumentParser, Namespace
from typing import Any

from ensue.plan.limits import EVICT


def limits_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("limits at which a query is stopped")
    group.add_argument(
        "--memory",
        metavar="SIZE",
        help='such as "4 GB", "50%%" or unlimited; default: a quarter of the machine\'s',
    )
    group.add_argument("--max-matches", metavar="N", type=int, help="default: as memory allows")
    group.add_argument(
        "--max-partial-matches",
        metavar="N",
        type=int,
        help="partial matches at a time; default: as memory allows",
    )
    group.add_argument(
        "--evict",
        choices=EVICT,
        help="for a stream: which keys go to disk first when memory is short; default: need",
    )
    group.add_argument(
        "--shed",
        metavar="LENGTH",
        help="for a stream: give up keys when it is further than this behind the clock; default: "
        "never",
    )


def limits_of(options: Namespace) -> dict[str, Any]:
    """The arguments of `ensue.match` that bound a query."""
    return {
        "memory": options.memory,
        "max_matches": options.max_matches,
        "max_partial_matches": options.max_partial_matches,
        "evict": options.evict,
        "shed": options.shed,
    }
