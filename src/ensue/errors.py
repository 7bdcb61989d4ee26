"""Errors that name the position in the query and offer a hint."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial

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


class EnsueError(Exception):
    """The base class of Ensue's errors.

    >>> issubclass(QueryError, EnsueError)
    True
    """

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows: the user's frames, and the message."""
        name = type(self).__name__
        return [name, *format_user_frames(self.__traceback__), "", *str(self).splitlines()]


class QueryError(EnsueError):
    """An invalid query.

    >>> error = QueryError("unknown field 'pric'", hint="did you mean 'price'?")
    >>> print(error.at(Span(6, 12), "WHERE a.pric > 3"))
    unknown field 'pric'
      line 1, column 7
        WHERE a.pric > 3
              ^^^^^^
      hint: did you mean 'price'?
    """

    def __init__(
        self, problem: str, *, hint: str | None = None, span: Span | None = None, text: str | None = None
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.span = span
        self.text = text

    def at(self, span: Span | None, text: str | None) -> "QueryError":
        """Adds the position of the error, unless it has one."""
        self.span = self.span or span
        self.text = self.text if self.text is not None else text
        return self

    def __str__(self) -> str:
        lines = [self.problem]
        if self.span is not None and self.text is not None:
            lines += _underline(self.span, self.text)
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        build = partial(QueryError, hint=self.hint, span=self.span, text=self.text)
        return build, (self.problem,)


def _underline(span: Span, text: str) -> list[str]:
    start = min(span.start, len(text))
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    line = text[begin:] if end < 0 else text[begin:end]
    width = max(1, min(span.end, begin + len(line)) - start)
    number, column = text.count("\n", 0, start) + 1, start - begin
    pointer = "".join("\t" if c == "\t" else " " for c in line[:column])
    return [f"  line {number}, column {column + 1}", f"    {line}", f"    {pointer}{'^' * width}"]


class EventError(EnsueError):
    """Events that cannot be read: no time, a missing column, a broken file.

    >>> import ensue
    >>> try:
    ...     ensue.match([{"ts": 1}], "A a", time="time")
    ... except ensue.EventError as error:
    ...     print(error)
    no column 'time' for time=
      hint: known here: ts
    """


class OperatorError(EnsueError):
    """An invalid user-defined operator, or one that failed on an event.

    >>> import ensue
    >>> ensue.operator("near", q=lambda: True)
    Traceback (most recent call last):
    ensue.errors.OperatorError: ...
    """


class SkipError(EnsueError):
    """AFTER MATCH SKIP of MATCH_RECOGNIZE would not advance the search.

    >>> import ensue
    >>> skip = "AFTER MATCH SKIP TO FIRST A PATTERN (A) DEFINE A AS t > 0"
    >>> ensue.match([{"t": 1}], f"MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS at {skip})")
    Traceback (most recent call last):
    ensue.errors.SkipError: ...
    """


class StateError(EnsueError):
    """Saved state that cannot be restored.

    >>> import ensue
    >>> ensue.live("A a WITHIN 5", schema={"t": "int64"}, time="t").restore(b"other")
    Traceback (most recent call last):
    ensue.errors.StateError: ...
    """


class LimitError(EnsueError):
    """A query exceeds its limits, such as `memory` or `max_matches`.

    >>> import ensue
    >>> options = [ensue.Limits(max_matches=1), ensue.PlannerOptions(structure="reference")]
    >>> ensue.match([{"t": 1}, {"t": 2}], "A a", time="t", options=options)
    Traceback (most recent call last):
    ensue.errors.LimitError: the query finds more matches than max_matches=1 allows...
    """


class LimitWarning(UserWarning):
    """A query is expected to exceed its limits.

    >>> import warnings
    >>> warnings.simplefilter("error", LimitWarning)  # stop such a query before it runs
    >>> warnings.simplefilter("default", LimitWarning)
    """


class ArchiveWarning(UserWarning):
    """The layout of an archive makes it expensive to read.

    >>> import warnings
    >>> warnings.simplefilter("ignore", ArchiveWarning)
    """


class SubscriptionWarning(UserWarning):
    """A subscription tests most events of the stream, or does not fit the events and is skipped.

    >>> import warnings
    >>> warnings.simplefilter("ignore", SubscriptionWarning)
    """


class ServiceError(EnsueError):
    """The service rejects a request: unknown, not allowed, or above a limit.

    >>> issubclass(ServiceError, EnsueError)
    True
    """


class RunnerError(EnsueError):
    """The backend is not available: no Spark, no Java. The hint names what to install.

    >>> issubclass(RunnerError, EnsueError)
    True
    """


def did_you_mean(wrong: str, known: Iterable[str]) -> str | None:
    """A hint with the most similar known name, or all of them.

    >>> did_you_mean("pric", ["price", "volume"])
    "did you mean 'price'?"
    >>> did_you_mean("zzz", ["price", "volume"])
    'known here: price, volume'
    """
    names = list(known)
    near = get_close_matches(wrong, names, n=1, cutoff=0.6)
    near = near or [name for name in names if name.lower() == wrong.lower()]
    if near:
        return f"did you mean '{near[0]}'?"
    shown = ", ".join(names[:12])
    return f"known here: {shown}{', ...' if len(names) > 12 else ''}" if names else None
