"""Order, labelled rows, groups and first rows against the semantics, on random queries."""

import math
from dataclasses import replace
from random import Random

import pytest

import ensue
from ensue import reference as semantics
from ensue.analyzer.output_mode import split_result_modifiers
from ensue.engine.reference_engine import bindings_to_matches
from ensue.engine.reference_events import read_events
from ensue.errors import QueryError
from ensue.ir.traversal import get_kleene_variables, iterate_bound_variables
from ensue.runtime.compiled_query import compile_query
from ensue.vector.event_table import create_schema, sort_events
from support.queries import random_query, random_repeats
from support.seeds import of_round
from support.streams import random_events, random_nature

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # types that do not occur, queries that explode
    pytest.mark.first_rounds(2),
]
STRUCTURES = (None, None, "stacks", "runs", "tree", "compact", "reference")
EACH = 25  # queries of a round


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch):
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)


def cases(start):
    """Random queries, their events and how they are matched, with the matches by definition."""
    for seed in of_round(start // EACH, EACH):
        random = Random(seed)
        nature = random_nature(random)
        query = random.choice((random_query, random_repeats))(random, nature)
        if "RETURN" in query or "HAVING" in query or "FROM" in query:
            continue
        try:
            ensue.parse(query)
        except QueryError:
            continue
        events = random_events(random, random.randint(2, 14), nature)
        yield random, query, events, nature.columns


def judged(query, events, time):
    """The checked query, and its matches by the semantics."""
    shape = create_schema(events.schema, time=time, type="type", order=())
    prepared = compile_query(ensue.parse(query), shape)
    ordered = read_events(sort_events(events, shape), shape.schema, shape.unit)
    return prepared.query, semantics.find_matches(prepared.query, ordered)


def matched(events, query, time, random):
    """The result, by a structure that takes the query."""
    try:
        structure = random.choice(STRUCTURES)
        return ensue.match(events, query, time=time, type="type", options=ensue.PlannerOptions(structure=structure))
    except QueryError:
        return ensue.match(events, query, time=time, type="type")


@pytest.mark.parametrize("start", range(0, 40 * EACH, EACH))
def test_rows_are_in_the_order_of_time(start):
    for random, query, events, time in cases(start):
        checked, found = judged(query, events, time)
        wanted = [_rows(match, checked) for match in semantics.sort_matches(checked, found)]
        table = matched(events, query, time, random)
        assert [_shown(row, checked) for row in table.to_pylist()] == wanted, query


def _rows(match, query):
    lists = get_kleene_variables(query.pattern)
    rows = {v: [e.values["row"] for e in match.get(v, ())] for v in iterate_bound_variables(query.pattern)}
    return [tuple(r) if v in lists else (r[0] if r else None) for v, r in rows.items()]


def _shown(row, query):
    shown = []
    for variable in iterate_bound_variables(query.pattern):
        bound = row[variable]
        if isinstance(bound, list):
            shown.append(tuple(event["row"] for event in bound))
        else:
            shown.append(None if bound is None else bound["row"])
    return shown


@pytest.mark.parametrize("start", range(0, 40 * EACH, EACH))
def test_labelled_rows_are_those_of_the_semantics(start):
    for random, query, events, time in cases(start):
        checked, found = judged(query, events, time)
        wanted = [
            (name, place, index, event.values["row"])
            for match in semantics.sort_matches(checked, found)
            for name, place, index, event in semantics.build_event_rows(checked, match)
        ]
        table = matched(events, f"{query} RETURN ALL EVENTS", time, random)
        rows = [(r["variable"], r["position"], r["index"], r["row"]) for r in table.to_pylist()]
        assert rows == wanted, query
        pairs = list(zip(*(table.column(n).to_pylist() for n in ("match_id", "position")), strict=True))
        assert len(set(pairs)) == len(pairs)


AGGREGATES = (
    "COUNT(*) AS n",
    "sum({0}) AS total",
    "avg({0}) AS mean",
    "min({0}) AS least",
    "max({0}) AS most",
    "count({0}) AS known",
    "first({0}) AS first",
    "last({0}) AS last",
    "percentile({0}, 50) AS half",
)


def clauses(random, query):
    """Something that is said of a whole result, for a query with these variables."""
    names = list(iterate_bound_variables(ensue.parse(query).pattern))
    lists = get_kleene_variables(ensue.parse(query).pattern)

    def value():
        name, field = random.choice(names), random.choice(("x", "y", "s", "k"))
        at = random.choice(("[1]", f"[{name}.LEN]")) if name in lists else ""
        number = f"{name}{at}.{random.choice('xy')}"
        return random.choice((f"{name}{at}.{field}", number, f"{number} - {number}", f"-{number}"))

    def number():
        return next(v for v in iter(value, "") if not v.endswith((".s",)))

    if random.random() < 0.5:
        keys = [f"{value()} AS k{i}" for i in range(random.choice((0, 1, 1, 2)))]
        some = random.sample(AGGREGATES, random.randint(1, 3))
        columns = [*keys, *(text.format(number()) for text in some)]
        total = "" if keys else "TOTAL "
        text = f"RETURN {total}{', '.join(columns)}"
        text += f" GROUP BY {', '.join(f'k{i}' for i in range(len(keys)))}" if keys else ""
        ordered = [c.split(" AS ")[1] for c in columns]
    else:
        columns = [f"{value()} AS c{i}" for i in range(random.randint(1, 2))]
        text, ordered = f"RETURN {', '.join(columns)}", ["c0", "start", "end", value()]
        if random.random() < 0.4:
            text, ordered = f"{text} ALL EVENTS", [*ordered, "variable", "position"]
    if random.random() < 0.7:
        keys = [random.choice(ordered) for _ in range(random.randint(1, 2))]
        ways = ("", " ASC", " DESC", " DESC NULLS FIRST", " NULLS FIRST", " NULLS LAST")
        text += " ORDER BY " + ", ".join(key + random.choice(ways) for key in keys)
        text += random.choice(("", f" LIMIT {random.randint(1, 4)}"))
    else:
        text += f" FETCH FIRST {random.randint(1, 4)} ROWS ONLY"
    return text


@pytest.mark.parametrize("start", range(0, 40 * EACH, EACH))
def test_whole_results_are_those_of_the_semantics(start):
    for random, query, events, time in cases(start):
        text = f"{query} {clauses(random, query)}"
        _, found = judged(query, events, time)
        names = _ids(found, text, events, time)
        checked = judged(text, events, time)[0]
        wanted = semantics.build_result_rows(checked, zip(found, names, strict=True))
        rows = matched(events, text, time, random).to_pylist()
        of_events = {"variable", "position", "index", "row"} if checked.all_events else set()
        shown = [{r.name for r in checked.returns} | of_events] * len(rows)
        ours = [[_plain(row[n]) for n in sorted(cs)] for row, cs in zip(rows, shown, strict=True)]
        theirs = [
            [_plain(row.get(f"\0{n}", row.get(n))) for n in sorted(cs)] for row, cs in zip(wanted, shown, strict=True)
        ]
        assert ours == theirs, text


def _ids(found, text, events, time):
    """The ids of matches, as the query for them alone names them."""
    shape = create_schema(events.schema, time=time, type="type", order=())
    inner, finishing = split_result_modifiers(ensue.parse(text))
    if finishing.counts is not None:
        return [""] * len(found)  # matches of one event have one id
    done = compile_query(inner, shape)
    rows = bindings_to_matches(replace(done.plan, residual=()), found)
    identity = done.result.identity  # of rows for each event, too
    done = replace(done, query=replace(done.query, all_events=False))
    builder = replace(done, plan=replace(done.plan, residual=())).result
    builder.identity = identity
    table = builder.build(rows, sort_events(events, shape))
    return table.column("match_id").to_pylist()


def _plain(value):
    if isinstance(value, float):
        return "nan" if math.isnan(value) else round(value, 9)
    return value
