"""Subscriptions in the pattern language over random streams, and what each finds alone."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

import pyarrow as pa

from ensue.ir.query import Query
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.subscription_matcher import SubscriptionMatcher
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.options import Limits
from ensue.parser.pattern_parser import parse
from ensue.runtime.compiled_query import CompiledQuery, compile_query
from ensue.runtime.live_matcher import LiveMatcher
from ensue.vector.event_table import StreamSchema, create_schema
from support.streams import Nature

Members = tuple[int, ...]
_CONSTANT = re.compile(r"(?<=[<>=] )(-?\d+(?:\.\d+)?|'\w+')(?![\w.\]])")


def other_constants(text: str, random: Random) -> str:
    """The same query with other numbers and texts in its conditions.

    >>> other_constants("SEQ(A a, B b) WHERE a.x > 1 and b.s = 'p' WITHIN 3", Random(1))
    "SEQ(A a, B b) WHERE a.x > 1 and b.s = 'r' WITHIN 3"
    """

    def other(found: re.Match[str]) -> str:
        if found[0].startswith("'"):
            return f"'{random.choice('pqr')}'"
        return random.choice(("0.5", "1.5", "2.0")) if "." in found[0] else str(random.randint(0, 3))

    return _CONSTANT.sub(other, text)


def shape_of_stream(events: pa.Table, nature: Nature, *, typed: bool = True) -> StreamSchema:
    kind = "type" if typed else None
    return create_schema(events.schema, time=nature.columns, type=kind, order=())


def prepared(text: str, shape: StreamSchema) -> CompiledQuery:
    query = parse(text)
    assert isinstance(query, Query)
    return compile_query(query, shape)


def matcher_of(
    shape: StreamSchema, texts: dict[str, str], *, key_group: int = -1, key_groups: int = 1
) -> SubscriptionMatcher:
    """A matcher for subscriptions that were all there from the beginning."""
    fleet = SubscriptionSet(shape, key_groups=key_groups)
    for name, text in texts.items():
        fleet.take(SubscriptionChange.add(name, text, language="patterns"), 1)
    matcher = SubscriptionMatcher(fleet, Limits(), key_group)
    matcher.version = 1
    return matcher


def told(tables: Iterable[pa.Table]) -> dict[str, Counter[Members]]:
    """By subscription the rows of the events that it was told of."""
    found: dict[str, Counter[Members]] = {}
    for table in tables:
        for match in table.to_pylist():
            rows = tuple(event["row"] for event in match["members"])
            found.setdefault(match["subscription"], Counter())[rows] += 1
    return found


def alone(query: CompiledQuery, pieces: Iterable[pa.Table], *, over: bool = True) -> dict[Members, dict[str, Any]]:
    """What a query finds by itself: rows of events in their order, with the match."""
    matcher = LiveMatcher(query)
    tables = [matcher.process(piece) for piece in pieces]
    if over:
        tables.append(matcher.on_watermark(math.inf))
    found = {}
    for table in tables:
        for match in table.to_pylist():
            members = [v for k, v in match.items() if k not in ("match_id", "start", "end")]
            events = [e for v in members if v for e in (v if isinstance(v, list) else [v])]
            found[tuple(sorted(event["row"] for event in events))] = match
    return found
