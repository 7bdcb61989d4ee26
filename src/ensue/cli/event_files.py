"""Event files: CSV, JSON lines, Parquet and Arrow, read by Arrow or by Spark."""

import glob
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from ensue.cli import text_files
from ensue.cli.terminal import UsageError, notice
from ensue.cli.text_files import concatenated
from ensue.errors import EventError
from ensue.runners.text_columns import PLAIN, Spelling

FORMS = {
    ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet",
    ".jsonl": "json", ".ndjson": "json", ".json": "json", ".arrow": "arrow", ".feather": "arrow",
}  # fmt: skip

_TEXTS = ("csv", "tsv", "json")
_PACKED = (".gz", ".bz2", ".zst")

Events = Any  # an Arrow table or a Spark DataFrame, or one for each event type
_TYPED = re.compile(r"([^\W\d]\w*)=(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class EventFile:
    """A file or folder of events, all of one type if `type` says so."""

    path: str
    type: str | None = None

    @property
    def form(self) -> str:
        """csv, tsv, json, parquet or arrow, by the name; of a folder, by the files in it.

        >>> EventFile("trades.csv.gz").form
        'csv'
        """
        path = Path(self.path)
        if path.is_dir():
            inside = {form for p in shown_files(path) if (form := _form(p))}
            if len(inside) == 1:
                return inside.pop()
            found = "none" if not inside else " and ".join(sorted(inside))
            raise EventError(
                f"the folder {self.path} should hold CSV, JSON lines, Parquet or Arrow files of "
                f"one form; found: {found}{_hidden(path)}"
            )
        form = _form(path)
        if form is None:
            raise EventError(
                f"cannot tell the format of {self.path}; known extensions: {', '.join(FORMS)}"
            )
        return form


def shown_files(folder: Path) -> list[Path]:
    """The files in a folder and below it, without those that are hidden: Spark and Arrow leave
    out what begins with `_` or `.`, and so do we whatever reads the events."""
    inside = (p for p in folder.rglob("*") if p.is_file())
    return sorted(p for p in inside if not _is_hidden(p.relative_to(folder)))


def _is_hidden(path: Path) -> bool:
    # a folder such as _day=3 is a value of a partitioned table
    return any(part.startswith((".", "_")) and "=" not in part for part in path.parts)


def _hidden_files(folder: Path) -> list[Path]:
    inside = [p for p in folder.rglob("*") if p.is_file() and _form(p)]
    return [p for p in inside if _is_hidden(p.relative_to(folder))]


def _hidden(folder: Path) -> str:
    """What an error says where all there is is hidden."""
    if shown_files(folder) or not _hidden_files(folder):
        return ""
    return "\n  hint: files and folders whose names start with _ or . are ignored; rename them"


def _form(path: Path) -> str | None:
    return FORMS.get(_unpacked(path).suffix.lower())


def _stem(path: Path) -> str:
    name = _unpacked(path)
    return name.stem if name.suffix.lower() in FORMS else name.name


def _unpacked(path: Path) -> Path:
    return path.with_suffix("") if path.suffix in _PACKED else path


def event_files(
    arguments: Sequence[str], option: str = "--events", *, patterns: bool = True
) -> tuple[EventFile, ...]:
    """What the `--events` options name; `patterns`: files that are there may be named by one.

    >>> event_files(["Shelf=shelf.csv", "Exit=exit.csv"])[1]
    EventFile(path='exit.csv', type='Exit')
    """
    files = tuple(
        file for argument in arguments for file in _event_file(argument, patterns=patterns)
    )
    typed = [f for f in files if f.type is not None]
    if typed and len(typed) < len(files):
        raise UsageError(f"give a type to each {option} TYPE=PATH, or to none of them")
    return files


def _event_file(argument: str, *, patterns: bool = True) -> list[EventFile]:
    """The files that one argument names: a pattern, such as data/2026-*.csv, may name several."""
    path, type = argument, None
    typed = _TYPED.fullmatch(argument)
    # A folder of a partitioned table may itself be named day=2026-03-14.
    if typed and not Path(argument).exists() and not (patterns and _found(argument)):
        type, path = typed[1], typed[2]
    return [EventFile(one, type) for one in (_expanded(path) if patterns else [path])]


def _expanded(path: str) -> list[str]:
    if "://" in path or Path(path).exists() or not glob.has_magic(path):
        return [path]
    found = _found(path)
    if not found:
        raise EventError(
            f"no file is named like '{path}'"
            + (
                _near(Path(path))
                or "\n  hint: * stands for any letters but /, ** for any folders, ? for one letter"
            )
        )
    return found


def _found(pattern: str) -> list[str]:
    return (
        sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207  a Path has one root
        if glob.has_magic(pattern)
        else []
    )


def table_files(arguments: Sequence[str]) -> tuple[EventFile, ...]:
    """What options name as tables of SQL; those without a name are called like their files.

    >>> [file.type for file in table_files(["day/prices.csv.gz", "trades=2026.csv", "TRADES=x"])]
    ['prices', 'trades', 'trades']
    """
    spelled: dict[str, str] = {}  # table names must differ in more than case
    named = []
    for file in (file for argument in arguments for file in _event_file(argument)):
        name = file.type or _stem(Path(file.path))
        named.append(EventFile(file.path, spelled.setdefault(name.lower(), name)))
    return tuple(named)


def require(files: Sequence[EventFile]) -> None:
    """Raises EventError unless every file is there."""
    for file in files:
        path = Path(file.path)
        if "://" not in file.path and not path.exists():
            raise EventError(f"there is no file or folder {file.path}{_near(path)}")
        if path.is_dir() and (left := len(_hidden_files(path))):
            many = f"{left:,} files whose names begin" if left > 1 else "a file whose name begins"
            notice(f"note: {many} with _ or . left out of {file.path}")


def _near(path: Path) -> str:
    """A hint with the nearest name beside it, if there is one."""
    try:
        beside = [p.name for p in path.parent.iterdir() if p.is_dir() or _form(p)]
    except OSError:  # the folder is not there, or we may not look inside
        return ""
    near = get_close_matches(path.name, beside, n=1, cutoff=0.6)
    return f"\n  hint: did you mean '{path.with_name(near[0])}'?" if near else ""


def read_local(
    files: Sequence[EventFile], spelling: Spelling = PLAIN, *, rows: int | None = None
) -> Events:
    """The events as Arrow tables; with `rows`, only the first ones, to know the columns."""
    require(files)
    tables: dict[str | None, list[pa.Table]] = {}
    for type, form, alike in _alike(files, spelling):
        if form in _TEXTS:
            inside = [path for file in alike for path in _inside(Path(file.path))]
            if form == "json":
                found = text_files.json(inside, spelling)
            else:
                found = text_files.csv(inside, spelling.between(form), spelling)
            tables.setdefault(type, []).append(found)
        else:
            tables.setdefault(type, []).extend(_read(file, form, rows) for file in alike)
    joined = {type: concatenated(parts) for type, parts in tables.items()}
    return joined.get(None, joined)


def read_spark(files: Sequence[EventFile], spelling: Spelling = PLAIN) -> Events:
    """The events as DataFrames of an embedded Spark session."""
    from ensue.runners.spark import session as spark_session

    require(files)
    groups = _alike(files, spelling)
    paths = [[as_spark_reads(file) for file in alike] for _, _, alike in groups]
    session = spark_session.embedded()
    frames: dict[str | None, Any] = {}
    for (type, form, alike), named in zip(groups, paths, strict=True):
        if form == "arrow":  # Spark has no reader for it
            read = [session.createDataFrame(_read(file, form, None)) for file in alike]
        elif form in _TEXTS:
            read = [spark_session.read_text(session, named, form, spelling)]
        else:
            read = [spark_session.read(session, path, form) for path in named]
        for frame in read:
            known = frames.get(type)
            frames[type] = frame if known is None else known.unionByName(frame)
    return frames.get(None, frames)


def _alike(
    files: Sequence[EventFile], spelling: Spelling
) -> list[tuple[str | None, str, list[EventFile]]]:
    """The files by type and form: what a column of text files is, shows in all of them."""
    found: dict[tuple[str | None, str], list[EventFile]] = {}
    for file in files:
        found.setdefault((file.type, file.form), []).append(file)
    forms = {form for _, form in found}
    if spelling.delimiter is not None and not forms & {"csv", "tsv"}:
        raise UsageError("--delimiter says something of CSV files, and there is none")
    if spelling != PLAIN and not forms & set(_TEXTS):
        said = "--null" if spelling.nulls else "--time-format"
        raise UsageError(
            f"{said} says something of text files, CSV or JSON lines, and there is none"
        )
    return [(type, form, alike) for (type, form), alike in found.items()]


def _inside(path: Path) -> list[Path]:
    return [path] if path.is_file() else [p for p in shown_files(path) if _form(p)]


def as_spark_reads(file: EventFile) -> str:
    """The path of a file or folder that is there; behind :// only Spark can look."""
    from ensue.runners.spark.paths import literal

    if "://" in file.path:
        return file.path
    path = Path(file.path)
    if any(inside.suffix == ".zst" for inside in _inside(path)):
        raise EventError(
            f"Spark cannot unpack .zst files, as in {file.path}\n"
            "  hint: take --engine local, or pack them as .gz or .bz2"
        )
    if path.is_file() and _is_hidden(Path(path.name)):
        raise EventError(
            f"Spark ignores files whose names start with _ or ., such as {file.path}\n"
            "  hint: rename it, or use --engine local"
        )
    return literal(file.path)


def _read(file: EventFile, form: str, rows: int | None) -> pa.Table:
    try:
        kept = pa.dataset.dataset(file.path, partitioning="hive", format=form)
        return kept.to_table() if rows is None else kept.head(rows)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise EventError(f"cannot read events from {file.path}: {reason}") from None


def _columns_of(events: Events, what: str) -> list[str]:
    """The columns of a kind, in every table if there are several; `what`: timestamp or date."""
    if isinstance(events, Mapping):
        every = [_columns_of(table, what) for table in events.values()]
        return [name for name in every[0] if all(name in names for names in every)]
    if isinstance(events, pa.Table):
        is_one = pa.types.is_timestamp if what == "timestamp" else pa.types.is_date
        return [f.name for f in events.schema if is_one(f.type)]
    return [f.name for f in events.schema.fields if f.dataType.typeName().startswith(what)]


def guessed_time(events: Events) -> str:
    """The only column that can be the time of an event, or a UsageError: one of timestamps, or
    one of dates where nothing is finer."""
    for what in ("timestamp", "date"):
        names = _columns_of(events, what)
        if len(names) == 1:
            return names[0]
        if names:
            raise UsageError(
                f"several columns hold {what}s: {', '.join(names)}\n"
                "  hint: say which one is the time of an event, --time COLUMN, or --time START,END"
            )
    raise UsageError(
        "no column holds timestamps or dates\n"
        "  hint: name the column with the time of an event, --time COLUMN; it may be numeric, and "
        "--time-format says how times are written"
    )
