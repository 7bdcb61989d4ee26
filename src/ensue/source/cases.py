"""Pieces of a kernel that are alike are written once, and chosen by number where they are used."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ensue.source.kernel_inputs import Frame
from ensue.source.table_columns import Source

_CONSTANT = re.compile(r"\b(whole|real)(\d+)\b")
_COUNTED = re.compile(r"\bCOUNTED_(\d+)\b")
COUNTED = "counted"  # the first row of T that a piece counts in


@dataclass(slots=True)
class Cases:
    """Pieces of code, one of which is run: `table[place]` says which."""

    frame: Frame
    table: str
    place: str
    numbers: list[int] = field(default_factory=list)  # the contents of the table
    rows: list[int] = field(default_factory=list)  # and where the pieces count, in T
    known: dict[tuple[object, ...], int] = field(default_factory=dict)
    texts: list[list[str]] = field(default_factory=list)

    def add(self, write: Callable[[Source], None]) -> None:
        """The next entry of the table is what `write` writes: a new piece, or one that is there.

        The same conditions have the same constants, so the second time these are not kept.
        """
        constants = self.frame.constants
        mark = constants.mark()
        out = self.frame.source()
        write(out)
        lines, first = _counting_from(out.lines)
        self.rows.append(first)
        code = [line for line in lines if line.strip() and not line.strip().startswith("#")]
        text = "\n".join(code)
        key = (_CONSTANT.sub(lambda found: _since(found, mark), text), *constants.after(mark))
        if key in self.known:
            constants.back_to(mark)
        else:
            self.known[key] = len(self.texts)
            self.texts.append(lines if code else [])
        self.numbers.append(self.known[key])

    @property
    def is_empty(self) -> bool:
        return not any(self.texts)

    def write(self, out: Source) -> None:
        """Writes the pieces; with more than one, a number chooses."""
        if self.is_empty:
            return
        if self.frame.tally.on and any(COUNTED in line for text in self.texts for line in text):
            out(f"{COUNTED} = {self.table}_ROWS[{self.place}]")
        if len(self.texts) == 1:
            out(*self.texts[0])
            return
        out(f"case = {self.table}[{self.place}]")
        written = [(number, text) for number, text in enumerate(self.texts) if text]
        for place, (number, text) in enumerate(written):
            with out.block(f"{'elif' if place else 'if'} case == {number}:"):
                out(*text)

    def tables(self) -> Mapping[str, Sequence[int | str]]:
        return {self.table: self.numbers, f"{self.table}_ROWS": self.rows}


def _since(found: re.Match[str], mark: tuple[int, int, int]) -> str:
    """A constant by its place among those of a piece; those from before keep their names."""
    kind, number = found[1], int(found[2])
    begin = mark[0] if kind == "whole" else mark[1]
    return found[0] if number < begin else f"{kind}+{number - begin}"


def _counting_from(lines: list[str]) -> tuple[list[str], int]:
    """A piece that counts in rows behind a first one, and that first row."""
    rows = [int(number) for line in lines for number in _COUNTED.findall(line)]
    if not rows:
        return lines, 0
    first = min(rows)
    moved = lambda found: f"{COUNTED} + {int(found[1]) - first}"
    return [_COUNTED.sub(moved, line) for line in lines], first
