"""Reads CSV and JSON files with Arrow, and parses text columns by the rules of `text_columns`."""

import warnings
from collections.abc import Callable, Sequence
from io import BufferedReader
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from ensue.backends.text_columns import (
    CENTURY_PIVOT,
    MISSING_WORDS,
    MONTHS,
    SHORT_MONTHS,
    TIME_KINDS,
    CellKind,
    CellTest,
    TextFileOptions,
    TimeFormat,
    check_header,
    format_missing_note,
    infer_cell_kind,
    select_time_kinds,
)
from ensue.errors import EventError
from ensue.traceback_filter import find_stacklevel
from ensue.vector.arrow_numpy import build_texts, decode_text


def all_cells_match(column: pa.ChunkedArray, question: CellTest) -> bool:
    return _all_match(column, question.value)


def _all_match(column: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(column, pattern), min_count=0).as_py())


def normalize_dates(dates: pa.ChunkedArray) -> pa.ChunkedArray:
    """Replace the slashes of dates such as 2026/03/14 by dashes."""
    slashed = pc.any(pc.match_substring(dates, "/"), min_count=0).as_py()
    return pc.replace_substring(dates, "/", "-") if slashed else dates


def cast_times(column: pa.ChunkedArray, kind: CellKind) -> pa.ChunkedArray:
    """Cast ISO texts to timestamps, in microseconds unless some are finer."""
    column = normalize_dates(column)
    if kind is CellKind.INSTANT:
        zoned = pc.match_substring_regex(column, CellTest.ZONELESS.value)
        column = pc.if_else(zoned, pc.binary_join_element_wise(column, "Z", ""), column)
    zone = "UTC" if kind is CellKind.INSTANT else None
    try:
        return pc.cast(column, pa.timestamp("us", zone))
    except pa.ArrowInvalid:  # more than six digits, perhaps zeros
        times = pc.cast(column, pa.timestamp("ns", zone))
        fine = not all_cells_match(column, CellTest.MICROSECONDS)
        return times if fine else pc.cast(times, pa.timestamp("us", zone))


def to_iso_form(column: pa.ChunkedArray, format: TimeFormat) -> pa.ChunkedArray:
    """Convert texts of a time format to ISO; a text without that format becomes NULL.

    >>> from ensue.backends.text_columns import parse_time_format
    >>> texts = pa.chunked_array([["1.3.26 9:05 pm", "soon"]])
    >>> to_iso_form(texts, parse_time_format("%d.%m.%y %I:%M %p")).to_pylist()
    ['2026-03-01T21:05:00', None]
    """
    groups = pc.extract_regex(column, format.expression(named=True))
    part = {name: pc.struct_field(groups, [name]) for name in format.parts}
    if "Y" in part:
        year = part["Y"]
    else:
        short = pc.cast(part["y"], pa.int64())
        year = _text(pc.add(short, pc.if_else(pc.less(short, CENTURY_PIVOT), 2000, 1900)))
    month = _pad_two(part["m"]) if "m" in part else _named_month(part)
    clock = [_hour(part), *(_pad_two(part[name]) if name in part else "00" for name in "MS")]
    iso = pc.binary_join_element_wise(
        pc.binary_join_element_wise(year, month, _pad_two(part["d"]), "-"),
        pc.binary_join_element_wise(*clock, ":"),
        "T",
    )
    if "f" in part:
        iso = pc.binary_join_element_wise(iso, part["f"], ".")
    return pc.binary_join_element_wise(iso, part["z"], "") if "z" in part else iso


def _hour(part: dict[str, pa.ChunkedArray]) -> pa.ChunkedArray | str:
    if "H" in part:
        return _pad_two(part["H"])
    if "I" not in part:
        return "00"
    twelfth = pc.cast(part["I"], pa.int64())
    hour = pc.if_else(pc.equal(twelfth, 12), 0, twelfth)
    afternoon = pc.equal(pc.utf8_lower(part["p"]), "pm")
    return _pad_two(_text(pc.add(hour, pc.if_else(afternoon, 12, 0))))


def _named_month(part: dict[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    names, texts = (SHORT_MONTHS, part["b"]) if "b" in part else (MONTHS, part["B"])
    index = pc.index_in(pc.utf8_lower(texts), value_set=pa.array(names))
    return _pad_two(_text(pc.add(index, 1)))


def _text(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(numbers, pa.string())


def _pad_two(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.utf8_lpad(texts, 2, "0")


def find_unreadable_rows(column: pa.ChunkedArray, read: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> list[int]:
    """Find the rows whose text is not a time, by parsing each distinct text separately."""

    def is_time(text: pa.StringScalar) -> bool:
        try:
            return bool(read(pa.chunked_array([[text.as_py()]]))[0].is_valid)
        except pa.ArrowInvalid:
            return False

    texts = column.combine_chunks().dictionary_encode()
    bad = {k for k, text in enumerate(texts.dictionary) if not is_time(text)}
    return [row for row, code in enumerate(texts.indices.to_pylist()) if code in bad]


def _without_rows(text: pa.ChunkedArray, rows: list[int]) -> pa.ChunkedArray:
    """Replace some rows of a text column by NULL."""
    kept = np.ones(len(text), np.bool_)
    kept[rows] = False
    return pc.if_else(pa.array(kept), text, pa.scalar(None, pa.string()))


# ------------------------------------------------------------------------------- time= of events


def warn_text_times(names: list[str]) -> None:
    quoted = " and ".join(f"'{name}'" for name in names)
    warnings.warn(
        f"the time of events, {quoted}, is text: it is parsed as ISO times, such as 2026-03-14T09:30:00Z",
        stacklevel=find_stacklevel(),
    )


def parse_time_columns(table: pa.Table, names: list[str], *, drop: bool, zoned: bool = False) -> pa.Table:
    """Parse the text columns of a table that hold times.

    They become UTC timestamps if some text has a zone, or always with `zoned`. An unreadable time
    raises EventError, or becomes NULL with `drop`.
    """
    texts = {}
    for name in names:
        column = table.column(name)
        chunks = [decode_text(chunk).cast(pa.string()) for chunk in column.chunks]
        texts[name] = pa.chunked_array(chunks, pa.string())
    zoneless = f"(?:{CellTest.DATE.value})|(?:{CellTest.ZONELESS.value})"
    plain = all(_all_match(text, zoneless) for text in texts.values())
    kind = CellKind.TIMESTAMP if plain and not zoned else CellKind.INSTANT
    for name, text in texts.items():
        times = _parse_times(name, text, kind, drop=drop)
        table = table.set_column(table.column_names.index(name), name, times)
    return table


def _parse_times(name: str, text: pa.ChunkedArray, kind: CellKind, *, drop: bool) -> pa.ChunkedArray:
    def read(texts: pa.ChunkedArray) -> pa.ChunkedArray:
        blank = pc.utf8_trim_whitespace(texts)
        day = pc.match_substring_regex(blank, CellTest.DATE.value)
        timed = pc.if_else(day, pc.binary_join_element_wise(blank, "T00:00", ""), blank)
        looks = pc.match_substring_regex(timed, CellTest.TIMESTAMP.value)
        if not pc.all(looks, min_count=0).as_py():
            raise pa.ArrowInvalid("a text that is no time")
        return cast_times(timed, kind)

    try:
        return read(text)
    except pa.ArrowInvalid:
        bad = find_unreadable_rows(text, read)
    if not drop:
        shown = text[bad[0]].as_py()
        raise EventError(
            f"{shown!r} in row {bad[0]} of '{name}' is not an ISO time such as "
            "2026-03-14T09:30:00Z\n"
            "  hint: cast the column to a timestamp, or skip such events by "
            'ensue.StreamOptions(bad_events="drop")'
        )
    return read(_without_rows(text, bad))


# ------------------------------------------------------------------------------- files

NoteCallback = Callable[[str], None]  # receives notes for the user
_MISSING_WORDS = build_texts(MISSING_WORDS)
_SAMPLE = 200  # first cells, which rule out most types cheaply
_TYPES = {CellKind.INTEGER: pa.int64(), CellKind.NUMBER: pa.float64(), CellKind.DATE: pa.date32()}


def read_text_files(paths: Sequence[Path], form: str, spelling: TextFileOptions, say: NoteCallback) -> pa.Table:
    """Read csv, tsv or json files, with column types inferred from all cells.

    A JSON file has one object a line, and only times are converted among its text columns.
    """

    def read(path: Path) -> pa.Table:
        if form != "json":
            return _read_rows(path, spelling.between(form), spelling)
        with pa.input_stream(str(path), compression="detect") as stream:
            return pa.json.read_json(stream)

    files = _Files(paths, [_read_file(path, read) for path in paths], spelling)
    return files.convert_types(None if form == "json" else say)


def _read_file(path: Path, read: Callable[[Path], pa.Table]) -> pa.Table:
    try:
        table = read(path)
        table.validate(full=True)  # the JSON reader does not check UTF-8
        _ = table.schema.names
        return table
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        line = None if isinstance(error, OSError) else _find_invalid_line(path)
        if line is not None:
            raise EventError(
                f"cannot read events from {path}: line {line} is not UTF-8\n"
                "  hint: convert the file, as by iconv -f latin1 -t utf-8"
            ) from None
        json = path.name.lower().partition(".json")[1] or ".ndjson" in path.name.lower()
        hint = "\n  hint: a JSON file must have one object per line" if json else ""
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise EventError(f"cannot read events from {path}: {reason}{hint}") from None


def _find_invalid_line(path: Path) -> int | None:
    """Return the number of the first line that is not UTF-8."""
    with pa.input_stream(str(path), compression="detect") as stream:
        for number, line in enumerate(BufferedReader(stream), 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return None


def _read_rows(path: Path, delimiter: str, spelling: TextFileOptions) -> pa.Table:
    parsing = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    with pa.csv.open_csv(path, parse_options=parsing) as opened:
        names = opened.schema.names
    check_header(names, str(path), spelling)
    cells = pa.csv.ConvertOptions(
        null_values=["", *spelling.nulls],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
        column_types=dict.fromkeys(names, pa.string()),
    )
    return pa.csv.read_csv(path, parse_options=parsing, convert_options=cells)


def concat_event_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables; a column that some of them lack is NULL there."""
    if len(tables) == 1:
        return tables[0]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise EventError(f"the event files have incompatible columns: {error}") from None


class _Files:
    """The rows of several files as one text table."""

    def __init__(self, paths: Sequence[Path], tables: Sequence[pa.Table], spelling: TextFileOptions) -> None:
        self.spelling = spelling
        self._ends = [(path, table.num_rows) for path, table in zip(paths, tables, strict=True)]
        self._table = concat_event_tables(tables)

    def convert_types(self, say: NoteCallback | None) -> pa.Table:
        """Convert the text columns to their inferred types; with `say` None, only times.

        `say` receives a note on columns that are text because of words for missing values.
        """
        table = self._table
        missing_words: dict[str, list[str]] = {}
        for number, field in enumerate(table.schema):
            if not pa.types.is_string(field.type):
                if self.spelling.requires_format(field.name):
                    raise EventError(
                        f"column '{field.name}' of {self._ends[0][0]} holds {field.type} and not "
                        "text, so it has no time format\n"
                        "  hint: leave out --time-format"
                    )
                continue
            text = table.column(number)
            if self.spelling.nulls:  # in JSON files; the CSV reader has replaced them already
                text = _without_words(text, pa.array(self.spelling.nulls, pa.string()))
            values = self._parse_formatted(field.name, text)
            if values is None:
                column = _Column(text)
                if say is not None:
                    values = column.cast(column.kind)
                    missing_words |= {field.name: words} if (words := column.find_hidden_words()) else {}
                elif column.kind in TIME_KINDS or column.kind is CellKind.DATE:
                    values = column.cast(select_time_kinds({field.name: column.kind})[field.name])
                else:
                    values = text
            table = table.set_column(number, field.name, values)
        if missing_words and say is not None:
            say(format_missing_note(missing_words))
        return table

    def _parse_formatted(self, name: str, text: pa.ChunkedArray) -> pa.ChunkedArray | None:
        """Parse a column by the time format; None if it does not and need not have that format."""
        format, required = self.spelling.time_format, self.spelling.requires_format(name)
        if format is None or (self.spelling.times and not required):
            return None
        kind = CellKind.INSTANT if format.zoned else CellKind.TIMESTAMP

        def read(texts: pa.ChunkedArray) -> pa.ChunkedArray:
            return cast_times(to_iso_form(texts, format), kind)

        try:
            times = read(text)
            if times.null_count == text.null_count and (required or text.null_count < len(text)):
                return times
        except pa.ArrowInvalid:  # there is no 30th of February
            pass
        if not required:
            return None
        bad = find_unreadable_rows(text, read)
        if not self.spelling.drop:
            raise self.spelling.build_time_error(name, text[bad[0]].as_py(), self._where(bad[0]))
        return read(_without_rows(text, bad))

    def _where(self, row: int) -> str:
        """Describe a row by its number in its file, counted from 1."""
        for path, rows in self._ends:
            if row < rows:
                return f"row {row + 1:,} of {path}"
            row -= rows
        raise AssertionError("a row is in one of the files")


class _Column:
    """A text column and its inferred type."""

    def __init__(self, text: pa.ChunkedArray) -> None:
        self.text = text
        self.first = text.slice(0, _SAMPLE)
        self._cast: dict[CellKind, pa.ChunkedArray] = {CellKind.TEXT: text}
        empty = text.null_count == len(text)
        self.kind = CellKind.TEXT if empty else infer_cell_kind(self._holds_for_every, self._fits)

    def cast(self, kind: CellKind) -> pa.ChunkedArray:
        """Cast to a type, once: type inference tries the cast already."""
        if kind not in self._cast:
            self._cast[kind] = _cast(self.text, kind)
        return self._cast[kind]

    def find_hidden_words(self) -> list[str]:
        """Return the words for missing values without which the column would not be text."""
        if self.kind is not CellKind.TEXT:
            return []
        for text in (self.first, self.text):  # the first cells rule most columns out
            if _Column(_without_words(text, _MISSING_WORDS)).kind is CellKind.TEXT:
                return []
        words = pc.unique(self.text.filter(pc.is_in(self.text, value_set=_MISSING_WORDS)))
        return list(words.to_pylist())

    def _holds_for_every(self, question: CellTest) -> bool:
        return all_cells_match(self.first, question) and all_cells_match(self.text, question)

    def _fits(self, kind: CellKind) -> bool:
        try:
            self.cast(kind)
        except pa.ArrowInvalid:
            return False
        return True


def _without_words(text: pa.ChunkedArray, words: pa.Array) -> pa.ChunkedArray:
    """Replace cells with one of the words by NULL."""
    return pc.if_else(pc.is_in(text, value_set=words), pa.scalar(None, pa.string()), text)


def _cast(column: pa.ChunkedArray, kind: CellKind) -> pa.ChunkedArray:
    if kind is CellKind.BOOLEAN:
        return pc.equal(pc.utf8_lower(column), "true")
    if kind in TIME_KINDS:
        return cast_times(column, kind)
    return pc.cast(normalize_dates(column) if kind is CellKind.DATE else column, _TYPES[kind])
