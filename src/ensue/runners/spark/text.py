"""Text files on Spark: read as text, then cast as every other reader of them does."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ensue.errors import EventError
from ensue.runners.text_columns import (
    TIMES,
    CellKind,
    Question,
    kind_of,
    possible,
    require_names,
    times,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Quotes are doubled inside quotes. A row with too few or too many cells is an error, and so is a
# file whose header differs from that of the others.
CSV = {
    "header": True,
    "quote": '"',
    "escape": '"',
    "nullValue": "",
    "emptyValue": "",
    "mode": "FAILFAST",
    "enforceSchema": False,
}
_TYPES = {
    CellKind.INTEGER: "bigint",
    CellKind.NUMBER: "double",
    CellKind.BOOLEAN: "boolean",
    CellKind.DATE: "date",
    CellKind.TIMESTAMP: "timestamp_ntz",
    CellKind.INSTANT: "timestamp",
}
_FITTING = {
    Question.INTEGER: (CellKind.INTEGER,),
    Question.DATE: (CellKind.DATE,),
    Question.TIMESTAMP: TIMES,
}
_SAMPLE = 200


def csv(session: "SparkSession", path: str, separator: str) -> "DataFrame":
    """The rows of CSV files, each column of the kind that its cells are."""
    options: dict[str, Any] = CSV | {"sep": separator, "multiLine": _broken(session, path)}
    first = session.read.csv(path, **(options | {"header": False})).head(1)
    if not first:
        raise EventError(f"cannot read events from {path}: there is no header")
    require_names(list(first[0]), path)
    frame = session.read.csv(path, **options)
    return cast(frame, kinds(frame, path))


def csv_stream(
    session: "SparkSession", path: str, separator: str, schema: "StructType"
) -> "DataFrame":
    """The rows of CSV files that are there and that come; a cell of another kind is NULL."""
    from pyspark.sql.types import StringType, StructField, StructType

    text = StructType([StructField(field.name, StringType()) for field in schema.fields])
    options: dict[str, Any] = CSV | {"sep": separator, "multiLine": True, "mode": "PERMISSIVE"}
    frame = session.readStream.schema(text).csv(path, **options)
    return frame.select(
        *(
            _column(field.name).try_cast(field.dataType).alias(field.name)
            for field in schema.fields
        )
    )


def _broken(session: "SparkSession", path: str) -> bool:
    """Whether a quoted cell may go on in the next line; files without any are read in parallel."""
    from pyspark.sql import functions as sql

    unquoted = sql.replace(sql.col("value"), sql.lit('"'), sql.lit(""))
    quotes = sql.length("value") - sql.length(unquoted)
    return bool(session.read.text(path).where(quotes % 2 == 1).head(1))


def json(session: "SparkSession", path: str) -> "DataFrame":
    """The objects of JSON files, one a line. Of what is text there, only times are read."""
    frame = session.read.json(path, mode="FAILFAST")
    return cast(frame, times(kinds(frame, path)))


def kinds(frame: "DataFrame", path: str) -> dict[str, CellKind]:
    """What the columns of text are, by one pass over them all."""
    from pyspark.sql import functions as sql
    from pyspark.sql.types import StringType

    names = [f.name for f in frame.schema.fields if isinstance(f.dataType, StringType)]
    # the first cells rule most kinds out: each question to all cells costs
    first = frame.select(*map(_column, names)).head(_SAMPLE) if names else []
    asked: list[Column] = []
    for number, name in enumerate(names):
        column = _column(name)
        asked.append(sql.count(column).alias(f"{number} known"))
        for question in possible(row[number] for row in first):
            asked.append(sql.every(column.rlike(question.value)).alias(f"{number} {question}"))
            asked += [
                sql.every(_cast(column, kind).isNotNull() | column.isNull()).alias(
                    f"{number} {kind}"
                )
                for kind in _FITTING.get(question, ())
            ]
    if not asked:
        return {}
    (row,) = frame.agg(*asked).collect()
    answers = row.asDict()
    return {name: _kind(answers, number, name, path) for number, name in enumerate(names)}


def _kind(answers: Mapping[str, Any], number: int, name: str, path: str) -> CellKind:
    if not answers[f"{number} known"]:
        return CellKind.TEXT
    kind = kind_of(
        lambda question: bool(answers.get(f"{number} {question}")),
        lambda kind: bool(answers[f"{number} {kind}"]),
    )
    if kind in TIMES and not answers.get(f"{number} {Question.MICROSECONDS}"):
        raise EventError(
            f"column '{name}' of {path} has times finer than microseconds, which Spark truncates\n"
            "  hint: run without Spark, or write them as whole numbers"
        )
    return kind


def cast(frame: "DataFrame", kinds: Mapping[str, CellKind]) -> "DataFrame":
    """The frame with its columns of text as what they are; a cell that is not so is NULL."""
    known = {n: kind for n, kind in kinds.items() if kind is not CellKind.TEXT}
    return frame.select(
        *(
            _cast(_column(name), known[name]).alias(name) if name in known else _column(name)
            for name in frame.columns
        )
    )


def _cast(column: "Column", kind: CellKind) -> "Column":
    return column.try_cast(_TYPES[kind])


def _column(name: str) -> "Column":
    from pyspark.sql import functions as sql

    return sql.col(f"`{name.replace('`', '``')}`")
