"""Text files in this process: read as text by Arrow, then cast as every other reader does."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from ensue.errors import EventError
from ensue.runners.text_columns import TIMES, CellKind, Question, kind_of, require_names, times

_SAMPLE = 200  # cells that rule most kinds out before all are looked at
_TYPES = {
    CellKind.INTEGER: pa.int64(),
    CellKind.NUMBER: pa.float64(),
    CellKind.DATE: pa.date32(),
}


def csv(paths: Sequence[Path], delimiter: str) -> pa.Table:
    """The rows of CSV files, each column of the kind that its cells are."""
    table = concatenated([_rows(path, delimiter) for path in paths])
    return _typed(table)


def _rows(path: Path, delimiter: str) -> pa.Table:
    parsing = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    with pa.csv.open_csv(path, parse_options=parsing) as opened:
        names = opened.schema.names
    require_names(names, str(path))
    cells = pa.csv.ConvertOptions(
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
        column_types=dict.fromkeys(names, pa.string()),
    )
    return pa.csv.read_csv(path, parse_options=parsing, convert_options=cells)


def json(paths: Sequence[Path]) -> pa.Table:
    """The objects of JSON files, one a line. Of what is text there, only times are read."""
    tables = []
    for path in paths:
        with pa.input_stream(str(path), compression="detect") as stream:
            tables.append(pa.json.read_json(stream))
    table = concatenated(tables)
    return _typed(table, only_times=True)


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables as one; columns that some lack are NULL there."""
    if len(tables) == 1:
        return tables[0]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise EventError(f"the event files have incompatible columns: {error}") from None


def _typed(table: pa.Table, *, only_times: bool = False) -> pa.Table:
    """The table with its columns of text as what they are."""
    for number, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            column = _Column(table.column(number))
            if not only_times:
                table = table.set_column(number, field.name, column.read())
            elif column.kind in TIMES or column.kind is CellKind.DATE:
                kind = times({field.name: column.kind})[field.name]
                table = table.set_column(number, field.name, column.cast(kind))
    return table


class _Column:
    """A column of text, and what it was found to be."""

    def __init__(self, text: pa.ChunkedArray) -> None:
        self.text = text
        self.first = text.slice(0, _SAMPLE)
        self._cast: dict[CellKind, pa.ChunkedArray] = {CellKind.TEXT: text}
        nothing = text.null_count == len(text)
        self.kind = CellKind.TEXT if nothing else kind_of(self._every, self._fits)

    def read(self) -> pa.ChunkedArray:
        """As what it is."""
        return self.cast(self.kind)

    def cast(self, kind: CellKind) -> pa.ChunkedArray:
        """As one kind, computed once: whether all cells can be cast shows only so."""
        if kind not in self._cast:
            self._cast[kind] = _cast(self.text, kind)
        return self._cast[kind]

    def _every(self, question: Question) -> bool:
        return _all(self.first, question) and _all(self.text, question)

    def _fits(self, kind: CellKind) -> bool:
        try:
            self.cast(kind)
        except pa.ArrowInvalid:
            return False
        return True


def _all(column: pa.ChunkedArray, question: Question) -> bool:
    said = pc.all(pc.match_substring_regex(column, question.value), min_count=0)
    return bool(said.as_py())


def _cast(column: pa.ChunkedArray, kind: CellKind) -> pa.ChunkedArray:
    if kind is CellKind.BOOLEAN:
        return pc.equal(pc.utf8_lower(column), "true")
    if kind not in TIMES:
        return pc.cast(column, _TYPES[kind])
    if kind is CellKind.INSTANT:
        zoned = pc.match_substring_regex(column, Question.ZONELESS.value)
        column = pc.if_else(zoned, pc.binary_join_element_wise(column, "Z", ""), column)
    zone = "UTC" if kind is CellKind.INSTANT else None
    try:
        return pc.cast(column, pa.timestamp("us", zone))
    except pa.ArrowInvalid:  # more digits, which may be zeros
        times = pc.cast(column, pa.timestamp("ns", zone))
        fine = not _all(column, Question.MICROSECONDS)
        return times if fine else pc.cast(times, pa.timestamp("us", zone))
