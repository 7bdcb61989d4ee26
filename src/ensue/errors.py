"""Errors that name the place in the query and offer a way out."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from ensue.traceback_filter import format_user_frames


@dataclass(frozen=True, slots=True)
class Span:
    """The half-open range of characters `[start, end)` of a text.

    >>> Span(2, 5).over("WHERE")
    'ERE'
    """

    start: int
    end: int

    def over(self, text: str) -> str:
        return text[self.start : self.end]

    def to(self, other: "Span | None") -> "Span":
        """The smallest span that covers both."""
        if other is None:
            return self
        return Span(min(self.start, other.start), max(self.end, other.end))


# ----------------------------------------------------------------------
# Errors that name the place in the query and offer a way out.


class EnsueError(Exception):
    """Everything that Ensue raises on purpose: the errors below are all of this kind.

    >>> issubclass(QueryError, EnsueError)
    True
    """

    def _render_traceback_(self) -> list[str]:
        """What IPython shows of it: the user's own lines, and what it says."""
        name = type(self).__name__
        return [name, *format_user_frames(self.__traceback__), "", *str(self).splitlines()]


class QueryError(EnsueError):
    """A query that cannot be run as it is written.

    >>> print(
    ...     QueryError("unknown field 'pric'", hint="did you mean 'price'?").at(
    ...         Span(6, 12), "WHERE a.pric > 3"
    ...     )
    ... )
    unknown field 'pric'
      line 1, column 7
        WHERE a.pric > 3
              ^^^^^^
      hint: did you mean 'price'?
    """

    def __init__(
        self,
        problem: str,
        *,
        hint: str | None = None,
        span: Span | None = None,
        text: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.span = span
        self.text = text

    def at(self, span: Span | None, text: str | None) -> "QueryError":
        """The same error, with the place it speaks of (what is known already stays)."""
        self.span = self.span or span
        self.text = self.text if self.text is not None else text
        return self

    def __str__(self) -> str:
        lines = [self.problem]
        if self.span is not None and self.text is not None:
            lines += _underlined(self.span, self.text)
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return _revive, (self.problem, self.hint, self.span, self.text)


def _revive(problem: str, hint: str | None, span: Span | None, text: str | None) -> QueryError:
    return QueryError(problem, hint=hint, span=span, text=text)


def _underlined(span: Span, text: str) -> list[str]:
    start = min(span.start, len(text))
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    line = text[begin:] if end < 0 else text[begin:end]
    width = max(1, min(span.end, begin + len(line)) - start)
    number, column = text.count("\n", 0, start) + 1, start - begin
    pointer = "".join("\t" if c == "\t" else " " for c in line[:column])
    return [
        f"  line {number}, column {column + 1}",
        f"    {line}",
        f"    {pointer}{'^' * width}",
    ]


class EventError(EnsueError):
    """Events that cannot be read as the call says: no time, no such column, a broken file.

    >>> import ensue
    >>> try:
    ...     ensue.match([{"ts": 1}], "A a", time="time")
    ... except ensue.EventError as error:
    ...     print(error)
    no column 'time' for time=
      hint: known here: ts
    """


class OperatorError(EnsueError):
    """A user's operator that cannot be what it says it is, or that failed on an event.

    >>> import ensue
    >>> try:
    ...     ensue.operator("near", q=lambda: True)
    ... except ensue.EnsueError as error:
    ...     print(type(error).__name__)
    OperatorError
    """


class SkipError(EnsueError):
    """A match of MATCH_RECOGNIZE behind which the search cannot go on as AFTER MATCH says.

    >>> import ensue
    >>> skip = "AFTER MATCH SKIP TO FIRST A PATTERN (A) DEFINE A AS t > 0"
    >>> try:
    ...     ensue.match([{"t": 1}], f"MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS at {skip})")
    ... except ensue.SkipError as error:
    ...     print("the search would not move on")
    the search would not move on
    """


class StateError(EnsueError):
    """Saved state that cannot be restored.

    >>> import ensue
    >>> live = ensue.live(
    ...     "SEQ(A a, B b) WITHIN 5", schema=[{"t": 1, "x": "A"}], time="t", type="x"
    ... )
    >>> try:
    ...     live.restore(b"something else")
    ... except ensue.StateError as error:
    ...     print("refused")
    refused
    """


class LimitError(EnsueError):
    """A query that holds or finds more than it may: see `max_matches=` and the like.

    >>> import ensue
    >>> events = [{"t": 1}, {"t": 2}, {"t": 3}]
    >>> try:
    ...     ensue.match(events, "A a", time="t", max_matches=2, structure="reference")
    ... except ensue.LimitError as error:
    ...     print(str(error).splitlines()[0])
    the query finds more matches than max_matches=2 allows
    """


class LimitWarning(UserWarning):
    """A query is expected to hold or find more than it may.

    >>> import warnings
    >>> import ensue
    >>> days = [{"t": t, "type": "sun" if t % 10 == 9 else "rain"} for t in range(400)]
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     try:
    ...         ensue.match(days, "SEQ(rain+ r[], sun s)", time="t", type="type", memory="1 MB")
    ...     except ensue.LimitError:
    ...         print(said[0].category.__name__, "first, and then the error")
    LimitWarning first, and then the error
    """


class ArchiveWarning(UserWarning):
    """An archive is expensive to read in the way it is stored.

    >>> import warnings
    >>> warnings.simplefilter("ignore", ArchiveWarning)  # if that is known and meant so
    """


class SubscriptionWarning(UserWarning):
    """A subscription that looks at most events of the stream, or that is left out of a set that
    runs, because it does not fit the events.

    >>> import warnings
    >>> import ensue
    >>> everything = ensue.Subscriptions(time="t", type="type")
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     version = everything.add("all trucks", "A, A = (STRING:type = 'truck')")
    >>> said[0].category.__name__
    'SubscriptionWarning'
    """


class ServiceError(EnsueError):
    """A service that does not do what it was asked for: unknown, not allowed, too much.

    >>> issubclass(ServiceError, EnsueError)
    True
    """


class RunnerError(EnsueError):
    """The place a query should run is not there: no Spark, no Java.

    The hint of such an error says what to install.

    >>> issubclass(RunnerError, EnsueError)
    True
    """


def did_you_mean(wrong: str, known: Iterable[str]) -> str | None:
    """A hint with the nearest known name, or the list of them.

    >>> did_you_mean("pric", ["price", "volume"])
    "did you mean 'price'?"
    >>> did_you_mean("zzz", ["price", "volume"])
    'known here: price, volume'
    """
    names = list(known)
    near = get_close_matches(wrong, names, n=1, cutoff=0.6)
    if not near:
        near = [name for name in names if name.lower() == wrong.lower()]
    if near:
        return f"did you mean '{near[0]}'?"
    if not names:
        return None
    shown = ", ".join(names[:12])
    return f"known here: {shown}" + (", ..." if len(names) > 12 else "")
