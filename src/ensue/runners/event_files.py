"""Event files in this process: CSV, JSON lines, Parquet and Arrow, by their names."""

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset

from ensue.errors import EventError
from ensue.runners import text_files
from ensue.runners.text_columns import PLAIN, Spelling
from ensue.runners.text_files import Say, concatenated

FORMS = {
    ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet",
    ".jsonl": "json", ".ndjson": "json", ".json": "json", ".arrow": "arrow", ".feather": "arrow",
}  # fmt: skip
TEXTS = ("csv", "tsv", "json")
_PACKED = (".gz", ".bz2", ".zst")


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
            inside = {form for p in shown_files(path) if (form := form_of(p))}
            if len(inside) == 1:
                return inside.pop()
            found = "none" if not inside else " and ".join(sorted(inside))
            raise EventError(
                f"the folder {self.path} should hold CSV, JSON lines, Parquet or Arrow files of "
                f"one form; found: {found}{_hidden(path)}"
            )
        form = form_of(path)
        if form is None:
            raise EventError(
                f"cannot tell the format of {self.path}; known extensions: {', '.join(FORMS)}"
            )
        return form


def shown_files(folder: Path) -> list[Path]:
    """The files in a folder and below it, without those that are hidden: Spark and Arrow leave
    out what begins with `_` or `.`, and so do we whatever reads the events."""
    inside = (p for p in folder.rglob("*") if p.is_file())
    return sorted(p for p in inside if not is_hidden(p.relative_to(folder)))


def is_hidden(path: Path) -> bool:
    """Whether readers leave a file out."""
    # a folder such as _day=3 is a value of a partitioned table
    return any(part.startswith((".", "_")) and "=" not in part for part in path.parts)


def _hidden_files(folder: Path) -> list[Path]:
    inside = [p for p in folder.rglob("*") if p.is_file() and form_of(p)]
    return [p for p in inside if is_hidden(p.relative_to(folder))]


def _hidden(folder: Path) -> str:
    """What an error says where all there is is hidden."""
    if shown_files(folder) or not _hidden_files(folder):
        return ""
    return "\n  hint: files and folders whose names start with _ or . are ignored; rename them"


def form_of(path: Path) -> str | None:
    """The format that a file name stands for."""
    return FORMS.get(unpacked(path).suffix.lower())


def unpacked(path: Path) -> Path:
    """The name of a file without the ending of its compression."""
    return path.with_suffix("") if path.suffix in _PACKED else path


def expanded(path: str) -> list[str]:
    """The files that a name or a pattern stands for. Raises EventError if there is none."""
    if "://" in path or Path(path).exists() or not glob.has_magic(path):
        return [path]
    found = matching_paths(path)
    if not found:
        raise EventError(
            f"no file is named like '{path}'"
            + (
                _near(Path(path))
                or "\n  hint: * stands for any letters but /, ** for any folders, ? for one letter"
            )
        )
    return found


def matching_paths(pattern: str) -> list[str]:
    """The files that a pattern stands for; none if it is a plain name."""
    return (
        sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207  a Path has one root
        if glob.has_magic(pattern)
        else []
    )


def require(files: Sequence[EventFile], say: Say) -> None:
    """Raises EventError unless every file is there; `say` takes notes on what is left out."""
    for file in files:
        path = Path(file.path)
        if "://" not in file.path and not path.exists():
            raise EventError(f"there is no file or folder {file.path}{_near(path)}")
        if path.is_dir() and (left := len(_hidden_files(path))):
            many = f"{left:,} files whose names begin" if left > 1 else "a file whose name begins"
            say(f"note: {many} with _ or . left out of {file.path}")


def _near(path: Path) -> str:
    """A hint with the nearest name beside it, if there is one."""
    try:
        beside = [p.name for p in path.parent.iterdir() if p.is_dir() or form_of(p)]
    except OSError:  # the folder is not there, or we may not look inside
        return ""
    near = get_close_matches(path.name, beside, n=1, cutoff=0.6)
    return f"\n  hint: did you mean '{path.with_name(near[0])}'?" if near else ""


def read_alike(
    form: str, files: Sequence[EventFile], spelling: Spelling, say: Say, rows: int | None = None
) -> list[pa.Table]:
    """The tables of files of one form; text files are one: their cells say what a column is."""
    if form not in TEXTS:
        return [read_columns(file, form, rows) for file in files]
    paths = [path for file in files for path in files_inside(Path(file.path))]
    if form == "json":
        return [text_files.json(paths, spelling)]
    return [text_files.csv(paths, spelling.between(form), spelling, say=say)]


def read_path(path: str, say: Say) -> pa.Table:
    """The events of a file, of a folder of files of one form, or of all files named so."""
    files = [EventFile(one) for one in expanded(path)]
    require(files, say)
    by_form: dict[str, list[EventFile]] = {}
    for file in files:
        by_form.setdefault(file.form, []).append(file)
    return concatenated(
        [table for form, alike in by_form.items() for table in read_alike(form, alike, PLAIN, say)]
    )


def files_inside(path: Path) -> list[Path]:
    """A file, or the event files of a folder."""
    return [path] if path.is_file() else [p for p in shown_files(path) if form_of(p)]


def read_columns(file: EventFile, form: str, rows: int | None) -> pa.Table:
    """The rows of a Parquet or Arrow file or folder, or the first ones."""
    try:
        kept = pa.dataset.dataset(file.path, partitioning="hive", format=form)
        return kept.to_table() if rows is None else kept.head(rows)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise EventError(f"cannot read events from {file.path}: {reason}") from None
