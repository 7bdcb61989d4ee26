"""Kleene variables: several events of one type, under each strategy."""

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


@pytest.mark.everywhere(slow=True)
def test_any_match_takes_every_selection(matched):
    found = matched("SEQ(A+ a[], B b)", "AAB")
    assert found == [((0,), 2), ((0, 1), 2), ((1,), 2)]


@pytest.mark.streams(slow=True)
def test_next_match_takes_all_it_can(matched):
    query = "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { 1 = 1 }"
    assert matched(query, "AXAB") == [((0, 2), 3), ((2,), 3)]


def test_next_match_goes_on_while_it_is_open(matched):
    query = "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { 1 = 1 }"
    assert matched(query, "ABAB") == [((0,), 1), ((0, 2), 3), ((2,), 3)]


def test_strict_contiguity_passes_over_nothing(matched):
    query = "SEQ(A+ a[], B b) WHERE strict_contiguity(a[], b) { 1 = 1 }"
    assert matched(query, "AXAAB") == [((2, 3), 4), ((3,), 4)]


@pytest.mark.everywhere
def test_partition_contiguity_passes_over_other_keys(matched):
    query = "SEQ(A+ a[], B b) WHERE partition_contiguity(a[], b) { [k] }"
    assert matched(query, "AAAB", k="pqpp") == [((0, 2), 3), ((2,), 3)]


def test_a_pattern_that_ends_open_gives_each_extension(matched):
    query = "SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) { 1 = 1 }"
    assert matched(query, "ABBB") == [(0, (1,)), (0, (1, 2)), (0, (1, 2, 3))]


def test_only_the_longest_by_a_negation_behind(matched):
    query = """SEQ(A a, B+ b[], !B c)
        WHERE skip_till_next_match(a, b[]) { 1 = 1 } WITHIN 10"""
    assert matched(query, "ABBB") == [(0, (1, 2, 3))]


def test_star_may_take_nothing(matched):
    assert matched("SEQ(A a, B* b[], C c)", "AC") == [(0, (), 1)]
    assert matched("SEQ(A a, B* b[], C c)", "ABC") == [(0, (), 2), (0, (1,), 2)]


def test_star_under_next_match_takes_what_comes(matched):
    query = "SEQ(A a, B* b[], C c) WHERE skip_till_next_match(a, b[], c) { 1 = 1 }"
    assert matched(query, "ABBC") == [(0, (1, 2), 3)]


@pytest.mark.parametrize(
    ("quantifier", "counts"),
    [("{2}", {2}), ("{2,3}", {2, 3}), ("{3,}", {3, 4}), ("{0,1}", {0, 1}), ("+", {1, 2, 3, 4})],
)
def test_how_many(matched, quantifier, counts):
    found = matched(f"SEQ(A{quantifier} a[], B b)", "AAAAB")
    assert {len(a) for a, _ in found} == counts
    assert len(found) == len(set(found))


@pytest.mark.everywhere(slow=True)
def test_each_element_against_the_one_before(matched):
    query = "SEQ(A+ a[], B b) WHERE a[i].x > a[i-1].x"
    found = matched(query, "AAAB", x=[1, 3, 2, 0])
    assert found == [((0,), 3), ((0, 1), 3), ((0, 2), 3), ((1,), 3), ((2,), 3)]


def test_each_element_against_the_running_average(matched):
    query = "SEQ(A{3} a[], B b) WHERE a[i].x > avg(a[..i-1].x)"
    assert matched(query, "AAAAB", x=[1, 5, 2, 4, 0]) == [((0, 1, 3), 4), ((0, 2, 3), 4)]


def test_the_running_maximum_through_the_element_itself(matched):
    query = "SEQ(A{2} a[], B b) WHERE a[i].x = max(a[..i].x)"
    assert matched(query, "AAAB", x=[1, 3, 2, 0]) == [((0, 1), 3), ((0, 2), 3)]


def test_first_and_last_element(matched):
    query = "SEQ(A+ a[], B b) WHERE a[1].x = 1 and a[a.LEN].x = 2"
    assert matched(query, "AAAB", x=[1, 2, 1, 0]) == [((0, 1), 3)]


def test_a_condition_on_a_missing_element_does_not_apply(matched):
    query = "SEQ(A+ a[], B b) WHERE a[3].x > 5"
    found = matched(query, "AAAB", x=[1, 1, 1, 0])
    assert ((0, 1, 2), 3) not in found
    assert len(found) == 6


def test_every_element_against_another_variable(matched):
    query = "SEQ(A+ a[], B b) WHERE b.x > a[i].x"
    assert matched(query, "AAB", x=[1, 5, 3]) == [((0,), 2)]


def test_counting_the_elements(matched):
    assert matched("SEQ(A+ a[], B b) WHERE a.LEN = 2", "AAAB") == [((0, 1), 3), ((0, 2), 3), ((1, 2), 3)]


def test_two_kleene_variables(matched):
    query = "SEQ(A+ a[], B+ b[]) WHERE skip_till_next_match(a[], b[]) { 1 = 1 }"
    # the first stays open for more of its type, so it may also pass over a B
    assert matched(query, "ABB") == [((0,), (1,)), ((0,), (1, 2)), ((0,), (2,))]


def test_a_kleene_variable_alone(matched):
    assert matched("A+ a[]", "AA") == [((0,),), ((0, 1),), ((1,),)]


ALL_OF_A = "SEQ(A+ a[], B+ b[]) WHERE skip_till_next_match(a[], b[]) {{ {} }}"


def test_every_element_against_the_first_of_a_later_variable(matched):
    assert matched("SEQ(A+ a[], B+ b[]) WHERE b[1].x > a[i].x", "AABB", x=[1, 5, 3, 0]) == [
        ((0,), (2,)),
        ((0,), (2, 3)),
    ]
    assert matched("SEQ(A{2,} a[], B+ b[]) WHERE b[1].x = a[i-1].x", "AAB", x=[4, 1, 4]) == [((0, 1), (2,))]


def test_the_first_of_a_later_variable_chooses_the_next_match(matched):
    query = ALL_OF_A.format("b[1].x > a[i].x")
    # the B at 1 is passed over; it may still follow the first one
    assert matched(query, "ABBB", x=[2, 1, 3, 0]) == [((0,), (2,)), ((0,), (2, 3))]
    assert matched(query, "ABB", x=[-1, -2, 0]) == [((0,), (2,))]


def test_the_first_of_a_later_variable_may_be_null(matched):
    x = [1, None, 3, 0]
    assert matched("SEQ(A+ a[], B+ b[]) WHERE b[1].x > a[i].x", "ABBB", x=x) == [((0,), (2,)), ((0,), (2, 3))]
    unknown = "SEQ(A+ a[], B+ b[]) WHERE (b[1].x > a[i].x) is null"
    assert matched(unknown, "ABBB", x=x) == [
        ((0,), (1,)), ((0,), (1, 2)), ((0,), (1, 2, 3)), ((0,), (1, 3)),
    ]  # fmt: skip


def test_every_element_against_the_first_of_another_in_any_order(matched):
    query = "AND(A+ a[], B+ b[]) WHERE b[1].x > a[i].x"
    assert matched(query, "ABA", x=[1, 2, 3]) == [((0,), (1,))]
    assert matched(query, "BAB", x=[2, 1, 0]) == [((1,), (0,)), ((1,), (0, 2))]


def test_every_element_against_the_first_of_an_alternative(matched):
    query = "SEQ(A+ a[], OR(B+ b[], C c)) WHERE b[1].x > a[i].x and c.x < a[i].x"
    assert matched(query, "ABC", x=[5, 6, 4]) == [((0,), (), 2), ((0,), (1,), None)]
    assert matched(query, "ABC", x=[5, 4, 6]) == []


def test_the_first_of_a_later_variable_beside_a_negation(matched):
    query = "SEQ(A+ a[], !C c, B+ b[]) WHERE b[1].x > a[i].x and c.x > b[1].x"
    assert matched(query, "ACB", x=[1, 2, 3]) == [((0,), (2,))]
    assert matched(query, "ACB", x=[1, 4, 3]) == []
