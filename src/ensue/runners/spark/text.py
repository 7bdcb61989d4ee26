"""Text files on Spark: read as text, then cast as every other reader of them does."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ensue.errors import EventError
from ensue.runners.spark.text_times import as_spark_reads, in_iso_form
from ensue.runners.text_columns import (
    PLAIN,
    TIMES,
    CellKind,
    Question,
    Spelling,
    kind_of,
    possible,
    require_names,
    times,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

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


def csv(
    session: "SparkSession", paths: Sequence[str], form: str, spelling: Spelling = PLAIN
) -> "DataFrame":
    """The rows of CSV files, each column of the kind that its cells are in all of them."""
    frames = [_rows(session, path, spelling.between(form), spelling) for path in paths]
    return _typed(_together(frames), ", ".join(paths), spelling)


def _rows(session: "SparkSession", path: str, separator: str, spelling: Spelling) -> "DataFrame":
    options: dict[str, Any] = CSV | {"sep": separator, "multiLine": _broken(session, path)}
    first = session.read.csv(path, **(options | {"header": False})).head(1)
    if not first:
        raise EventError(f"cannot read events from {path}: there is no header")
    require_names(list(first[0]), path, spelling)
    return session.read.csv(path, **options)


def _together(frames: "Sequence[DataFrame]") -> "DataFrame":
    """The rows of all of them; columns that some lack are NULL there."""
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame, allowMissingColumns=True)
    return whole


def _typed(
    frame: "DataFrame", path: str, spelling: Spelling, *, only_times: bool = False
) -> "DataFrame":
    """The frame with its columns of text as what they are."""
    frame = without_nulls(frame, spelling)
    _require_texts(frame, path, spelling)
    formatted = _formatted(frame, spelling)
    others = frame.select(*(_column(n) for n in frame.columns if n not in formatted))
    found = kinds(others, path) if others.columns else {}
    found = times(found) if only_times else found
    return cast(frame, found, formatted)


def without_nulls(frame: "DataFrame", spelling: Spelling) -> "DataFrame":
    """The frame with NULL for the words that stand for it."""
    from pyspark.sql import functions as sql

    if not spelling.nulls:
        return frame
    texts = _texts(frame)
    return frame.select(
        *(
            sql.when(~_column(name).isin(*spelling.nulls), _column(name)).alias(name)
            if name in texts
            else _column(name)
            for name in frame.columns
        )
    )


def _texts(frame: "DataFrame") -> list[str]:
    from pyspark.sql.types import StringType

    return [f.name for f in frame.schema.fields if isinstance(f.dataType, StringType)]


def _require_texts(frame: "DataFrame", path: str, spelling: Spelling) -> None:
    texts = _texts(frame)
    for field in frame.schema.fields:
        if spelling.asks(field.name) and field.name not in texts:
            raise EventError(
                f"column '{field.name}' of {path} holds no text but "
                f"{field.dataType.simpleString()}, which has no time format\n"
                "  hint: leave out --time-format"
            )


def _formatted(frame: "DataFrame", spelling: Spelling) -> "dict[str, Column]":
    """The columns that are, or have to be, of the format that is said."""
    from pyspark.sql import functions as sql

    format = spelling.time_format
    if format is None:
        return {}
    texts = [name for name in _texts(frame) if spelling.asks(name) or not spelling.times]
    made = {name: formatted(_column(name), spelling) for name in texts}
    if not made:
        return {}
    asked = [
        sql.count(_column(name)).alias(f"{number} known") for number, name in enumerate(texts)
    ] + [
        sql.min(sql.when(made[name].isNull(), _column(name))).alias(f"{number} bad")
        for number, name in enumerate(texts)
    ]
    (row,) = frame.agg(*asked).collect()
    answers = row.asDict()
    for number, name in enumerate(texts):
        bad = answers[f"{number} bad"]
        if spelling.asks(name):
            if bad is not None and not spelling.drop:
                raise spelling.no_time(name, bad, "the first one in the order of the alphabet")
        elif bad is not None or not answers[f"{number} known"]:
            del made[name]
    return made


def formatted(column: "Column", spelling: Spelling) -> "Column":
    """A column of text as the times that it is; NULL where a text is none."""
    assert spelling.time_format is not None
    kind = CellKind.INSTANT if spelling.time_format.zoned else CellKind.TIMESTAMP
    return _cast(in_iso_form(column, spelling.time_format), kind)


def csv_stream(
    session: "SparkSession",
    path: str,
    separator: str,
    schema: "StructType",
    spelling: Spelling = PLAIN,
) -> "DataFrame":
    """The rows of CSV files that are there and that come; a cell of another kind is NULL."""
    from pyspark.sql.types import StringType, StructField, StructType

    text = StructType([StructField(field.name, StringType()) for field in schema.fields])
    options: dict[str, Any] = CSV | {"sep": separator, "multiLine": True, "mode": "PERMISSIVE"}
    frame = session.readStream.schema(text).csv(path, **options)
    return as_declared(frame, schema, spelling)


def as_declared(
    frame: "DataFrame", schema: "StructType", spelling: Spelling = PLAIN
) -> "DataFrame":
    """The frame with columns of the types of a schema; a text of another kind is NULL."""
    frame = without_nulls(frame, spelling)
    texts, written = _texts(frame), _times_of(schema, spelling)
    return frame.select(
        *(
            (
                formatted(_column(field.name), spelling).cast(field.dataType)
                if field.name in written
                else _declared(field)
            ).alias(field.name)
            if field.name in texts
            else _column(field.name)
            for field in schema.fields
        )
    )


def _declared(field: "StructField") -> "Column":
    column = _column(field.name)
    dated = field.dataType.typeName().startswith(("timestamp", "date"))
    return (as_spark_reads(column) if dated else column).try_cast(field.dataType)


def _times_of(schema: "StructType", spelling: Spelling) -> set[str]:
    """The columns that are times of the format that is said."""
    if spelling.time_format is None:
        return set()
    times = [f.name for f in schema.fields if f.dataType.typeName().startswith("timestamp")]
    return {name for name in times if spelling.asks(name) or not spelling.times}


def read_as_text(schema: "StructType", spelling: Spelling) -> "StructType":
    """A schema whose times are texts, as far as a format is said for them."""
    from pyspark.sql.types import StringType, StructField, StructType

    written = _times_of(schema, spelling)
    return StructType(
        [StructField(f.name, StringType()) if f.name in written else f for f in schema.fields]
    )


def _broken(session: "SparkSession", path: str) -> bool:
    """Whether a quoted cell may go on in the next line; files without any are read in parallel."""
    from pyspark.sql import functions as sql

    unquoted = sql.replace(sql.col("value"), sql.lit('"'), sql.lit(""))
    quotes = sql.length("value") - sql.length(unquoted)
    return bool(session.read.text(path).where(quotes % 2 == 1).head(1))


def json(session: "SparkSession", paths: Sequence[str], spelling: Spelling = PLAIN) -> "DataFrame":
    """The objects of JSON files, one a line. Of what is text there, only times are read."""
    frame = session.read.json(list(paths), mode="FAILFAST")
    return _typed(frame, ", ".join(paths), spelling, only_times=True)


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


def cast(
    frame: "DataFrame", kinds: Mapping[str, CellKind], made: "Mapping[str, Column] | None" = None
) -> "DataFrame":
    """The frame with its columns of text as what they are; a cell that is not so is NULL."""
    known = {n: _cast(_column(n), k) for n, k in kinds.items() if k is not CellKind.TEXT}
    known |= made or {}
    return frame.select(
        *(known[name].alias(name) if name in known else _column(name) for name in frame.columns)
    )


def _cast(column: "Column", kind: CellKind) -> "Column":
    dated = kind is CellKind.DATE or kind in TIMES
    return (as_spark_reads(column) if dated else column).try_cast(_TYPES[kind])


def _column(name: str) -> "Column":
    from pyspark.sql import functions as sql

    return sql.col(f"`{name.replace('`', '``')}`")
