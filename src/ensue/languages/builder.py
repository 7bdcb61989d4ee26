"""Queries that programs make, call by call: `ensue.pattern("a", "A").followed_by("b", "B")`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from ensue.algebra.check.query import check_structure
from ensue.algebra.form import grouped
from ensue.algebra.pattern import And, Atom, Leave, Not, Or, Pattern, Pause
from ensue.algebra.policy import AfterMatch, Choice, Choose, InOrderOf, SkipTo, Strategy
from ensue.algebra.predicate import Binary, Field, Literal
from ensue.algebra.query import Equivalence, Limit, Query, Returned, WholeResult
from ensue.algebra.text import show_pattern
from ensue.algebra.walk import atoms
from ensue.algebra.window import ByEvents, ByTime, ByUnits, Window, constant_of
from ensue.brief_errors import brief, brief_calls
from ensue.errors import QueryError
from ensue.languages.steps import Loop, Said, Step, ended_by, of_each, pattern_of
from ensue.rendering import ShownAsText

if TYPE_CHECKING:
    from ensue.languages.fragments import Names

Length = str | timedelta | int | float
Found = TypeVar("Found")


@brief_calls
@dataclass(frozen=True, slots=True, repr=False)
class PatternBuilder(ShownAsText):
    """A query that is being made. Every call gives a new one; the old one stays as it is.

    What is called behind a part (`where`, `one_or_more`, `optional`, `until`, ...) is about that
    part; `within`, `partition_by`, `after_match` and what follows are about the whole query. It
    may stand wherever the text of a query may; `ensue.show` gives the text.

    >>> import ensue
    >>> rising = ensue.pattern("a", "Trade").one_or_more().followed_by("b", "Trade")
    >>> rising = rising.where("b.price > a[a.LEN].price").partition_by("symbol")
    >>> print(ensue.show(rising.within("5 minutes")))
    PATTERN SEQ((Trade a THEN NEXT)+ THEN NEXT Trade b)
    WHERE [symbol]
        and b.price > a[a.LEN].price
    WITHIN 5 minutes
    """

    steps: tuple[Step, ...]
    said: tuple[Said, ...] = ()
    clauses: Query = field(default=Query(Atom("", "")))  # all of a query but its pattern

    # ------------------------------------------------------------------------------- parts

    def then(
        self,
        part: "str | PatternBuilder",
        type: str | None = None,
        /,
        *,
        strict: bool = False,
    ) -> "PatternBuilder":
        """The very next event of the partition; with `strict`, of the whole stream."""
        how = Strategy.STRICT if strict else Strategy.PARTITION
        return self._behind("then", part, type, how)

    def next(
        self, part: "str | PatternBuilder", type: str | None = None, /, *, strict: bool = False
    ) -> "PatternBuilder":
        """The same as `then`, by Flink's name for it."""
        how = Strategy.STRICT if strict else Strategy.PARTITION
        return self._behind("next", part, type, how)

    def followed_by(
        self, part: "str | PatternBuilder", type: str | None = None, /
    ) -> "PatternBuilder":
        """The first event behind the one before it that fits; others may lie between."""
        return self._behind("followed_by", part, type, Strategy.NEXT)

    def followed_by_any(
        self, part: "str | PatternBuilder", type: str | None = None, /
    ) -> "PatternBuilder":
        """Any event behind the one before it that fits, each in a match of its own."""
        return self._behind("followed_by_any", part, type, Strategy.ANY)

    def not_next(
        self, part: "str | PatternBuilder", type: str | None = None, /
    ) -> "PatternBuilder":
        """The very next event is no such event."""
        return self._behind("not_next", part, type, Strategy.PARTITION, negated=True)

    def not_followed_by(
        self, part: "str | PatternBuilder", type: str | None = None, /
    ) -> "PatternBuilder":
        """No such event up to the next part; at the end, up to the end of the window."""
        return self._behind("not_followed_by", part, type, None, negated=True)

    def _behind(
        self,
        call: str,
        part: "str | PatternBuilder",
        type: str | None,
        how: Strategy | None,
        negated: bool = False,
    ) -> "PatternBuilder":
        taken = self._variables()
        new, said = _step(call, part, type, taken)
        for variable in (atom.variable for atom in atoms(new.part)):
            if variable in taken:
                raise refused(call, f"two events are called '{variable}'", "give one another name")
        step = replace(new, how=how, negated=negated)
        return replace(self, steps=(*self.steps, step), said=(*self.said, *said))

    # ------------------------------------------------------------------------ of a part

    def where(self, *conditions: str, **values: Any) -> "PatternBuilder":
        """Conditions that all hold: `where("b.price > a.price", "b.kind = 'x'")`.

        A name without a field is a value of this call, `where("b.user = user", user=name)`, or
        else a field of the newest event: `where("price > 3")`. Where that has several events,
        the condition holds for each.
        """
        from ensue.languages.fragments import Names, read_condition

        if not conditions:
            raise refused("where", "the condition is missing", 'as in .where("b.price > 3")')
        said, alike = list(self.said), list(self.clauses.equivalence)
        names = Names(values, self._newest.about, self._variables())
        for text in conditions:
            found, fields = _read("where", read_condition, text, names)
            said += [Said(expr, self._newest.about) for expr in found]
            alike += fields
        _all_used("where", names)
        return replace(
            self, said=tuple(said), clauses=replace(self.clauses, equivalence=tuple(alike))
        )

    def one_or_more(self, *, within: Length | None = None) -> "PatternBuilder":
        """Once or more often; `within` is the longest time from one event to the next."""
        return self._looped("one_or_more", 1, None, within)

    def zero_or_more(self, *, within: Length | None = None) -> "PatternBuilder":
        """Not at all, or as often as one likes."""
        return self._looped("zero_or_more", 0, None, within)

    def times(
        self, least: int, most: int | None = None, /, *, within: Length | None = None
    ) -> "PatternBuilder":
        """So often, or from `least` to `most` times."""
        return self._looped("times", least, least if most is None else most, within)

    def times_or_more(self, least: int, /, *, within: Length | None = None) -> "PatternBuilder":
        """So often at least."""
        return self._looped("times_or_more", least, None, within)

    def optional(self) -> "PatternBuilder":
        """It may be missing: a match with it and one without are both found."""
        self._refuse_absence("optional")
        return self._changed(optional=True)

    def greedy(self) -> "PatternBuilder":
        """The loop goes on as long as it can."""
        return self._in_loop("greedy", leave=Leave.GREEDY)

    def reluctant(self) -> "PatternBuilder":
        """The loop ends as soon as it can."""
        return self._in_loop("reluctant", leave=Leave.RELUCTANT)

    def consecutive(self, *, strict: bool = False) -> "PatternBuilder":
        """No other event of the partition inside the loop; with `strict`, of the stream."""
        how = Strategy.STRICT if strict else Strategy.PARTITION
        return self._in_loop("consecutive", inner=how)

    def allow_combinations(self) -> "PatternBuilder":
        """The loop may pass over events that would fit it."""
        return self._in_loop("allow_combinations", inner=Strategy.ANY)

    def until(self, what: str, type: str | None = None, /, **values: Any) -> "PatternBuilder":
        """What ends the loop: an event of its own for which a condition holds, or another event.

        `until("price > 30")`, `until("u", "Stop")`; what u must be, `where("u.price > 30")` says.
        """
        from ensue.languages.fragments import Names, read_expression

        loop = self._loop("until")
        if type is not None:
            if values:
                raise refused("until", "an event takes no values", "put them into .where(...)")
            if what in self._variables():
                raise refused("until", f"two events are called '{what}'", "give one another name")
            ends = Not(Atom(_name("until", type), _name("until", what)))
            return self._changed(loop=replace(loop, until=ends))
        names = Names(values, self._newest.about, self._variables())
        stop = _read("until", read_expression, what, names)
        _all_used("until", names)
        ends, condition = ended_by(self._newest.part, stop)
        changed = self._changed(loop=replace(loop, until=ends))
        return replace(changed, said=(*self.said, Said(condition)))

    def within_previous(self, length: Length, /) -> "PatternBuilder":
        """At most so long behind the event before it."""
        if len(self.steps) == 1:
            raise refused(
                "within_previous",
                "there is nothing before the first part",
                "call it on a later one",
            )
        if self._newest.negated and self._newest.how is not None:
            raise refused(
                "within_previous",
                "not_next(...) is about the very next event, whenever that comes",
                "call .not_followed_by(...)",
            )
        return self._changed(pause=_pause("within_previous", length))

    def _looped(
        self, call: str, least: int, most: int | None, within: Length | None
    ) -> "PatternBuilder":
        self._refuse_absence(call)
        if self._newest.loop is not None:
            raise refused(
                call, "the number of repetitions is already set", "wrap it in a pattern(...)"
            )
        counts: tuple[object, ...] = (least, most)
        for count in counts:
            if count is not None and (not isinstance(count, int) or isinstance(count, bool)):
                raise refused(call, f"{count!r} is not a whole number", "as in .times(2, 5)")
        if least < 0 or (most is not None and (most < least or most == 0)):
            raise refused(
                call, f"{least} to {most} times is not a valid range", "as in .times(2, 5)"
            )
        pause = None if within is None else _pause(call, within)
        return self._changed(loop=Loop(least, most, pause=pause))

    def _in_loop(self, call: str, **changes: Any) -> "PatternBuilder":
        return self._changed(loop=replace(self._loop(call), **changes))

    def _loop(self, call: str) -> Loop:
        loop = self._newest.loop
        if loop is None:
            raise refused(
                call,
                "it needs a loop, and the newest part is not one",
                "call .one_or_more(), .times(...) or .times_or_more(...) before it",
            )
        return loop

    def _refuse_absence(self, call: str) -> None:
        if self._newest.negated:
            raise refused(
                call, "the newest part must not occur at all", "call it after a part that does"
            )

    def _changed(self, **changes: Any) -> "PatternBuilder":
        return replace(self, steps=(*self.steps[:-1], replace(self._newest, **changes)))

    @property
    def _newest(self) -> Step:
        return self.steps[-1]

    # ------------------------------------------------------------------- of the whole query

    def within(self, length: Length, /, *, of: str | None = None) -> "PatternBuilder":
        """All events in so much time: a timedelta, "5 minutes", "20 EVENTS", or a number.

        With `of`, only the newest part: no later than so long behind the start of that event.
        """
        if of is None:
            return self._clause("within", within=_window("within", length))
        about = self._newest.about
        if about is None or self._newest.negated or of not in self._variables():
            raise refused(
                "within",
                f"it needs the newest event and '{of}' before it",
                'as in .followed_by("b", "B").within("5 minutes", of="a")',
            )
        most = Literal(constant_of(_pause("within", length)))
        ago = Binary("-", Field(about, "end"), Field(of, "start"))
        return replace(self, said=(*self.said, Said(Binary("<=", ago, most), about)))

    def partition_by(self, *fields: str) -> "PatternBuilder":
        """All events of a match have the same value in these fields: `[attr]`."""
        if not fields:
            raise refused("partition_by", "there is no field", 'as in .partition_by("user")')
        alike = tuple(Equivalence(_name("partition_by", name)) for name in fields)
        equivalence = (*self.clauses.equivalence, *alike)
        return replace(self, clauses=replace(self.clauses, equivalence=equivalence))

    def after_match(
        self, skip: str, variable: str | None = None, /, *, order: str = "end"
    ) -> "PatternBuilder":
        """Where the next match may begin: "past last event", "to next event", "to first" or
        "to last" of a variable. `order="start"`: of two matches the one that begins first counts.
        """
        to = _chosen("after_match", skip.removeprefix("skip "), SkipTo)
        if (variable is not None) != (to in (SkipTo.FIRST, SkipTo.LAST)):
            raise refused(
                "after_match",
                "'to first' and 'to last' need a variable, and the others take none",
                'as in .after_match("to first", "b")',
            )
        order_ = _chosen("after_match", order, InOrderOf)
        return self._clause("after_match", after=AfterMatch(to, variable, order_))

    def returns(self, *columns: str, **named: str) -> "PatternBuilder":
        """The columns of the result: `returns("a.price", low="min(b.price)")`, or "EXISTS"."""
        from ensue.languages.fragments import Names, read_column, read_expression

        names, found, exists = Names({}), list(self.clauses.returns), self.clauses.exists
        for text in columns:
            column = _read("returns", read_column, text, names)
            if column is None:
                exists = True
            else:
                found.append(column)
        for name, text in named.items():
            found.append(Returned(_read("returns", read_expression, text, names), name))
        return replace(self, clauses=replace(self.clauses, returns=tuple(found), exists=exists))

    def all_events(self) -> "PatternBuilder":
        """One row for each event of a match: `RETURN ... ALL EVENTS`."""
        return replace(self, clauses=replace(self.clauses, all_events=True))

    def group_by(self, *keys: str, **aggregates: str) -> "PatternBuilder":
        """One row for each group of matches, and what is known of it.

        `group_by("a.symbol", n="COUNT(*)", gain="avg(b.price - a.price)")`: the keys are columns
        of the result, and the aggregates are over the matches of a group.
        """
        if not keys:
            raise refused(
                "group_by",
                "there is no column to make groups by",
                'as in .group_by("a.symbol", n="COUNT(*)"); all matches together are .total(...)',
            )
        return self._grouped("group_by", keys, aggregates)

    def total(self, **aggregates: str) -> "PatternBuilder":
        """One row for all matches: `total(n="COUNT(*)", gain="avg(b.price - a.price)")`."""
        if not aggregates:
            raise refused("total", "nothing is asked of all matches", 'as in .total(n="COUNT(*)")')
        return self._grouped("total", (), aggregates)

    def _grouped(
        self, call: str, keys: Sequence[str], aggregates: Mapping[str, str]
    ) -> "PatternBuilder":
        from ensue.languages.fragments import Names, read_column, read_grouped

        whole = self.clauses.whole or WholeResult()
        if whole.grouped or self.clauses.returns:
            raise refused(
                call,
                "what is returned is said already",
                "leave out .returns(...): groups have the columns that are named here",
            )
        columns = [_read(call, read_column, text, Names({})) for text in keys]
        named = tuple(Field(column.name, None) for column in columns if column is not None)
        for name, text in aggregates.items():
            found = _read(call, read_grouped, text, Names({}))
            columns.append(replace(found, name=name))
        returns = tuple(column for column in columns if column is not None)
        clauses = replace(self.clauses, returns=returns, whole=replace(whole, keys=named))
        return replace(self, clauses=clauses)

    def order_by(self, *keys: str) -> "PatternBuilder":
        """The order of the whole result: `order_by("gain DESC", "a.symbol")`."""
        from ensue.languages.fragments import Names, read_sort_key

        if not keys:
            raise refused("order_by", "there is no column", 'as in .order_by("gain DESC")')
        order = tuple(_read("order_by", read_sort_key, key, Names({})) for key in keys)
        whole = self.clauses.whole or WholeResult()
        whole = replace(whole, order=(*whole.order, *order))
        return replace(self, clauses=replace(self.clauses, whole=whole))

    def first(self, count: int, /) -> "PatternBuilder":
        """The first rows of the whole result, in its order: `FETCH FIRST count ROWS ONLY`."""
        whole = self.clauses.whole or WholeResult()
        if whole.first is not None:
            raise refused("first", "it is already set", "call it once")
        whole = replace(whole, first=count)
        return replace(self, clauses=replace(self.clauses, whole=whole))

    def having(self, condition: str, /, **values: Any) -> "PatternBuilder":
        """What a match as a whole must fulfil: `having("count(b) > most", most=5)`."""
        from ensue.languages.fragments import Names, read_expression

        names = Names(values, None, self._variables())
        found = _read("having", read_expression, condition, names)
        _all_used("having", names)
        return self._clause("having", having=found)

    def limit(self, count: int, /) -> "PatternBuilder":
        """Of the matches with one last event only the first so many."""
        return self._clause("limit", limit=Limit(count))

    def choose(self, which: str, /) -> "PatternBuilder":
        """Of the matches with one last event: "latest" or "once"."""
        return self._clause("choose", choose=Choose(_chosen("choose", which, Choice)))

    def named(self, name: str, /) -> "PatternBuilder":
        """The name of the query, and of the events it makes: `EVENT name AS ...`."""
        return self._clause("named", name=_name("named", name))

    def _clause(self, call: str, **changes: Any) -> "PatternBuilder":
        (name,) = changes
        if getattr(self.clauses, name) is not None:
            raise refused(call, "it is already set", "call it once")
        return replace(self, clauses=replace(self.clauses, **changes))

    # ---------------------------------------------------------------------------- results

    @property
    def pattern(self) -> Pattern:
        """Its parts in the algebra, without conditions and clauses."""
        return pattern_of(self.steps)

    @property
    def text(self) -> str:
        """The text of the query, as `ensue.show` gives it."""
        from ensue.languages.printing import show

        return show(self.query)

    @property
    def query(self) -> Query:
        """The query in the algebra. Errors in it point into its text."""
        from ensue.languages.patterns import parse
        from ensue.languages.printing import show

        found = self._unchecked()
        read = parse(show(found))
        assert read == check_structure(found), "a query is read as it is written"
        return read

    def _unchecked(self) -> Query:
        pattern = self.pattern
        conditions = tuple(of_each(one, pattern) for one in self.said)
        return replace(self.clauses, pattern=pattern, where=conditions)

    def _variables(self) -> list[str]:
        parts = [atom for step in self.steps for atom in atoms(step.part)]
        ends = [s.loop.until for s in self.steps if s.loop is not None and s.loop.until]
        return [atom.variable for atom in (*parts, *(a for end in ends for a in atoms(end)))]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<ensue.pattern: {show_pattern(self.pattern)}>"


@brief
def pattern(part: "str | PatternBuilder", type: str | None = None, /) -> PatternBuilder:
    """Begins a query with an event, `pattern("a", "A")`, or with a group of parts.

    >>> print(pattern("a", "A").followed_by("b", "B").one_or_more().greedy().then("c", "C"))
    PATTERN SEQ(A a THEN NEXT (B b THEN NEXT)++ THEN C c)
    """
    step, said = _step("pattern", part, type, ())
    return PatternBuilder((step,), said)


@brief
def one_of(*parts: "str | PatternBuilder") -> PatternBuilder:
    """Exactly one of several parts.

    >>> print(pattern("a", "A").then(one_of(pattern("b", "B"), pattern("c", "C"))))
    PATTERN SEQ(A a THEN OR(B b, C c))
    """
    return _together("one_of", Or, parts)


@brief
def all_of(*parts: "str | PatternBuilder") -> PatternBuilder:
    """All of several parts, in any order.

    >>> print(all_of("A", "B").within(5))
    PATTERN AND(A A, B B)
    WITHIN 5
    """
    return _together("all_of", And, parts)


def _together(
    call: str, kind: type[And] | type[Or], parts: tuple["str | PatternBuilder", ...]
) -> PatternBuilder:
    if len(parts) < 2:
        raise refused(call, "it needs two or more parts", 'as in one_of("B", "C")')
    taken: list[str] = []
    inside: list[Pattern] = []
    said: list[Said] = []
    for part in parts:
        step, conditions = _step(call, part, None, taken)
        for variable in (atom.variable for atom in atoms(step.part)):
            if variable in taken:
                raise refused(call, f"two events are called '{variable}'", "give one another name")
            taken.append(variable)
        inside.append(step.part)
        said += conditions
    return PatternBuilder((Step(grouped(kind, inside)),), tuple(said))


# ------------------------------------------------------------------------------ arguments


def _step(
    call: str, part: "str | PatternBuilder", type: str | None, taken: "tuple[str, ...] | list[str]"
) -> tuple[Step, tuple[Said, ...]]:
    """A part that a call is given: an event with or without a name, or a group."""
    if not isinstance(part, PatternBuilder):
        name = _name(call, part)
        if type is None:
            return Step(Atom(name, _free(name, taken))), ()
        return Step(Atom(_name(call, type), name)), ()
    if type is not None:
        raise refused(call, "a group has no type", f".{call}(group) is enough")
    if part.clauses != Query(Atom("", "")):
        raise refused(
            call,
            "a group can only have parts and conditions, no settings of a whole query",
            "call .within(...), .partition_by(...) and the like on the whole pattern",
        )
    return Step(part.pattern), part.said


def _free(type: str, taken: "tuple[str, ...] | list[str]") -> str:
    """The name of an event that is given none: its type, with a number if need be."""
    names = (type if number == 1 else f"{type}{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


def _name(call: str, given: object) -> str:
    if not isinstance(given, str) or not given:
        raise refused(call, f"{given!r} is not a name", "names and types must be strings")
    return given


def _read(call: str, read: Callable[..., Found], text: object, *arguments: Any) -> Found:
    """What a text of a call stands for; what is wrong with it names the call."""
    if not isinstance(text, str):
        raise refused(call, f"{text!r} is not a string", 'as in .where("b.price > 3")')
    try:
        return read(text, *arguments)
    except QueryError as error:
        error.problem = f".{call}(...): {error.problem}"
        raise error.at(None, text) from None


def _all_used(call: str, names: "Names") -> None:
    for name in names.unused():
        raise refused(
            call,
            f"{name}= is given, but the text does not use it",
            f"use a value by its plain name, as in b.price > {name}",
        )


def _window(call: str, length: object) -> Window:
    from ensue.languages.fragments import read_window

    match length:
        case timedelta():
            return ByTime(length // timedelta(microseconds=1) * 1_000)
        case bool():
            pass
        case int() | float():
            return ByUnits(length)
        case str():
            return _read(call, read_window, length)
        case _:
            pass
    raise refused(
        call, f"{length!r} is not a length of time", 'a timedelta, "5 minutes", or a number'
    )


def _pause(call: str, length: object) -> Pause:
    found = _window(call, length)
    if isinstance(found, ByEvents):
        raise refused(call, "a number of events is not a length of time", 'as in "5 minutes"')
    amount = found.nanoseconds if isinstance(found, ByTime) else found.amount
    if amount <= 0:
        raise refused(call, f"{length!r} is not longer than zero", 'as in "5 minutes"')
    return found


Choices = TypeVar("Choices", SkipTo, InOrderOf, Choice)


def _chosen(call: str, word: object, choices: type[Choices]) -> Choices:
    for choice in choices:
        if isinstance(word, str) and word.upper() == choice.value:
            return choice
    words = ", ".join(f"'{choice.value.lower()}'" for choice in choices)
    raise refused(call, f"{word!r} is none of its words", f"one of {words}")


def refused(call: str, problem: str, hint: str) -> QueryError:
    """An error that names the call it is about."""
    return QueryError(f".{call}(...): {problem}", hint=hint)
