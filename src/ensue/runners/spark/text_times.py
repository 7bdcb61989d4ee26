"""Texts that are times, as columns of Spark: the same steps as over columns of Arrow."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ensue.runners.text_columns import Question
from ensue.runners.text_times import say_so, text_times
from ensue.runners.time_formats import MONTHS, PIVOT, SHORT_MONTHS, TimeFormat

if TYPE_CHECKING:
    from pyspark.sql import Column


def as_spark_reads(times: "Column") -> "Column":
    """Times as Spark reads them: with dashes in the date, and with seconds before a zone."""
    from pyspark.sql import functions as sql

    dashed = sql.translate(times, "/", "-")
    return sql.regexp_replace(dashed, r"([T ][0-9]{2}:[0-9]{2})(Z|[+-][0-9:]+)$", "$1:00$2")


def in_iso_form(column: "Column", format: TimeFormat) -> "Column":
    """Texts of a format in ISO form; NULL where a text is not of it."""
    from pyspark.sql import functions as sql

    expression = format.expression()
    part = {
        name: sql.regexp_extract(column, expression, number)
        for number, name in enumerate(format.parts, 1)
    }
    if "Y" in part:
        year = part["Y"]
    else:
        short = part["y"].try_cast("int")
        year = sql.when(short < PIVOT, short + 2000).otherwise(short + 1900).cast("string")
    month = _two(part["m"]) if "m" in part else _named_month(part)
    clock = [_hour(part), *(_two(part[one]) if one in part else sql.lit("00") for one in "MS")]
    made = sql.concat(
        sql.concat_ws("-", year, month, _two(part["d"])), sql.lit("T"), sql.concat_ws(":", *clock)
    )
    if "f" in part:
        made = sql.concat(made, sql.lit("."), part["f"])
    if "z" in part:
        made = sql.concat(made, part["z"])
    return sql.when(column.rlike(expression), made)


def _hour(part: "dict[str, Column]") -> "Column":
    from pyspark.sql import functions as sql

    if "H" in part:
        return _two(part["H"])
    if "I" not in part:
        return sql.lit("00")
    hour = part["I"].try_cast("int") % 12
    afternoon = sql.lower(part["p"]) == "pm"
    return _two(sql.when(afternoon, hour + 12).otherwise(hour).cast("string"))


def _named_month(part: "dict[str, Column]") -> "Column":
    from pyspark.sql import functions as sql

    names, given = (SHORT_MONTHS, part["b"]) if "b" in part else (MONTHS, part["B"])
    place = sql.array_position(sql.array(*map(sql.lit, names)), sql.lower(given))
    return _two(place.cast("string"))


def _two(texts: "Column") -> "Column":
    from pyspark.sql import functions as sql

    return sql.lpad(texts, 2, "0")


def with_times(events: Any, time: str | tuple[str, str], *, drop: bool) -> Any:
    """DataFrames whose columns of time are no longer text: Spark reads those without a zone in
    that of the session. A text that is no time is an error, or NULL with `drop`."""
    from ensue.runners.spark.types import arrow_schema

    several = events if isinstance(events, Mapping) else {"": events}
    texts = {name: text_times(arrow_schema(f.schema), time) for name, f in several.items()}
    if not any(texts.values()):
        return events
    say_so(sorted({column for columns in texts.values() for column in columns}))
    found = {
        name: frame.withColumns({c: _time(c, drop=drop) for c in texts[name]})
        if texts[name]
        else frame
        for name, frame in several.items()
    }
    return found if isinstance(events, Mapping) else found[""]


def _time(name: str, *, drop: bool) -> "Column":
    from pyspark.sql import functions as sql

    column = sql.col(f"`{name.replace('`', '``')}`")
    text = sql.trim(column)
    looks = text.rlike(Question.TIMESTAMP.value) | text.rlike(Question.DATE.value)
    read = sql.when(looks, as_spark_reads(text).try_cast("timestamp"))
    if drop:
        return read
    said = sql.concat(
        sql.lit("'"), column, sql.lit(f"' in column '{name}' is no time in ISO form, such as "
                                      "2026-03-14T09:30:00Z")
    )  # fmt: skip
    return sql.when(
        column.isNotNull() & read.isNull(), sql.raise_error(said).cast("timestamp")
    ).otherwise(read)
