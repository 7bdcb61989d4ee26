"""Texts that are times, as columns of Arrow."""

import warnings
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.columns.arrow_kinds import is_text, plain_type
from ensue.columns.buffers import plain_text
from ensue.errors import EventError
from ensue.own_frames import outside
from ensue.runners.text_columns import CellKind, Question
from ensue.runners.time_formats import MONTHS, PIVOT, SHORT_MONTHS, TimeFormat


def all_are(column: pa.ChunkedArray, question: Question) -> bool:
    """Whether every text that is there looks so."""
    said = pc.all(pc.match_substring_regex(column, question.value), min_count=0)
    return bool(said.as_py())


def with_dashes(dates: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates that are written 2026/03/14 as Arrow reads them."""
    slashed = pc.any(pc.match_substring(dates, "/"), min_count=0).as_py()
    return pc.replace_substring(dates, "/", "-") if slashed else dates


def cast_times(column: pa.ChunkedArray, kind: CellKind) -> pa.ChunkedArray:
    """Texts in ISO form as times: in microseconds, unless some are finer."""
    column = with_dashes(column)
    if kind is CellKind.INSTANT:
        zoned = pc.match_substring_regex(column, Question.ZONELESS.value)
        column = pc.if_else(zoned, pc.binary_join_element_wise(column, "Z", ""), column)
    zone = "UTC" if kind is CellKind.INSTANT else None
    try:
        return pc.cast(column, pa.timestamp("us", zone))
    except pa.ArrowInvalid:  # more digits, which may be zeros
        times = pc.cast(column, pa.timestamp("ns", zone))
        fine = not all_are(column, Question.MICROSECONDS)
        return times if fine else pc.cast(times, pa.timestamp("us", zone))


def in_iso_form(column: pa.ChunkedArray, format: TimeFormat) -> pa.ChunkedArray:
    """Texts of a format in ISO form; NULL where a text is not of it.

    >>> from ensue.runners.time_formats import read_format
    >>> given = pa.chunked_array([["1.3.26 9:05 pm", "soon"]])
    >>> in_iso_form(given, read_format("%d.%m.%y %I:%M %p")).to_pylist()
    ['2026-03-01T21:05:00', None]
    """
    found = pc.extract_regex(column, format.expression(named=True))
    part = {name: pc.struct_field(found, [name]) for name in format.parts}
    if "Y" in part:
        year = part["Y"]
    else:
        short = pc.cast(part["y"], pa.int64())
        year = _text(pc.add(short, pc.if_else(pc.less(short, PIVOT), 2000, 1900)))
    month = _two(part["m"]) if "m" in part else _named_month(part)
    hour = _hour(part)
    clock = [hour, *(_two(part[one]) if one in part else "00" for one in "MS")]
    made = pc.binary_join_element_wise(
        pc.binary_join_element_wise(year, month, _two(part["d"]), "-"),
        pc.binary_join_element_wise(*clock, ":"),
        "T",
    )
    if "f" in part:
        made = pc.binary_join_element_wise(made, part["f"], ".")
    return pc.binary_join_element_wise(made, part["z"], "") if "z" in part else made


def _hour(part: dict[str, pa.ChunkedArray]) -> pa.ChunkedArray | str:
    if "H" in part:
        return _two(part["H"])
    if "I" not in part:
        return "00"
    twelfth = pc.cast(part["I"], pa.int64())
    hour = pc.if_else(pc.equal(twelfth, 12), 0, twelfth)
    afternoon = pc.equal(pc.utf8_lower(part["p"]), "pm")
    return _two(_text(pc.add(hour, pc.if_else(afternoon, 12, 0))))


def _named_month(part: dict[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    names, given = (SHORT_MONTHS, part["b"]) if "b" in part else (MONTHS, part["B"])
    place = pc.index_in(pc.utf8_lower(given), value_set=pa.array(names))
    return _two(_text(pc.add(place, 1)))


def _text(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(numbers, pa.string())


def _two(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.utf8_lpad(texts, 2, "0")


def first_bad(
    given: pa.ChunkedArray, read: Callable[[pa.ChunkedArray], pa.ChunkedArray]
) -> int | None:
    """The row of the first text that is no time; None: all of them are, or are NULL."""
    bad = unreadable(given, read)
    return None if not bad else min(bad)


def unreadable(
    given: pa.ChunkedArray, read: Callable[[pa.ChunkedArray], pa.ChunkedArray]
) -> list[int]:
    """The rows of texts that are no times. It looks at each different text on its own, so it is
    for columns of which some are known to be none."""
    whole = given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
    texts = whole.dictionary_encode()
    bad = {k for k, text in enumerate(texts.dictionary) if not _is_time(text, read)}
    return [row for row, code in enumerate(texts.indices.to_pylist()) if code in bad]


def _is_time(text: pa.StringScalar, read: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> bool:
    try:
        return bool(read(pa.chunked_array([[text.as_py()]]))[0].is_valid)
    except pa.ArrowInvalid:
        return False


# ------------------------------------------------------------------------------- time= of events


def text_times(schema: pa.Schema, time: str | tuple[str, str]) -> list[str]:
    """The columns of time that hold text."""
    names = (time,) if isinstance(time, str) else tuple(time)
    return [
        name
        for name in dict.fromkeys(names)
        if name in schema.names and is_text(plain_type(schema.field(name).type))
    ]


def say_so(names: list[str]) -> None:
    """Warns that texts are taken for times."""
    quoted = " and ".join(f"'{name}'" for name in names)
    warnings.warn(
        f"the time of events, {quoted}, is text: it is read as times in ISO form, such as "
        "2026-03-14T09:30:00Z",
        stacklevel=outside(),
    )


def with_times(table: pa.Table, names: list[str], *, drop: bool, zoned: bool = False) -> pa.Table:
    """A table whose columns of time are no longer text.

    They are in UTC if some text says its zone, or always with `zoned`; texts without one are in
    UTC then. A text that is no time is an error, or NULL with `drop`.
    """
    texts = {}
    for name in names:
        column = table.column(name)
        chunks = [plain_text(chunk).cast(pa.string()) for chunk in column.chunks]
        texts[name] = pa.chunked_array(chunks, pa.string())
    plain = all(all_are(text, Question.ZONELESS) or _are_days(text) for text in texts.values())
    kind = CellKind.TIMESTAMP if plain and not zoned else CellKind.INSTANT
    for name, text in texts.items():
        found = _times_of(name, text, kind, drop=drop)
        table = table.set_column(table.column_names.index(name), name, found)
    return table


def _are_days(text: pa.ChunkedArray) -> bool:
    days = f"(?:{Question.DATE.value})|(?:{Question.ZONELESS.value})"
    return bool(pc.all(pc.match_substring_regex(text, days), min_count=0).as_py())


def _times_of(name: str, text: pa.ChunkedArray, kind: CellKind, *, drop: bool) -> pa.ChunkedArray:
    def read(texts: pa.ChunkedArray) -> pa.ChunkedArray:
        blank = pc.utf8_trim_whitespace(texts)
        day = pc.match_substring_regex(blank, Question.DATE.value)
        timed = pc.if_else(day, pc.binary_join_element_wise(blank, "T00:00", ""), blank)
        looks = pc.match_substring_regex(timed, Question.TIMESTAMP.value)
        if not pc.all(looks, min_count=0).as_py():
            raise pa.ArrowInvalid("a text that is no time")
        return cast_times(timed, kind)

    try:
        return read(text)
    except pa.ArrowInvalid:
        bad = unreadable(text, read)
    if not drop:
        shown = text[bad[0]].as_py()
        raise EventError(
            f"{shown!r} in row {bad[0]} of '{name}' is no time in ISO form, such as "
            "2026-03-14T09:30:00Z\n"
            '  hint: cast the column to a timestamp, or pass bad_events="drop" to leave such '
            "events out"
        )
    known = np.ones(len(text), np.bool_)
    known[bad] = False
    return read(pc.if_else(pa.array(known), text, pa.scalar(None, pa.string())))
