"""Repeated groups: a sequence or a choice several times, and when such loops end."""

import pyarrow as pa
import pytest

import ensue

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

NEXT = "SEQ({}, C c) WHERE skip_till_next_match({}, c) {{ 1 = 1 }}"


@pytest.mark.everywhere(slow=True)
def test_a_group_is_repeated_as_a_whole(matched):
    assert matched("(A a, B b)+", "ABAB") == [((0,), (1,)), ((0,), (3,)), ((0, 2), (1, 3)), ((2,), (3,))]


@pytest.mark.streams(slow=True)
def test_next_match_begins_another_time_where_it_can(matched):
    query = NEXT.format("(A a, B b)+", "a[], b[]")
    assert matched(query, "ABXABC") == [((0, 3), (1, 4), 5), ((3,), (4,), 5)]


def test_an_event_that_only_the_part_behind_can_use_splits_the_match(matched):
    query = NEXT.format("(A a, B b)+", "a[], b[]")
    assert matched(query, "ABCABC") == [((0,), (1,), 2), ((0, 3), (1, 4), 5), ((3,), (4,), 5)]


def test_inside_a_time_the_next_usable_event_is_used(matched):
    query = NEXT.format("(A a, B b)+", "a[], b[]")
    assert matched(query, "ACBBC") == [((0,), (2,), 4)]


def test_strict_contiguity_of_a_group(matched):
    query = "SEQ((A a, B b)+, C c) WHERE strict_contiguity(a[], b[], c) { 1 = 1 }"
    assert matched(query, "ABXABABC") == [((3, 5), (4, 6), 7), ((5,), (6,), 7)]


@pytest.mark.everywhere
def test_partition_contiguity_of_a_group(matched):
    query = "SEQ((A a, B b){2}, C c) WHERE partition_contiguity(a[], b[], c) { [k] }"
    assert matched(query, "AABABBC", k="pqppqpp") == [((0, 3), (2, 5), 6)]


@pytest.mark.parametrize(
    ("quantifier", "counts"), [("{2}", {2}), ("{2,3}", {2, 3}), ("{3,}", {3}), ("*", {0, 1, 2, 3}), ("{,1}", {0, 1})]
)
def test_how_many_times(matched, quantifier, counts):
    found = matched(f"SEQ((A a, B b){quantifier}, C c)", "ABABABC")
    assert {len(a) for a, _, _ in found} == counts
    assert all(len(a) == len(b) for a, b, _ in found)
    assert len(found) == len(set(found))


@pytest.mark.everywhere(slow=True)
def test_alternatives_in_a_group(matched):
    query = NEXT.format("(A a | B b)+", "a[], b[]")
    assert matched(query, "ABBAC")[0] == ((0, 3), (1, 2), 4)
    assert matched("SEQ((A a | B b){2}, C c)", "ABC") == [((0,), (1,), 2)]


def test_a_part_of_a_group_may_be_missing(matched):
    query = NEXT.format("(A a, (B b | D d)?)+", "a[], b[], d[]")
    assert matched(query, "ABAADC")[0] == ((0, 2, 3), (1,), (4,), 5)


def test_a_time_may_be_empty(matched):
    assert matched("SEQ((A? a, B? b){2}, C c)", "BC") == [((), (), 1), ((), (0,), 1)]


def test_a_kleene_variable_in_a_group_has_the_events_of_all_times(matched):
    query = NEXT.format("(A a, B+ b[])+", "a[], b[]")
    assert matched(query, "ABBABC") == [
        # the Kleene variable is open: an A may also be passed over
        ((0,), (1, 2, 4), 5),
        ((0, 3), (1, 2, 4), 5),
        ((3,), (4,), 5),
    ]


def test_a_group_in_a_group(matched):
    query = "SEQ((A a, (B b, D d)+)+, C c) WHERE strict_contiguity(a[], b[], d[], c) { 1 = 1 }"
    assert matched(query, "ABDBDABDC") == [((0, 5), (1, 3, 6), (2, 4, 7), 8), ((5,), (6,), (7,), 8)]


def test_what_can_be_divided_in_several_ways_is_one_match(matched):
    assert matched("(A+ a[])+", "AA") == [((0,),), ((0, 1),), ((1,),)]
    assert matched("(A+ a[]){2}", "AAA") == [
        ((0, 1),), ((0, 1, 2),), ((0, 2),), ((1, 2),),
    ]  # fmt: skip


def test_a_group_at_the_end_gives_each_extension(matched):
    query = "SEQ(C c, (A a, B b)+) WHERE skip_till_next_match(c, a[], b[]) { 1 = 1 }"
    assert matched(query, "CABAB") == [(0, (1,), (2,)), (0, (1, 3), (2, 4))]


# ------------------------------------------------------------------------------- conditions


@pytest.mark.everywhere(slow=True)
def test_each_list_is_indexed_by_its_own_events(matched):
    query = "SEQ((A a, B? b)+, C c) WHERE a[i].x > a[i-1].x and b[1].x = 7"
    assert matched(query, "AABC", x=[1, 2, 7, 0]) == [
        ((0,), (), 3),
        ((0,), (2,), 3),
        ((0, 1), (), 3),
        ((0, 1), (2,), 3),
        ((1,), (), 3),
        ((1,), (2,), 3),
    ]


def test_events_of_the_same_time(matched):
    query = NEXT.format("(A a, B b)+", "a[], b[]").replace("1 = 1", "b[i].x > a[i].x")
    # the B at 3 does not fit the A at 2
    assert matched(query, "ABABBC", x=[1, 2, 5, 4, 6, 0]) == [((0, 2), (1, 4), 5), ((2,), (4,), 5)]


def test_the_time_before(matched):
    query = "SEQ((A a, B b)+, C c) WHERE a[i].x > b[i-1].x and b[i].x > a[i].x"
    assert matched(query, "ABABC", x=[1, 2, 3, 4, 0]) == [
        ((0,), (1,), 4),
        ((0,), (3,), 4),
        ((0, 2), (1, 3), 4),
        ((2,), (3,), 4),
    ]
    assert ((0, 2), (1, 3), 4) not in matched(query, "ABABC", x=[1, 3, 3, 4, 0])


def test_first_last_number_and_aggregates(matched):
    query = """SEQ((A a, B b)+, C c)
        WHERE a[1].x = 1 and b[b.LEN].x = 6 and count(a) = 2 and avg(a.x) > 2"""
    assert matched(query, "ABABABC", x=[1, 2, 3, 4, 5, 6, 0]) == [((0, 4), (1, 5), 6), ((0, 4), (3, 5), 6)]


def test_a_window_and_a_key(matched):
    query = "SEQ((A a, B b)+, C c) WHERE [k] WITHIN 3"
    assert matched(query, "ABABC", k="ppppp") == [((2,), (3,), 4)]


def test_a_negation_beside_a_group(matched):
    query = "SEQ((A a, B b)+, !D d, C c)"
    assert matched(query, "ABDABC") == [((0,), (4,), 5), ((0, 3), (1, 4), 5), ((3,), (4,), 5)]


def test_events_that_last(runner):
    # the second A overlaps the first B
    events = pa.table({"s": [1, 3, 4, 8, 10], "e": [2, 5, 6, 9, 11], "type": ["A", "B", "A", "B", "C"]})
    query = "SEQ((A a, B b)+, C c) RETURN a[].s AS a, b[].s AS b"
    found = runner.match(events, query, time=("s", "e"), type="type").to_pylist()
    assert sorted((row["a"], row["b"]) for row in found) == [([1], [3]), ([1], [8]), ([4], [8])]


def test_after_match(matched):
    query = """SEQ((A a, B b)+, C c) WHERE skip_till_next_match(a[], b[], c) { 1 = 1 }
        AFTER MATCH SKIP PAST LAST EVENT"""
    assert matched(query, "ABABCABC") == [((0, 2), (1, 3), 4), ((5,), (6,), 7)]


# ------------------------------------------------------------------------- greedy, reluctant


@pytest.mark.everywhere(slow=True)
def test_a_reluctant_loop_ends_as_soon_as_it_can(matched):
    assert matched(NEXT.format("B+? b[]", "b[]"), "BCBC") == [((0,), 1), ((2,), 3)]
    query = "SEQ(A a, B+? b[], OR(C c, B d)) WHERE skip_till_next_match(a, b[], c, d) { d.x > 0 }"
    assert matched(query, "ABBBC", x=[0, 0, 0, 1, 0]) == [(0, (1, 2), None, 3)]


def test_a_reluctant_loop_at_the_end_takes_what_it_needs(matched):
    query = "SEQ(A a, {}) WHERE skip_till_next_match(a, b[]) {{ {} }}"
    assert matched(query.format("B+? b[]", "1 = 1"), "ABBB") == [(0, (1,))]
    assert matched(query.format("B{2,}? b[]", "1 = 1"), "ABBB") == [(0, (1, 2))]
    assert matched(query.format("B+? b[]", "sum(b.x) > 2"), "ABBB", x=[0, 1, 2, 3]) == [(0, (1, 2))]


@pytest.mark.everywhere(slow=True)
def test_an_event_that_a_greedy_loop_can_take_does_not_end_it(matched):
    query = "SEQ(A+{} a[], A b) WHERE strict_contiguity(a[], b) {{ a[i].x < 3 }}"
    assert matched(query.format(""), "AAA", x=[1, 2, 3]) == [((0,), 1), ((0, 1), 2), ((1,), 2)]
    assert matched(query.format("+"), "AAA", x=[1, 2, 3]) == [((0, 1), 2), ((1,), 2)]
    assert matched(query.format("?"), "AAA", x=[1, 2, 3]) == [((0,), 1), ((1,), 2)]


def test_greedy_and_reluctant_groups(matched):
    query = "SEQ((A a, B b)+{}, A c) WHERE strict_contiguity(a[], b[], c) {{ b[i].x = 1 }}"
    x = [1, 1, 1, 1, 1, 0]
    # a greedy group begins another time, and finds no second B for it
    assert matched(query.format("+"), "ABABAB", x=x) == []
    assert matched(query.format("?"), "ABABAB", x=x) == [((0,), (1,), 2), ((2,), (3,), 4)]


def test_loops_end_the_same_way_under_skip_till_any_match(matched):
    query = "SEQ(A{} a[], B b) WHERE a[i].x < 3"
    assert matched(query.format("+?"), "AAB", x=[1, 2, 3]) == matched(query.format("+"), "AAB", x=[1, 2, 3])
    both = "SEQ(A{} a[], A b)"
    assert matched(both.format("++"), "AAA") == []
    assert matched(both.format("+?"), "AAA") == [((0,), 1), ((0,), 2), ((1,), 2)]


def test_a_choice_inside_a_reluctant_time_is_not_its_end(matched):
    query = "SEQ(C c, (A a, B? b)+?) WHERE skip_till_next_match(c, a[], b[]) { 1 = 1 }"
    assert matched(query, "CABAB") == [(0, (1,), ()), (0, (1,), (2,))]


# ----------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("query", "problem", "hint"),
    [
        ("(A a, B b, !C c)+", "a repeated group cannot end with a negation", "or after the group"),
        ("(A a, AND(B b, C c))+", "AND inside a repeated group", "in which orders"),
        ("(A a, B b){0}", "zero times", "leave it out"),
        ("(A a, B b){3,2}", "at least 3 but at most 2 times", "{2,3}"),
        ("SEQ(A a, !(B b, C c)+, D d)", "a negated part cannot have a quantifier", "quantifier"),
        ("(A a, B b)*", "can match nothing at all", "+ in place of *"),
        ("(A a, B b)+ WHERE a.x > 3", "a stands for several events", "a[i].x for each"),
        ("(A a, B? b)+ WHERE a[i].x > b[i].x", "both run in the same condition", "avg(b.price)"),
        ("SEQ((A a, B b)+, C+ c[]) WHERE a[i].x > c[i].x", "both run in the same condition", "avg"),
    ],
)
def test_what_a_group_cannot_be(query, problem, hint):
    with pytest.raises(ensue.QueryError) as caught:
        ensue.parse(query)
    assert problem in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("(A a, B b)+", "SEQ(A a, B b)+"),
        ("(A a | B b)*?, C c", None),
        ("SEQ((A a | B b)*?, C c)", "SEQ(OR(A a, B b)*?, C c)"),
        ("(A a, (B b | C c)?)+", "SEQ(A a, (OR(B b, C c))?)+"),
        ("SEQ(A a, B b){2,3}", "SEQ(A a, B b){2,3}"),
        ("(A a -> B++ b -> C c){2,}? -> D", "SEQ(SEQ(A a, B++ b[], C c){2,}?, D D)"),
        ("((A a, B b)+, C c)+", "SEQ(SEQ(A a, B b)+, C c)+"),
        ("(A? a)+ -> B", "SEQ((A? a)+, B B)"),
        ("(A+ a[]){2}", "(A+ a[]){2}"),
        ("SEQ(A a, B{,3}? b[], C c)", "SEQ(A a, B{0,3}? b[], C c)"),
    ],
)
def test_groups_are_read_and_shown(text, shown):
    if shown is None:
        with pytest.raises(ensue.QueryError):
            ensue.parse(text)
        return
    query = ensue.parse(text)
    assert ensue.show(query) == f"PATTERN {shown}"
    assert ensue.parse(ensue.show(query)) == query


# ------------------------------------------------------------------------ with other clauses


def test_groups_of_events_made_of_events():
    events = pa.table({"t": range(7), "type": list("ABCABCD")})
    pair = "EVENT P AS SEQ(A a, B b) WITHIN 1;"
    found = ensue.match(events, f"{pair} SEQ((P p, C c)+, D d) RETURN p[].start AS p", time="t", type="type")
    assert sorted(found["p"].to_pylist()) == [[0], [0], [0, 3], [3]]
    with pytest.raises(ensue.QueryError, match="groups of single events"):
        ensue.match(events, f"{pair} SEQ((P p, C? c)+, D d)", time="t", type="type")


def test_a_group_in_the_definition_of_an_event():
    events = pa.table({"t": range(6), "type": list("ABABCD")})
    query = """EVENT G AS SEQ((A a, B b)+, C c)
            WHERE strict_contiguity(a, b, c) { 1 = 1 } RETURN count(a) AS n;
        SEQ(G g, D d) RETURN g.n AS n, g.a[1].t AS first, max(g.b.t) AS last"""
    found = ensue.match(events, query, time="t", type="type").to_pylist()
    assert sorted((row["n"], row["first"], row["last"]) for row in found) == [(1, 2, 3), (2, 0, 3)]


def test_counting_and_limiting_matches_of_a_group(runner):
    events = pa.table({"t": range(8), "type": list("ABABCABC")})
    query = "SEQ((A a, B b)+, C c) RETURN {}"
    found = runner.match(events, query.format("COUNT(*) AS n"), time="t", type="type")
    assert found["n"].to_pylist() == [4, 12]
    found = runner.match(events, query.format("a[].t AS a LIMIT 1"), time="t", type="type")
    assert found["a"].to_pylist() == [[0, 2], [0, 2, 5]]


# -------------------------------------------------------- at the end, and possibly empty


@pytest.mark.parametrize("clauses", ["", " WITHIN 9"])
@pytest.mark.parametrize("loop", ["B*+ b[]", "B{0,2}+ b[]", "(B b)*+", "(B b THEN)*+"])
def test_a_greedy_loop_at_the_end_is_empty_only_if_nothing_comes(matched, loop, clauses):
    query = f"A a THEN NEXT {loop}{clauses}"
    assert matched(query, "AXBB") == [(0, (2, 3))]
    assert matched(query, "AXX") == [(0, ())]


@pytest.mark.parametrize("using", ["", " USING next", " USING partition", " USING strict"])
def test_an_empty_loop_at_the_end_under_every_strategy(matched, using):
    assert matched(f"SEQ(A a, B*+ b[]){using}", "AB") == [(0, (1,))]
    assert matched(f"SEQ(A a, B*? b[]){using}", "ABB") == [(0, ())]
    assert matched(f"SEQ(A a, B{{0,1}}? b[]){using} WITHIN 9", "ABB") == [(0, ())]
    beyond = [(0, (2,))] if using in ("", " USING next") else [(0, ())]
    assert matched(f"SEQ(A a, B*+ b[]){using}", "AXB") == beyond


@pytest.mark.everywhere(slow=True)
def test_a_window_ends_a_greedy_loop_before_it_begins(matched):
    assert matched("SEQ(A a, B*+ b[]) USING next WITHIN 2", "AXXB") == [(0, ())]


@pytest.mark.parametrize(
    ("loop", "events", "expected"),
    [
        ("(B b, C c)*+", "ABC", [(0, (1,), (2,))]),
        ("(B b, C c)*?", "ABC", [(0, (), ())]),
        ("(B b, C c)*+", "AB", []),  # it has begun, and gives nothing back
        ("(B*+ b[], C*+ c[])", "ABC", [(0, (1,), (2,))]),
        ("(B*? b[], C*+ c[])", "ABC", [(0, (), (2,))]),
        ("(B*+ b[], C*? c[])", "ABC", [(0, (1,), ())]),
        ("(B*+ b[] | C c)", "AB", [(0, (1,), None)]),
        ("(B*? b[] | C c)", "AB", [(0, (), None)]),
        ("(B b, C*+ c[])?", "ABC", [(0, None, ()), (0, 1, (2,))]),
        ("OR(SEQ(B b, C*+ c[]), D d)", "ABC", [(0, 1, (2,), None)]),
    ],
)
def test_relatives_of_an_empty_loop_at_the_end(matched, loop, events, expected):
    assert matched(f"SEQ(A a, {loop}) USING next", events) == expected


def test_an_empty_alternative_before_another_part(matched):
    assert matched("SEQ(A a, (B*+ b[] | D d), C c) USING next", "ABC") == [(0, (1,), None, 2)]


def test_together_with_a_loop_that_may_be_empty(matched):
    assert matched("AND(A a, B*+ b[])", "AB") == [(0, (1,))]
    assert matched("AND(A a, B*? b[])", "AB") == [(0, ())]
