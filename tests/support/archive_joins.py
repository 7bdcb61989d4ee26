"""Random queries with JOIN ARCHIVE, streams and archives for them, and what the judge says.

Every choice is taken from the generator that is passed in. A seeded one repeats a story; one that
Hypothesis supplies also shrinks it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from ensue.analyzer.join_checks import check_archive_join
from ensue.engine.reference_events import read_events
from ensue.errors import QueryError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.parser.pattern_parser import parse_statement
from ensue.reference import JoinedMatch, compute_value, join_matches
from ensue.vector.event_table import StreamSchema, create_schema, sort_events
from support.queries import Writer
from support.streams import REAL, STAMPS, TYPES, WHOLE, Nature, random_events, random_nature

ARCHIVES = ("old", "older")
_KINDS = ("JOIN", "JOIN", "LEFT JOIN", "ANTI JOIN")
_KEYS = ("[k]", "[k]", "[k]", "[k, s]", "[s]")


@dataclass(frozen=True)
class Story:
    """A query with JOIN ARCHIVE, a live stream and the archives that it names."""

    text: str
    nature: Nature
    live: pa.Table  # in the order of the stream
    archives: Mapping[str, pa.Table]  # likewise
    own: str | None = None  # the archive that the live events belong to as well

    @cached_property
    def shape(self) -> StreamSchema:
        """The shape of the live stream and of all archives."""
        return create_schema(self.live.schema, time=self.nature.columns, type="type", order=())

    @cached_property
    def archive_join(self) -> ArchiveJoinQuery:
        """The query, checked; a QueryError if it is none."""
        found = parse_statement(self.text)
        assert isinstance(found, ArchiveJoinQuery)
        schema = self.shape.schema
        return check_archive_join(found, schema, dict.fromkeys(self.archives, schema))

    def past(self, name: str) -> pa.Table:
        """All that an archive is to a query, the live events too where they belong to it."""
        if name != self.own:
            return self.archives[name]
        return sort_events(pa.concat_tables([self.archives[name], self.live]), self.shape)

    @cached_property
    def rows(self) -> list[JoinedMatch]:
        """What the query means."""
        schema, unit = self.shape.schema, self.shape.unit
        events = {name: read_events(self.past(name), schema, unit) for name in self.archives}
        live = read_events(self.live, schema, unit)
        return join_matches(self.archive_join, live, events)

    def written(self) -> list[dict[str, list[int]]]:
        """The rows by the column `row` of their events, which no two events share."""
        return [{v: [e.values["row"] for e in es] for v, es in sorted(row.binding.items())} for row in self.rows]


def random_story(random: Random, nature: Nature | None = None) -> Story:
    """A story whose query is valid; of those in which nothing is found, most are told anew."""
    while True:
        story = random_try(random, nature or random_nature(random))
        try:
            _ = story.archive_join
        except QueryError:
            continue
        found = any(any(row.past) for row in story.rows)
        if found or random.random() < (0.6 if story.rows else 0.2):
            return story


def random_try(random: Random, nature: Nature) -> Story:
    """A story whose query may be refused."""
    archives = {
        name: _numbered(random_events(random, random.choice((0, 7, 9, 11, 12)), nature), 100 * number)
        for number, name in enumerate(ARCHIVES, 1)
    }
    live = random_events(random, random.randint(4, 10), nature)
    own = random.choice((None, None, *ARCHIVES))
    later = random.choice((0, 3, 6, 9))
    if own is not None:
        # what a stream has archived came before what it gets now, not at the same time
        later += 1
        ends = archives[own].column("t").cast(pa.int64() if nature.time != REAL else pa.float64())
        begins = live.column("b").cast(ends.type)
        gap = (pc.max(ends).as_py() or 0) - (pc.min(begins).as_py() or 0)
        later += max(0, round(gap / _second(nature)))
    text = random_archive_join(random, nature)
    return Story(text, nature, _later(live, nature, later), archives, own)


def _numbered(events: pa.Table, first: int) -> pa.Table:
    rows = pa.array(range(first, first + events.num_rows), pa.int64())
    return events.set_column(events.column_names.index("row"), "row", rows)


def _second(nature: Nature) -> int:
    return {WHOLE: 1, REAL: 1, STAMPS: 1_000_000}.get(nature.time, 1_000_000_000)


def _later(events: pa.Table, nature: Nature, units: int) -> pa.Table:
    """The same events, so many units of time later."""
    for name in ("b", "t"):
        column = events.column(name)
        number = pa.float64() if nature.time == REAL else pa.int64()
        moved = pc.add(column.cast(number), pa.scalar(units * _second(nature), number))
        place = events.column_names.index(name)
        events = events.set_column(place, name, moved.cast(column.type))
    return events


def random_archive_join(random: Random, nature: Nature) -> str:
    """The text of a query with one JOIN ARCHIVE or two; some are no valid queries."""
    unit = " seconds" if nature.time.startswith("timestamp") else ""
    live = Writer(random, TYPES, side="l")
    text = side_text(live, nature, simple=0.7)
    shown, sides = [live], [live]
    for number in range(random.choice((1, 1, 1, 2))):
        past = Writer(random, TYPES, side="po"[number])
        kind = random.choice(_KINDS)
        text += f" {kind} ARCHIVE {random.choice(ARCHIVES)} {side_text(past, nature)}"
        text += _range(random, unit) + _last(random) + _on(random, past, sides)
        sides += [past] if kind != "ANTI JOIN" else []
        shown += [past] if kind != "ANTI JOIN" else []
    return text + _asked(random, shown)


def side_text(writer: Writer, nature: Nature, simple: float = 0.4) -> str:
    """A pattern with WHERE, WITHIN and AFTER MATCH; a share of them is of one or two events."""
    random = writer.random
    if random.random() < simple:
        type_, variable = writer.named()
        pattern = f"{type_} {variable}"
        if random.random() < 0.5:
            more = " ".join(writer.named())
            pattern = f"SEQ({pattern}, {more})"
    else:
        pattern = writer.whole_pattern()
    where = writer.where() if random.random() < 0.4 else ""
    after = writer.after() if random.random() < 0.4 else ""
    return f"{pattern}{where}{writer.within(nature)}{after}"


def _range(random: Random, unit: str) -> str:
    anchor = random.choice(("START", "START", "END"))
    far = random.choice((3, 6, 9, 12, 20, 30))
    if random.random() < 0.7:
        return f" RANGE {far}{unit} BEFORE {anchor}"
    near = random.randint(1, far // 2)
    return f" RANGE BETWEEN {far}{unit} AND {near}{unit} BEFORE {anchor}"


def _last(random: Random) -> str:
    return random.choice(("", "", " LAST 1", " LAST 2"))


def _on(random: Random, past: Writer, others: list[Writer]) -> str:
    conditions = [random.choice(_KEYS)] if random.random() < 0.5 else []
    for _ in range(random.choice((0, 0, 0, 1, 1, 2))):
        one = random.choice(past.positive)
        other = random.choice(random.choice((others[0], *others)).positive)
        if random.random() < 0.4:
            field = random.choice(("k", "s", "x"))
            conditions.append(f"{_single(one, field)} = {_single(other, field)}")
        else:
            conditions.append(past.between(one, other).replace("[i]", "[1]"))
    return f" ON {' and '.join(conditions)}" if conditions else ""


def _single(variable, field: str) -> str:
    return f"{variable.name}{'[1]' if variable.kleene else ''}.{field}"


def _asked(random: Random, shown: list[Writer]) -> str:
    """RETURN, HAVING and LIMIT, over the sides that a row has."""

    def value() -> str:
        side = random.choice(shown)
        return side.value(random.choice(side.positive))

    text = ""
    if random.random() < 0.2:
        text += f" RETURN {value()} AS one, {value()} AS two"
    if random.random() < 0.2:
        text += f" HAVING {value()} {random.choice(('<', '>=', '!='))} {value()}"
    if random.random() < 0.15:
        text += f" LIMIT {random.choice((1, 2))}"
    return text


def judged_rows(story: Story) -> Counter[str]:
    """The rows that a query means, as its columns say them."""
    returns = story.archive_join.returns
    if not returns:
        return Counter(map(_plain, story.written()))
    return Counter(_plain({r.name: [compute_value(r.expr, row.binding)] for r in returns}) for row in story.rows)


def shown_rows(query: ArchiveJoinQuery, found: pa.Table) -> Counter[str]:
    """The rows that it has found, in the same form."""
    if query.returns:
        names = [r.name for r in query.returns]
        return Counter(_plain({n: [row[n]] for n in names}) for row in found.to_pylist())
    names = [n for n in found.column_names if n not in ("match_id", "start", "end")]
    return Counter(
        _plain({n: [e["row"] for e in _events(row[n])] for n in names if _events(row[n])}) for row in found.to_pylist()
    )


def _events(value: object) -> list[dict]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _plain(row: dict) -> str:
    return repr(sorted((name, values) for name, values in row.items()))  # NaN is like NaN


def stories() -> st.SearchStrategy[Story]:
    """Random stories that Hypothesis shrinks."""
    return st.randoms(use_true_random=False).map(random_story)
