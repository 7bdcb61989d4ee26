"""Options that say how text files are written: CSV and JSON lines."""

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from ensue.cli.terminal import UsageError
from ensue.errors import EventError
from ensue.runners.text_columns import Spelling
from ensue.runners.time_formats import read_format

_WRITTEN = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}


def text_options(parser: ArgumentParser) -> None:
    """Adds them."""
    group = parser.add_argument_group("text files: CSV and JSON lines")
    group.add_argument(
        "--null",
        metavar="WORD",
        action="append",
        default=[],
        help="a cell that is missing, such as NA or -, quoted or not; empty ones are; several "
        "times for several words",
    )
    group.add_argument(
        "--time-format",
        metavar="FORMAT",
        help="how times are written, '%%d.%%m.%%Y %%H:%%M' as in strptime, in the columns of "
        "--time, or without it in every column that is written so; ISO form needs none",
    )
    group.add_argument(
        "--delimiter",
        metavar="LETTER",
        help="what is between the cells of CSV files, such as ';', '|' or tab; default: a comma, "
        "and tab in .tsv files",
    )


def spelling_of(options: Namespace) -> Spelling:
    """What the options say."""
    delimiter = options.delimiter
    if delimiter is not None:
        delimiter = _WRITTEN.get(delimiter.lower(), delimiter)
        if len(delimiter) != 1 or delimiter in '"\n\r' or ord(delimiter) > 127:
            raise UsageError(
                f"--delimiter {options.delimiter!r} is not one letter that can stand between cells"
                "\n  hint: --delimiter ';' or --delimiter tab"
            )
    if options.time_format is None:
        return Spelling(delimiter, tuple(options.null))
    try:
        format = read_format(options.time_format)
    except EventError as error:
        raise UsageError(str(error)) from None
    named = getattr(options, "time", None) or ""
    columns = tuple(name.strip() for name in named.split(",") if name.strip())
    drop = getattr(options, "bad_events", "raise") == "drop"
    return Spelling(delimiter, tuple(options.null), format, columns, drop)


class Files(Action):
    """One file or several behind an option, as a shell makes of a pattern without quotes."""

    def __init__(self, option_strings: Sequence[str], dest: str, **others: Any) -> None:
        super().__init__(option_strings, dest, nargs="+", **others)

    def __call__(
        self,
        parser: ArgumentParser,  # noqa: ARG002
        namespace: Namespace,
        values: Any,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), *values])
        if len(values) > 1:
            namespace.last_of_several = self.dest


def take_query(options: Namespace) -> None:
    """Mends what a query behind several files is taken for: one of them."""
    if options.query:
        return
    several = getattr(options, "last_of_several", None)
    if several is None:
        raise UsageError(
            "the query is missing\n  hint: name its file, or write it in quotes: "
            "ensue run 'SEQ(A a, B b)' --events events.csv"
        )
    last = getattr(options, several).pop()
    options.query = [last] if isinstance(options.query, list) else last
