"""How one part follows another: THEN between parts, and USING for the whole query."""

import pyarrow as pa
import pytest

import ensue

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


@pytest.mark.everywhere
def test_then_is_the_very_next_event(matched):
    assert matched("A a THEN B b", "AXBAB") == [(3, 4)]


@pytest.mark.everywhere(slow=True)
def test_then_is_the_next_event_of_the_partition(matched):
    assert matched("A a THEN B b WHERE [k]", "AABB", k="pqpq") == [(0, 2), (1, 3)]


@pytest.mark.everywhere(slow=True)
def test_then_strict_is_the_next_event_of_the_stream(matched):
    assert matched("A a THEN STRICT B b WHERE [k]", "AABB", k="pqpq") == []
    assert matched("A a THEN STRICT B b WHERE [k]", "AABB", k="qppq") == [(1, 2)]


@pytest.mark.everywhere(slow=True)
def test_then_next_is_the_next_event_that_fits(matched):
    assert matched("A a THEN NEXT B b WHERE b.x > 1", "AXBBB", x=[0, 9, 1, 2, 3]) == [(0, 3)]


@pytest.mark.everywhere(slow=True)
def test_then_any_is_any_event_that_fits(matched):
    query = "A a THEN ANY B b THEN C c USING next"
    assert matched(query, "ABCXBC") == [(0, 1, 2), (0, 4, 5)]


@pytest.mark.streams(slow=True)
def test_each_edge_goes_by_its_own_word(matched):
    query = "A a THEN B b THEN NEXT C c THEN ANY D d"
    assert matched(query, "ABXCCDXD") == [(0, 1, 3, 5), (0, 1, 3, 7)]
    assert matched(query, "AXBCD") == []


def test_edges_without_a_word_go_by_the_strategy(matched):
    assert matched("SEQ(A a, B b THEN C c)", "ABBCC") == [(0, 2, 3)]
    assert matched("SEQ(A a, B b THEN C c) USING next", "ABBCC") == []
    assert matched("SEQ(A a, B b THEN ANY C c) USING strict", "ABBCC") == [(0, 1, 3), (0, 1, 4)]


def test_a_word_is_about_the_first_event_of_a_part(matched):
    assert matched("A a THEN (B b, C c)", "ABXC") == [(0, 1, 3)]
    assert matched("A a THEN (B b, C c)", "AXBC") == []
    assert matched("(A a, B b) THEN C c", "AXBC") == [(0, 2, 3)]


def test_a_part_that_is_missing_says_nothing(matched):
    query = "A a THEN (B b)? THEN NEXT C c"
    assert matched(query, "AXC") == [(0, None, 2)]
    assert matched(query, "ABXC") == [(0, None, 3), (0, 1, 3)]


def test_what_begins_the_match_follows_nothing(matched):
    assert matched("(A a)? THEN B b", "XB") == [(None, 1)]
    assert matched("(A a)? THEN B b", "AXB") == [(None, 2)]


@pytest.mark.everywhere(slow=True)
def test_next_speaks_of_its_own_event_only(matched):
    query = "A a THEN NEXT (B b)? THEN NEXT C c"
    assert matched(query, "ABC") == [(0, None, 2), (0, 1, 2)]
    assert matched(query, "ACBC") == [(0, None, 1), (0, 2, 3)]


@pytest.mark.everywhere(slow=True)
def test_a_loop_is_left_at_any_time_where_each_gap_says_so(matched):
    query = "A a THEN NEXT (B b THEN NEXT)+ THEN NEXT C c"
    assert matched(query, "ABBC") == [(0, (1,), 3), (0, (1, 2), 3)]
    assert matched(query, "ABCC") == [(0, (1,), 2)]
    assert matched(query, "ABCBC") == [(0, (1,), 2), (0, (1, 3), 4)]


@pytest.mark.everywhere(slow=True)
def test_a_greedy_loop_is_left_by_nothing_that_it_could_have_taken_since(matched):
    query = "A a THEN NEXT (B b THEN NEXT)++ THEN NEXT C c"
    assert matched(query, "ABXBC") == [(0, (1, 3), 4)]
    assert matched(query, "ABCBC") == [(0, (1,), 2), (0, (1, 3), 4)]
    assert matched("A a THEN NEXT (B b THEN NEXT)*+ THEN NEXT C c", "ABBC") == [(0, (1, 2), 3)]


@pytest.mark.everywhere(slow=True)
def test_an_event_that_a_greedy_loop_cannot_reach_any_more_bars_nothing(matched):
    query = "A a THEN NEXT (B b THEN)++ THEN NEXT C c"
    assert matched(query, "AXBBXBC") == [(0, (2, 3), 6)]
    assert matched("(B b THEN)++ THEN NEXT C c", "BXBC") == [((0,), 3), ((2,), 3)]
    assert matched("A a THEN NEXT (B b THEN)++ THEN ANY C c", "ABXBCC") == [(0, (1,), 4), (0, (1,), 5)]
    # a B directly behind the loop is one that it takes
    assert matched("A a THEN NEXT (B b THEN)++ THEN NEXT B c", "ABBXB") == [(0, (1, 2), 4)]
    # and so for gaps of the stream, of the query's strategy, and of time
    query = "A a THEN NEXT (B b THEN STRICT)++ THEN NEXT C c WHERE [k]"
    assert matched(query, "ABXBC", k="ppqpp") == [(0, (1,), 4)]
    assert matched("A a THEN NEXT B++ b[] THEN ANY C c USING strict", "ABXBC") == [(0, (1,), 4)]
    query = "A a THEN NEXT (B b THEN NEXT WITHIN 1)++ THEN NEXT C c"
    assert matched(query, "ABXBC") == [(0, (1,), 4)]


def test_a_greedy_group_that_cannot_begin_another_time_bars_nothing(matched):
    query = "S s THEN NEXT (A a THEN B b THEN)++ THEN NEXT C c"
    assert matched(query, "SABXABC") == [(0, (1,), (2,), 6)]
    assert matched(query, "SABABXC") == [(0, (1, 3), (2, 4), 6)]


@pytest.mark.everywhere
def test_a_loop_ends_at_an_event(matched):
    query = "A a THEN NEXT (B b THEN NEXT)+ UNTIL X u THEN NEXT C c"
    assert matched(query, "ABXBC") == [(0, (1,), 4)]
    assert matched(query, "AXBBC") == [(0, (2,), 4), (0, (2, 3), 4)]
    tied = "A a -> B+ b[] UNTIL X u -> C c USING next WHERE u.x > a.x"
    assert matched(tied, "ABXBXBC", x=[1, 0, 1, 0, 2, 0, 0]) == [(0, (1, 3), 6)]


@pytest.mark.everywhere(slow=True)
def test_a_loop_ends_at_an_event_of_its_own(matched):
    query = "A a -> B+ b[] UNTIL b.x > 2 -> C c USING next"
    assert matched(query, "ABBBC", x=[0, 1, 3, 1, 0]) == [(0, (1,), 4)]


def test_a_loop_ends_at_an_event_with_one_of_several_conditions(matched):
    query = "A a -> B+ b[] UNTIL (b.x > 2 or b.x < a.x) -> C c USING next"
    assert matched(query, "ABBBC", x=[1, 1, 3, 1, 0]) == [(0, (1,), 4)]
    assert matched(query, "ABBBC", x=[1, 1, 0, 1, 0]) == [(0, (1,), 4)]
    assert matched(query, "ABBBC", x=[1, 1, 2, 1, 0]) == [(0, (1, 2, 3), 4)]
    both = "A a THEN NEXT (B b THEN NEXT)++ UNTIL ((b.x + 1) > 2 and not b.x = 5) THEN NEXT C c"
    assert matched(both, "ABBBC", x=[1, 1, 5, 2, 0]) == [(0, (1, 2), 4)]
    assert matched("SEQ(B+ b[] UNTIL (X | Y) u, C c) USING strict", "BBC") == [((0, 1), 2), ((1,), 2)]


@pytest.mark.everywhere(slow=True)
def test_the_very_next_event_is_something_else(matched):
    query = "A a THEN !B n THEN NEXT C c"
    assert matched(query, "AXBCABC") == [(0, 3)]
    assert matched("A a THEN !B n THEN NEXT C c WHERE n.x > a.x", "ABC", x=[1, 1, 1]) == [(0, 2)]


@pytest.mark.everywhere(slow=True)
def test_a_gap_takes_only_so_long(matched):
    query = "A a THEN NEXT WITHIN 2 B b"
    assert matched(query, "AXBAXXB") == [(0, 2)]
    assert matched("SEQ(A a, B b WITHIN 2 OF a)", "AXBB") == [(0, 2)]


@pytest.mark.everywhere(slow=True)
def test_a_negation_in_a_group_counts_in_every_time(matched):
    query = "A a -> (!X x, B b)+ -> C c USING next"
    assert matched(query, "ABXBC") == [(0, (1,), 4)]
    assert matched(query, "ABBC") == [(0, (1, 2), 3)]


@pytest.mark.everywhere
def test_a_greedy_loop_at_the_end_is_as_long_as_it_can_be(matched):
    assert matched("A a -> (B b THEN)++ USING next", "ABBXBAB") == [(0, (1, 2)), (5, (6,))]
    assert matched("A a -> B++ b[] USING next WITHIN 3", "ABXBB") == [(0, (1, 3))]
    sessions = "(B b THEN WITHIN 1)++ AFTER MATCH SKIP PAST LAST EVENT"
    assert matched(sessions, "BBXBBB") == [((0, 1),), ((3, 4, 5),)]


def test_any_passes_over_what_another_part_could_use(matched):
    query = "A a THEN NEXT (B b)? THEN ANY C c"
    assert matched(query, "ABC") == [(0, None, 2), (0, 1, 2)]


def test_next_does_not_wait_for_what_could_only_have_been_the_next_event(matched):
    query = "A a THEN (B b)? THEN NEXT C c"
    assert matched(query, "AXBC") == [(0, None, 3)]


@pytest.mark.everywhere(slow=True)
def test_a_loop_may_be_left_at_any_time_by_any(matched):
    query = "A a -> B+ b[] THEN ANY C c USING next"
    assert matched(query, "ABBC") == [(0, (1,), 3), (0, (1, 2), 3)]


def test_a_loop_may_be_left_by_the_very_next_event_only(matched):
    query = "A a -> B+ b[] THEN C c USING next"
    assert matched(query, "ABBC") == [(0, (1, 2), 3)]
    assert matched(query, "ABXC") == []


def test_a_loop_is_entered_by_its_word_and_goes_on_by_the_strategy(matched):
    query = "A a THEN B+ b[] THEN NEXT C c USING next"
    assert matched(query, "ABXBC") == [(0, (1,), 4), (0, (1, 3), 4)]
    assert matched(query, "AXBC") == []


def test_words_inside_a_repeated_group(matched):
    query = "SEQ((A a THEN B b)+, C c) USING next"
    assert matched(query, "ABXABC") == [((0, 3), (1, 4), 5), ((3,), (4,), 5)]
    assert matched(query, "AXBC") == []


@pytest.mark.everywhere(slow=True)
def test_a_loop_says_how_one_event_follows_another(matched):
    query = "A a -> (B b THEN)+ -> C c USING next"
    assert matched(query, "AXBBXC") == [(0, (2, 3), 5)]
    assert matched(query, "ABXBCC") == [(0, (1,), 4)]


def test_a_loop_of_any_events_in_a_query_of_next_ones(matched):
    query = "A a -> (B b THEN ANY)+ THEN ANY C c USING next"
    assert matched(query, "ABBC") == [(0, (1,), 3), (0, (1, 2), 3)]
    assert matched(query, "ABBBC") == [(0, (1,), 4), (0, (1, 2), 4), (0, (1, 2, 3), 4), (0, (1, 3), 4)]


def test_a_group_says_how_one_time_follows_another(matched):
    query = "SEQ((A a, B b THEN)+, C c) USING next"
    assert matched(query, "AXBABC") == [((0, 3), (2, 4), 5), ((3,), (4,), 5)]
    assert matched(query, "ABXABC") == [((0,), (1,), 5), ((3,), (4,), 5)]


def test_alternatives_follow_by_one_word(matched):
    query = "A a THEN (B b | C c)"
    assert matched(query, "AC") == [(0, None, 1)]
    assert matched(query, "AXC") == []


def test_a_negation_stands_before_a_word(matched):
    query = "A a -> !X x THEN NEXT B b"
    assert matched(query, "ACB") == [(0, 2)]
    assert matched(query, "AXB") == []


def test_what_an_event_of_the_partition_is_may_depend_on_conditions_between_events(matched):
    query = "A a THEN NEXT B b THEN B c WHERE b.x > a.x and c.x > b.x"
    assert matched(query, "ABBB", x=[1, 0, 2, 3]) == [(0, 2, 3)]


@pytest.mark.everywhere(slow=True)
def test_a_window_and_words(matched):
    assert matched("A a THEN NEXT B b WITHIN 2", "AXXBAXB") == [(4, 6)]


@pytest.mark.parametrize(
    ("word", "strategy"),
    [
        ("next", "skip_till_next_match"),
        ("ANY", "skip_till_any_match"),
        ("Strict", "strict_contiguity"),
        ("partition", "partition_contiguity"),
    ],
)
def test_using_names_the_strategy(word, strategy):
    named = ensue.parse(f"SEQ(A a, B+ b[]) WHERE {strategy}(a, b[]) {{ a.x > 1 }} WITHIN 5")
    assert ensue.parse(f"SEQ(A a, B+ b[]) USING {word} WHERE a.x > 1 WITHIN 5") == named


def test_using_of_an_archived_pattern():
    joined = "A a JOIN ARCHIVE old SEQ(B b, C c) {} RANGE 5 BEFORE START"
    using = ensue.parse(joined.format("USING next"))
    assert using == ensue.parse(joined.format("WHERE skip_till_next_match(b, c) {}"))


def test_explain_says_what_follows_what():
    events = pa.table({"t": [1, 2], "type": ["A", "B"]})
    told = ensue.explain("A a THEN NEXT B b", events, time="t", type="type")
    assert "SEQ(A a THEN NEXT B b)" in told


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("A a THEN NEXT !B b THEN C c", "a negated event does not occur"),
        ("AND(A a THEN B b, C c)", "THEN inside AND is not supported yet"),
        ("SEQ(A a, !(B b THEN NEXT C c), D d)", "THEN NEXT inside a negation"),
        ("AND((A a THEN)+, C c)", "THEN inside AND is not supported yet"),
        ("(A a THEN)? -> B b", "defines how one round follows another"),
        ("A a THEN", "a part follows THEN"),
        ("A a USING soon", "USING STRICT, USING PARTITION, USING NEXT or USING ANY"),
        ("A a USING next WHERE strict_contiguity(a) {}", "the strategy is named twice"),
    ],
)
def test_what_is_refused(query, message):
    with pytest.raises(ensue.QueryError, match="(?s).*" + message):
        ensue.parse(query)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A a THEN B b -> C c", "SEQ(A a THEN B b, C c)"),
        ("A a -> (B b then)*", "SEQ(A a, (B b THEN)*)"),
        ("(A a, B b THEN ANY){2}?", "(SEQ(A a, B b) THEN ANY){2}?"),
        ("(A then THEN)+", "(A then THEN)+"),
        ("A a THEN NEXT WITHIN 5 (D d)", "SEQ(A a THEN NEXT WITHIN 5 (D d))"),
        ("A a THEN NEXT WITHIN 5 D+ d[]", "SEQ(A a THEN NEXT WITHIN 5 D+ d[])"),
        ("A a THEN NEXT WITHIN 5 d D d", "SEQ(A a THEN NEXT WITHIN 5 days D d)"),
        ("A a THEN NEXT WITHIN 5 s Stop", "SEQ(A a THEN NEXT WITHIN 5 seconds Stop Stop)"),
        ("A THEN B", "SEQ(A A THEN B B)"),
        ("A a then any (B b, C c)", "SEQ(A a THEN ANY SEQ(B b, C c))"),
        ("SEQ(A then, B b)", "SEQ(A then, B b)"),
        ("A then THEN (Any x)", "SEQ(A then THEN (ANY x))"),
        ('A then THEN ("Any" x)', 'SEQ(A then THEN "Any" x)'),
        ("SEQ(A a, B b THEN/* soon */C c)", "SEQ(A a, B b THEN C c)"),
    ],
)
def test_words_are_read_and_written(text, shown):
    query = ensue.parse(text)
    assert ensue.show(query) == f"PATTERN {shown}"
    assert ensue.parse(ensue.show(query)) == query
