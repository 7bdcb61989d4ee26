"""A row pattern as an automaton whose choices are in the order of preference.

An *entry* is a place in the pattern between two rows. Its choices say what may come next: a row of
a variable, which leads to another entry, or the end of the match. The first choice that leads to
a match is the one that the standard prefers.
"""

from dataclasses import dataclass, replace

from ensue.algebra.row_patterns.pattern import (
    Alternation,
    Anchor,
    Concatenation,
    Exclusion,
    Nothing,
    Permutation,
    Repetition,
    Row,
    RowTerm,
    variables_of,
)
from ensue.errors import QueryError

_VARIABLES = 60  # each is a bit of 64
_PERMUTED = 6  # parts of PERMUTE of which every order is written out
_ORDERED = 10
_STEPS = 200_000  # of a pattern that is written out
_CLOSE = 20_000  # that are reached from one place without a row
_CHOICES = 2_000_000  # of all entries together

END = -1  # the variable of a choice that ends the match


@dataclass(frozen=True, slots=True)
class Choice:
    """What may come next: a row of a variable, or the end of the match."""

    variable: int  # its number; END: the match is complete
    entry: int = 0  # where the row leads to
    excluded: bool = False
    at_start: bool = False  # only before the first row of the partition: ^
    at_end: bool = False  # only behind its last row: $


@dataclass(frozen=True, slots=True)
class Automaton:
    """The entries of a pattern; the first one is where a match begins.

    >>> pattern = Concatenation((Repetition(Row("A"), 1, None), Row("B")))
    >>> for choices in automaton_of(pattern).entries:
    ...     print([(choice.variable, choice.entry) for choice in choices])
    [(0, 1)]
    [(0, 1), (1, 2)]
    [(-1, 0)]
    """

    variables: tuple[str, ...]
    entries: tuple[tuple[Choice, ...], ...]

    @property
    def looks_at_the_end(self) -> bool:
        """Whether it asks for the last row of a partition."""
        return any(choice.at_end for choices in self.entries for choice in choices)

    @property
    def looks_at_the_start(self) -> bool:
        return any(choice.at_start for choices in self.entries for choice in choices)

    @property
    def longest(self) -> int | None:
        """The most rows of a match; None: there is no bound.

        >>> automaton_of(Repetition(Row("A"), 0, 3)).longest
        3
        """
        known: dict[int, int | None] = {}
        state: dict[int, int] = {}  # 1: being looked at, 2: done

        stack: list[tuple[int, bool]] = [(0, False)]
        while stack:
            entry, done = stack.pop()
            following = [c.entry for c in self.entries[entry] if c.variable != END]
            if not done:
                if state.get(entry) == 2:
                    continue
                state[entry] = 1
                stack.append((entry, True))
                for other in following:
                    if state.get(other) == 1:
                        return None  # a loop, and each round takes a row
                    stack.append((other, False))
            else:
                state[entry] = 2
                rows = [known[other] for other in following]
                known[entry] = max((1 + (r or 0) for r in rows), default=0)
        return known[0]


@dataclass(slots=True)
class _Step:
    """One instruction: a row, a fork with its first branch preferred, an anchor, or the end.

    A loop is a fork of which one branch comes back to it.
    """

    kind: str  # "row", "fork", "loop", "start", "end", "accept"
    following: int = -1
    other: int = -1
    leaves: int = -1  # of a loop: what comes behind it
    variable: int = -1
    excluded: bool = False


def automaton_of(pattern: RowTerm) -> Automaton:
    """The automaton of a pattern."""
    variables = variables_of(pattern)
    if len(variables) > _VARIABLES:
        raise QueryError(
            f"a pattern has at most {_VARIABLES} variables, and this one has {len(variables)}",
            hint="use one variable for rows of one kind; a SUBSET groups several",
        )
    writer = _Writer(variables)
    accept = writer.add(_Step("accept"))
    first = writer.write(_merged(pattern), accept, excluded=False)
    return writer.automaton(first)


class _Writer:
    def __init__(self, variables: tuple[str, ...]) -> None:
        self.variables = variables
        self._numbers = {name: number for number, name in enumerate(variables)}
        self._steps: list[_Step] = []

    def add(self, step: _Step) -> int:
        if len(self._steps) > _STEPS:
            raise _too_large()
        self._steps.append(step)
        return len(self._steps) - 1

    def write(self, term: RowTerm, following: int, *, excluded: bool) -> int:
        """The step at which a term begins that goes on with `following`."""
        match term:
            case Row(variable=variable):
                number = self._numbers[variable]
                return self.add(_Step("row", following, variable=number, excluded=excluded))
            case Nothing():
                return following
            case Anchor(at=place):
                return self.add(_Step("start" if place == "start" else "end", following))
            case Concatenation(parts=parts):
                for part in reversed(parts):
                    following = self.write(part, following, excluded=excluded)
                return following
            case Alternation(parts=parts):
                return self._fork([self.write(p, following, excluded=excluded) for p in parts])
            case Permutation(parts=parts):
                return self._permuted(parts, following, excluded)
            case Exclusion(part=part):
                return self.write(part, following, excluded=True)
            case Repetition():
                return self._repeated(term, following, excluded)

    def _fork(self, branches: list[int]) -> int:
        first = branches[-1]
        for branch in reversed(branches[:-1]):
            first = self.add(_Step("fork", branch, first))
        return first

    def _permuted(self, parts: tuple[RowTerm, ...], following: int, excluded: bool) -> int:
        if all(map(_one_way, parts)):
            return self._orders(parts, following, excluded)
        if len(parts) > _PERMUTED:
            raise QueryError(
                f"PERMUTE takes at most {_PERMUTED} parts that can be matched in several ways",
                hint="write the orders that you mean as alternatives: (A+ B | B A+)",
            )
        orders = (Concatenation(order) for order in Permutation(parts).orders)
        return self._fork([self.write(o, following, excluded=excluded) for o in orders])

    def _orders(self, parts: tuple[RowTerm, ...], following: int, excluded: bool) -> int:
        """Orders of parts that have one way each: those with the same parts behind them share
        their steps. (Of others the order counts for more than how a part is matched.)"""
        known: dict[frozenset[int], int] = {frozenset(): following}

        def written(left: frozenset[int]) -> int:
            if left not in known:
                known[left] = self._fork(
                    [
                        self.write(parts[k], written(left - {k}), excluded=excluded)
                        for k in sorted(left)
                    ]
                )
            return known[left]

        if len(parts) > _ORDERED:
            raise QueryError(f"PERMUTE takes at most {_ORDERED} parts")
        return written(frozenset(range(len(parts))))

    def _repeated(self, term: Repetition, following: int, excluded: bool) -> int:
        def fork(on: int, out: int, kind: str = "fork") -> _Step:
            first, second = (on, out) if term.greedy else (out, on)
            return _Step(kind, first, second, out)

        first, least = following, term.least
        if term.most is not None:
            for _ in range(term.most - term.least):
                again = self.write(term.part, first, excluded=excluded)
                first = self.add(fork(again, following))
        else:
            loop = self.add(_Step("loop"))
            again = self.write(term.part, loop, excluded=excluded)
            self._steps[loop] = fork(again, following, "loop")
            first, least = (again, least - 1) if least else (loop, 0)
        for _ in range(least):
            first = self.write(term.part, first, excluded=excluded)
        return first

    def automaton(self, first: int) -> Automaton:
        numbers, places = {first: 0}, [first]
        entries: list[tuple[Choice, ...]] = []
        count = 0
        while len(entries) < len(places):
            choices = []
            for step, at_start, at_end in self._reached(places[len(entries)]):
                if step.kind == "accept":
                    choices.append(Choice(END, at_start=at_start, at_end=at_end))
                    continue
                if at_end:
                    continue  # no row comes behind the last one
                if step.following not in numbers:
                    numbers[step.following] = len(places)
                    places.append(step.following)
                entry = numbers[step.following]
                choices.append(Choice(step.variable, entry, step.excluded, at_start))
            entries.append(tuple(_needed(choices)))
            count += len(entries[-1])
            if count > _CHOICES:
                raise _too_large()
        return Automaton(self.variables, tuple(entries))

    def _reached(self, place: int) -> list[tuple[_Step, bool, bool]]:
        """The rows and ends that can be reached without a row, the preferred first.

        What was seen with the same anchors before it gains nothing. A loop that is come back to
        has had a round without a row, and is left.
        """
        found: list[tuple[_Step, bool, bool]] = []
        seen: set[tuple[int, bool, bool, bool]] = set()
        path: set[int] = set()
        stack = [(place, False, False, False)]  # a step, the anchors, whether it is done
        while stack:
            number, at_start, at_end, done = stack.pop()
            if done:
                path.discard(number)
                continue
            step = self._steps[number]
            again = number in path
            if again and step.kind != "loop":
                continue
            if (number, at_start, at_end, again) in seen:
                continue
            seen.add((number, at_start, at_end, again))
            if len(seen) > _CLOSE:
                raise _too_large()
            if again:
                stack.append((step.leaves, at_start, at_end, False))
                continue
            path.add(number)
            stack.append((number, at_start, at_end, True))
            match step.kind:
                case "fork" | "loop":
                    stack.append((step.other, at_start, at_end, False))
                    stack.append((step.following, at_start, at_end, False))
                case "start":
                    stack.append((step.following, True, at_end, False))
                case "end":
                    stack.append((step.following, at_start, True, False))
                case _:
                    found.append((step, at_start, at_end))
        return found


def _merged(term: RowTerm) -> RowTerm:
    """The term with repetitions of one variable as one: its rows are counted once, in the same
    order of preference, so that an entry has few choices.

    >>> _merged(Concatenation((Repetition(Repetition(Row("A"), 0, 1), 9, 9), Row("A"))))
    Repetition(part=Row(variable='A'), least=1, most=10, greedy=True)
    """
    match term:
        case Repetition(part=part, most=int() as most):
            inner = _merged(part)
            counted = _counted(inner)
            if counted is not None:
                row, least_inner, most_inner, greedy = counted
                fixed = term.least == most
                same = fixed or greedy is None or greedy == term.greedy
                if same and (fixed or least_inner <= 1):
                    prefers = term.greedy if not fixed or greedy is None else greedy
                    return Repetition(row, term.least * least_inner, most * most_inner, prefers)
            return replace(term, part=inner)
        case Repetition(part=part) | Exclusion(part=part):
            return replace(term, part=_merged(part))
        case Concatenation(parts=parts):
            return _joined([_merged(part) for part in parts])
        case Alternation(parts=parts) | Permutation(parts=parts):
            return replace(term, parts=tuple(map(_merged, parts)))
        case _:
            return term


def _joined(parts: list[RowTerm]) -> RowTerm:
    """Parts one after the other; neighbours that repeat the same variable are one."""
    found: list[RowTerm] = []
    for part in parts:
        before, now = _counted(found[-1]) if found else None, _counted(part)
        if before is not None and now is not None and before[0].variable == now[0].variable:
            greedy = {before[3], now[3]} - {None}
            if len(greedy) < 2:
                least, most = before[1] + now[1], before[2] + now[2]
                found[-1] = Repetition(now[0], least, most, False not in greedy)
                continue
        found.append(part)
    return found[0] if len(found) == 1 else Concatenation(tuple(found))


def _counted(term: RowTerm) -> tuple[Row, int, int, bool | None] | None:
    """A variable and how often it is repeated, greedily or not; None: it is always the same."""
    match term:
        case Row():
            return term, 1, 1, None
        case Repetition(part=Row() as row, least=least, most=int() as most, greedy=greedy):
            return row, least, most, None if least == most else greedy
        case _:
            return None


def _too_large() -> QueryError:
    return QueryError(
        "the pattern is too large: expanded, it has too many ways to continue from one row",
        hint="use smaller numbers in {n,m}, and fewer optional parts",
    )


def _one_way(term: RowTerm) -> bool:
    """Whether there is one way to match a term."""
    match term:
        case Row() | Nothing() | Anchor():
            return True
        case Concatenation(parts=parts):
            return all(map(_one_way, parts))
        case Repetition(part=part, least=least, most=most):
            return least == most and _one_way(part)
        case Exclusion(part=part):
            return _one_way(part)
        case Alternation() | Permutation():
            return False


def _needed(choices: list[Choice]) -> list[Choice]:
    """The choices without those that are never taken: behind a certain end, and repetitions."""
    kept: dict[Choice, None] = {}
    for choice in choices:
        plain = Choice(choice.variable, choice.entry, choice.excluded)
        if choice in kept or plain in kept:
            continue
        kept[choice] = None
        if plain == choice and choice.variable == END:
            break
    return list(kept)
