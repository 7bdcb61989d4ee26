"""Reads CSV, JSON lines, Parquet and Arrow files of events in this process, and events in batches."""

import glob
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from ensue.backends.text_columns import DEFAULT_TEXT_OPTIONS, TextFileOptions
from ensue.backends.text_files import NoteCallback, concat_event_tables, read_text_files
from ensue.errors import EventError

FORMATS = {
    ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet",
    ".jsonl": "json", ".ndjson": "json", ".json": "json", ".arrow": "arrow", ".feather": "arrow",
}  # fmt: skip
TEXT_FORMATS = ("csv", "tsv", "json")
_PACKED = (".gz", ".bz2", ".zst")
BATCH_ROWS = 1 << 17  # of a scan


@dataclass(frozen=True, slots=True)
class EventFile:
    """A file or folder of events; `type` is their common event type, if any."""

    path: str
    type: str | None = None

    @property
    def form(self) -> str:
        """The format csv, tsv, json, parquet or arrow, by the extension of the file or files.

        >>> EventFile("trades.csv.gz").form
        'csv'
        """
        path = Path(self.path)
        if path.is_dir():
            inside = {form for p in list_visible_files(path) if (form := detect_format(p))}
            if len(inside) == 1:
                return inside.pop()
            found = " and ".join(sorted(inside)) or "none"
            hint = "\n  hint: files and folders whose names start with _ or . are ignored; rename them"
            all_hidden = not list_visible_files(path) and bool(_hidden_files(path))
            raise EventError(
                f"the folder {self.path} must hold CSV, JSON lines, Parquet or Arrow files of "
                f"one format; found: {found}{hint if all_hidden else ''}"
            )
        form = detect_format(path)
        if form is None:
            raise EventError(f"cannot tell the format of {self.path}; known extensions: {', '.join(FORMATS)}")
        return form


def list_visible_files(folder: Path) -> list[Path]:
    """List the files below a folder. Like Spark and Arrow, it skips names that begin with `_` or
    `.`."""
    inside = (p for p in folder.rglob("*") if p.is_file())
    return sorted(p for p in inside if not is_hidden(p.relative_to(folder)))


def is_hidden(path: Path) -> bool:
    """Whether readers skip a file."""
    # a folder such as _day=3 is a value of a partitioned table
    return any(part.startswith((".", "_")) and "=" not in part for part in path.parts)


def _hidden_files(folder: Path) -> list[Path]:
    inside = [p for p in folder.rglob("*") if p.is_file() and detect_format(p)]
    return [p for p in inside if is_hidden(p.relative_to(folder))]


def detect_format(path: Path) -> str | None:
    return FORMATS.get(strip_compression_suffix(path).suffix.lower())


def strip_compression_suffix(path: Path) -> Path:
    return path.with_suffix("") if path.suffix in _PACKED else path


def expand_pattern(path: str) -> list[str]:
    """Expand a path or pattern to paths; a pattern without matches raises EventError."""
    if "://" in path or Path(path).exists() or not glob.has_magic(path):
        return [path]
    paths = glob_paths(path)
    if not paths:
        wildcards = "\n  hint: * matches any characters but /, ** any folders, ? one character"
        hint = _hint_similar(Path(path)) or wildcards
        raise EventError(f"no file is named like '{path}'{hint}")
    return paths


def glob_paths(pattern: str) -> list[str]:
    """Expand a pattern to paths; a plain name gives none."""
    return (
        sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207  a Path has one root
        if glob.has_magic(pattern)
        else []
    )


def require_files(files: Sequence[EventFile], say: NoteCallback) -> None:
    """Raise EventError if a file is missing; `say` receives a note on skipped hidden files."""
    for file in files:
        path = Path(file.path)
        if "://" not in file.path and not path.exists():
            raise EventError(f"there is no file or folder {file.path}{_hint_similar(path)}")
        if path.is_dir() and (skipped := len(_hidden_files(path))):
            files_text = f"{skipped:,} files" if skipped > 1 else "1 file"
            say(f"note: skipped {files_text} of {file.path} with a name that begins with _ or .")


def _hint_similar(path: Path) -> str:
    """Return a hint with the most similar name in the same folder, if any."""
    try:
        siblings = [p.name for p in path.parent.iterdir() if p.is_dir() or detect_format(p)]
    except OSError:  # the folder is missing or unreadable
        return ""
    similar = get_close_matches(path.name, siblings, n=1, cutoff=0.6)
    return f"\n  hint: did you mean '{path.with_name(similar[0])}'?" if similar else ""


def read_files(
    form: str, files: Sequence[EventFile], spelling: TextFileOptions, say: NoteCallback, rows: int | None = None
) -> list[pa.Table]:
    """Read files of one format; text files become one table with common column types."""
    if form not in TEXT_FORMATS:
        return [read_columnar_file(file, form, rows) for file in files]
    paths = [path for file in files for path in list_event_files(Path(file.path))]
    return [read_text_files(paths, form, spelling, say)]


def read_path(path: str, say: NoteCallback) -> pa.Table:
    """Read the events of a file, of a folder, or of all files that match a pattern."""
    files = [EventFile(name) for name in expand_pattern(path)]
    require_files(files, say)
    by_form: dict[str, list[EventFile]] = {}
    for file in files:
        by_form.setdefault(file.form, []).append(file)
    return concat_event_tables(
        [table for form, alike in by_form.items() for table in read_files(form, alike, DEFAULT_TEXT_OPTIONS, say)]
    )


def list_event_files(path: Path) -> list[Path]:
    """Return the file itself, or the event files of a folder."""
    return [path] if path.is_file() else [p for p in list_visible_files(path) if detect_format(p)]


def read_columnar_file(file: EventFile, form: str, rows: int | None) -> pa.Table:
    """Read a Parquet or Arrow file or folder, or its first `rows`."""
    dataset = open_dataset(file, form)
    with _readable(f" from {file.path}"):
        return dataset.to_table() if rows is None else dataset.head(rows)


def open_dataset(file: EventFile, form: str) -> pa.dataset.Dataset:
    """Open a Parquet or Arrow file or folder."""
    with _readable(f" from {file.path}"):
        return pa.dataset.dataset(file.path, partitioning="hive", format=form)


@contextmanager
def _readable(place: str = "") -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise EventError(f"cannot read events{place}: {str(error).splitlines()[0]}") from None


def open_batches(events: Any, say: NoteCallback) -> pa.RecordBatchReader | None:
    """Opens events that can be read in batches: a path, dataset, scanner or reader; None: they are read at once."""
    place, source = "", events
    if isinstance(events, str | Path):
        files, place = [EventFile(name) for name in expand_pattern(str(events))], f" from {events}"
        require_files(files, lambda _: None)
        if any(file.form in TEXT_FORMATS for file in files):
            return None
        datasets = [open_dataset(file, file.form) for file in files]
        if any(not dataset.schema.equals(datasets[0].schema) for dataset in datasets):
            return None
        require_files(files, say)
        source = pa.dataset.dataset(datasets) if len(datasets) > 1 else datasets[0]
    if isinstance(source, pa.dataset.Dataset):
        source = source.scanner(batch_size=BATCH_ROWS, use_threads=False)  # threads read far ahead of slow matching
    reader = source.to_reader() if isinstance(source, pa.dataset.Scanner) else source
    return pa.RecordBatchReader.from_batches(reader.schema, _read_batches(reader, place))


def _read_batches(reader: pa.RecordBatchReader, place: str) -> Iterator[pa.RecordBatch]:
    """Reads batches of events; an EventError says what cannot be read."""
    while True:
        with _readable(place):
            batch = next(reader, None)
        if batch is None:
            return
        if not batch.schema.equals(reader.schema):
            changed = ", ".join(sorted({*map(str, batch.schema)} ^ {*map(str, reader.schema)}))
            raise EventError(f"cannot read events{place}: a batch has other columns than the first one: {changed}")
        yield batch
