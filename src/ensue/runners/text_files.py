"""Text files in this process: read as text by Arrow, then cast as every other reader does."""

from collections.abc import Callable, Sequence
from io import BufferedReader
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from ensue.errors import EventError
from ensue.runners.text_columns import (
    MISSING,
    PLAIN,
    TIMES,
    CellKind,
    Question,
    Spelling,
    kind_of,
    require_names,
    say_missing,
    times,
)
from ensue.runners.text_times import all_are, cast_times, in_iso_form, unreadable, with_dashes

Say = Callable[[str], None]  # what a reader says of what it read
_WORDS = pa.array(MISSING, pa.string())
_SAMPLE = 200  # cells that rule most kinds out before all are looked at
_TYPES = {
    CellKind.INTEGER: pa.int64(),
    CellKind.NUMBER: pa.float64(),
    CellKind.DATE: pa.date32(),
}


def csv(
    paths: Sequence[Path], delimiter: str, spelling: Spelling = PLAIN, *, say: Say
) -> pa.Table:
    """The rows of CSV files, each column of the kind that its cells are."""
    read = [_of(path, lambda p: _rows(p, delimiter, spelling)) for path in paths]
    return _Files(paths, read, spelling).typed(say)


def json(paths: Sequence[Path], spelling: Spelling = PLAIN) -> pa.Table:
    """The objects of JSON files, one a line. Of what is text there, only times are read."""
    return _Files(paths, [_of(path, _objects) for path in paths], spelling).typed(None)


def _of(path: Path, read: Callable[[Path], pa.Table]) -> pa.Table:
    try:
        table = read(path)
        table.validate(full=True)  # JSON is read without a look at its bytes
        _ = table.schema.names
        return table
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        line = None if isinstance(error, OSError) else _line_that_is_no_text(path)
        if line is not None:
            raise EventError(
                f"cannot read events from {path}: line {line} is not UTF-8\n"
                "  hint: convert the file, as by iconv -f latin1 -t utf-8"
            ) from None
        json = path.name.lower().partition(".json")[1] or ".ndjson" in path.name.lower()
        hint = "\n  hint: a JSON file must have one object per line" if json else ""
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise EventError(f"cannot read events from {path}: {reason}{hint}") from None


def _line_that_is_no_text(path: Path) -> int | None:
    """The number of the first line that is not UTF-8."""
    with pa.input_stream(str(path), compression="detect") as stream:
        for number, line in enumerate(BufferedReader(stream), 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return None


def _rows(path: Path, delimiter: str, spelling: Spelling) -> pa.Table:
    parsing = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    with pa.csv.open_csv(path, parse_options=parsing) as opened:
        names = opened.schema.names
    require_names(names, str(path), spelling)
    cells = pa.csv.ConvertOptions(
        null_values=["", *spelling.nulls],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
        column_types=dict.fromkeys(names, pa.string()),
    )
    return pa.csv.read_csv(path, parse_options=parsing, convert_options=cells)


def _objects(path: Path) -> pa.Table:
    with pa.input_stream(str(path), compression="detect") as stream:
        return pa.json.read_json(stream)


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables as one; columns that some lack are NULL there."""
    if len(tables) == 1:
        return tables[0]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise EventError(f"the event files have incompatible columns: {error}") from None


class _Files:
    """The rows of several files as one table of text."""

    def __init__(
        self, paths: Sequence[Path], tables: Sequence[pa.Table], spelling: Spelling
    ) -> None:
        self.spelling = spelling
        self._ends = [(path, table.num_rows) for path, table in zip(paths, tables, strict=True)]
        self._table = concatenated(tables)

    def typed(self, say: Say | None) -> pa.Table:
        """The table with its columns of text as what they are; None: only times are read.

        `say` takes a note on columns that are text because of a few cells.
        """
        table = self._table
        hidden: dict[str, list[str]] = {}
        for number, field in enumerate(table.schema):
            if not pa.types.is_string(field.type):
                if self.spelling.asks(field.name):
                    raise EventError(
                        f"column '{field.name}' of {self._ends[0][0]} holds no text but "
                        f"{field.type}, which has no time format\n"
                        "  hint: leave out --time-format"
                    )
                continue
            text = self._without_nulls(table.column(number))
            found = self._formatted(field.name, text)
            if found is None:
                column = _Column(text)
                if say is not None:
                    found = column.read()
                    hidden |= {field.name: words} if (words := column.hidden()) else {}
                elif column.kind in TIMES or column.kind is CellKind.DATE:
                    found = column.cast(times({field.name: column.kind})[field.name])
                else:
                    found = text
            table = table.set_column(number, field.name, found)
        if hidden and say is not None:
            say(say_missing(hidden))
        return table

    def _without_nulls(self, text: pa.ChunkedArray) -> pa.ChunkedArray:
        """CSV files are read so; in JSON the words that mean nothing are texts."""
        if not self.spelling.nulls:
            return text
        words = pa.array(self.spelling.nulls, pa.string())
        return pc.if_else(pc.is_in(text, value_set=words), pa.scalar(None, pa.string()), text)

    def _formatted(self, name: str, text: pa.ChunkedArray) -> pa.ChunkedArray | None:
        """The times of a column that is, or has to be, of the format that is said; else None."""
        format, asked = self.spelling.time_format, self.spelling.asks(name)
        if format is None or (self.spelling.times and not asked):
            return None
        kind = CellKind.INSTANT if format.zoned else CellKind.TIMESTAMP

        def read(texts: pa.ChunkedArray) -> pa.ChunkedArray:
            return cast_times(in_iso_form(texts, format), kind)

        try:
            found = read(text)
            if found.null_count == text.null_count and (asked or text.null_count < len(text)):
                return found
        except pa.ArrowInvalid:  # there is no 30th of February
            pass
        if not asked:
            return None
        bad = unreadable(text, read)
        if not self.spelling.drop:
            raise self.spelling.no_time(name, text[bad[0]].as_py(), self._where(bad[0]))
        known = pa.array([True] * len(text)).to_numpy(zero_copy_only=False).copy()
        known[bad] = False
        return read(pc.if_else(pa.array(known), text, pa.scalar(None, pa.string())))

    def _where(self, row: int) -> str:
        """A row as people count them: of its own file, from 1."""
        for path, rows in self._ends:
            if row < rows:
                return f"row {row + 1:,} of {path}"
            row -= rows
        raise AssertionError("a row is in one of the files")


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

    def hidden(self) -> list[str]:
        """The words but for which all cells of a text would be of another kind, if that is so."""
        if self.kind is not CellKind.TEXT or _Column(_without(self.first)).kind is CellKind.TEXT:
            return []  # the first cells rule most columns out
        if _Column(_without(self.text)).kind is CellKind.TEXT:
            return []
        words = pc.unique(self.text.filter(pc.is_in(self.text, value_set=_WORDS)))
        return list(words.to_pylist())

    def _every(self, question: Question) -> bool:
        return all_are(self.first, question) and all_are(self.text, question)

    def _fits(self, kind: CellKind) -> bool:
        try:
            self.cast(kind)
        except pa.ArrowInvalid:
            return False
        return True


def _without(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column with NULL for words that often stand for it."""
    return pc.if_else(pc.is_in(text, value_set=_WORDS), pa.scalar(None, pa.string()), text)


def _cast(column: pa.ChunkedArray, kind: CellKind) -> pa.ChunkedArray:
    if kind is CellKind.BOOLEAN:
        return pc.equal(pc.utf8_lower(column), "true")
    if kind in TIMES:
        return cast_times(column, kind)
    return pc.cast(with_dashes(column) if kind is CellKind.DATE else column, _TYPES[kind])
