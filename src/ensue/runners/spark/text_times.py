"""Texts that are times, as columns of Spark: the same steps as over columns of Arrow."""

from typing import TYPE_CHECKING

from ensue.runners.time_formats import MONTHS, PIVOT, SHORT_MONTHS, TimeFormat

if TYPE_CHECKING:
    from pyspark.sql import Column


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
