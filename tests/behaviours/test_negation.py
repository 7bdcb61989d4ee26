"""`!`: no such event where it stands."""

import pytest

import ensue

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


# ------------------------------------------------------------------------------- between


@pytest.mark.everywhere
def test_between_two_events(matched):
    assert matched("SEQ(A a, !C c, B b)", "ACBAB") == [(3, 4)]


def test_outside_it_does_not_matter(matched):
    assert matched("SEQ(A a, !C c, B b)", "CABC") == [(1, 2)]


def test_only_some_of_the_combinations(matched):
    assert matched("SEQ(A a, !C c, B b)", "AACB") == []
    assert matched("SEQ(A a, !C c, B b)", "ACAB") == [(2, 3)]


def test_several_negations_in_one_place(matched):
    query = "SEQ(A a, !C c, !D d, B b)"
    assert matched(query, "ACB") == matched(query, "ADB") == []
    assert matched(query, "AXB") == [(0, 2)]


def test_negations_in_several_places(matched):
    query = "SEQ(A a, !X x, B b, !Y y, C c)"
    assert matched(query, "AYBXC") == [(0, 2, 4)]
    assert matched(query, "AXBYC") == []


def test_adjacent_ones_with_conditions_of_their_own(matched):
    query = "SEQ(A a, !C c, !C d, B b) WHERE c.x > 2 and d.x = a.x"
    assert matched(query, "ACB", x=[1, 3, 0]) == matched(query, "ACB", x=[1, 1, 0]) == []
    assert matched(query, "ACB", x=[1, 2, 0]) == [(0, 2)]


def test_a_match_that_was_built_before_stays(matched):
    assert matched("SEQ(A a, !C c, B b, D d)", "ABCBD") == [(0, 1, 4)]


@pytest.mark.streams(slow=True)
def test_several_places_on_a_stream(matched):
    query = "SEQ(A a, !X x, B b, !Y y, C c, !X z) WHERE [k] WITHIN 9"
    assert matched(query, "ABCXABC", k="pppqppp") == [(0, 1, 2), (0, 1, 6), (0, 5, 6), (4, 5, 6)]


def test_the_negated_type_may_also_occur(matched):
    assert matched("SEQ(A a, !A c, B b)", "AAB") == [(1, 2)]


# ------------------------------------------------------------------------------- conditions


@pytest.mark.everywhere(slow=True)
def test_only_negated_events_that_fit_count(matched):
    query = "SEQ(A a, !C c, B b) WHERE c.x > 1"
    assert matched(query, "ACB", x=[0, 1, 0]) == [(0, 2)]
    assert matched(query, "ACB", x=[0, 2, 0]) == []


@pytest.mark.everywhere(slow=True)
def test_correlated_with_both_sides(matched):
    query = "SEQ(A a, !C c, B b) WHERE c.x > a.x and c.x < b.x"
    assert matched(query, "ACBB", x=[1, 3, 2, 4]) == [(0, 2)]


def test_an_unknown_condition_forbids_nothing(matched):
    query = "SEQ(A a, !C c, B b) WHERE c.x = a.x"
    assert matched(query, "ACB", x=[1, None, 1]) == [(0, 2)]


@pytest.mark.everywhere(slow=True)
def test_only_events_of_the_key_count(matched):
    query = "SEQ(A a, !C c, B b) WHERE [k]"
    assert matched(query, "ACB", k="pqp") == [(0, 2)]
    assert matched(query, "ACB", k="ppp") == []


# ------------------------------------------------------------------------------- at the start


@pytest.mark.everywhere(slow=True)
def test_at_the_start_inside_the_window(matched):
    query = "SEQ(!C c, A a, B b) WITHIN 3"
    assert matched(query, "CAB") == []
    assert matched(query, "CXXAB") == [(3, 4)]


def test_at_the_start_the_window_ends_at_the_last_event(matched):
    # the last event is 3 after the negated one: still inside
    assert matched("SEQ(!C c, A a, B b) WITHIN 3", "CXAB") == []


def test_at_the_start_without_a_window_the_whole_past_counts(matched):
    assert matched("SEQ(!C c, A a, B b)", "ABCAB") == [(0, 1), (0, 4)]


def test_at_the_start_by_events(matched):
    query = "SEQ(!C c, A a, B b) WITHIN 3 EVENTS"
    assert matched(query, "CAB") == []
    assert matched(query, "CXAB") == [(2, 3)]


# ------------------------------------------------------------------------------- at the end


@pytest.mark.streams
def test_at_the_end_inside_the_window(matched):
    assert matched("SEQ(A a, B b, !C c) WITHIN 3", "ABXXCABXC") == [(0, 1)]


def test_at_the_end_of_the_stream_nothing_more_comes(matched):
    assert matched("SEQ(A a, !B b) WITHIN 100", "XA") == [(1,)]


def test_at_the_end_a_tie_counts_in_its_order(matched):
    query = "SEQ(A a, !B b) WITHIN 5"
    assert matched(query, "AB", at=[1, 1]) == []
    assert matched(query, "BA", at=[1, 1]) == [(1,)]


def test_at_the_end_correlated(matched):
    query = "SEQ(A a, !B b) WHERE b.x = a.x WITHIN 5"
    assert matched(query, "AAB", x=[1, 2, 2]) == [(0,)]


def test_at_both_ends(matched):
    query = "SEQ(!C c, A a, !B b) WITHIN 2"
    assert matched(query, "AXXXCAXXXAB") == [(0,)]


# ------------------------------------------------------------------------------- elsewhere


@pytest.mark.everywhere(slow=True)
def test_of_a_sequence(matched):
    query = "SEQ(A a, !SEQ(C c, D d), B b)"
    assert matched(query, "ACDB") == []
    assert matched(query, "ADCB") == [(0, 3)]


def test_of_a_sequence_all_of_it_stands_between(matched):
    query = "SEQ(A a, !SEQ(C c, D d), B b)"
    assert matched(query, "CADB") == [(1, 3)]
    assert matched(query, "ACBD") == [(0, 2)]
    assert matched(query, "CACDB") == []


def test_of_a_sequence_with_conditions(matched):
    query = "SEQ(A a, !SEQ(C c, D d), B b) WHERE c.x > 1 and c.y = d.y and d.x < b.x"
    assert matched(query, "ACDB", x=[0, 2, 3, 4], y=[0, 1, 1, 0]) == []
    assert matched(query, "ACDB", x=[0, 1, 3, 4], y=[0, 1, 1, 0]) == [(0, 3)]
    assert matched(query, "ACDB", x=[0, 2, 3, 4], y=[0, 1, 2, 0]) == [(0, 3)]
    assert matched(query, "ACDB", x=[0, 2, 4, 4], y=[0, 1, 1, 0]) == [(0, 3)]


@pytest.mark.streams(slow=True)
def test_of_a_sequence_by_key(matched):
    query = "SEQ(A a, !SEQ(C c, D d), B b) WHERE [k] WITHIN 9"
    assert matched(query, "ACDB", k="ppqp") == [(0, 3)]
    assert matched(query, "ACCDBA", k="pqpppp") == []


def test_of_a_sequence_at_the_start(matched):
    query = "SEQ(!SEQ(C c, D d), A a, B b) WITHIN 4"
    assert matched(query, "CDAB") == []
    assert matched(query, "CDXXAB") == [(4, 5)]
    assert matched(query, "CXDXAB") == [(4, 5)]  # its first event is outside the window
    assert matched(query, "CADB") == [(1, 3)]


@pytest.mark.streams(slow=True)
def test_of_a_sequence_at_the_end(matched):
    query = "SEQ(A a, !SEQ(C c, D d)) WITHIN 3"
    assert matched(query, "AXCD") == []
    assert matched(query, "AXXCD") == [(0,)]
    assert matched(query, "CADX") == [(1,)]  # it has begun before


def test_of_a_sequence_in_an_optional_part(matched):
    query = "SEQ(A a, (SEQ(!SEQ(C c, D d), B b))?) WITHIN 9"
    assert matched(query, "ACDB") == [(0, None)]
    assert matched(query, "AB") == [(0, None), (0, 1)]


def test_several_of_several_events(matched):
    query = "SEQ(A a, !SEQ(C c, D d), !AND(E e, F f), B b)"
    assert matched(query, "ACDB") == matched(query, "AFEB") == []
    assert matched(query, "ADCEB") == [(0, 4)]


def test_a_sequence_that_shares_the_types_of_its_neighbours(matched):
    query = "SEQ(A a, !SEQ(A c, B d), B b)"
    assert matched(query, "AB") == [(0, 1)]
    assert matched(query, "AABB") == [(0, 2), (1, 2), (1, 3)]


def test_of_a_disjunction(matched):
    query = "SEQ(A a, !OR(C c, D d), B b)"
    assert matched(query, "ACB") == matched(query, "ADB") == []
    assert matched(query, "AXB") == [(0, 2)]


def test_of_a_conjunction(matched):
    query = "SEQ(A a, !AND(C c, D d), B b)"
    assert matched(query, "ADCB") == []
    assert matched(query, "ADB") == [(0, 2)]


def test_inside_and_between_its_first_and_last(matched):
    query = "AND(A a, B b, !C c)"
    assert matched(query, "BCA") == []
    assert matched(query, "CBAC") == [(2, 1)]


def test_inside_and_with_conditions(matched):
    query = "AND(A a, B b, !C c) WHERE c.x = a.x"
    assert matched(query, "BCA", x=[0, 1, 1]) == []
    assert matched(query, "BCA", x=[0, 1, 2]) == [(2, 0)]


def test_inside_and_by_key_and_window(matched):
    query = "AND(A a, B b, !C c) WHERE [k] WITHIN 3"
    assert matched(query, "ACBXA", k="pqppp") == [(0, 2), (4, 2)]


def test_inside_and_with_a_kleene_variable(matched):
    query = "AND(A+ a[], B b, !C c)"
    assert matched(query, "ACAB") == [((2,), 3)]
    assert matched(query, "BAC") == [((1,), 0)]


@pytest.mark.streams(slow=True)
def test_inside_and_before_another_event(matched):
    query = "SEQ(AND(A a, B b, !C c), D d) WITHIN 9"
    assert matched(query, "ABCD") == [(0, 1, 3)]
    assert matched(query, "BCAD") == []


def test_inside_and_an_event_of_the_match_does_not_forbid_it(matched):
    query = "AND(A a, B b, A c, !B n)"
    assert matched(query, "ABA") == [(0, 1, 2), (2, 1, 0)]
    assert matched(query, "ABBA") == []


def test_inside_and_beside_all_events_of_a_kleene_variable(matched):
    query = "AND(A a, B{2} b[], A c, !B n)"
    assert matched(query, "ABBA") == [(0, (1, 2), 3), (3, (1, 2), 0)]
    assert matched(query, "ABBBA") == []


def test_in_a_sequence_inside_and(matched):
    query = "AND(SEQ(A a, !C c, B b), D d)"
    assert matched(query, "ADB") == [(0, 2, 1)]
    assert matched(query, "ACBD") == []
    assert matched(query, "CABD") == [(1, 2, 3)]


def test_in_and_under_next_match_only_whole_matches_are_judged(matched):
    query = "AND(A a, B b, !C c) WHERE skip_till_next_match(a, b) { 1 = 1 }"
    # the run of the first A takes the first B, and then is none
    assert matched(query, "ACBB") == []


def test_in_an_alternative(matched):
    query = "OR(SEQ(A a, !C c, B b), SEQ(C d, !A e, B f))"
    assert matched(query, "ACB") == [(None, None, 1, 2)]
    assert matched(query, "CAB") == [(1, 2, None, None)]


def test_beside_an_optional_part(matched):
    query = "SEQ(A a, !C c, B? b, D d)"
    assert matched(query, "ABCD") == [(0, 1, 3)]
    assert matched(query, "ACBD") == []


def test_behind_a_kleene_variable(matched):
    query = "SEQ(A+ a[], !C c, B b) WHERE skip_till_next_match(a[], b) { 1 = 1 }"
    assert matched(query, "AACB") == []
    assert matched(query, "ACAB") == [((0, 2), 3), ((2,), 3)]


def test_before_a_kleene_variable(matched):
    query = "SEQ(A a, !C c, B+ b[])"
    assert matched(query, "ABCB") == [(0, (1,)), (0, (1, 3))]
    assert matched(query, "ACB") == []


def test_between_kleene_variables(matched):
    query = "SEQ(A+ a[], !C c, B+ b[]) WHERE skip_till_next_match(a[], b[]) { c.x > a[1].x }"
    assert matched(query, "ACB", x=[1, 2, 0]) == []
    assert matched(query, "ACB", x=[2, 2, 0]) == [((0,), (2,))]


def test_under_next_match_a_forbidden_step_is_not_taken(matched):
    query = "SEQ(A a, !C c, B b) WHERE skip_till_next_match(a, b) { 1 = 1 }"
    assert matched(query, "ACBAB") == [(3, 4)]


def test_under_strict_contiguity_between_neighbours_there_is_nothing(matched):
    query = "SEQ(A a, !C c, B b) WHERE strict_contiguity(a, b) { 1 = 1 }"
    assert matched(query, "ABACB") == [(0, 1)]


def test_a_condition_on_an_element_the_match_lacks_does_not_apply(matched):
    query = "SEQ(!X x, A+ a[], B b) WHERE x.v > a[2].v"
    # with one A nothing restricts which X count: any forbids
    assert matched(query, "XAAB", v=[0, 4, 4, 4]) == [((1, 2), 3)]


def test_an_event_of_the_match_does_not_forbid_it(matched):
    query = "SEQ(A a, (SEQ(!A n, C c))?) WITHIN 6"
    assert matched(query, "AC") == [(0, None), (0, 1)]
    assert matched(query, "AAC") == [(0, None), (1, None)]


# ------------------------------------------------------------------------------- in a group


@pytest.mark.everywhere(slow=True)
def test_at_the_start_of_a_group_that_begins_the_match(matched):
    plain = "SEQ(!X x, A a, B b, D d) WITHIN 3"
    group = "SEQ((!X x, A a, B b){1}, D d) WITHIN 3"
    assert matched(plain, "XABD") == matched(group, "XABD") == []
    assert matched(plain, "XXABXD") == [(2, 3, 5)]
    assert matched(group, "XXABXD") == [((2,), (3,), 5)]


@pytest.mark.parametrize(
    ("times", "clauses"),
    [
        ("{1}", ""),
        ("{1,2}", " USING next WITHIN 9"),
        ("+", " USING partition"),
        ("+", " USING next WITHIN 9 EVENTS"),
        ("++", " USING strict WITHIN 9"),
        ("+?", ""),
    ],
)
def test_no_quantifier_lets_the_first_time_go_without_its_negation(matched, times, clauses):
    group = f"(!X x, A a, B b){times}"
    assert matched(group + clauses, "XAB") == []
    assert matched(group + clauses, "YAB") == [((1,), (2,))]
    assert matched(f"SEQ({group}, D d){clauses}", "XABD") == []


def test_at_the_start_of_a_group_every_time_counts(matched):
    query = "SEQ((!X x, A a, B b){2}, D d) WITHIN 20"
    assert matched(query, "ABABD") == [((0, 2), (1, 3), 4)]
    assert matched(query, "XABABD") == matched(query, "ABXABD") == []
    assert matched(query, "ABABXD") == [((0, 2), (1, 3), 5)]


@pytest.mark.everywhere(slow=True)
def test_at_the_start_of_a_group_that_may_be_missing(matched):
    query = "SEQ((!X x, A a)*, D d) WITHIN 20"
    assert matched(query, "XAD") == [((), 2)]
    query = "SEQ(C? c, (!X x, A a)+, D d) WITHIN 20"
    assert matched(query, "XCAD") == [(1, (2,), 3)]
    assert matched(query, "CXAD") == []


def test_a_group_in_the_middle_looks_back_to_the_event_before_it(matched):
    query = "SEQ(C c, (!X x, A a){1}, D d) WITHIN 20"
    assert matched(query, "XCAD") == [(1, (2,), 3)]
    assert matched(query, "CXAD") == []


def test_at_the_start_of_a_group_of_alternatives_or_groups(matched):
    query = "SEQ((!X x, (A a | B b))+, D d) WITHIN 20"
    assert matched(query, "XAD") == matched(query, "XBD") == []
    assert matched("((!X x, A a)+, B b)+ WITHIN 20", "XAB") == []
    query = "SEQ((C? c, (!X x, A a)+, B b)+, D d) WITHIN 20"
    assert matched(query, "XABCABD")[0] == ((3,), (4,), (5,), 6)


def test_conditions_at_the_start_of_a_group(matched):
    query = "SEQ((!X x, A a)+, D d) WHERE x.x > 1 WITHIN 20"
    assert matched(query, "XAD", x=[1, 0, 0]) == [((1,), 2)]
    assert matched(query, "XAD", x=[2, 0, 0]) == []
    # nothing that it could be compared with has come: the comparison does not apply
    query = "SEQ((!X x, A a)+, D d) WHERE x.x > a[a.LEN].x WITHIN 20"
    assert matched(query, "XAD", x=[0, 1, 0]) == []
    assert matched(query, "AXAD", x=[5, 4, 1, 0])[0] == ((0,), 3)


def test_a_complex_event_at_the_start_of_a_group(matched):
    query = "SEQ((!SEQ(X x, Y y), A a)+, D d) WITHIN 20"
    assert matched(query, "XYAD") == []
    assert matched(query, "YXAD") == [((2,), 3)]


@pytest.mark.everywhere(slow=True)
def test_at_the_end_of_the_last_time_of_a_group(matched):
    plain = "SEQ(D d, A a, !X x, B? b) WITHIN 3"
    group = "SEQ(D d, (A a, !X x, B? b){1}) WITHIN 3"
    assert matched(plain, "DAX") == matched(group, "DAX") == []
    assert matched(plain, "DAXB") == matched(group, "DAXB") == []
    assert matched(group, "DAYYX") == [(0, (1,), ())]
    query = "SEQ(D d, ((A a, !X x) | B b)+) WITHIN 9"
    assert matched(query, "DAX") == []
    assert matched(query, "DAB") == [(0, (), (2,)), (0, (1,), ()), (0, (1,), (2,))]


def test_at_the_end_of_a_group_it_needs_a_window(matched):
    with pytest.raises(ensue.QueryError, match="a negation at the end needs a window"):
        matched("SEQ(D d, (A a, !X x, B? b)+)", "DAX")
    assert matched("SEQ(D d, (A a, !X x, B? b)+, E e)", "DAE") == [(0, (1,), (), 2)]
