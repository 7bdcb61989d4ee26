"""pa.ChunkedArray that are times, as columns of Arrow."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from ensue.runners.text_columns import CellKind, Question
from ensue.runners.time_formats import MONTHS, PIVOT, SHORT_MONTHS, TimeFormat


def all_are(column: pa.ChunkedArray, question: Question) -> bool:
    """Whether every text that is there looks so."""
    said = pc.all(pc.match_substring_regex(column, question.value), min_count=0)
    return bool(said.as_py())


def cast_times(column: pa.ChunkedArray, kind: CellKind) -> pa.ChunkedArray:
    """pa.ChunkedArray in ISO form as times: in microseconds, unless some are finer."""
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
    """pa.ChunkedArray of a format in ISO form; NULL where a text is not of it.

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
