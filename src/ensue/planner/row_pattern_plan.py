"""Plans a MATCH_RECOGNIZE clause: its automaton, predicates by row and by match, lookback, and types."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import TypeGuard

from ensue.cached import cached_property
from ensue.errors import QueryError
from ensue.ir.expression import Expr, FieldRef, Literal
from ensue.ir.row_pattern import (
    CLASSIFIER,
    MATCH_COLUMNS,
    OPERAND,
    ROW,
    Alternation,
    Concatenation,
    EmptyRowPattern,
    Exclusion,
    MatchNumber,
    Navigation,
    PartitionAnchor,
    Permutation,
    Repetition,
    RowExpression,
    RowOperand,
    RowPatternQuery,
    RowTerm,
    RowVariable,
    collect_variables,
    iterate_terms,
    reads_match_columns,
)
from ensue.ir.traversal import get_conjuncts, iterate_nodes, rewrite_expr
from ensue.schema import ValueKind

_VARIABLES = 60  # each is a bit of 64
_PERMUTED = 6  # parts of PERMUTE whose orders are all expanded
_ORDERED = 10
_STEPS = 200_000  # of an expanded pattern
_CLOSE = 20_000  # steps reachable from one position without a row
_CHOICES = 2_000_000  # of all entries together

END = -1  # the variable of a choice that ends the match


@dataclass(frozen=True, slots=True)
class RowTransition:
    """A transition: a row of a variable, or the end of the match."""

    variable: int  # its number; END: the match is complete
    entry: int = 0  # the target of the row
    excluded: bool = False
    at_start: bool = False  # only before the first row of the partition: ^
    at_end: bool = False  # only after its last row: $


@dataclass(frozen=True, slots=True)
class RowPatternAutomaton:
    """A row pattern as an automaton whose transitions are in the order of preference.

    An *entry* is a position in the pattern between two rows. Its choices list the possible next steps:
    a row of a variable, which leads to another entry, or the end of the match. The first choice that
    leads to a match is the one that the SQL standard prefers. A match begins at the first entry.

    >>> pattern = Concatenation((Repetition(RowVariable("A"), 1, None), RowVariable("B")))
    >>> for choices in build_row_automaton(pattern).entries:
    ...     print([(choice.variable, choice.entry) for choice in choices])
    [(0, 1)]
    [(0, 1), (1, 2)]
    [(-1, 0)]
    """

    variables: tuple[str, ...]
    entries: tuple[tuple[RowTransition, ...], ...]

    @property
    def reads_end(self) -> bool:
        """Whether it reads the end of a partition."""
        return any(choice.at_end for choices in self.entries for choice in choices)

    @property
    def reads_start(self) -> bool:
        return any(choice.at_start for choices in self.entries for choice in choices)

    @property
    def longest(self) -> int | None:
        """The maximum number of rows of a match; None: unbounded."""
        following = {
            number: [choice.entry for choice in choices if choice.variable != END]
            for number, choices in enumerate(self.entries)
        }
        rows: dict[int, int] = {}
        try:
            for entry in TopologicalSorter(following).static_order():
                rows[entry] = max((1 + rows[other] for other in following[entry]), default=0)
        except CycleError:
            return None  # a loop, and each iteration takes a row
        return rows[0]


@dataclass(slots=True)
class _Step:
    """One instruction: a row, a fork with its first branch preferred, an anchor, or the end.

    A loop is a fork with a branch that leads back to it.
    """

    kind: str  # "row", "fork", "loop", "start", "end", "accept"
    following: int = -1
    other: int = -1
    leaves: int = -1  # of a loop: the step after it
    variable: int = -1
    excluded: bool = False


def build_row_automaton(pattern: RowTerm) -> RowPatternAutomaton:
    """Builds the automaton of a pattern."""
    variables = collect_variables(pattern)
    if len(variables) > _VARIABLES:
        raise QueryError(
            f"a pattern has at most {_VARIABLES} variables, and this one has {len(variables)}",
            hint="use one variable for rows of one kind; a SUBSET groups several",
        )
    writer = _Writer(variables)
    accept = writer.add(_Step("accept"))
    first = writer.write(_merge_repetitions(pattern), accept, excluded=False)
    return writer.automaton(first)


class _Writer:
    def __init__(self, variables: tuple[str, ...]) -> None:
        self.variables = variables
        self._numbers = {name: number for number, name in enumerate(variables)}
        self._steps: list[_Step] = []

    def add(self, step: _Step) -> int:
        if len(self._steps) > _STEPS:
            raise _build_size_error()
        self._steps.append(step)
        return len(self._steps) - 1

    def write(self, term: RowTerm, following: int, *, excluded: bool) -> int:
        """Writes a term that continues with `following`, and returns its first step."""
        match term:
            case RowVariable(variable=variable):
                number = self._numbers[variable]
                return self.add(_Step("row", following, variable=number, excluded=excluded))
            case EmptyRowPattern():
                return following
            case PartitionAnchor(at=place):
                return self.add(_Step("start" if place == "start" else "end", following))
            case Concatenation(parts=parts):
                for part in reversed(parts):
                    following = self.write(part, following, excluded=excluded)
                return following
            case Alternation(parts=parts):
                return self._fork([self.write(p, following, excluded=excluded) for p in parts])
            case Permutation(parts=parts):
                return self._write_permutation(parts, following, excluded)
            case Exclusion(part=part):
                return self.write(part, following, excluded=True)
            case Repetition():
                return self._write_repetition(term, following, excluded)

    def _fork(self, branches: list[int]) -> int:
        first = branches[-1]
        for branch in reversed(branches[:-1]):
            first = self.add(_Step("fork", branch, first))
        return first

    def _write_permutation(self, parts: tuple[RowTerm, ...], following: int, excluded: bool) -> int:
        if all(map(_is_deterministic, parts)):
            return self._orders(parts, following, excluded)
        if len(parts) > _PERMUTED:
            raise QueryError(
                f"PERMUTE takes at most {_PERMUTED} parts that can be matched in several ways",
                hint="write the orders that you mean as alternatives: (A+ B | B A+)",
            )
        orders = (Concatenation(order) for order in Permutation(parts).orders)
        return self._fork([self.write(o, following, excluded=excluded) for o in orders])

    def _orders(self, parts: tuple[RowTerm, ...], following: int, excluded: bool) -> int:
        """Writes all orders of unambiguous parts; orders with the same remaining parts share
        their steps. (For ambiguous parts the order has precedence over the match of a part.)"""
        known: dict[frozenset[int], int] = {frozenset(): following}

        def write(remaining: frozenset[int]) -> int:
            if remaining not in known:
                known[remaining] = self._fork(
                    [self.write(parts[k], write(remaining - {k}), excluded=excluded) for k in sorted(remaining)]
                )
            return known[remaining]

        if len(parts) > _ORDERED:
            raise QueryError(f"PERMUTE takes at most {_ORDERED} parts")
        return write(frozenset(range(len(parts))))

    def _write_repetition(self, term: Repetition, following: int, excluded: bool) -> int:
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

    def automaton(self, first: int) -> RowPatternAutomaton:
        numbers, positions = {first: 0}, [first]
        entries: list[tuple[RowTransition, ...]] = []
        count = 0
        while len(entries) < len(positions):
            choices = []
            for step, at_start, at_end in self._reachable(positions[len(entries)]):
                if step.kind == "accept":
                    choices.append(RowTransition(END, at_start=at_start, at_end=at_end))
                    continue
                if at_end:
                    continue  # no row follows the last one
                if step.following not in numbers:
                    numbers[step.following] = len(positions)
                    positions.append(step.following)
                entry = numbers[step.following]
                choices.append(RowTransition(step.variable, entry, step.excluded, at_start))
            entries.append(tuple(_drop_unreachable(choices)))
            count += len(entries[-1])
            if count > _CHOICES:
                raise _build_size_error()
        return RowPatternAutomaton(self.variables, tuple(entries))

    def _reachable(self, position: int) -> list[tuple[_Step, bool, bool]]:
        """The rows and ends that are reachable without a row, the preferred first.

        A step visited before with the same anchors is skipped. A loop that is reached again has
        had an iteration without a row, and is left.
        """
        reachable: list[tuple[_Step, bool, bool]] = []
        seen: set[tuple[int, bool, bool, bool]] = set()
        path: set[int] = set()
        stack = [(position, False, False, False)]  # a step, the anchors, whether it is done
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
                raise _build_size_error()
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
                    reachable.append((step, at_start, at_end))
        return reachable


def _merge_repetitions(term: RowTerm) -> RowTerm:
    """Merges nested and adjacent repetitions of one variable, which keeps the order of preference,
    so that an entry has few choices.

    >>> _merge_repetitions(Concatenation((Repetition(Repetition(RowVariable("A"), 0, 1), 9, 9), RowVariable("A"))))
    Repetition(part=RowVariable(variable='A'), least=1, most=10, greedy=True)
    """
    match term:
        case Repetition(part=part, most=int() as most):
            inner = _merge_repetitions(part)
            counted = _match_repetition(inner)
            if counted is not None:
                row, least_inner, most_inner, greedy = counted
                fixed = term.least == most
                same = fixed or greedy is None or greedy == term.greedy
                if same and (fixed or least_inner <= 1):
                    prefers = term.greedy if not fixed or greedy is None else greedy
                    return Repetition(row, term.least * least_inner, most * most_inner, prefers)
            return replace(term, part=inner)
        case Repetition(part=part) | Exclusion(part=part):
            return replace(term, part=_merge_repetitions(part))
        case Concatenation(parts=parts):
            return _concatenate([_merge_repetitions(part) for part in parts])
        case Alternation(parts=parts) | Permutation(parts=parts):
            return replace(term, parts=tuple(map(_merge_repetitions, parts)))
        case _:
            return term


def _concatenate(parts: list[RowTerm]) -> RowTerm:
    """Concatenates parts; adjacent repetitions of the same variable become one."""
    merged: list[RowTerm] = []
    for part in parts:
        before, now = _match_repetition(merged[-1]) if merged else None, _match_repetition(part)
        if before is not None and now is not None and before[0].variable == now[0].variable:
            greedy = {before[3], now[3]} - {None}
            if len(greedy) < 2:
                least, most = before[1] + now[1], before[2] + now[2]
                merged[-1] = Repetition(now[0], least, most, False not in greedy)
                continue
        merged.append(part)
    return merged[0] if len(merged) == 1 else Concatenation(tuple(merged))


def _match_repetition(term: RowTerm) -> tuple[RowVariable, int, int, bool | None] | None:
    """A variable and its repetition; the last value is None if the count is fixed."""
    match term:
        case RowVariable():
            return term, 1, 1, None
        case Repetition(part=RowVariable() as row, least=least, most=int() as most, greedy=greedy):
            return row, least, most, None if least == most else greedy
        case _:
            return None


def _build_size_error() -> QueryError:
    return QueryError(
        "the pattern is too large: expanded, it has too many ways to continue from one row",
        hint="use smaller numbers in {n,m}, and fewer optional parts",
    )


def _is_deterministic(term: RowTerm) -> bool:
    """Whether a term can be matched in one way only."""
    return not any(
        isinstance(part, Alternation | Permutation) or (isinstance(part, Repetition) and part.least != part.most)
        for part in iterate_terms(term)
    )


def _drop_unreachable(choices: list[RowTransition]) -> list[RowTransition]:
    """The choices without unreachable ones: those after an unconditional end, and duplicates."""
    needed: dict[RowTransition, None] = {}
    for choice in choices:
        plain = RowTransition(choice.variable, choice.entry, choice.excluded)
        if choice in needed or plain in needed:
            continue
        needed[choice] = None
        if plain == choice and choice.variable == END:
            break
    return list(needed)


@dataclass(frozen=True, slots=True)
class RowPredicates:
    """Predicates of a variable: on the row and its neighbours, and on the match."""

    alone: tuple[RowExpression, ...] = ()  # vectorised over columns, before the search
    matched: tuple[RowExpression, ...] = ()  # evaluated as rows are mapped


def _split(variable: str, value: RowExpression) -> RowPredicates:
    value = _resolve_classifier(variable, value)
    alone: list[RowExpression] = []
    matched: list[RowExpression] = []
    for conjunct in get_conjuncts(value.expr):
        part = _part(conjunct, value)
        decided = all(is_own_row(reach, variable) for reach in part.operands)
        (alone if decided else matched).append(part)
    return RowPredicates(tuple(alone), tuple(matched))


def _part(expr: Expr, value: RowExpression) -> RowExpression:
    """A part of a value, with only the reaches that it uses."""
    numbers: dict[int, int] = {}

    def renumber(node: Expr) -> Expr:
        if isinstance(node, FieldRef) and node.variable == OPERAND:
            number = numbers.setdefault(int(node.name or 0), len(numbers))
            return replace(node, name=str(number))
        return node

    rewritten = rewrite_expr(expr, renumber)
    return RowExpression(rewritten, tuple(value.operands[n] for n in numbers), expr.span or value.span)


def is_own_row(reach: RowOperand, variable: str) -> bool:
    """Whether a reach of a variable's predicate is the row to be mapped, or one of its neighbours
    in the partition."""
    return _is_near(reach, variable) and not reads_match_columns(reach)


def _is_near(reach: RowOperand, variable: str) -> TypeGuard[Navigation]:
    return (
        isinstance(reach, Navigation)
        and not reach.first
        and reach.offset == 0
        and (not reach.variables or variable in reach.variables)
    )


def _resolve_classifier(variable: str, value: RowExpression) -> RowExpression:
    """Replaces CLASSIFIER() of the row to be mapped by the variable."""

    def resolve(reach: RowOperand) -> RowOperand:
        if not _is_near(reach, variable) or reach.shift or not reads_match_columns(reach):
            return reach

        def to_literal(node: Expr) -> Expr:
            if isinstance(node, FieldRef) and node.name == CLASSIFIER:
                return Literal(variable)
            return node

        return replace(reach, expr=rewrite_expr(reach.expr, to_literal))

    return replace(value, operands=tuple(map(resolve, value.operands)))


def compute_shifts(reaches: Iterator[RowOperand]) -> tuple[int, int]:
    """The number of rows read before and after those of a match."""
    back = ahead = 0
    for reach in reaches:
        if isinstance(reach, Navigation):
            back, ahead = max(back, -reach.shift), max(ahead, reach.shift)
    return back, ahead


def find_row_columns(expr: Expr) -> set[str]:
    """The columns of one row that an expression reads."""
    return {
        node.name
        for node in iterate_nodes(expr)
        if isinstance(node, FieldRef) and node.variable == ROW and node.name is not None
        if node.name not in MATCH_COLUMNS
    }


@dataclass(frozen=True)
class RowPatternPlan:
    """A clause that is checked against its table, with derived properties.

    It is pure and can be sent to other processes, which compile its kernels.
    """

    row_pattern: RowPatternQuery
    columns: Mapping[str, ValueKind]  # of the table

    @cached_property
    def automaton(self) -> RowPatternAutomaton:
        return build_row_automaton(self.row_pattern.pattern)

    @cached_property
    def conditions(self) -> tuple[RowPredicates, ...]:
        """By variable, in the order of the automaton."""
        defined = self.row_pattern.conditions
        return tuple(
            _split(variable, defined[variable]) if variable in defined else RowPredicates()
            for variable in self.row_pattern.variables
        )

    @property
    def is_decided_by_rows(self) -> bool:
        """Whether each row alone decides to which variables it can be mapped."""
        return self.row_pattern.within is None and not any(c.matched for c in self.conditions)

    @cached_property
    def back(self) -> int:
        """The number of rows before a match that its predicates and measures read."""
        return compute_shifts(self._reaches())[0]

    @cached_property
    def ahead(self) -> int:
        """The number of rows after a row that its predicates read."""
        reaches = (r for d in self.row_pattern.defines for r in d.value.operands)
        return compute_shifts(reaches)[1]

    @property
    def awaited(self) -> int:
        """The number of rows that must follow a row before it may end a match."""
        reaches = (r for m in self.row_pattern.measures for r in m.value.operands)
        return max(self.ahead, compute_shifts(reaches)[1])

    @cached_property
    def reads_match_number(self) -> bool:
        """Whether it reads MATCH_NUMBER()."""
        return any(isinstance(reach, MatchNumber) for reach in self._reaches())

    def _reaches(self) -> Iterator[RowOperand]:
        for value in self.row_pattern.values:
            yield from value.operands
