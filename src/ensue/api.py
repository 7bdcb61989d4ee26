"""The public interface: everything else may change."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ensue.algebra.query import Query
from ensue.errors import EnsueError, EventError, QueryError, RunnerError, StateError

if TYPE_CHECKING:
    from ensue.runners.local import Progress

__all__ = [
    "EnsueError",
    "EventError",
    "Query",
    "QueryError",
    "RunnerError",
    "StateError",
    "explain",
    "match",
    "parse",
    "picture",
    "show",
]


def parse(text: str) -> Query:
    """The query a text stands for, or a QueryError that points at what is wrong.

    >>> parse("SEQ(Shelf x, !Counter y, Exit z) WHERE [tag] WITHIN 12 hours").strategy.value
    'skip_till_any_match'
    """
    from ensue.languages.patterns import parse as parse_pattern

    if not isinstance(text, str):
        raise QueryError(f"a query is a text, not {_a_type(text)}")
    return parse_pattern(text)


def show(query: Query) -> str:
    """The text of a query, in one spelling; parsing it gives the same query.

    >>> print(show(parse("pattern A a -> B b within 5 min")))
    PATTERN SEQ(A a, B b)
    WITHIN 5 minutes
    """
    from ensue.languages.printing import show as show_query

    return show_query(query)


def match(
    events: Any,
    query: str | Query,
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] | str = (),
    location: str | None = None,
    bad_events: str = "raise",
    progress: "Progress | None" = None,
) -> Any:
    """Every match of a query in a stream of events.

    `events`: an Arrow, pandas or Polars table (or anything that speaks Arrow), a dict of one table
    per event type, or a Spark DataFrame. The result is of the same world: an Arrow table, or a
    DataFrame that is computed when it is asked for.

    `time` names the column of the event time, or a pair (start, end) for events that last.
    `type` names the column of the event type; without it all events are of one type.
    `order` names columns that order events of the same time; then the order of arrival decides.
    `location` names a column of places (WKT texts or WKB bytes); a match then has a `location`
    too, the convex hull of its members' places.
    `bad_events="drop"` leaves out events without usable time instead of raising an EventError.
    `progress` is called with the number of events done and of all events.
    """
    checked = parse(query) if not isinstance(query, Query) else query
    order = (order,) if isinstance(order, str) else tuple(order)
    arguments: dict[str, Any] = {
        "time": _time(time),
        "type": type,
        "order": order,
        "location": location,
        "bad_events": bad_events,
    }
    if _is_spark(events):
        from ensue.runners import spark_batch

        return spark_batch.match(events, checked, **arguments)
    from ensue.runners import local

    return local.match(events, checked, **arguments, progress=progress)


def explain(
    query: str | Query,
    events: Any = None,
    *,
    time: str | tuple[str, str] | None = None,
    type: str | None = None,
    order: Sequence[str] | str = (),
) -> str:
    """How a query is run: the plan, with what each rule did, as stable text.

    With `events` the query is also checked against their columns.
    """
    from ensue.plan.explain import explain as explain_plan

    return explain_plan(_planned(query, events, time, type, order))


def picture(
    query: str | Query,
    events: Any = None,
    *,
    time: str | tuple[str, str] | None = None,
    type: str | None = None,
    order: Sequence[str] | str = (),
) -> str:
    """The plan as a picture (SVG): the automaton or the stacks, with their predicates."""
    from ensue.plan.picture import picture as picture_plan

    return picture_plan(_planned(query, events, time, type, order))


def _planned(
    query: str | Query,
    events: Any,
    time: str | tuple[str, str] | None,
    type: str | None,
    order: Sequence[str] | str,
) -> Any:
    checked = parse(query) if not isinstance(query, Query) else query
    if events is None:
        from ensue.plan.assume import plan_without_events

        return plan_without_events(checked)
    if time is None:
        raise EventError("the events' time column is needed: pass time=")
    from ensue.compile.matcher import prepare
    from ensue.runners.local import stream_of

    if _is_spark(events):
        from ensue.runners.spark_batch import shape_of_frames

        shape = shape_of_frames(events, time=_time(time), type=type, order=order)
    else:
        _, shape = stream_of(events, time=_time(time), type=type, order=order)
    return prepare(checked, shape).plan


def _time(time: object) -> str | tuple[str, str]:
    match time:
        case str():
            return time
        case (str(start), str(end)):
            return (start, end)
        case _:
            raise EventError(
                f"time={time!r} is neither a column name nor a pair of names (start, end)"
            )


def _is_spark(events: object) -> bool:
    if isinstance(events, Mapping):
        return bool(events) and all(_is_spark(e) for e in events.values())
    return any(c.__module__.startswith("pyspark.sql") for c in events.__class__.__mro__)


def _a_type(value: object) -> str:
    return f"a {value.__class__.__name__}"
