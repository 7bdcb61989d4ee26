"""Several queries in one call: by name, each as alone, and what they share is done once."""

import random
import warnings

import pyarrow as pa
import pytest

import ensue
from ensue.codegen import kernel_cache as cache
from ensue.engine.program import Program
from ensue.errors import EventError, QueryError
from ensue.operators.match.shared_engine import create_shared_engines
from ensue.parser.pattern_parser import parse
from ensue.runtime.compiled_query import compile_with_timeouts
from ensue.runtime.workload import Workload
from ensue.vector import evaluation as vectors
from ensue.vector.event_table import create_schema
from support.key_groups import Stream, workload_of

HERE = {"time": "t", "type": "type"}


def events(text: str = "AABCABXCBACB", **columns: object) -> pa.Table:
    count = len(text)
    return pa.table(
        {
            "t": list(range(count)),
            "type": list(text),
            "k": [n % 2 for n in range(count)],
            "x": [n * 7 % 5 for n in range(count)],
            **columns,
        }
    )


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)


def assert_as_alone(found, queries, table, **options):
    assert list(found) == list(queries)
    for name, query in queries.items():
        alone = ensue.match(table, query, **HERE, **options)
        assert found[name].equals(alone), name


# ------------------------------------------------------------------------------- names

PAIR = "EVENT Pair AS SEQ(A a, B b) WITHIN 4"
TRIPLE = "EVENT Triple AS SEQ(A a, B b, C c) WHERE [k]"
BARE = "SEQ(B b, C c)"


def test_a_dict_of_queries_gives_a_dict_of_matches_in_its_order():
    queries = {"second": TRIPLE, "first": PAIR, "third": BARE}
    assert_as_alone(ensue.match(events(), queries, **HERE), queries, events())


def test_queries_go_by_their_own_names():
    found = ensue.match(events(), [TRIPLE, PAIR], **HERE)
    assert_as_alone(found, {"Triple": TRIPLE, "Pair": PAIR}, events())


@pytest.mark.parametrize("queries", [[PAIR, BARE], [PAIR, PAIR], (BARE, BARE, TRIPLE)])
def test_without_distinct_names_queries_go_by_their_places(queries):
    found = ensue.match(events(), queries, **HERE)
    assert_as_alone(found, dict(enumerate(queries)), events())


def test_queries_that_are_parsed_already():
    found = ensue.match(events(), [parse(PAIR), TRIPLE], **HERE)
    assert list(found) == ["Pair", "Triple"]


# ------------------------------------------------------------------------------- errors


def test_an_error_in_the_text_says_which_query():
    with pytest.raises(QueryError, match=r"query 'broken': .*(?s:.*)SEQ\(A a, \)"):
        ensue.match(events(), {"fine": PAIR, "broken": "SEQ(A a, )"}, **HERE)


def test_an_unknown_field_says_which_query_and_where():
    with pytest.raises(QueryError) as raised:
        ensue.match(events(), [PAIR, "SEQ(A a, B b) WHERE a.xx > 1"], **HERE)
    assert str(raised.value).startswith("query 1: unknown field 'xx'")
    assert "^^" in str(raised.value)
    assert "did you mean 'x'?" in str(raised.value)


@pytest.mark.parametrize("queries", [[], {}])
def test_no_query_is_an_error(queries):
    with pytest.raises(QueryError, match="there is no query"):
        ensue.match(events(), queries, **HERE)


def test_what_is_no_query():
    with pytest.raises(QueryError, match="a query is a text"):
        ensue.match(events(), 3, **HERE)
    with pytest.raises(QueryError, match="query 1: a query is a text, not an int"):
        ensue.match(events(), [PAIR, 3], **HERE)


def test_events_without_time_are_refused_once():
    table = events("AB").set_column(0, "t", pa.array([1, None]))
    with pytest.raises(EventError, match="1 of 2 events have no usable time"):
        ensue.match(table, [PAIR, BARE], **HERE)


def test_a_type_that_does_not_occur_is_told_once():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ensue.match(events("AAB"), ["SEQ(A a, Bb b)", "SEQ(Bb b, A a)", PAIR], **HERE)
    said = [str(w.message) for w in told if w.category is UserWarning]
    assert said == ["no event is of type 'Bb': did you mean 'B'?"]


# ------------------------------------------------------------------------------- options


def test_timeouts_of_every_query():
    queries = {"pair": PAIR, "triple": "SEQ(A a, B b, C c) WITHIN 3"}
    options = ensue.OutputOptions(emit_timeouts=True)
    found = ensue.match(events(), queries, **HERE, options=options)
    assert_as_alone(found, queries, events(), options=options)
    assert any(found["triple"]["timed_out"].to_pylist())


def test_a_table_for_each_type():
    tables = {"A": pa.table({"t": [1, 5], "x": [1, 2]}), "B": pa.table({"t": [2, 6], "x": ["one", "two"]})}
    queries = ["SEQ(A a, B b) WHERE a.x = 1", "SEQ(A a, B b) WHERE b.x = 'two'"]
    found = ensue.match(tables, queries, time="t")
    for number, query in enumerate(queries):
        assert found[number].equals(ensue.match(tables, query, time="t"))


def test_events_of_one_type():
    table = events().drop_columns(["type"])
    queries = ["SEQ(E a, E b) WHERE a.x > 3 and b.x < 1", "SEQ(E a, E b) WHERE [k] WITHIN 2"]
    found = ensue.match(table, queries, time="t")
    for number, query in enumerate(queries):
        assert found[number].equals(ensue.match(table, query, time="t"))


def test_no_events():
    found = ensue.match(events().slice(0, 0), [PAIR, TRIPLE], **HERE)
    assert [table.num_rows for table in found.values()] == [0, 0]
    assert found["Pair"].schema == ensue.match(events(), PAIR, **HERE).schema


def test_progress_ends_with_all_events():
    told = []
    report = lambda done, total: told.append((done, total))
    ensue.match(events(), [PAIR, TRIPLE], **HERE, progress=report)
    assert told[-1] == (12, 12)


# ------------------------------------------------------------------------------- sharing


def prepared(*texts: str):
    shape = create_schema(events().schema, time="t", type="type", order=())
    return [compile_with_timeouts(parse(text), shape).main for text in texts]


def test_queries_that_differ_in_what_they_return_share_a_matcher():
    same = "SEQ(A a, B b) WHERE [k] WITHIN 4"
    texts = (same, f"{same} RETURN a.x AS x", f"EVENT E AS {same} HAVING b.x > 1", PAIR)
    assert [w.members for w in create_shared_engines(prepared(*texts))] == [[0, 1, 2], [3]]
    found = ensue.match(events(), list(texts), **HERE)
    assert_as_alone(found, dict(enumerate(texts)), events())


def test_constants_do_not_make_another_kernel():
    texts = [
        f"SEQ(A a, B+ b[], !C n, C c) WHERE skip_till_any_match(a, b[], c) "
        f"{{ b[i].x > a.x + {n} and avg(b[..i-1].x) < {n}.5 and n.x - a.x = {n} }} WITHIN {n + 3}"
        for n in range(20)
    ]
    texts += [f"SEQ(A a, !B n, C c) WHERE c.x - a.x > {n} and n.x > a.x * {n} WITHIN {n + 3}" for n in range(20)]
    programs = [Program(p.plan, p.shape.schema, p.shape.unit, False) for p in prepared(*texts)]
    assert len({program.source.text for program in programs}) == 2
    assert len({(p.source.text, tuple(p.constants[0])) for p in programs}) == 40


def test_an_equal_condition_is_judged_once(monkeypatch):
    judged = []
    evaluate = vectors.evaluate

    def counted(expr, *rest):
        judged.append(expr)
        return evaluate(expr, *rest)

    monkeypatch.setattr(vectors, "evaluate", counted)
    queries = [f"SEQ(A a, B b) WHERE a.x > 2 and b.x < {n}" for n in range(5)]
    queries += [f"SEQ(A y, C z) WHERE y.x > 2 WITHIN {n + 1}" for n in range(5)]
    ensue.match(events(), queries, **HERE)
    assert len(judged) == 6


def test_a_job_of_several_queries_is_read_again_with_all_operators():
    rested = ensue.operator("rested", over="repeat", q=lambda last, new, period: new.t - last.t >= period)
    queries = tuple(parse(text, [rested]) for text in (PAIR, "EVENT Rested AS rested(A a, 3) d WITHIN 9"))
    named = dict(zip(("Pair", "Rested"), queries, strict=True))
    job = workload_of(named, events().schema, "t", "type")
    again = Workload.read(job.texts, [rested])
    assert again.texts == job.texts
    assert {one.name: one.query for one in again.specs} == named


def test_key_groups_of_several_queries_come_with_the_functions_of_their_operators():
    from numba import cloudpickle

    op = ensue.operator("rising", q=lambda a, b, by: b.x - a.x > by)
    texts = {"Pair": PAIR, "Rising": "SEQ(rising(A a, B b, 1) r, C c) WITHIN 9"}
    queries = tuple(parse(text, [op]) for text in texts.values())
    job = workload_of(dict(zip(texts, queries, strict=True)), events().schema, "t", "type")
    came = [cloudpickle.loads(cloudpickle.dumps(chain)) for chain in job.chains]
    assert [chain.text for chain in came] == [chain.text for chain in job.chains]
    functions = [o.q for chain in came for one in chain.specs for o in one.operators]
    assert functions
    assert op.q not in functions
    job.__dict__["chains"] = tuple(came)  # the key groups have only what came
    stream = Stream(job, 0)
    stream.feed(events().slice(0, 5))
    stream.feed(events().slice(5))
    for number, matches in enumerate(stream.end().values()):
        alone = ensue.match(events(), queries[number], **HERE)
        found = matches.to_pylist()
        assert alone.num_rows
        assert sorted(map(repr, found)) == sorted(map(repr, alone.to_pylist()))


@pytest.mark.slow
def test_a_thousand_queries():
    queries = {
        f"q{n}": f"SEQ(A a, B b) WHERE a.x = {n % 5} and b.x - a.x < {n % 7} WITHIN {n % 11 + 1}" for n in range(1_000)
    }
    found = ensue.match(events(), queries, **HERE)
    assert list(found) == list(queries)
    some = {name: queries[name] for name in list(queries)[::97]}
    assert_as_alone({name: found[name] for name in some}, some, events())


def test_plans_that_adapt_run_beside_the_others():
    queries = {"pair": PAIR, "triple": "SEQ(A a, B b, C c) WHERE c.x > a.x WITHIN 6"}
    found = ensue.match(events(), queries, **HERE, options=ensue.PlannerOptions(adaptive=True))
    assert_as_alone(found, queries, events())


@pytest.mark.parametrize(("size", "most"), [(1, 10_000), (1, 40), (7, 10_000), (7, 40)])
def test_keys_come_and_go(monkeypatch, size, most):
    """Queries share the codes of keys and translate them into their own, which each renumbers when keys are gone."""
    monkeypatch.setattr("ensue.operators.match.shared_scan.MANY_KEYS", most)
    rng = random.Random(size)
    keys = [None if rng.random() < 0.05 else k // 4 + rng.randrange(3) for k in range(400)]
    kinds, numbers = rng.choices("ABC", k=400), rng.choices(range(9), k=400)
    table = pa.table({"t": range(400), "kind": kinds, "key": keys, "x": numbers})
    queries = {
        "one": "SEQ(A a, B b) WHERE [key] WITHIN 6",
        "other": "SEQ(B b, C c) WHERE [key] AND b.x > c.x USING next WITHIN 9",
    }
    live = ensue.live(queries, schema=table.schema, time="t", type="kind")
    found = []
    for begin in range(0, 400, size):
        found.append(live.feed(table.slice(begin, size)))
        if begin % 5 == 0:
            live.work.pipeline.matchers[0].shared_engines[begin % 2].engine.compact()
    found.append(live.finish())
    for name, matches in ensue.match(table, queries, time="t", type="kind").items():
        assert matches.num_rows
        together = pa.concat_tables([tables[name] for tables in found])
        assert sorted(together["match_id"].to_pylist()) == sorted(matches["match_id"].to_pylist())
