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

from ensue.errors import QueryError

Ranges = tuple[tuple[int, int], ...]
Spans = tuple[int, ...]  # where the match and each group begin and end; -1: nowhere

LARGEST = 1_000  # instructions, and repetitions of a part
EFFORT = 10_000_000  # steps for one text
_DEEPEST = 40
_LAST = 0x10FFFF
_DIGIT: Ranges = ((48, 57),)
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = ((9, 10), (12, 13), (32, 32))
_CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


# ---- what is written


@dataclass(frozen=True, slots=True)
class One:
    """One character of some ranges."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Border:
    """A place between characters: "A" the beginning, "z" the end, "b" that of a word."""

    where: str


@dataclass(frozen=True, slots=True)
class Row:
    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Group:
    part: "Node"
    number: int


@dataclass(frozen=True, slots=True)
class Repeat:
    part: "Node"
    least: int
    most: int | None
    lazy: bool


Node = One | Border | Row | Either | Group | Repeat


class _Reader:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self.any_case = text.startswith("(?i)")
        self.text = text
        self.at = 4 if self.any_case else 0
        self.groups = 0

    def whole(self) -> Node:
        found = self._either(0)
        if self.at < len(self.text):
            raise self._wrong("a ')' opens nothing")
        return found

    def _wrong(self, problem: str) -> QueryError:
        return QueryError(f"'{self.text}' is no regular expression: {problem}")

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _taken(self, word: str) -> bool:
        if self.text.startswith(word, self.at):
            self.at += len(word)
            return True
        return False

    def _either(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise self._wrong("too many brackets in brackets")
        parts = [self._row(depth)]
        while self._taken("|"):
            parts.append(self._row(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _row(self, depth: int) -> Node:
        parts = []
        while self._next() not in ("", "|", ")"):
            parts.append(self._repeated(self._piece(depth)))
        return Row(tuple(parts))

    def _repeated(self, part: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return part
        least, most = bounds
        if max(least, most or 0) > LARGEST or (most is not None and most < least):
            raise self._wrong(f"a part is repeated up to {LARGEST} times")
        found = Repeat(part, least, most, self._taken("?"))
        if self._bounds() is not None:
            raise self._wrong("a part is repeated twice")
        return found

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._taken(sign):
                return bounds
        end = self.text.find("}", self.at)
        if self._next() != "{" or end < 0:
            return None
        least, comma, most = self.text[self.at + 1 : end].partition(",")
        if not all(number.isascii() and number.isdigit() for number in (least, most or "0")):
            return None
        if max(len(least), len(most)) > 6:
            raise self._wrong(f"a part is repeated up to {LARGEST} times")
        self.at = end + 1
        return int(least), int(most) if most else None if comma else int(least)

    def _piece(self, depth: int) -> Node:
        letter = self._next()
        self.at += 1
        match letter:
            case "(":
                return self._group(depth)
            case "[":
                return One(self._class())
            case ".":
                return One(_other_than(((10, 10),)))
            case "^":
                return Border("A")
            case "$":
                return Border("z")
            case "\\":
                return self._escaped()
            case "*" | "+" | "?":
                raise self._wrong(f"nothing is in front of {letter}")
            case _:
                return One(self._cased(((ord(letter), ord(letter)),)))

    def _group(self, depth: int) -> Node:
        number = 0
        if not self._taken("?:"):
            if self._next() == "?":
                raise self._wrong("of groups with ? only (?:...) is known, and (?i) in front")
            self.groups += 1
            number = self.groups
        inside = self._either(depth + 1)
        if not self._taken(")"):
            raise self._wrong("a ')' is missing")
        return Group(inside, number) if number else inside

    def _escaped(self) -> Node:
        if self._next() in ("A", "z", "b") and self._next():
            self.at += 1
            return Border(self.text[self.at - 1])
        return One(self._cased(self._escape()))

    def _escape(self) -> Ranges:
        letter = self._next()
        self.at += 1
        if letter.lower() in _CLASSES:
            ranges = _CLASSES[letter.lower()]
            return ranges if letter.islower() else _other_than(ranges)
        if letter in _CONTROLS:
            return ((_CONTROLS[letter], _CONTROLS[letter]),)
        if not letter or (letter.isascii() and letter.isalnum()):
            raise self._wrong(f"\\{letter} is not known")
        return ((ord(letter), ord(letter)),)

    def _class(self) -> Ranges:
        negated = self._taken("^")
        found: list[tuple[int, int]] = []
        begun = self.at
        while self._next() != "]" or self.at == begun:
            if not self._next() or self.text.startswith("[:", self.at):
                raise self._wrong("a ']' is missing, or a class has a name")
            low = self._member()
            after = self.text[self.at + 1 : self.at + 2]
            if self._next() == "-" and after not in ("]", ""):
                self.at += 1
                high = self._member()
                if len(low) + len(high) > 2 or low[0][0] != low[0][1] or low[0][0] > high[0][1]:
                    raise self._wrong("a range goes from one character to a later one")
                low = ((low[0][0], high[0][1]),)
            found += low
        self.at += 1
        ranges = self._cased(tuple(found))
        ranges = _other_than(ranges) if negated else ranges
        if not ranges:
            raise self._wrong("a class is empty")
        return ranges

    def _member(self) -> Ranges:
        letter = self._next()
        self.at += 1
        return self._escape() if letter == "\\" else ((ord(letter), ord(letter)),)

    def _cased(self, ranges: Ranges) -> Ranges:
        """With the other case of each letter of ASCII, where case does not matter."""
        if not self.any_case:
            return ranges
        more = list(ranges)
        for first, turn in ((65, 32), (97, -32)):
            for low, high in ranges:
                low, high = max(low, first), min(high, first + 25)
                if low <= high:
                    more.append((low + turn, high + turn))
        return tuple(more)


def _other_than(ranges: Ranges) -> Ranges:
    found, begin = [], 0
    for low, high in sorted(ranges):
        if begin < low:
            found.append((begin, low - 1))
        begin = max(begin, high + 1)
    return (*found, (begin, _LAST)) if begin <= _LAST else tuple(found)


# ---- the machine


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
    before = at > 0 and _among(ord(text[at - 1]), _WORD)
    return before != (at < len(text) and _among(ord(text[at]), _WORD))


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
    ensue.errors.QueryError: '(a' is no regular expression: a ')' is missing
    """
    reader, writer = _Reader(text), _Writer(text)
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
