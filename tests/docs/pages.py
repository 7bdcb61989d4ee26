"""Runs the examples of the documentation.

A `text` block right behind a `python` or `ensue` block says what it gives. Python blocks of a page
run one after the other and their standard output counts. An `ensue` block is a query under the
events it is asked of, which are written as comments:

    -- A B C              letters: types of events, at the times 1, 2, 3, ...
    -- t type price       a table: the first line names the columns
    -- 09:05 A 3          a row of it; 09:05 is a timestamp, of a day that does not matter

Where the query speaks of places, they are the columns x and y.

A `sql` block is run by `ensue.sql`. The comments above it are its tables; the page's later blocks
know them too. A block without a query only gives tables.

    -- prices: day price   a table: its name and its columns
    -- 1 9                 a row; what holds blanks is in single quotes

The `PASTED` pages are those that people follow line by line. All their `python` and `sh` blocks
run in the order of the page, in a new process and a folder that is empty at first. A `text` block
behind an `sh` block is what it prints, errors too.

`python tests/docs/pages.py PAGE...` writes what the examples give into the pages; with `--judge`
it prints as JSON what the `ensue` and `sql` blocks give. Read what it wrote before you keep it.
"""

import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path

import pyarrow as pa

import ensue

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PASTED = (ROOT / "README.md", ROOT / "docs" / "start.md")

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ANSWER = re.compile(r"\n\n?```text\n(.*?)```$", re.MULTILINE | re.DOTALL)
_TIMES = ("t", "start")
_CLOCK = re.compile(r"\d\d:\d\d(:\d\d)?")
_DAY = date(2026, 3, 14)  # of times that are written as 09:05
_WORDS = {"null": None, "nan": float("nan"), "true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Example:
    """A block of a page, and the text behind it."""

    page: Path
    line: int
    language: str
    code: str
    expected: str | None
    place: tuple[int, int] | None = None  # of the expected text

    @property
    def name(self) -> str:
        return f"{self.page.name}:{self.line}"


def examples(page: Path, *languages: str) -> Iterator[Example]:
    """The blocks of a page in some languages."""
    text = page.read_text(encoding="utf-8")
    for block in _FENCED.finditer(text):
        if block[1] not in languages:
            continue
        answer = _ANSWER.match(text, block.end())
        yield Example(
            page,
            text.count("\n", 0, block.start()) + 1,
            block[1],
            block[2],
            None if answer is None else answer[1],
            None if answer is None else answer.span(1),
        )


# ---------------------------------------------------------------------------- ensue blocks


def matched(code: str) -> str:
    """What the query of an `ensue` block finds in its events, a match a line."""
    try:
        table = events_of(code)
        columns = ("start", "end") if "start" in table.column_names else "t"
        type_column = "type" if "type" in table.column_names else None
        location = ("x", "y") if ".location" in code else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = ensue.match(table, code, time=columns, type=type_column, location=location)
    except ensue.EnsueError as error:
        return f"{error}\n"
    if isinstance(found, dict):
        return "".join(_lines(matches, f"{name or 'top'}: ") for name, matches in found.items())
    in_order = "ORDER BY" in code or "ALL EVENTS" in code
    return _lines(found, in_order=in_order) or "no match\n"


def _lines(matches: pa.Table, level: str = "", *, in_order: bool = False) -> str:
    standard = {"match_id", "start", "end", "location"}
    lines = [
        (match.get("end", 0), [f"{k}={shown(v)}" for k, v in match.items() if k not in standard])
        for match in matches.to_pylist()
    ]
    lines = lines if in_order else sorted(lines)
    return "".join(f"{level}{' '.join(columns)}\n" for _, columns in lines)


def events_of(code: str) -> pa.Table:
    """The events in the comments at the top of a block.

    >>> events_of("-- A B").to_pydict()
    {'t': [1, 2], 'type': ['A', 'B']}
    """
    lines = []
    for line in code.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").split())
    assert lines, "an example needs its events, in comments"
    if lines[0][0] not in _TIMES:
        letters = [letter for line in lines for letter in line]
        return pa.table({"t": range(1, len(letters) + 1), "type": letters})
    return pa.table({name: [_or_clock(line[k]) for line in lines[1:]] for k, name in enumerate(lines[0])})


def _or_clock(word: str) -> object:
    if not _CLOCK.fullmatch(word):
        return value_of(word)
    return datetime.combine(_DAY, time.fromisoformat(word))


def value_of(word: str) -> object:
    """A value as a table of events writes it."""
    if word in _WORDS:
        return _WORDS[word]
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            continue
    return word


def shown(value: object) -> str:
    """An event by its type and time, anything else as it is.

    >>> shown([{"type": "B", "t": 2}, {"type": "B", "t": 3}]), shown(0.1 + 0.2), shown(None)
    ('[B2 B3]', '0.3', 'NULL')
    >>> shown({"type": "A", "t": datetime(2026, 3, 14, 9, 5)})
    'A09:05'
    """
    match value:
        case list():
            return f"[{' '.join(shown(v) for v in value)}]"
        case {"type": kind, "t": when} | {"type": kind, "start": when}:
            return f"{kind}{shown(when)}"
        case {"t": when}:
            return f"t{shown(when)}"
        case datetime() if value.date() == _DAY:
            return value.strftime("%H:%M:%S" if value.second else "%H:%M")
        case float():
            return f"{value:.6g}"
        case None:
            return "NULL"
        case _:
            return str(value)


# ------------------------------------------------------------------------------ sql blocks


def queried(page: Path) -> Iterator[tuple[Example, str]]:
    """The SQL examples of a page, each with what it gives."""
    tables: dict[str, pa.Table] = {}
    for example in examples(page, "sql"):
        tables |= tables_of(example.code)
        if all(line.startswith("--") for line in example.code.splitlines() if line):
            continue
        try:
            found = printed_table(ensue.sql(example.code, tables=tables))
        except ensue.EnsueError as error:
            found = f"{error}\n"
        yield example, found


def tables_of(code: str) -> dict[str, pa.Table]:
    """The tables in the comments at the top of a block, by their names.

    >>> tables_of("-- t: id at\\n-- 1 2026-03-14T09:00\\nSELECT 1")["t"].to_pydict()
    {'id': [1], 'at': [datetime.datetime(2026, 3, 14, 9, 0)]}
    """
    found: dict[str, list[list[str]]] = {}
    rows: list[list[str]] = []
    for line in code.splitlines():
        if not line.startswith("--"):
            break
        words = shlex.split(line.removeprefix("--"))
        if words and words[0].endswith(":"):
            rows = found[words[0].removesuffix(":")] = [words[1:]]
        elif words:
            rows.append(words)
    return {
        name: pa.table({c: [cell_of(row[k]) for row in rows] for k, c in enumerate(columns)})
        for name, (columns, *rows) in found.items()
    }


def cell_of(word: str) -> object:
    """A value as a table of a `sql` block writes it, also a date or a time."""
    if not re.match(r"\d{4}-\d\d-\d\d", word):
        return value_of(word)
    return date.fromisoformat(word) if len(word) == 10 else datetime.fromisoformat(word)


def printed_table(table: pa.Table) -> str:
    """Columns side by side, as wide as their values.

    >>> print(printed_table(pa.table({"n": [1, None], "name": ["up", "down"]})), end="")
    n     name
    1     up
    NULL  down
    """
    columns = [[name, *map(cell, table[name].to_pylist())] for name in table.column_names]
    wide = [max(map(len, column)) for column in columns]
    lines = ("  ".join(map(str.ljust, line, wide)) for line in zip(*columns, strict=True))
    return "".join(f"{line.rstrip()}\n" for line in lines)


def cell(value: object) -> str:
    """A value of a result.

    >>> cell([1, None]), cell(datetime(2026, 3, 14, 9)), cell(True), cell(2.0)
    ('[1, NULL]', '2026-03-14 09:00', 'true', '2.0')
    """
    match value:
        case list():
            return f"[{', '.join(map(cell, value))}]"
        case bool():
            return str(value).lower()
        case datetime():
            return value.isoformat(sep=" ", timespec="minutes" if not value.second else "auto")
        case float() if value.is_integer():
            return f"{value:.1f}"
        case _:
            return shown(value)


# --------------------------------------------------------------------------- python blocks


def printed(page: Path) -> Iterator[tuple[Example, str]]:
    """The Python examples of a page, run in order, with what each of them prints."""
    names: dict[str, object] = {"__name__": "__main__"}
    for example in examples(page, "python"):
        yield example, _executed(example, names)


def _executed(example: Example, names: dict[str, object]) -> str:
    code = "\n" * example.line + example.code  # tracebacks then name the line of the page
    output = io.StringIO()
    with redirect_stdout(output):
        exec(compile(code, str(example.page), "exec"), names)
    return output.getvalue()


def _commanded(example: Example, folder: str) -> str:
    done = subprocess.run(
        ["bash", "-c", example.code],
        cwd=folder,
        env=_settings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0 or example.expected is not None, f"{example.name}: {done.stdout}"
    lines = (line.rstrip() for line in done.stdout.splitlines())
    return re.sub(r"in \d+\.\d+ s", "in 0.01 s", "".join(f"{line}\n" for line in lines))


def _settings() -> dict[str, str]:
    """The surroundings of a command: the package that is tested, and a terminal's width."""
    paths = (str(Path(sys.executable).parent), os.environ["PATH"])
    package = str(Path(ensue.__file__).parents[1])
    return os.environ | {
        "PATH": os.pathsep.join(paths),
        "COLUMNS": "100",
        "PYTHONPATH": package,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


# ---------------------------------------------------------------------------- pasted pages


def pasted(*, spark: bool = True) -> dict[str, str]:
    """What the blocks of the pasted pages print, by name. One process, so one Spark, runs them.

    Without `spark`, blocks that speak of it are left out.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as aside:
        answers = Path(aside) / "answers.json"
        done = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, "--paste", str(answers), *(["spark"] if spark else [])],
            cwd=folder,
            env=_settings(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout[-5000:]
        return json.loads(answers.read_text(encoding="utf-8"))


def _paste(page: Path, spark: bool) -> dict[str, str]:
    names: dict[str, object] = {"__name__": "__main__"}
    return {
        example.name: _executed(example, names) if example.language == "python" else _commanded(example, ".")
        for example in examples(page, "python", "sh")
        if spark or "spark" not in example.code
    }


def judged() -> dict[str, str]:
    """What `ensue` blocks with an answer behind them, and all `sql` blocks, give, by name."""
    return {
        example.name: matched(example.code)
        for page in PAGES
        for example in examples(page, "ensue")
        if example.expected is not None
    } | {example.name: given for page in PAGES for example, given in queried(page)}


def bless(page: Path) -> None:
    """Writes what the examples of a page give into it."""
    given = [(e, matched(e.code)) for e in examples(page, "ensue") if e.expected is not None]
    given += [(e, found) for e, found in queried(page) if e.expected is not None]
    if page in PASTED:
        found = pasted()
        shown = [e for e in examples(page, "python", "sh") if e.expected is not None]
        given += [(e, found[e.name]) for e in shown]
    else:
        given += [(e, output) for e, output in printed(page) if e.expected is not None]
    text = page.read_text(encoding="utf-8")
    for example, output in sorted(given, key=lambda pair: -pair[0].line):
        assert example.place is not None
        start, end = example.place
        text = text[:start] + output.rstrip("\n") + "\n" + text[end:]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.path.append(str(ROOT / "examples"))  # for samples
    if sys.argv[1:] == ["--judge"]:
        json.dump(judged(), sys.stdout)
    elif sys.argv[1:2] == ["--paste"]:
        answers = {name: said for page in PASTED for name, said in _paste(page, "spark" in sys.argv).items()}
        Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")
    else:
        for argument in sys.argv[1:]:
            bless(Path(argument).resolve())
