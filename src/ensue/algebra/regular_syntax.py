"""How regular expressions are written: texts to nodes."""

from dataclasses import dataclass

from ensue.errors import QueryError

Ranges = tuple[tuple[int, int], ...]

LARGEST = 1_000  # instructions, and repetitions of a part
_DEEPEST = 40
_LAST = 0x10FFFF
_DIGIT: Ranges = ((48, 57),)
WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = ((9, 10), (12, 13), (32, 32))
_CLASSES = {"d": _DIGIT, "w": WORD, "s": _SPACE}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


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


class Reader:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self.any_case = text.startswith("(?i)")
        self.text = text
        self.at = 4 if self.any_case else 0
        self.groups = 0

    def whole(self) -> Node:
        found = self._either(0)
        if self.at < len(self.text):
            raise self._wrong("this ')' has no matching '('")
        return found

    def _wrong(self, problem: str) -> QueryError:
        return QueryError(f"'{self.text}' is not a valid regular expression: {problem}")

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _taken(self, word: str) -> bool:
        if self.text.startswith(word, self.at):
            self.at += len(word)
            return True
        return False

    def _either(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise self._wrong("brackets are nested too deeply")
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
                raise self._wrong(f"there is nothing to repeat before {letter}")
            case _:
                return One(self._cased(((ord(letter), ord(letter)),)))

    def _group(self, depth: int) -> Node:
        number = 0
        if not self._taken("?:"):
            if self._next() == "?":
                raise self._wrong("the only groups with ? are (?:...), and (?i) at the start")
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
