"""Builds queries call by call: `ensue.pattern("a", "A").followed_by("b", "B")`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Self, TypeAlias, TypeVar

from ensue.analyzer.query import check_structure
from ensue.brief_tracebacks import shorten_class_tracebacks, shorten_tracebacks
from ensue.errors import QueryError
from ensue.ir import selection, traversal
from ensue.ir.expression import Aggregate, Binary, EventPosition, Expr, FieldRef, Literal
from ensue.ir.pattern import (
    UNTIL,
    And,
    Atom,
    Interval,
    Kleene,
    LoopExit,
    MaxGap,
    Maybe,
    Not,
    Or,
    Pattern,
    Repeat,
    Seq,
    Then,
)
from ensue.ir.query import Equivalence, Limit, Query, ResultModifiers, ReturnItem
from ensue.ir.traits import NodeForm, build_group, get_form, get_parts, is_event, is_negation, is_optional, is_sequence
from ensue.notebook_repr import TextRepr
from ensue.printing.pattern_printer import format_pattern

Length = str | timedelta | int | float
Part: TypeAlias = "str | PatternBuilder"
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class LoopSpec:
    """How often a step repeats, and how one repetition follows another."""

    least: int
    most: int | None
    inner: selection.Strategy = selection.Strategy.NEXT
    pause: MaxGap | None = None
    leave: LoopExit = LoopExit.FORK
    until: Not | None = None


@dataclass(frozen=True, slots=True)
class BuilderStep:
    """One step of a pattern: an event, or a group of steps."""

    part: Pattern
    how: selection.Strategy | None = None  # how it follows the previous step; None: it is the first
    negated: bool = False
    pause: MaxGap | None = None
    loop: LoopSpec | None = None
    optional: bool = False

    @property
    def about(self) -> str | None:
        """The variable that field names without a prefix refer to."""
        return self.part.variable if is_event(self.part) else None


@dataclass(frozen=True, slots=True)
class StepCondition:
    """A condition, and the variable it applies to: each of its events, if it repeats."""

    expr: Expr
    about: str | None = None


def build_pattern(steps: Sequence[BuilderStep]) -> Pattern:
    """Builds the pattern of a list of steps."""
    return build_group(Seq, [_build_part(step, steps[:index]) for index, step in enumerate(steps)])


def _build_part(step: BuilderStep, before: Sequence[BuilderStep]) -> Pattern:
    if step.negated:
        return _build_absence(step, before)
    part = step.part if step.loop is None else _build_loop(step.part, step.loop, step.optional)
    if step.optional and not (step.loop is not None and step.loop.least <= 1):
        part = part if get_form(part) is NodeForm.OPTION else Maybe(part)
    if step.how is None or (step.how is selection.Strategy.ANY and not _needs_word(part, step, before)):
        return part
    return Then(part, step.how, step.pause)


def _needs_word(part: Pattern, step: BuilderStep, before: Sequence[BuilderStep]) -> bool:
    """Whether THEN ANY differs from a comma, which more structures support.

    A part that may be the first of its group would follow as the group does. A negation before an
    optional part would also apply if that is missing, and one at an edge of the part up to the
    next part.
    """
    first = all(is_optional(_build_part(earlier, ())) for earlier in before if not earlier.negated)
    guarded = bool(before) and before[-1].negated and is_optional(part)
    edges = is_sequence(part) and any(map(is_negation, get_parts(part)))
    return step.pause is not None or first or guarded or edges


def _build_loop(part: Pattern, loop: LoopSpec, optional: bool) -> Pattern:
    least = 0 if optional and loop.least == 1 else loop.least
    plain = loop.inner is selection.Strategy.ANY and loop.pause is None
    inner = None if plain else loop.inner
    repeated = (
        Kleene(part, least, loop.most, leave=loop.leave)
        if is_event(part)
        else Repeat(part, least, loop.most, loop.leave)
    )
    return replace(repeated, inner=inner, pause=loop.pause, until=loop.until)


def _build_absence(step: BuilderStep, before: Sequence[BuilderStep]) -> Pattern:
    if step.how is not None:
        return Then(Not(step.part), step.how)
    if step.pause is None:
        return Not(step.part)
    previous = next((earlier for earlier in reversed(before) if not earlier.negated), None)
    if previous is None or previous.about is None:
        raise QueryError(
            ".within_previous(...) of an absence counts from the event before it, but that is a group here",
            hint="give the times in the text of the query: !X x FROM b.end TO b.end + 5 minutes",
        )
    since = FieldRef(previous.about, "end", EventPosition.ONLY if previous.loop is None else EventPosition.LAST)
    until = Binary("+", since, Literal(selection.convert_length(step.pause)))
    return Not(step.part, interval=Interval(since, until))


def build_until(part: Pattern, stop: Expr) -> tuple[Not, Expr]:
    """Builds the event that ends a loop by a condition, and the condition on it."""
    atoms_by_name = {atom.variable: atom for atom in traversal.iterate_atoms(part)}
    referenced = {
        reference.variable
        for reference in traversal.iterate_references(stop)
        if isinstance(reference, FieldRef)
        and reference.at is EventPosition.ONLY
        and reference.variable in atoms_by_name
    }
    if len(referenced) != 1:
        raise QueryError(
            ".until(...) needs one event of the loop, and it is not clear which one",
            hint='as in .until("b.price > 3"); an event of another type: .until("u", "X")',
        )
    (variable,) = referenced

    def renamed(field: FieldRef) -> FieldRef:
        if field.variable == variable and field.at is EventPosition.ONLY:
            return replace(field, variable=variable + UNTIL)
        return field

    return Not(Atom(atoms_by_name[variable].type, variable + UNTIL)), _replace_fields(stop, renamed)


def index_condition(condition: StepCondition, pattern: Pattern) -> Expr:
    """Writes `b[i].x` for `b.x` in a condition on b, if b has several events.

    The same holds for variables that each round of its repeated group binds once.
    """
    if condition.about is None:
        return condition.expr
    indexed = _find_aligned(condition.about, pattern)
    if condition.about in traversal.get_kleene_variables(pattern):
        indexed |= {condition.about}

    def index(field: FieldRef) -> FieldRef:
        is_indexed = field.at is EventPosition.ONLY and field.variable in indexed
        return replace(field, at=EventPosition.CURRENT) if is_indexed else field

    return _replace_fields(condition.expr, index)


def _find_aligned(variable: str, pattern: Pattern) -> frozenset[str]:
    """Returns the variables that each round of the innermost loop around a variable binds once."""
    variables: frozenset[str] = frozenset()
    for loop, names in zip(traversal.iterate_loops(pattern), traversal.iterate_aligned_variables(pattern), strict=True):
        if variable in {atom.variable for atom in traversal.iterate_atoms(loop)}:
            negated = variable not in {atom.variable for atom in traversal.iterate_positive_atoms(loop)}
            variables = names if negated or variable in names else frozenset()
    return variables


def _replace_fields(expr: Expr, change: Callable[[FieldRef], FieldRef]) -> Expr:
    """Replaces the fields of an expression, except inside aggregates."""
    match expr:
        case Aggregate():
            return expr
        case FieldRef():
            return change(expr)
        case _:
            inside = tuple(_replace_fields(operand, change) for operand in traversal.get_operands(expr))
            return traversal.replace_operands(expr, inside)


@shorten_class_tracebacks
@dataclass(frozen=True, slots=True, repr=False)
class PatternBuilder(TextRepr):
    """An immutable query under construction: every call returns a new builder.

    Calls after a part (`where`, `one_or_more`, `optional`, `until`, ...) apply to that part;
    `within`, `partition_by`, `after_match` and so on apply to the whole query. A builder is
    accepted wherever the text of a query is; `ensue.show` prints that text.

    >>> import ensue
    >>> rising = ensue.pattern("a", "Trade").one_or_more().followed_by("b", "Trade")
    >>> rising = rising.where("b.price > a[a.LEN].price").partition_by("symbol")
    >>> print(ensue.show(rising.within("5 minutes")))
    PATTERN SEQ((Trade a THEN NEXT)+ THEN NEXT Trade b)
    WHERE [symbol]
        and b.price > a[a.LEN].price
    WITHIN 5 minutes
    """

    steps: tuple[BuilderStep, ...]
    conditions: tuple[StepCondition, ...] = ()
    clauses: Query = field(default=Query(Atom("", "")))  # without the pattern

    def then(self, part: "Part", type: str | None = None, /, *, strict: bool = False) -> Self:
        """Appends the very next event of the partition; with `strict`, of the whole stream."""
        how = selection.Strategy.STRICT if strict else selection.Strategy.PARTITION
        return self._append("then", part, type, how)

    def next(self, part: "Part", type: str | None = None, /, *, strict: bool = False) -> Self:
        """Does the same as `then`, under Flink's name."""
        how = selection.Strategy.STRICT if strict else selection.Strategy.PARTITION
        return self._append("next", part, type, how)

    def followed_by(self, part: "Part", type: str | None = None, /) -> Self:
        """Appends the next event that fits; other events may lie between."""
        return self._append("followed_by", part, type, selection.Strategy.NEXT)

    def followed_by_any(self, part: "Part", type: str | None = None, /) -> Self:
        """Appends any later event that fits, each in a separate match."""
        return self._append("followed_by_any", part, type, selection.Strategy.ANY)

    def not_next(self, part: "Part", type: str | None = None, /) -> Self:
        """Requires that the very next event is no such event."""
        return self._append("not_next", part, type, selection.Strategy.PARTITION, negated=True)

    def not_followed_by(self, part: "Part", type: str | None = None, /) -> Self:
        """Requires no such event up to the next part; at the end, up to the end of the window."""
        return self._append("not_followed_by", part, type, None, negated=True)

    def _append(
        self, call: str, part: "Part", type: str | None, how: selection.Strategy | None, negated: bool = False
    ) -> Self:
        step, conditions = _step(call, part, type, self._variables())
        steps = (*self.steps, replace(step, how=how, negated=negated))
        return replace(self, steps=steps, conditions=(*self.conditions, *conditions))

    def where(self, *conditions: str, **values: Any) -> Self:
        """Adds conditions that must all hold: `where("b.price > a.price", "b.kind = 'x'")`.

        A name without a field is a value of this call, `where("b.user = user", user=name)`, or
        else a field of the newest event: `where("price > 3")`. If that part repeats, the
        condition applies to each of its events.
        """
        from ensue.parser.fragment_parser import FragmentNames, read_condition

        if not conditions:
            raise _error("where", "the condition is missing", 'as in .where("b.price > 3")')
        added, equivalence = list(self.conditions), list(self.clauses.equivalence)
        names = FragmentNames(values, self._newest.about, self._variables())
        for text in conditions:
            conjuncts, fields = _read("where", read_condition, text, names)
            added += [StepCondition(expr, self._newest.about) for expr in conjuncts]
            equivalence += fields
        _require_used("where", names.list_unused())
        return replace(self, conditions=tuple(added))._set(equivalence=tuple(equivalence))

    def one_or_more(self, *, within: Length | None = None) -> Self:
        """Repeats the part; `within` bounds the time from one event to the next."""
        return self._repeat("one_or_more", 1, None, within)

    def zero_or_more(self, *, within: Length | None = None) -> Self:
        """Repeats the part any number of times, or not at all."""
        return self._repeat("zero_or_more", 0, None, within)

    def times(self, least: int, most: int | None = None, /, *, within: Length | None = None) -> Self:
        """Repeats the part exactly `least` times, or from `least` to `most` times."""
        return self._repeat("times", least, least if most is None else most, within)

    def times_or_more(self, least: int, /, *, within: Length | None = None) -> Self:
        """Repeats the part at least that often."""
        return self._repeat("times_or_more", least, None, within)

    def optional(self) -> Self:
        """Makes the part optional: matches with it and without it are both returned."""
        self._refuse_absence("optional")
        return self._replace_newest(optional=True)

    def greedy(self) -> Self:
        """Makes the loop continue as long as it can."""
        return self._replace_loop("greedy", leave=LoopExit.GREEDY)

    def reluctant(self) -> Self:
        """Makes the loop end as soon as it can."""
        return self._replace_loop("reluctant", leave=LoopExit.RELUCTANT)

    def consecutive(self, *, strict: bool = False) -> Self:
        """Allows no other event of the partition (with `strict`, of the stream) in the loop."""
        how = selection.Strategy.STRICT if strict else selection.Strategy.PARTITION
        return self._replace_loop("consecutive", inner=how)

    def allow_combinations(self) -> Self:
        """Allows the loop to skip events that would fit it."""
        return self._replace_loop("allow_combinations", inner=selection.Strategy.ANY)

    def until(self, what: str, type: str | None = None, /, **values: Any) -> Self:
        """Ends the loop at one of its events that fulfils a condition, or at another event.

        `until("price > 30")`, `until("u", "Stop")`; conditions on u go into
        `where("u.price > 30")`.
        """
        from ensue.parser.fragment_parser import FragmentNames, read_expression

        loop = self._loop("until")
        if type is not None:
            if values:
                raise _error("until", "an event takes no values", "put them into .where(...)")
            step, _ = _step("until", what, type, self._variables())
            return self._replace_newest(loop=replace(loop, until=Not(step.part)))
        names = FragmentNames(values, self._newest.about, self._variables())
        stop = _read("until", read_expression, what, names)
        _require_used("until", names.list_unused())
        ends, condition = build_until(self._newest.part, stop)
        changed = self._replace_newest(loop=replace(loop, until=ends))
        return replace(changed, conditions=(*self.conditions, StepCondition(condition)))

    def within_previous(self, length: Length, /) -> Self:
        """Bounds the time since the previous event."""
        if len(self.steps) == 1:
            raise _error("within_previous", "there is nothing before the first part", "call it on a later one")
        if self._newest.negated and self._newest.how is not None:
            raise _error(
                "within_previous",
                "not_next(...) is about the very next event, at any time",
                "call .not_followed_by(...)",
            )
        return self._replace_newest(pause=_pause("within_previous", length))

    def _repeat(self, call: str, least: int, most: int | None, within: Length | None) -> Self:
        self._refuse_absence(call)
        if self._newest.loop is not None:
            raise _error(call, "the number of repetitions is already set", "wrap it in a pattern(...)")
        counts: tuple[object, ...] = (least, most)
        for count in counts:
            if count is not None and (not isinstance(count, int) or isinstance(count, bool)):
                raise _error(call, f"{count!r} is not a whole number", "as in .times(2, 5)")
        if least < 0 or (most is not None and (most < least or most == 0)):
            raise _error(call, f"{least} to {most} times is not a valid range", "as in .times(2, 5)")
        pause = None if within is None else _pause(call, within)
        return self._replace_newest(loop=LoopSpec(least, most, pause=pause))

    def _replace_loop(self, call: str, **changes: Any) -> Self:
        return self._replace_newest(loop=replace(self._loop(call), **changes))

    def _loop(self, call: str) -> LoopSpec:
        loop = self._newest.loop
        if loop is None:
            raise _error(
                call,
                "it needs a loop, and the newest part is not one",
                "call .one_or_more(), .times(...) or .times_or_more(...) before it",
            )
        return loop

    def _refuse_absence(self, call: str) -> None:
        if self._newest.negated:
            raise _error(call, "the newest part must not occur at all", "call it after a part that does")

    def _replace_newest(self, **changes: Any) -> Self:
        return replace(self, steps=(*self.steps[:-1], replace(self._newest, **changes)))

    @property
    def _newest(self) -> BuilderStep:
        return self.steps[-1]

    # ------------------------------------------------------------ clauses of the whole query

    def within(self, length: Length, /, *, of: str | None = None) -> Self:
        """Sets the window: a timedelta, "5 minutes", "20 EVENTS", or a number.

        With `of`, it bounds only the time from the start of that event to the newest part.
        """
        if of is None:
            return self._clause("within", within=_window("within", length))
        about = self._newest.about
        if about is None or self._newest.negated or of not in self._variables():
            raise _error(
                "within",
                f"it needs the newest event and '{of}' before it",
                'as in .followed_by("b", "B").within("5 minutes", of="a")',
            )
        most = Literal(selection.convert_length(_pause("within", length)))
        ago = Binary("-", FieldRef(about, "end"), FieldRef(of, "start"))
        return replace(self, conditions=(*self.conditions, StepCondition(Binary("<=", ago, most), about)))

    def partition_by(self, *fields: str) -> Self:
        """Requires the same value in these fields of all events of a match: `[attr]`."""
        if not fields:
            raise _error("partition_by", "there is no field", 'as in .partition_by("user")')
        alike = tuple(Equivalence(_name("partition_by", name)) for name in fields)
        return self._set(equivalence=(*self.clauses.equivalence, *alike))

    def after_match(self, skip: str, variable: str | None = None, /, *, order: str = "end") -> Self:
        """Sets where the next match may begin: "past last event", "to next event", "to first" or
        "to last" of a variable. With `order="start"`, the match that starts first wins.
        """
        to = _parse_word("after_match", skip.removeprefix("skip "), selection.SkipTarget)
        if (variable is not None) != (to in (selection.SkipTarget.FIRST, selection.SkipTarget.LAST)):
            raise _error(
                "after_match",
                "'to first' and 'to last' need a variable, and the others take none",
                'as in .after_match("to first", "b")',
            )
        order_ = _parse_word("after_match", order, selection.MatchOrder)
        return self._clause("after_match", after=selection.AfterMatch(to, variable, order_))

    def returns(self, *columns: str, **named: str) -> Self:
        """Sets the columns: `returns("a.price", low="min(b.price)")`, or "EXISTS"."""
        from ensue.parser.fragment_parser import FragmentNames, read_column, read_expression

        names, returned, exists = FragmentNames({}), [*self.clauses.returns], self.clauses.exists
        for text in columns:
            column = _read("returns", read_column, text, names)
            if column is None:
                exists = True
            else:
                returned.append(column)
        for name, text in named.items():
            returned.append(ReturnItem(_read("returns", read_expression, text, names), name))
        return self._set(returns=tuple(returned), exists=exists)

    def all_events(self) -> Self:
        """Returns one row for each event of a match: `RETURN ... ALL EVENTS`."""
        return self._set(all_events=True)

    def group_by(self, *keys: str, **aggregates: str) -> Self:
        """Returns one row for each group of matches.

        `group_by("a.symbol", n="COUNT(*)", gain="avg(b.price - a.price)")`: the keys are columns
        of the result, and the aggregates combine the matches of a group.
        """
        if not keys:
            raise _error(
                "group_by",
                "there is no column to group by",
                'as in .group_by("a.symbol", n="COUNT(*)"); all matches together are .total(...)',
            )
        return self._add_grouping("group_by", keys, aggregates)

    def total(self, **aggregates: str) -> Self:
        """Aggregates all matches: `total(n="COUNT(*)", gain="avg(b.price - a.price)")`."""
        if not aggregates:
            raise _error("total", "there is no aggregate", 'as in .total(n="COUNT(*)")')
        return self._add_grouping("total", (), aggregates)

    def _add_grouping(self, call: str, keys: Sequence[str], aggregates: Mapping[str, str]) -> Self:
        from ensue.parser.fragment_parser import FragmentNames, read_column, read_group_column

        whole = self.clauses.whole or ResultModifiers()
        if whole.grouped or self.clauses.returns:
            raise _error(
                call,
                "the returned columns are already set",
                "leave out .returns(...): groups have the columns named here",
            )
        columns = [_read(call, read_column, text, FragmentNames({})) for text in keys]
        key_fields = tuple(FieldRef(column.name, None) for column in columns if column is not None)
        for name, text in aggregates.items():
            aggregate = _read(call, read_group_column, text, FragmentNames({}))
            columns.append(replace(aggregate, name=name))
        returns = tuple(column for column in columns if column is not None)
        return self._set(returns=returns, whole=replace(whole, keys=key_fields))

    def order_by(self, *keys: str) -> Self:
        """Sorts the whole result: `order_by("gain DESC", "a.symbol")`."""
        from ensue.parser.fragment_parser import FragmentNames, read_sort_key

        if not keys:
            raise _error("order_by", "there is no column", 'as in .order_by("gain DESC")')
        order = tuple(_read("order_by", read_sort_key, key, FragmentNames({})) for key in keys)
        whole = self.clauses.whole or ResultModifiers()
        return self._set(whole=replace(whole, order=(*whole.order, *order)))

    def first(self, count: int, /) -> Self:
        """Returns the first rows of the sorted result: `FETCH FIRST count ROWS ONLY`."""
        whole = self.clauses.whole or ResultModifiers()
        if whole.first is not None:
            raise _error("first", "it is already set", "call it once")
        return self._set(whole=replace(whole, first=count))

    def having(self, condition: str, /, **values: Any) -> Self:
        """Sets a condition on the whole match: `having("count(b) > most", most=5)`."""
        from ensue.parser.fragment_parser import FragmentNames, read_expression

        names = FragmentNames(values, None, self._variables())
        parsed = _read("having", read_expression, condition, names)
        _require_used("having", names.list_unused())
        return self._clause("having", having=parsed)

    def limit(self, count: int, /) -> Self:
        """Returns only the first `count` matches that share their last event."""
        return self._clause("limit", limit=Limit(count))

    def choose(self, which: str, /) -> Self:
        """Chooses among the matches that share their last event: "latest" or "once"."""
        return self._clause("choose", choose=selection.Choose(_parse_word("choose", which, selection.MatchChoice)))

    def named(self, name: str, /) -> Self:
        """Names the query and the complex events that it emits: `EVENT name AS ...`."""
        return self._clause("named", name=_name("named", name))

    def _clause(self, call: str, **changes: Any) -> Self:
        (name,) = changes
        if getattr(self.clauses, name) is not None:
            raise _error(call, "it is already set", "call it once")
        return self._set(**changes)

    def _set(self, **changes: Any) -> Self:
        return replace(self, clauses=replace(self.clauses, **changes))

    @property
    def pattern(self) -> Pattern:
        """The pattern in the IR, without conditions and clauses."""
        return build_pattern(self.steps)

    @property
    def text(self) -> str:
        """The text of the query, as `ensue.show` prints it."""
        from ensue.printing.pattern_printer import format_query

        return format_query(self.query)

    @property
    def query(self) -> Query:
        """The query in the IR; its errors point into its text."""
        from ensue.parser.pattern_parser import parse
        from ensue.printing.pattern_printer import format_query

        query = self._build_query()
        parsed = parse(format_query(query))
        assert parsed == check_structure(query), "a printed query parses to itself"
        return parsed

    def _build_query(self) -> Query:
        conditions = tuple(index_condition(c, self.pattern) for c in self.conditions)
        return replace(self.clauses, pattern=self.pattern, where=conditions)

    def _variables(self) -> list[str]:
        ends = [s.loop.until for s in self.steps if s.loop is not None and s.loop.until]
        parts = [*(step.part for step in self.steps), *ends]
        return [atom.variable for part in parts for atom in traversal.iterate_atoms(part)]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<ensue.pattern: {format_pattern(self.pattern)}>"


@shorten_tracebacks
def pattern(part: "Part", type: str | None = None, /) -> PatternBuilder:
    """Begins a query with an event, `pattern("a", "A")`, or with a group of parts.

    >>> print(pattern("a", "A").followed_by("b", "B").one_or_more().greedy().then("c", "C"))
    PATTERN SEQ(A a THEN NEXT (B b THEN NEXT)++ THEN C c)
    """
    step, conditions = _step("pattern", part, type, [])
    return PatternBuilder((step,), conditions)


@shorten_tracebacks
def one_of(*parts: "Part") -> PatternBuilder:
    """Exactly one of several parts.

    >>> print(pattern("a", "A").then(one_of(pattern("b", "B"), pattern("c", "C"))))
    PATTERN SEQ(A a THEN OR(B b, C c))
    """
    return _combine("one_of", Or, parts)


@shorten_tracebacks
def all_of(*parts: "Part") -> PatternBuilder:
    """All of several parts, in any order.

    >>> print(all_of("A", "B").within(5))
    PATTERN AND(A A, B B)
    WITHIN 5
    """
    return _combine("all_of", And, parts)


def _combine(call: str, kind: type[And] | type[Or], parts: tuple["Part", ...]) -> PatternBuilder:
    if len(parts) < 2:
        raise _error(call, "it needs two or more parts", 'as in one_of("B", "C")')
    taken: list[str] = []
    operands: list[Pattern] = []
    conditions: list[StepCondition] = []
    for part in parts:
        step, step_conditions = _step(call, part, None, taken)
        taken += [atom.variable for atom in traversal.iterate_atoms(step.part)]
        operands.append(step.part)
        conditions += step_conditions
    return PatternBuilder((BuilderStep(build_group(kind, operands)),), tuple(conditions))


def _step(call: str, part: "Part", type: str | None, taken: list[str]) -> tuple[BuilderStep, tuple[StepCondition, ...]]:
    """Converts the part passed to a call: an event with or without a name, or a group."""
    if not isinstance(part, PatternBuilder):
        name = _name(call, part)
        atom = Atom(name, _free(name, taken)) if type is None else Atom(_name(call, type), name)
        step, conditions = BuilderStep(atom), tuple[StepCondition, ...]()
    elif type is not None:
        raise _error(call, "a group has no type", f".{call}(group) is enough")
    elif part.clauses != Query(Atom("", "")):
        raise _error(
            call,
            "a group can only have parts and conditions, no settings of a whole query",
            "call .within(...), .partition_by(...) and the like on the whole pattern",
        )
    else:
        step, conditions = BuilderStep(part.pattern), part.conditions
    for atom in traversal.iterate_atoms(step.part):
        if atom.variable in taken:
            problem = f"two events are called '{atom.variable}'"
            raise _error(call, problem, "give one another name")
    return step, conditions


def _free(type: str, taken: list[str]) -> str:
    """Returns the type as name of an unnamed event, with a number if it is taken."""
    names = (type if number == 1 else f"{type}{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


def _name(call: str, name: object) -> str:
    if not isinstance(name, str) or not name:
        raise _error(call, f"{name!r} is not a name", "names and types must be strings")
    return name


def _read(call: str, read: Callable[..., Parsed], text: object, *arguments: Any) -> Parsed:
    """Parses a text argument; its errors name the call."""
    if not isinstance(text, str):
        raise _error(call, f"{text!r} is not a string", 'as in .where("b.price > 3")')
    try:
        return read(text, *arguments)
    except QueryError as error:
        error.problem = f".{call}(...): {error.problem}"
        raise error.at(None, text) from None


def _require_used(call: str, unused: list[str]) -> None:
    for name in unused:
        raise _error(
            call,
            f"{name}= is given, but the text does not use it",
            f"use a value by its plain name, as in b.price > {name}",
        )


def _window(call: str, length: object) -> selection.Window:
    from ensue.parser.fragment_parser import read_window

    match length:
        case timedelta():
            return selection.ByTime(length // timedelta(microseconds=1) * 1_000)
        case int() | float() if not isinstance(length, bool):
            return selection.ByUnits(length)
        case str():
            return _read(call, read_window, length)
        case _:
            problem = f"{length!r} is not a length of time"
            raise _error(call, problem, 'a timedelta, "5 minutes", or a number')


def _pause(call: str, length: object) -> MaxGap:
    window = _window(call, length)
    if isinstance(window, selection.ByEvents):
        raise _error(call, "a number of events is not a length of time", 'as in "5 minutes"')
    if selection.get_amount(window) <= 0:
        raise _error(call, f"{length!r} is not longer than zero", 'as in "5 minutes"')
    return window


Choices = TypeVar("Choices", selection.SkipTarget, selection.MatchOrder, selection.MatchChoice)


def _parse_word(call: str, word: object, choices: type[Choices]) -> Choices:
    for choice in choices:
        if isinstance(word, str) and word.upper() == choice.value:
            return choice
    words = ", ".join(f"'{choice.value.lower()}'" for choice in choices)
    raise _error(call, f"{word!r} is not a valid option", f"one of {words}")


def _error(call: str, problem: str, hint: str) -> QueryError:
    return QueryError(f".{call}(...): {problem}", hint=hint)
