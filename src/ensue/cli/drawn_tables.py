"""A table of matches on a terminal of any width: no date and no number is ever cut.

Long texts and events end in an ellipsis, times break between day and hour; where even that does
not fit, each match is shown as lines of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ensue.results.readable import readable, rows

ID = "match_id"
_ID = 10  # characters of a match id on a terminal
_WIDEST = 72  # characters of a cell
_BETWEEN = 3  # from one column to the next
_TEXT, _EVENT = 16, 36  # the least width that a text, or an event, is cut to


@dataclass(frozen=True, slots=True)
class DrawnTable:
    """The first matches, and how many more there are."""

    matches: pa.Table
    limit: int
    short_ids: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = self._columns()
        more = max(0, self.matches.num_rows - self.limit)
        widths = fitted(columns, options.max_width)
        if widths is None:
            yield from _records(columns, options.max_width)
        else:
            yield _table(columns, widths)
        if more:
            yield Text(f"... and {more:,} more", style="dim italic", no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        columns = self._columns()
        widths = fitted(columns, options.max_width)
        if widths is None:
            return Measurement(options.max_width, options.max_width)
        return Measurement(whole := _whole(widths), whole)

    def _columns(self) -> "list[Column]":
        shown = rows(self.matches.slice(0, self.limit))
        found = []
        for field in self.matches.schema:
            values = [row[field.name] for row in shown]
            if field.name == ID and self.short_ids:
                values = [v[:_ID] if isinstance(v, str) else v for v in values]
            found.append(Column(field.name, field.type, values))
        return found


class Column:
    """A column of values, and how narrow it may become."""

    def __init__(self, name: str, kind: pa.DataType, values: list[Any]) -> None:
        self.name, self.kind, self.values = name, kind, values
        self.cells = ["" if value is None else readable(value) for value in values]
        longest = max((len(cell) for cell in self.cells), default=0)
        self.natural = max(len(name), min(longest, _WIDEST))

    @property
    def is_number(self) -> bool:
        kind = self.kind
        return bool(
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        )

    @property
    def is_time(self) -> bool:
        return bool(pa.types.is_temporal(self.kind))

    @property
    def least(self) -> int:
        """How narrow it may be: a time is as wide as its day or its hour."""
        words = [len(word) for cell in self.cells for word in cell.split(" ")]
        if self.is_time:
            return min(self.natural, max(len(self.name), *words, 0))
        if self.is_number or self.name == ID or pa.types.is_boolean(self.kind):
            return self.natural
        return min(self.natural, _EVENT if pa.types.is_nested(self.kind) else _TEXT)

    def cell(self, number: int, width: int) -> str:
        """What stands in a row of the table."""
        if self.is_time or len(self.cells[number]) <= width:
            return self.cells[number]
        return cut(self.values[number], width)


def fitted(columns: Sequence[Column], room: int) -> list[int] | None:
    """The widths of columns in so much room; None: they do not fit."""
    for broken in (False, True):  # texts become narrow; if that is not enough, times break
        widths = [c.least if broken and c.is_time else c.natural for c in columns]
        while _whole(widths) > room:
            wide = [
                (widths[n], n)
                for n, column in enumerate(columns)
                if not column.is_time and widths[n] > column.least
            ]
            if not wide:
                break
            widths[max(wide)[1]] -= 1
        if _whole(widths) <= room:
            return widths
    return None


def _whole(widths: Sequence[int]) -> int:
    return sum(widths) + _BETWEEN * max(0, len(widths) - 1)


def cut(value: Any, width: int) -> str:
    """A value in so many characters: of an event as many fields as there is room for.

    >>> cut({"ts": "2026-03-14T09:06:11", "tag": "item-7", "price": 3}, 40)
    '{ts: 2026-03-14 09:06:11, tag: item-7, …'
    >>> cut("a long sentence about nothing", 12)
    'a long sent…'
    """
    match value:
        case dict():
            parts, opening = [f"{name}: {readable(item)}" for name, item in value.items()], "{"
        case list():
            parts, opening = [readable(item) for item in value], "["
        case _:
            return readable(value)[: width - 1] + "…"
    text = opening
    for part in parts:
        if len(text) + len(part) + 3 > width:
            break
        text += f"{part}, "
    return text + "…"


def _table(columns: Sequence[Column], widths: Sequence[int]) -> Table:
    table = Table(show_edge=False, header_style="bold", pad_edge=False)
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            Text(column.name, overflow="ellipsis"),
            justify="right" if column.is_number else "left",
            width=width,
            no_wrap=not column.is_time,
            overflow="ellipsis",
        )
    for number in range(len(columns[0].values) if columns else 0):
        cells = (c.cell(number, w) for c, w in zip(columns, widths, strict=True))
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _records(columns: Sequence[Column], room: int) -> Iterator[Text]:
    """Each match as lines of its own: the name of a column, and what it holds."""
    indent = min(max(len(column.name) for column in columns), room // 3)
    for number in range(len(columns[0].values)):
        yield Text(f"match {number + 1}", style="bold")
        for column in columns:
            name = column.name if len(column.name) <= indent else column.name[: indent - 1] + "…"
            width, value = max(16, room - indent - 4), column.values[number]
            lines = in_lines(value, width)
            if column.name == ID and isinstance(value, str):
                lines = [value[at : at + width] for at in range(0, len(value), width)]
            for place, line in enumerate(lines):
                yield Text(f"  {name if not place else '':<{indent}}  {line}", no_wrap=True)


def in_lines(value: Any, width: int) -> list[str]:
    """A value in lines, broken between the fields of an event or the elements of a list.

    >>> in_lines({"ts": "2026-03-14T09:06:11", "tag": "item-7", "price": 3}, 28)
    ['ts: 2026-03-14 09:06:11,', 'tag: item-7, price: 3']
    """
    match value:
        case None:
            return [""]
        case dict():
            parts = [f"{name}: {readable(item)}" for name, item in value.items()]
        case list():
            parts = [readable(item) for item in value]
        case _:
            text = readable(value)
            return [text if len(text) <= width else text[: width - 1] + "…"]
    lines = [""]
    for word in _words(parts, width):
        joined = f"{lines[-1]} {word}".strip()
        if len(joined) <= width or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(word)
    return lines


def _words(parts: Sequence[str], width: int) -> Iterator[str]:
    """What may stand on a line: fields, or words of those that are too long for one."""
    for place, part in enumerate(parts):
        part += "," if place < len(parts) - 1 else ""
        words = [part] if len(part) <= width else part.split(" ")
        yield from (word if len(word) <= width else word[: width - 1] + "…" for word in words)
