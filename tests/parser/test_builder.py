"""Queries made call by call are those that a text stands for."""

from collections import Counter
from datetime import date, datetime, timedelta
from itertools import count
from random import Random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.parser.strategies import names, texts

import ensue
from ensue import all_of, one_of, pattern
from ensue.analyzer.pattern_rules import iterate_trailing_negations
from ensue.analyzer.query import check_structure
from ensue.ir.traversal import iterate_atoms
from ensue.printing.pattern_printer import format_pattern
from support.seeds import scaled, some

A = pattern("a", "A")
GROUP = pattern("b", "B").followed_by("c", "C")


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (A, "A a"),
        (pattern("A"), "A A"),
        (pattern("A").then("A"), "SEQ(A A THEN A A2)"),
        (A.then("b", "B"), "A a THEN B b"),
        (A.next("b", "B"), "A a THEN B b"),
        (A.then("b", "B", strict=True), "A a THEN STRICT B b"),
        (A.followed_by("b", "B"), "A a THEN NEXT B b"),
        (A.followed_by_any("b", "B"), "SEQ(A a, B b)"),
        (A.followed_by("b", "B").within_previous(5), "A a THEN NEXT WITHIN 5 B b"),
        (A.followed_by_any("b", "B").within_previous("5 min"), "A a THEN ANY WITHIN 5 minutes B b"),
        (A.not_next("n", "N").followed_by("b", "B"), "A a THEN !N n THEN NEXT B b"),
        (A.not_followed_by("n", "N").then("b", "B"), "A a -> !N n THEN B b"),
        (A.not_followed_by("n", "N").within("1 h"), "SEQ(A a, !N n) WITHIN 1 hour"),
        (A.not_followed_by("n", "N").within_previous(3).within(9), "SEQ(A a, !N n FROM a.end TO a.end + 3) WITHIN 9"),
        (A.followed_by("b", "B").one_or_more(), "A a THEN NEXT (B b THEN NEXT)+"),
        (A.followed_by("b", "B").zero_or_more(), "A a THEN NEXT (B b THEN NEXT)*"),
        (A.followed_by("b", "B").one_or_more().optional(), "A a THEN NEXT (B b THEN NEXT)*"),
        (A.followed_by("b", "B").times(3), "A a THEN NEXT (B b THEN NEXT){3}"),
        (A.followed_by("b", "B").times(2, 5), "A a THEN NEXT (B b THEN NEXT){2,5}"),
        (A.followed_by("b", "B").times_or_more(2), "A a THEN NEXT (B b THEN NEXT){2,}"),
        (A.followed_by("b", "B").times(2).optional(), "A a THEN NEXT ((B b THEN NEXT){2})?"),
        (A.followed_by("b", "B").optional(), "A a THEN NEXT B? b"),
        (A.then("b", "B").one_or_more().consecutive(), "A a THEN (B b THEN)+"),
        (A.then("b", "B").one_or_more().consecutive(strict=True), "A a THEN (B b THEN STRICT)+"),
        (A.then("b", "B").one_or_more().allow_combinations(), "A a THEN B+ b[]"),
        (A.then("b", "B").one_or_more(within=5), "A a THEN (B b THEN NEXT WITHIN 5)+"),
        (A.then("b", "B").one_or_more(within=5).allow_combinations(), "A a THEN (B b THEN ANY WITHIN 5)+"),
        (A.then("b", "B").one_or_more().greedy(), "A a THEN (B b THEN NEXT)++"),
        (A.then("b", "B").one_or_more().reluctant(), "A a THEN (B b THEN NEXT)+?"),
        (A.then("b", "B").one_or_more().until("u", "U"), "A a THEN (B b THEN NEXT)+ UNTIL U u"),
        (A.then("b", "B").one_or_more().until("u", "using"), 'A a THEN (B b THEN NEXT)+ UNTIL "using" u'),
        (A.then("b", "B").one_or_more().until("x > 3"), "A a THEN (B b THEN NEXT)+ UNTIL b.x > 3"),
        (A.then("b", "B").one_or_more().until("b.x > a.x"), "A a THEN (B b THEN NEXT)+ UNTIL b.x > a.x"),
        (A.followed_by(GROUP), "A a THEN NEXT (B b THEN NEXT C c)"),
        (A.followed_by(GROUP).times(2), "A a THEN NEXT (B b THEN NEXT C c THEN NEXT){2}"),
        (pattern(GROUP).one_or_more().then("d", "D"), "(B b THEN NEXT C c THEN NEXT)+ THEN D d"),
        (pattern(GROUP).then("d", "D"), "B b THEN NEXT C c THEN D d"),
        (A.then(one_of(pattern("b", "B"), "C")), "A a THEN (B b | C C)"),
        (one_of(one_of("A", "B"), "C"), "OR(A A, B B, C C)"),
        (all_of("A", "A").within(4), "AND(A A, A A2) WITHIN 4"),
        (A.within(timedelta(minutes=5)), "A a WITHIN 5 minutes"),
        (A.within("20 EVENTS"), "A a WITHIN 20 EVENTS"),
        (A.within(2.5), "A a WITHIN 2.5"),
        (A.followed_by("b", "B").within("5 minutes", of="a"), "A a THEN NEXT B b WITHIN 5 minutes OF a"),
        (A.partition_by("k", "my key"), 'A a WHERE [k, "my key"]'),
        (A.where("[k]", "x > 3"), "A a WHERE [k] and a.x > 3"),
        (A.after_match("past last event"), "A a AFTER MATCH SKIP PAST LAST EVENT"),
        (A.after_match("to last", "a"), "A a AFTER MATCH SKIP TO LAST a"),
        (A.after_match("skip to next event", order="start"), "A a AFTER MATCH SKIP TO NEXT EVENT IN ORDER OF START"),
        (A.returns("a.x", "a.y AS z", w="a.x + 1"), "A a RETURN a.x, a.y AS z, a.x + 1 AS w"),
        (A.returns("EXISTS"), "A a RETURN EXISTS"),
        (A.limit(1), "A a LIMIT 1"),
        (A.then("b", "B").times(2).having("count(b) > n", n=1), None),
        (A.choose("latest"), "A a CHOOSE LATEST"),
        (A.named("Hot"), "EVENT Hot AS A a"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_call_is_what_its_text_says(built, text):
    text = text or "A a THEN (B b THEN NEXT){2} HAVING count(b) > 1"
    assert ensue.parse(built) == ensue.parse(text)
    assert ensue.parse(ensue.show(built)) == built.query
    assert str(built) == ensue.show(built)


def test_no_call_changes_what_it_is_called_on():
    loop = A.followed_by("b", "B").one_or_more()
    before = ensue.show(loop)
    eager, other = loop.greedy(), loop.where("x > 1").then("c", "C")
    assert ensue.show(loop) == before
    assert ensue.show(eager) != before
    assert ensue.show(other) != before


# ------------------------------------------------------------------------------ conditions


@pytest.mark.parametrize(
    ("built", "conditions"),
    [
        (A.where("x > 3", "y < 2 or a.x = 1"), "a.x > 3 and (a.y < 2 or a.x = 1)"),
        (A.then("b", "B").where("x > a.x"), "b.x > a.x"),
        (A.then("b", "B").where("x > a.x").one_or_more(), "b[i].x > a.x"),
        (
            A.then("b", "B").one_or_more().where("b.x > b[i-1].x and avg(b[..i-1].x) < 9"),
            "b[i].x > b[i-1].x and avg(b[..i-1].x) < 9",
        ),
        (A.then("b", "B").one_or_more().where("avg(x) > 3"), "avg(b.x) > 3"),
        (A.not_followed_by("n", "N").where("x > a.x").then("b", "B"), "n.x > a.x"),
        (A.where("x > low and y = name", low=3, name="it's"), "a.x > 3 and a.y = 'it''s'"),
        (A.where("y in (some)", some=["x", "y"]), "a.y in ('x', 'y')"),
        (A.where("y in (some, 'z')", some={"y", "x"}), "a.y in ('x', 'y', 'z')"),
        (A.where("x = y", y=None), "a.x = null"),
        (A.where("x > low", low=-2), "a.x > -2"),
        (A.where("x > low", low=-2.5), "a.x > -2.5"),
        (A.where("x = yes", yes=True), "a.x = true"),
        (A.where("x > day", day=date(2026, 1, 31)), "a.x > DATE '2026-01-31'"),
        (A.where("x > t", t=datetime(2026, 1, 31, 10)), "a.x > TIMESTAMP '2026-01-31 10:00:00'"),
        (A.where("x - y < t", t=timedelta(minutes=5)), "a.x - a.y < 5 minutes"),
    ],
)
def test_what_a_condition_is_about(built, conditions):
    query = ensue.parse(built)
    text = f"{format_pattern(query.pattern)} WHERE {conditions}"
    assert query.where == ensue.parse(text).where


def test_a_condition_of_a_group_compares_events_of_one_time():
    rising = pattern("b", "B").followed_by("c", "C").where("x > b.x")
    alone = A.followed_by(rising)
    assert ensue.parse(alone).where == ensue.parse("SEQ(A a, B b, C c) WHERE c.x > b.x").where
    again = A.followed_by(rising).one_or_more()
    text = "SEQ(A a, (B b, C c)+) WHERE c[i].x > b[i].x"
    assert ensue.parse(again).where == ensue.parse(text).where


def test_a_condition_about_an_earlier_list_says_which_of_its_events():
    built = pattern("b", "B").one_or_more().then("c", "C").where("x > b.x")
    with pytest.raises(ensue.QueryError, match="b stands for several events"):
        ensue.parse(built)


@given(texts)
@settings(max_examples=scaled(50), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_value_stays_a_value(text):
    (condition,) = A.where("x = value", value=text).query.where
    assert condition.right.value == text


# ------------------------------------------------------------------------------ any calls


@st.composite
def builders(draw, taken=None, deep=1):
    """Random calls, with names that need quotes."""
    taken = set() if taken is None else taken

    def fresh():
        name = draw(names.filter(lambda one: one not in taken and not one.endswith("_until")))
        taken.add(name)
        return name

    def part():
        if deep and not draw(st.integers(0, 3)):
            return (draw(builders(taken, deep - 1)),)
        if deep and not draw(st.integers(0, 5)):
            kinds = pattern(fresh(), draw(names)), pattern(fresh(), draw(names))
            return (one_of(*kinds),)
        return fresh(), draw(names)

    def conditioned(built):
        if built.steps[-1].about is None or draw(st.integers(0, 2)):
            return built
        word = st.sampled_from(["paid_for", "ordered_by"])
        return built.where(f"{draw(word)} > the_least", the_least=draw(texts | st.integers(-9, 9)))

    def looped(built):
        built = draw(
            st.sampled_from(
                [
                    lambda: built.one_or_more(),
                    lambda: built.times(2),
                    lambda: built.times(1, 3),
                    lambda: built.times_or_more(2),
                    lambda: built.one_or_more(within=7),
                ]
            )
        )()
        for change in draw(st.lists(st.sampled_from(CHANGES), max_size=2)):
            built = change(built)
        if not draw(st.integers(0, 3)):
            built = built.until(fresh(), draw(names))
        return built

    built = conditioned(pattern(*part()))
    for _ in range(draw(st.integers(0, 3))):
        if not draw(st.integers(0, 3)):
            call = draw(st.sampled_from(["not_next", "not_followed_by"]))
            built = conditioned(getattr(built, call)(fresh(), draw(names)))
        call = draw(st.sampled_from(["then", "followed_by", "followed_by_any"]))
        built = conditioned(getattr(built, call)(*part()))
        if draw(st.booleans()):
            built = looped(built)
        elif not draw(st.integers(0, 2)):
            built = built.optional()
        if not draw(st.integers(0, 3)):
            built = built.within_previous(draw(st.sampled_from([3, "5 minutes"])))
    return built


CHANGES = (
    lambda b: b.greedy(),
    lambda b: b.reluctant(),
    lambda b: b.consecutive(),
    lambda b: b.allow_combinations(),
    lambda b: b.optional(),
)


@st.composite
def whole_queries(draw):
    built = draw(builders())
    variables = [atom.variable for step in built.steps for atom in iterate_atoms(step.part)]
    taken = {atom.type for atom in iterate_atoms(built.pattern)}
    open_end = any(iterate_trailing_negations(built.pattern))
    if open_end or draw(st.booleans()):
        built = built.within(draw(st.sampled_from([5, "2 hours", "20 EVENTS"])))
    if draw(st.booleans()):
        built = built.partition_by(draw(names))
    if not open_end and draw(st.booleans()):
        order = draw(st.sampled_from(["start", "end"]))
        built = built.after_match("past last event", order=order)
    if draw(st.booleans()):
        built = built.named(draw(names.filter(lambda n: n not in taken and n not in variables)))
    return built


@settings(max_examples=scaled(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(whole_queries())
def test_any_calls_give_a_query_that_reads_back(built):
    made = check_structure(built._build_query())
    again = ensue.parse(ensue.show(built), language="patterns")
    assert repr(again) == repr(made)
    assert again == built.query


WORDS = {"then": "THEN", "followed_by": "THEN NEXT", "followed_by_any": "THEN ANY"}
LOOPS = {"one_or_more": "+", "zero_or_more": "*", "times": "{2}", "times_or_more": "{2,}"}
INNER = {"": "THEN NEXT", "consecutive": "THEN", "allow_combinations": "THEN ANY"}
LEAVES = {"": "", "greedy": "+", "reluctant": "?"}


def said_twice(random, names, depth=0):
    """The same pattern by calls and as a text, in which each edge has its word."""

    def part():
        if depth < 1 and random.random() < 0.4:
            built, text = said_twice(random, names, depth + 1)
            return (built,), f"({text})"
        type, name = random.choice("BC"), next(names)
        return (name, type), f"{type} {name}"

    def quantified(built, text):
        kind = random.choice(["optional", "optional", "loop", "once", "once"])
        if kind == "once":
            return built, text
        text = text.removeprefix("(").removesuffix(")")
        if kind == "optional":
            return built.optional(), f"({text})?"
        loop, inner, leave = (random.choice([*words]) for words in (LOOPS, INNER, LEAVES))
        built = getattr(built, loop)(*([2] if loop.startswith("times") else []))
        for call in filter(None, (inner, leave)):
            built = getattr(built, call)()
        return built, f"({text} {INNER[inner]}){LOOPS[loop]}{LEAVES[leave]}"

    arguments, text = part() if depth else ((next(names), "A"), "A v0")
    built, text = quantified(pattern(*arguments), text) if depth else (pattern(*arguments), text)
    for _ in range(random.randint(1, 2)):
        if random.random() < 0.2:
            built, text = built.not_followed_by(name := next(names), "D"), f"{text}, !D {name}"
        word = random.choice([*WORDS])
        arguments, further = part()
        built, further = quantified(getattr(built, word)(*arguments), further)
        text = f"{text} {WORDS[word]} {further}"
    return built, text


def _matches(query, events):
    table = pa.table({"t": range(len(events)), "type": list(events)})
    found = ensue.match(table, query, time="t", type="type", options=ensue.PlannerOptions(structure="reference"))
    return found.drop("match_id").to_pylist()


@pytest.mark.filterwarnings("ignore:no event is of type")
@pytest.mark.parametrize("seed", some(2, 40))
def test_calls_find_what_their_words_find(seed):
    random, outcomes = Random(seed), Counter()
    for _ in range(25):
        built, text = said_twice(random, (f"v{number}" for number in count()))
        built, text = built.within(9), f"SEQ({text}) WITHIN 9"
        if ensue.parse(built) == ensue.parse(text):
            outcomes["the same query"] += 1
            continue
        events = "A" + "".join(random.choice("BCCCD") for _ in range(random.randint(2, 5)))
        found = _matches(text, events)
        assert _matches(built, events) == found, f"{text}\n{events}"
        outcomes["matches" if found else "nothing"] += 1
    assert outcomes["matches"], outcomes


def test_followed_by_any_where_it_may_begin_a_group():
    optional = pattern("b", "B").optional().followed_by_any("c", "C")
    text = "A a THEN NEXT ((B b)? THEN ANY C c)"
    assert ensue.parse(A.followed_by(optional)) == ensue.parse(text)
    assert [match["c"]["t"] for match in _matches(A.followed_by(optional), "ACCC")] == [1, 2, 3]


def test_followed_by_any_behind_an_absence():
    built = A.not_followed_by("n", "N").followed_by_any("b", "B").optional()
    assert ensue.parse(built) == ensue.parse("A a -> !N n THEN ANY (B b)?")
    assert ensue.parse(A.followed_by_any("b", "B")) == ensue.parse("SEQ(A a, B b)")


# --------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: A.greedy(), r"\.greedy\(\.\.\.\): it needs a loop"),
        (lambda: A.reluctant(), r"\.reluctant\(\.\.\.\): it needs a loop"),
        (lambda: A.consecutive(), r"\.consecutive\(\.\.\.\): it needs a loop"),
        (lambda: A.allow_combinations(), r"\.allow_combinations\(\.\.\.\): it needs a loop"),
        (lambda: A.until("x > 3"), r"\.until\(\.\.\.\): it needs a loop"),
        (lambda: A.one_or_more().times(2), r"\.times\(\.\.\.\): the number of repetitions is already set"),
        (lambda: A.times(3, 2), r"\.times\(\.\.\.\): 3 to 2 times is not a valid range"),
        (lambda: A.times("2"), r"\.times\(\.\.\.\): '2' is not a whole number"),
        (lambda: A.times(True), r"\.times\(\.\.\.\): True is not a whole number"),
        (lambda: A.not_next("n", "N").optional(), r"\.optional\(\.\.\.\): .* not occur at all"),
        (lambda: A.not_next("n", "N").one_or_more(), r"\.one_or_more\(\.\.\.\): .* not occur"),
        (lambda: A.not_next("n", "N").within_previous(3), "about the very next event, at any time"),
        (lambda: A.then("a", "B"), r"\.then\(\.\.\.\): two events are called 'a'"),
        (lambda: A.then(A), r"\.then\(\.\.\.\): two events are called 'a'"),
        (lambda: A.one_or_more().until("a", "U"), r"\.until\(\.\.\.\): two events are called"),
        (lambda: one_of(A, A), r"\.one_of\(\.\.\.\): two events are called 'a'"),
        (lambda: one_of("A"), r"\.one_of\(\.\.\.\): it needs two or more parts"),
        (lambda: A.then(pattern("B").within(5)), r"\.then\(\.\.\.\): a group can only have parts"),
        (lambda: A.then(GROUP, "B"), r"\.then\(\.\.\.\): a group has no type"),
        (lambda: A.then("", "B"), r"\.then\(\.\.\.\): '' is not a name"),
        (lambda: pattern(3), r"\.pattern\(\.\.\.\): 3 is not a name"),
        (lambda: A.where(), r"\.where\(\.\.\.\): the condition is missing"),
        (lambda: A.where("x >"), r"(?s)\.where\(\.\.\.\): expected .*column 4"),
        (lambda: A.where("x > 3 WITHIN 5"), r"\.where\(\.\.\.\): expected"),
        (lambda: A.where(3), r"\.where\(\.\.\.\): 3 is not a string"),
        (lambda: A.where("x > 3", low=3), r"\.where\(\.\.\.\): low= is given"),
        (lambda: A.where("x > low", low=object), r"\.where\(\.\.\.\): low=.* cannot be used as a constant"),
        (lambda: A.where("x > low", low=float("nan")), r"\.where\(\.\.\.\): low=nan cannot be used"),
        (lambda: A.where("x > low", low=[1, 2]), r"\.where\(\.\.\.\): there are several values"),
        (lambda: A.where("x in (low)", low=[]), r"\.where\(\.\.\.\): low= is an empty list"),
        (lambda: A.where("x > a", a=3), r"\.where\(\.\.\.\): 'a' is both an event of the pattern"),
        (lambda: A.within("soon"), r"\.within\(\.\.\.\): expected"),
        (lambda: A.within(None), r"\.within\(\.\.\.\): None is not a length of time"),
        (lambda: A.within(5).within(6), r"\.within\(\.\.\.\): it is already set"),
        (lambda: A.within(5, of="x"), r"\.within\(\.\.\.\): it needs the newest event"),
        (lambda: A.within_previous(5), r"\.within_previous\(\.\.\.\): there is nothing before"),
        (lambda: A.then("B").within_previous("2 EVENTS"), "a number of events is not a length of time"),
        (lambda: A.then("B").within_previous(0), r"\.within_previous\(\.\.\.\): 0 is not longer"),
        (lambda: A.after_match("past last"), "(?s)not a valid option.*past last event"),
        (lambda: A.after_match("to first"), "'to first' and 'to last' need a variable"),
        (lambda: A.after_match("to first", "a", order="x"), "'x' is not a valid option"),
        (lambda: A.choose("newest"), r"\.choose\(\.\.\.\): 'newest' is not a valid option"),
        (lambda: A.partition_by(), r"\.partition_by\(\.\.\.\): there is no field"),
        (lambda: A.returns("a."), r"\.returns\(\.\.\.\): expected"),
        (lambda: A.having("x >", x=3), r"\.having\(\.\.\.\): expected"),
        (lambda: A.then(GROUP).one_or_more().until("b.x > c.x"), "it is not clear which one"),
    ],
)
def test_an_error_names_the_call(call, message):
    with pytest.raises(ensue.QueryError, match=message):
        call()


def test_an_error_in_the_whole_query_points_into_its_text():
    with pytest.raises(ensue.QueryError, match=r"(?s)unknown variable 'c'.*WHERE b.x > c.x"):
        ensue.parse(A.then("b", "B").where("x > c.x"))
    events = pa.table({"t": [1], "type": ["A"], "price": [3]})
    with pytest.raises(ensue.QueryError, match=r"(?s)unknown field 'pric'.*did you mean 'price'"):
        ensue.match(events, A.where("pric > 3"), time="t", type="type")


# ------------------------------------------------------------------------- where it stands

EVENTS = pa.table({"t": [1, 2, 3, 4], "type": list("ABBC"), "x": [1, 5, 3, 0]})
WHERE = {"time": "t", "type": "type"}
BUILT = A.followed_by("b", "B").where("x > a.x").within(10)


def test_it_stands_where_a_text_may():
    text = ensue.show(BUILT)
    found = ensue.match(EVENTS, BUILT, **WHERE)
    assert found.num_rows == 1
    assert found == ensue.match(EVENTS, text, **WHERE)
    assert ensue.explain(BUILT, EVENTS, **WHERE) == ensue.explain(text, EVENTS, **WHERE)
    assert ensue.picture(BUILT) == ensue.picture(text)
    measured = ensue.statistics(EVENTS, BUILT, **WHERE)
    assert measured == ensue.statistics(EVENTS, text, **WHERE)


def test_live_takes_it():
    live = ensue.live(BUILT, schema=EVENTS.schema, **WHERE)
    assert live.feed(EVENTS).num_rows + live.finish().num_rows == 1


def test_several_go_by_their_names():
    found = ensue.match(EVENTS, [BUILT.named("Up"), A.named("One")], **WHERE)
    assert {name: table.num_rows for name, table in found.items()} == {"Up": 1, "One": 1}
    found = ensue.match(EVENTS, {"up": BUILT, "text": "A a"}, **WHERE)
    assert {name: table.num_rows for name, table in found.items()} == {"up": 1, "text": 1}


def test_a_definition_and_what_stands_on_it():
    up = ensue.define(BUILT.returns(x="b.x").named("Up"))
    top = pattern("u", "Up").followed_by("c", "C").where("x < u.x").within(10)
    (row,) = ensue.match(EVENTS, top, definitions=up, options=ensue.OutputOptions(trace=True), **WHERE).to_pylist()
    assert "u  Up" in str(ensue.trace(row, top))


def test_subscriptions_take_it():
    fleet = ensue.Subscriptions(time="t", type="type")
    fleet.add("up", BUILT)
    assert fleet["up"] == ensue.show(BUILT)
    assert ensue.match(EVENTS, fleet).num_rows == 1
