"""Random calls: queries of every kind with every clause, the events and archives they read, and what they mean.

Every choice is taken from the generator that is passed in. Some of the queries are no valid ones, and some
cannot be combined: `ensue` says so.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa
from tests.conftest import Semantics

import ensue
from ensue import reference as semantics
from ensue.analyzer.hierarchy_layers import build_layers
from ensue.analyzer.output_mode import is_summarized
from ensue.analyzer.query import check_query
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.expression import FieldRef
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.ir.row_pattern import ROW, RowPatternQuery, RowSortKey
from ensue.ir.traversal import get_kleene_variables, iterate_bound_variables
from ensue.operators.hierarchy.hierarchy_planner import add_levels, compile_layers
from ensue.operators.hierarchy.layer_stream import add_plan_keys
from ensue.projection.grouping import ResultFinisher
from ensue.reference.hierarchy_matches import resolve_layer_query
from ensue.runtime.grouping import strip_result_modifiers
from ensue.runtime.query_kinds import find_kind
from ensue.vector.event_table import create_schema
from support.archive_joins import Story, judged_rows, random_archive_join, random_story, shown_rows
from support.edges import random_edges
from support.groups import random_groups
from support.hierarchies import Habits, by_rows, given_events, random_hierarchy
from support.joins import random_join
from support.lifted import random_lifted
from support.live import by_output
from support.negations import random_negations
from support.queries import random_query, random_repeats
from support.row_patterns import recognized, streamed_clause
from support.streams import Nature, random_nature

PATTERNS = (random_query, random_query, random_repeats, random_groups, random_negations, random_join, random_edges)
ROW_COLUMNS = {"id": "t", "x": "type", "v": "x", "f": "y"}  # of `support.row_patterns`, and what they are here
KINDS = ("pattern", "pattern", "pattern", "hierarchy", "hierarchy", "archive join", "row pattern", "row pattern")
TYPED = {"type": "type", "order": ("row",)}


@dataclass(frozen=True)
class Call:
    """Queries of one call, what they read, and what the call is to return."""

    nature: Nature
    live: pa.Table  # in the order of the stream
    past: Mapping[str, pa.Table]
    own: str | None
    output: ensue.OutputOptions
    queries: dict[str, Any] = field(default_factory=dict)
    stray: bool = False  # archives also for queries that look into none

    @property
    def asked(self) -> Any:
        """The queries: one by itself, several by their names."""
        return next(iter(self.queries.values())) if len(self.queries) == 1 else self.queries

    @property
    def named(self) -> dict[str, Any]:
        """What `ensue.match` and `ensue.live` are given beside events and queries."""
        time = self.nature.columns
        archives = {
            name: ensue.archive(table, time=time, type="type", key="k", order="row")
            for name, table in self.past.items()
        }
        past = ensue.Archives(archives, own=self.own) if archives else None
        return {"time": time, "archives": past, "options": self.output} | TYPED

    def only(self, names: Iterable[str]) -> "Call":
        """The call of some of its queries, without what concerns only others."""
        queries = {name: self.queries[name] for name in names}
        kinds = {type(parsed(query)) for query in queries.values()}
        levels = self.output.levels if Hierarchy in kinds else None
        past, own = (self.past, self.own) if ArchiveJoinQuery in kinds or self.stray else ({}, None)
        return replace(self, queries=queries, output=replace(self.output, levels=levels), past=past, own=own)


def random_call(random: Random, size: int, nature: Nature | None = None) -> Call:
    """A call of some queries; alone or together they may be refused."""
    if nature is None:
        nature = random_nature(random)
        if random.random() < 0.5:  # clauses over rows have one time
            nature = replace(nature, intervals=False)
    story = random_story(random, nature)
    output = ensue.OutputOptions(
        emit_timeouts=random.random() < 0.2,
        levels=random.choice((None, None, "all")),
        flat=random.random() < 0.15,
        ids=random.random() < 0.9,
    )
    queries = {f"q{n}": random_asked(random, nature, story.text) for n in range(size)}
    own = story.own if random.random() < 0.5 else None
    call = Call(nature, story.live, story.archives, own, output, queries, stray=random.random() < 0.05)
    return call.only(queries)


def parsed(query: Any) -> Any:
    """The query of a text; None if it is none."""
    if not isinstance(query, str):
        return query
    try:
        return ensue.parse(query)
    except ensue.QueryError:
        return None


def random_asked(random: Random, nature: Nature, join: str) -> Any:
    """A query of any kind with any clauses; `join` is one that mostly finds something."""
    match random.choice(KINDS):
        case "pattern":
            return with_clauses(random, interrupted(random, random.choice(PATTERNS)(random, nature)))
        case "hierarchy":
            if random.random() < 0.3:
                text = random_lifted(random, nature, (random_query, random_repeats, random_edges))
            else:
                habits = Habits(flat=random.random() < 0.3, intervals=random.random() < 0.2)
                text = random_hierarchy(random, nature, habits)
            layers = text.split("; ")
            top = next(n for n, layer in enumerate(layers) if not layer.startswith(("EVENT ", "EMIT ")))
            number = random.randrange(len(layers)) if random.random() < 0.15 else top
            layers[number] = with_clauses(random, layers[number])
            return "; ".join(layers)
        case "archive join":
            text = join if random.random() < 0.6 else random_archive_join(random, nature)
            return with_clauses(random, text) if random.random() < 0.2 else text
        case _:
            return random_clause(random)


def random_clause(random: Random) -> RowPatternQuery:
    """A MATCH_RECOGNIZE clause; no two rows are of the same order."""
    clause = streamed_clause(random, random.choice(("alone", "matched")))
    return _renamed(replace(clause, order=(clause.order[0], RowSortKey(FieldRef(ROW, "row")))))


def _renamed(node: Any) -> Any:
    """A clause over the columns of `support.streams`."""
    if isinstance(node, FieldRef):
        return replace(node, name=ROW_COLUMNS.get(node.name, node.name)) if node.variable == ROW else node
    if isinstance(node, tuple):
        return tuple(map(_renamed, node))
    if not is_dataclass(node) or isinstance(node, type):
        return node
    return replace(node, **{f.name: _renamed(getattr(node, f.name)) for f in fields(node) if f.init})


def interrupted(random: Random, text: str) -> str:
    """The text with an interval of its own for one of its negations, now and then."""
    pattern, *clauses = re.split(r"(?= WHERE | WITHIN | AFTER | HAVING )", text, maxsplit=1)
    single = re.findall(r"(?<!!)\b[A-CP] ([a-z]\w*)(?=[, )])", pattern)
    if not single or random.random() < 0.6:
        return text
    begin, end = (f"{random.choice(single)}.{random.choice(('start', 'end'))} + {random.randint(0, 2)}" for _ in "ab")
    pattern = re.sub(r"(!\w \w+)(?=[,)])", rf"\1 FROM {begin} TO {end}", pattern, count=1)
    return pattern + "".join(clauses)


def with_clauses(random: Random, text: str) -> str:
    """The text with some of RETURN, ALL EVENTS, GROUP BY, ORDER BY, FETCH, LIMIT, CHOOSE, HAVING and emitted rows."""
    values = random_values(random, text)
    if not values:
        return text
    added = ""
    if " RETURN " not in text and random.random() < 0.6:
        added += " RETURN " + random.choice(
            (
                "COUNT(*) AS n",
                "EXISTS",
                "TOTAL COUNT(*) AS n",
                f"TOTAL COUNT(*) AS n, sum({random.choice(values)}) AS v",
                "ALL EVENTS",
                f"{random.choice(values)} AS v ALL EVENTS",
                f"{random.choice(values)} AS v, {random.choice(values)} AS w",
                f"{random.choice(values)} AS v, COUNT(*) AS n, max({random.choice(values)}) AS w GROUP BY v",
                f"{random.choice(values)} AS v, COUNT(*) AS n GROUP BY ALL ORDER BY n DESC, v",
            )
        )
    more = (
        f" ORDER BY {random.choice(values)}",
        " FETCH FIRST 2 ROWS ONLY",
        " LIMIT 1",
        " LIMIT 2",
        " CHOOSE LATEST",
        " CHOOSE ONCE",
        f" HAVING {random.choice(values)} > 0",
        " AFTER MATCH SKIP PAST LAST EVENT",
    )
    for clause in random.sample(more, random.choice((0, 0, 1, 1, 2))):
        first = clause.split()[0]
        if f" {first} " not in text + added and not (first in ("LIMIT", "FETCH") and " LIMIT" in added):
            added += clause
    return text + added


def random_values(random: Random, text: str) -> list[str]:
    """Expressions over the variables of a query, of which each match has one value."""
    pattern = re.split(r" (?:WHERE|WITHIN|AFTER|HAVING|RETURN|JOIN|LEFT|ANTI)\b", text.removeprefix("EVENT "))[0]
    asked = parsed(re.sub(r"^\w+ AS ", "", pattern))
    if not isinstance(asked, Query):
        return []
    several = get_kleene_variables(asked.pattern)
    found = []
    for variable in iterate_bound_variables(asked.pattern):
        name = random.choice("xy")
        found.append(f"count({variable})" if variable in several else f"{variable}.{name}")
    return found


# --------------------------------------------------------------------------- what a query means


def judge(call: Call, name: str) -> None:
    """Compares a query on a table with its reference semantics."""
    query = parsed(call.queries[name])
    whole = not isinstance(query, Query) and query.whole is not None
    bare = strip_result_modifiers(query)[0] if whole else query
    asked = ensue.show(bare) if whole and isinstance(bare, ArchiveJoinQuery) else bare
    plain = replace(call, output=replace(call.output, flat=False, ids=True), queries={name: asked})
    found = run_on_table(plain)
    match bare:
        case ArchiveJoinQuery():
            story = Story(ensue.show(bare), call.nature, call.live, call.past, call.own)
            assert shown_rows(story.archive_join, found[""]) == judged_rows(story), query
        case RowPatternQuery():  # of ids it says nothing
            rows = recognized(call.live, bare, find_kind(bare))
            names = [n for n in found[""].column_names if n != "match_id"]
            schema = found[""].schema
            wanted = pa.table({n: rows[n].cast(schema.field(n).type) for n in names}) if rows else rows
            assert counted(found[""].select(names)) == counted(wanted), query
        case Hierarchy():
            levels = replace(bare, query=replace(bare.query, all_events=False))
            traced = replace(plain, output=replace(plain.output, trace=True), queries={name: levels})
            assert _members_of(run_on_table(traced), bare) == _layers_mean(plain, bare), query
        case _:
            options = replace(plain.output, levels=None)
            semantic = Semantics().match(call.live, bare, time=call.nature.columns, options=options, **TYPED)
            assert counted(found[""]) == counted(semantic), query
    if whole:
        inner = found[""]
        _, finishing = strip_result_modifiers(query)
        finished = run_on_table(replace(plain, queries=call.queries))[""]
        wanted = ResultFinisher(finishing, inner.schema).finish(inner)
        assert finished.schema == wanted.schema, query
        assert repr(finished.to_pylist()) == repr(wanted.to_pylist()), query  # NaN equals itself


def run_on_table(call: Call, events: pa.Table | None = None) -> dict[Any, pa.Table]:
    """The outputs of a call on its events, or on others."""
    return by_output(ensue.match(call.live if events is None else events, call.asked, **call.named))


def _members_of(found: dict[str, pa.Table], query: Hierarchy) -> Counter[str]:
    counts = is_summarized(query.query)
    return Counter(
        repr((level, row.get("n", row.get("count(*)", 1))))
        if counts and level == ""
        else repr((level, row.get("timed_out", False), by_rows(row["members"])))
        for level, table in found.items()
        for row in table.to_pylist()
    )


def _layers_mean(call: Call, hierarchy: Hierarchy) -> Counter[str]:
    """The matches and timed-out partial matches of each level, by their members."""
    with_levels = add_levels(hierarchy, call.output.levels)
    shape = create_schema(call.live.schema, time=call.nature.columns, **TYPED)
    meant, events = build_layers(with_levels), given_events(call.live, shape)
    below = semantics.build_complex_events(meant, events, shape.schema)
    found: Counter[str] = Counter()
    for layer in meant:
        if not layer.delivered:
            continue
        if is_summarized(layer.query):
            stream = semantics.build_layer_stream(layer, events, below)
            for row in semantics.summarize_matches(resolve_layer_query(layer, shape.schema), stream.events):
                found[repr((layer.name, 1 if layer.query.exists else row.count))] += 1
            continue
        for event in below[layer.name]:
            found[repr((layer.name, False, semantics.nest_positions(event.match)))] += 1
        if call.output.emit_timeouts:
            one = compile_layers(with_levels, shape)[layer.name]
            query = add_plan_keys(check_query(layer.query, one.stream.shape.schema), one.prepared)
            split = replace(layer, query=replace(layer.query, equivalence=query.equivalence))
            for late in semantics.find_layer_timeouts(split, events, below, shape.schema):
                found[repr((layer.name, True, semantics.nest_positions(late)))] += 1
    return found


def counted(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))
