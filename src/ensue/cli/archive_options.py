"""The options of `ensue archive`; what runs is loaded when it is asked for."""

from argparse import ArgumentParser, Namespace

from ensue.cli.terminal import Exit
from ensue.cli.text_options import Files, text_options


def archive_options(parser: ArgumentParser) -> None:
    """The actions on archives, and what each of them takes."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def action(name: str, does: str, runs: str) -> ArgumentParser:
        added = actions.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")
        added.add_argument("place", metavar="PLACE", help="the folder of the table")
        added.set_defaults(command=lambda options: _run(runs, options))
        return added

    made = action(
        "create", "create an archive from event files, clustered by object", "run_create"
    )
    _events(made)
    _columns(made)
    made.add_argument(
        "--buckets", metavar="N", type=int, default=16,
        help="number of buckets for hashed objects, a power of two and a multiple of a stream's "
        "lanes; "
        "default: 16",
    )  # fmt: skip
    made.add_argument(
        "--day", metavar="LENGTH", type=float,
        help="length of a part of the archive, if times are numbers",
    )  # fmt: skip
    made.add_argument(
        "--empty", action="store_true", help="only take the columns of --events, not the events"
    )
    _events(action("append", "append the events of files to an archive", "run_append"))
    compacted = action(
        "compact", "merge small files of an archive, even while streams run", "run_compact"
    )
    compacted.add_argument(
        "--fewest", metavar="N", type=int, default=4,
        help="skip days and buckets with fewer files; default: 4",
    )  # fmt: skip
    compacted.add_argument(
        "--vacuum", metavar="HOURS", type=int,
        help="also delete files that no version of the last HOURS needs; readers of older "
        "versions get an error",
    )  # fmt: skip
    _columns(action("show", "show what is in an archive, and its layout", "run_show"))
    action("release", "let another stream write an archive after the first is gone", "run_release")


def _events(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--events", metavar="PATH", action=Files, required=True,
        help="CSV, JSON lines, Parquet or Arrow, also packed as .gz, .bz2 or .zst: a file, a "
        "folder or a pattern such as 'data/2026-*.csv'; several times for several files",
    )  # fmt: skip
    text_options(parser)


def _columns(parser: ArgumentParser) -> None:
    parser.add_argument("--time", metavar="COLUMN", help="the time of an event, or START,END")
    parser.add_argument("--type", metavar="COLUMN", help="the column with the type of an event")
    for name, said in (
        ("key", "identifies the object of an event"),
        ("order", "orders events with the same time"),
    ):
        parser.add_argument(
            f"--{name}", metavar="COLUMN", action="append", default=[],
            help=f"{said}; repeat it for several columns",
        )  # fmt: skip


def _run(name: str, options: Namespace) -> Exit:
    from ensue.cli import archive

    done: Exit = getattr(archive, name)(options)
    return done
