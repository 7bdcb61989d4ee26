r"""Regular expressions in linear time: no text makes one of them run away.

The usual syntax without what needs backtracking (references, lookaround): characters, `.`,
classes, `\d \w \s` and their opposites (of ASCII), `\b`, `^`, `$`, groups, `|`, `* + ? {n,m}`,
also lazy, `(?i)` in front. Threads run over the text side by side, the preferred one first, as in
Pike's and RE2's machines.

>>> compiled("(a|ab)(c|bcd)").search("xabcd")
(1, 5, 1, 2, 2, 5)
>>> compiled("(?:a+)+$").search("a" * 40 + "b") is None
True
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from ensue.algebra.regular_syntax import (
    LARGEST,
    WORD,
    Border,
    Either,
    Group,
    Node,
    One,
    Ranges,
    Reader,
    Repeat,
    Row,
)
from ensue.errors import QueryError

Spans = tuple[int, ...]  # where the match and each group begin and end; -1: nowhere

EFFORT = 10_000_000  # steps for one text


@dataclass(frozen=True, slots=True)
class Save:
    """Remembers where it is."""

    slot: int


@dataclass(frozen=True, slots=True)
class Go:
    """Goes on at several places, the preferred one first."""

    to: tuple[int, ...]


class TooLongError(Exception):
    """A text takes more steps than are spent on one."""


Step = One | Border | Save | Go | None  # None: the end


@dataclass(slots=True)
class Expression:
    """A regular expression, ready to be looked for."""

    steps: list[Step] = field(default_factory=list)
    groups: int = 0
    portable: str = ""  # the same for RE2

    def too_long(self, length: int) -> bool:
        """Whether a text of so many characters is not looked through."""
        return length * len(self.steps) > EFFORT

    def search(self, text: str, start: int = 0) -> Spans | None:
        """The leftmost match, as backtracking would find it."""
        return self.looked(text, start)[0]

    def looked(self, text: str, start: int) -> tuple[Spans | None, int]:
        """The leftmost match, and how many characters that took."""
        if self.too_long(len(text)):
            raise TooLongError
        found: Spans | None = None
        nowhere = (-1,) * (2 * self.groups + 2)
        threads: dict[int, Spans] = {}
        at = start
        for at in range(start, len(text) + 1):
            if found is None:
                self._enter(threads, 0, text, at, nowhere)
            if not threads:
                break
            letter = ord(text[at]) if at < len(text) else -1
            following: dict[int, Spans] = {}
            for place, spans in threads.items():
                step = self.steps[place]
                if step is None:
                    found = spans
                    break
                if isinstance(step, One) and _among(letter, step.ranges):
                    self._enter(following, place + 1, text, at + 1, spans)
            threads = following
        return found, at - start

    def _enter(
        self, threads: dict[int, Spans], place: int, text: str, at: int, spans: Spans
    ) -> None:
        waiting = [(place, spans)]
        while waiting:
            place, spans = waiting.pop()
            if place in threads:
                continue
            threads[place] = spans
            match self.steps[place]:
                case Go(to=to):
                    waiting += [(other, spans) for other in reversed(to)]
                case Save(slot=slot):
                    waiting.append((place + 1, (*spans[:slot], at, *spans[slot + 1 :])))
                case Border(where=where) if _on_border(where, text, at):
                    waiting.append((place + 1, spans))
                case _:
                    pass


def _among(letter: int, ranges: Ranges) -> bool:
    return any(low <= letter <= high for low, high in ranges)


def _on_border(where: str, text: str, at: int) -> bool:
    if where == "A":
        return at == 0
    if where == "z":
        return at == len(text)
    before = at > 0 and _among(ord(text[at - 1]), WORD)
    return before != (at < len(text) and _among(ord(text[at]), WORD))


class _Writer:
    """Writes the steps of an expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.steps: list[Step] = []

    def add(self, step: Step) -> int:
        if len(self.steps) >= LARGEST:
            raise QueryError(f"the regular expression '{self.text}' is too large")
        self.steps.append(step)
        return len(self.steps) - 1

    def write(self, node: Node, times: int) -> None:
        if times > LARGEST:
            raise QueryError(f"the regular expression '{self.text}' is too large")
        match node:
            case One() | Border():
                self.add(node)
            case Row(parts=parts):
                for part in parts:
                    self.write(part, times)
            case Group(part=part, number=number):
                self.add(Save(2 * number))
                self.write(part, times)
                self.add(Save(2 * number + 1))
            case Either(parts=parts):
                self._either(parts, times)
            case Repeat(part=part, least=least, most=most):
                self._repeat(node, times * max(least, most or 1, 1))

    def _either(self, parts: tuple[Node, ...], times: int) -> None:
        choice, begins, ends = self.add(Go(())), [], []
        for part in parts:
            begins.append(len(self.steps))
            self.write(part, times)
            ends.append(self.add(Go(())))
        self.steps[choice] = Go(tuple(begins))
        for end in ends:
            self.steps[end] = Go((len(self.steps),))

    def _repeat(self, node: Repeat, times: int) -> None:
        for _ in range(node.least):
            self.write(node.part, times)
        if node.most is None:
            begin = self.add(Go(()))
            self.write(node.part, times)
            self.add(Go((begin,)))
            self._skip(begin, node.lazy)
        else:
            skips = []
            for _ in range(node.most - node.least):
                skips.append(self.add(Go(())))
                self.write(node.part, times)
            for skip in skips:
                self._skip(skip, node.lazy)

    def _skip(self, at: int, lazy: bool) -> None:
        ways = (at + 1, len(self.steps))
        self.steps[at] = Go(ways[::-1] if lazy else ways)


@lru_cache(maxsize=512)
def compiled(text: str) -> Expression:
    """The machine of an expression, or a QueryError.

    >>> compiled("(a")
    Traceback (most recent call last):
    ensue.errors.QueryError: '(a' is not a valid regular expression: a ')' is missing
    """
    reader, writer = Reader(text), _Writer(text)
    node = Group(reader.whole(), 0)
    writer.write(node, 1)
    writer.add(None)
    return Expression(writer.steps, reader.groups, _portable(node))


def expression_of(text: object) -> Expression | None:
    """The machine of an expression, or None where it is none."""
    try:
        return compiled(str(text))
    except QueryError:
        return None


def _portable(node: Node) -> str:
    match node:
        case One(ranges=ranges):
            members = "".join(rf"\x{{{low:x}}}-\x{{{high:x}}}" for low, high in ranges)
            return f"[{members}]"
        case Border(where=where):
            return f"\\{where}"
        case Row(parts=parts):
            return "".join(map(_portable, parts))
        case Either(parts=parts):
            return f"(?:{'|'.join(map(_portable, parts))})"
        case Group(part=part):
            return f"(?:{_portable(part)})"
        case Repeat(part=part, least=least, most=most, lazy=lazy):
            bounds = f"{{{least},{'' if most is None else most}}}"
            return f"(?:{_portable(part)}){bounds}{'?' if lazy else ''}"


def matches(expression: Expression, text: str) -> Iterator[Spans]:
    """All matches from left to right, none in another."""
    at, effort = 0, 0
    while at <= len(text):
        found, read = expression.looked(text, at)
        if found is None:
            return
        effort += read
        if expression.too_long(effort // 4):
            raise TooLongError
        yield found
        at = found[1] if found[1] > found[0] else found[1] + 1
