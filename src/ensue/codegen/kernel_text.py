"""Assembles the source of a kernel: its module, functions, shared cases and event loop."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ensue.codegen.expressions import collect_functions, write_imports
from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.names import ARRAYS, find_names
from ensue.codegen.state_layout import SourceWriter

# Descriptions of kernel parameters, for readable sources.
PARAMETERS = {
    "wholes": "constants of the query: integers",
    "reals": "and floats",
    "begin": "the first event to process",
    "stop": "the end of the events to process",
    "base": "the row of event 0 in the stream",
    "mask": "of each event: the roles that it matches",
    "key": "of each event: its partition; negative: none",
    "starts": "of each event: its start time",
    "ends": "of each event: its end time",
    "now": "the current time",
    "flush": "whether the stream has ended",
    "head": "the first run of each list, by partition",
    "live": "the number of runs of a partition",
    "nxt": "the next run of each run in its list",
    "I": "runs: integers",
    "F": "and floats",
    "N": "events of Kleene variables, each linked to the previous one: integers",
    "NF": "and floats",
    "A": "instances stored for later events: integers",
    "AF": "and floats",
    "tops": "the newest of each list in A, by partition",
    "counts": "the number of events of a partition",
    "used": "by partition, the first row with which a match may still begin",
    "K": "state of each partition: integers",
    "KF": "and floats",
    "L": "the last events of repeats, by partition: integers",
    "LF": "and floats",
    "T": "counters",
    "O": "matches",
    "meta": "numbers that persist between calls",
}


def write_kernel(
    frame: KernelContext,
    title: str,
    functions: Sequence["KernelFunction"],
    *,
    own: Mapping[str, str] | None = None,
    texts: Sequence[str] = (),
) -> str:
    """Writes the module of a kernel; functions of `own` only if called, all of `texts`."""
    out = frame.source()
    out(f'"""Generated: a compiled matcher. {title}"""', "")
    used = set().union(*(function.used for function in functions))
    called = list(collect_functions(used, own or {}))
    for text in (*called, *texts):
        used |= find_names(text)
    if "math" in used:
        out("import math", "")
    out("import numpy as np", "from numba import njit", *write_imports(used), "")
    out(*frame.names.write_definitions(used), "")
    for text in (*called, *texts):
        out("", *text.splitlines(), "")
    for function in functions:
        out("", *function.source.lines, "")
    return out.text()


@dataclass(frozen=True, slots=True)
class KernelFunction:
    """A function of a kernel, and the names it uses."""

    source: SourceWriter
    used: set[str]


def write_function(frame: KernelContext, name: str, parameters: Sequence[str], body: SourceWriter) -> KernelFunction:
    """Writes a function that reads the kernel's constants; `body` is indented once."""
    out, names = frame.source(), (*ARRAYS, *parameters)
    if frame.names.readable:
        _write_described_head(out, frame, name, names)
    else:
        out(f"def {name}({', '.join(names)}):")
    used = body.words()
    with out:
        out(*frame.constants.readings(used))
        out.lines += body.lines
    return KernelFunction(out, used)


def _write_described_head(out: SourceWriter, frame: KernelContext, name: str, parameters: Sequence[str]) -> None:
    """Writes the head of a function with a description of each parameter."""
    meanings = dict(PARAMETERS)
    for feature in frame.features.all():
        meanings[frame.array(feature)] = f"of each event: {feature.description}"
    with out.block(f"def {name}("):
        for parameter in parameters:
            meaning = meanings.get(parameter)
            out(f"{parameter}," + (f"  # {meaning}" if meaning else ""))
    out("):")


# Equal pieces of a kernel are written once, and selected by number where they are used.

_CONSTANT = re.compile(r"\b(whole|real)(\d+)\b")
_COUNTED = re.compile(r"\bCOUNTED_(\d+)\b")
COUNTED = "counted"  # the first row of T that a piece increments


@dataclass(slots=True)
class SharedCases:
    """Pieces of code, one of which is executed: `table[place]` selects it."""

    frame: KernelContext
    table: str = ""
    place: str = ""
    numbers: list[int] = field(default_factory=list)  # the contents of the table
    rows: list[int] = field(default_factory=list)  # the first row of T of each piece
    known: dict[tuple[object, ...], int] = field(default_factory=dict)
    texts: list[list[str]] = field(default_factory=list)

    def add(self, write: Callable[..., None], *arguments: object) -> None:
        """Adds the code of `write` as the next entry of the table, or reuses an equal one.

        Equal conditions have equal constants, so those of a reused piece are dropped.
        """
        constants = self.frame.constants
        mark = constants.mark()
        out = self.frame.source()
        write(out, *arguments)
        lines, first = _relative_counters(out.lines)
        self.rows.append(first)
        code = [line for line in lines if line.strip() and not line.strip().startswith("#")]
        text = "\n".join(code)
        key = (_CONSTANT.sub(lambda match: _relative(match, mark), text), *constants.after(mark))
        if key in self.known:
            constants.drop_since(mark)
        else:
            self.known[key] = len(self.texts)
            self.texts.append(lines if code else [])
        self.numbers.append(self.known[key])

    def write(self, out: SourceWriter) -> None:
        """Writes the pieces, with a selection if there are several."""
        if not any(self.texts):
            return
        if self.frame.tally.on and any(COUNTED in line for text in self.texts for line in text):
            out(f"{COUNTED} = {self.table}_ROWS[{self.place}]")
        if len(self.texts) == 1:
            out(*self.texts[0])
            return
        out(f"case = {self.table}[{self.place}]")
        pieces = [(number, text) for number, text in enumerate(self.texts) if text]
        for place, (number, text) in enumerate(pieces):
            with out.block(f"{'elif' if place else 'if'} case == {number}:"):
                out(*text)

    def tables(self) -> Mapping[str, Sequence[int | str]]:
        return {self.table: self.numbers, f"{self.table}_ROWS": self.rows}


def _relative(match: re.Match[str], mark: tuple[int, int, int]) -> str:
    """The position of a constant among those of its piece; earlier ones keep their names."""
    kind, number = match[1], int(match[2])
    begin = mark[0] if kind == "whole" else mark[1]
    return match[0] if number < begin else f"{kind}+{number - begin}"


def _relative_counters(lines: list[str]) -> tuple[list[str], int]:
    """A piece whose counter rows are relative to the first one, and that row."""
    rows = [int(number) for line in lines for number in _COUNTED.findall(line)]
    if not rows:
        return lines, 0
    first = min(rows)
    relative = lambda match: f"{COUNTED} + {int(match[1]) - first}"
    return [_COUNTED.sub(relative, line) for line in lines], first


# The event loop of every kernel.

STOP_REQUESTED = "meta[STOP] != 0"
CURRENT_EVENT = ("row = base + i", "t = ends[i]", "s = starts[i]")

Needs = Sequence[tuple[str, str]]  # conditions of too little room, and the codes to return


def write_event_loop(
    body: SourceWriter,
    frame: KernelContext,
    tables: Sequence[str],
    *,
    registers: Mapping[str, str],
    needs: Callable[[SourceWriter], Needs],
    begin: Callable[[SourceWriter], None] = lambda _: None,
    at_hand: Sequence[str] = CURRENT_EVENT,
    returned: Sequence[str] = (),
) -> KernelFunction:
    """Writes `step` around the processing of an event, which is indented twice.

    `registers` are numbers that persist in `meta`, by their names in the source; `needs` may write
    the computation of the free room, and `begin` the code before the loop. `returned` are the
    tables that the kernel may have grown.
    """
    out = frame.source(depth=1)
    out.note("fill levels of the tables")
    out(*(f"{name} = meta[{place}]" for name, place in registers.items()), "code = DONE")
    begin(out)
    out("i = begin")
    with out.block("while i < stop:"):
        out.note("the partition, and the roles that the event matches")
        out("k = key[i]")
        _skip_if(out, "k < 0")
        out("roles = mask[i]")
        if not frame.counts:
            _skip_if(out, "roles == 0")
        out.note("room for everything the event may add")
        for lacking, code in [(STOP_REQUESTED, "STOPPED"), *needs(out)]:
            with out.block(f"if {lacking}:"):
                out(f"code = {code}", "break")
        if frame.counts:
            out("idx = counts[k] + 1", "counts[k] = idx")
            _skip_if(out, "roles == 0")
        out.note("the event: its row in the stream, and its time")
        out(*at_hand)
        out.lines += body.lines
        out("i += 1")
    out("meta[POSITION] = i")
    out(*(f"meta[{place}] = {name}" for name, place in registers.items()))
    out(f"return {', '.join(('code', *returned))}")
    names = [*frame.event_parameters(), *tables, "O", "meta"]
    return write_function(frame, "step", ["begin", "stop", "base", *names], out)


def write_stop_if(out: SourceWriter, condition: str, returned: Sequence[str] = ()) -> None:
    """Leaves the kernel during an event: its state is invalid afterwards."""
    with out.block(f"if {condition}:"):
        out("meta[POSITION] = i", "meta[OUT_TOP] = otop", "code = STOPPED")
        out(f"return {', '.join(('code', *returned))}")


def _skip_if(out: SourceWriter, condition: str) -> None:
    with out.block(f"if {condition}:"):
        out("i += 1", "continue")
