"""AFTER MATCH SKIP: where the next match of a partition may begin."""

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

PAIRS = "SEQ(A a, B b) %s"
RUNS = "SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) { 1 = 1 } %s"


def test_without_it_every_match_is_kept(matched):
    assert matched(PAIRS % "", "AABB") == [(0, 2), (0, 3), (1, 2), (1, 3)]


@pytest.mark.streams(slow=True)
def test_past_the_last_event(matched):
    query = PAIRS % "AFTER MATCH SKIP PAST LAST EVENT"
    assert matched(query, "AABB") == [(0, 2)]
    assert matched(query, "AABBAB") == [(0, 2), (4, 5)]


def test_rows_are_events(matched):
    assert matched(PAIRS % "AFTER MATCH SKIP PAST LAST ROW", "AABB") == [(0, 2)]


@pytest.mark.everywhere(slow=True)
def test_to_the_next_event(matched):
    query = PAIRS % "AFTER MATCH SKIP TO NEXT EVENT"
    assert matched(query, "AABB") == [(0, 2), (1, 2)]


def test_to_the_last_of_a_variable(matched):
    query = "SEQ(A a, A b) AFTER MATCH SKIP TO LAST b"
    assert matched(query, "AAA") == [(0, 1), (1, 2)]


def test_to_the_first_of_a_kleene_variable(matched):
    query = "SEQ(A+ a[], B b) WHERE a.LEN = 2 AFTER MATCH SKIP TO LAST a"
    assert matched(query, "AAAB") == [((0, 1), 3), ((1, 2), 3)]


@pytest.mark.parametrize(
    ("part", "to"),
    [
        ("B? b", "FIRST b"),
        ("B? b", "LAST b IN ORDER OF START"),
        ("B* b[]", "FIRST b IN ORDER OF START"),
        ("(B b)?", "LAST b"),
    ],
)
def test_a_match_without_the_variable_skips_nothing(matched, part, to):
    query = f"SEQ(A a, {part}, C c) WITHIN 9 AFTER MATCH SKIP TO {to}"
    assert [(row[0], row[-1]) for row in matched(query, "ACC")] == [(0, 1), (0, 2)]
    with_it = [row for row in matched(query, "ABCC") if row[1] not in (None, ())]
    assert [(row[0], row[-1]) for row in with_it] == [(0, 2)]


@pytest.mark.everywhere(slow=True)
def test_another_alternative_than_that_of_the_variable_skips_nothing(matched):
    query = "OR(SEQ(A a, B b), SEQ(A c, C d)) WITHIN 9 AFTER MATCH SKIP TO LAST b"
    assert matched(query, "ACCBC") == [
        (None, None, 0, 1), (None, None, 0, 2), (0, 3, None, None)
    ]  # fmt: skip


def test_each_partition_skips_for_itself(matched):
    query = "SEQ(A a, B b) WHERE [k] AFTER MATCH SKIP PAST LAST EVENT"
    assert matched(query, "AABB", k="pqpq") == [(0, 2), (1, 3)]


def test_the_earliest_to_end_wins(matched):
    query = RUNS % "AFTER MATCH SKIP PAST LAST EVENT"
    assert matched(query, "ABABC") == [(0, (1, 3), 4)]


def test_with_a_window(matched):
    query = "SEQ(A a, B b) WITHIN 2 AFTER MATCH SKIP PAST LAST EVENT"
    assert matched(query, "AXXABAB") == [(3, 4), (5, 6)]


@pytest.mark.everywhere(slow=True)
def test_having_looks_at_what_is_left(matched):
    query = "SEQ(A a, B b) AFTER MATCH SKIP PAST LAST EVENT HAVING b.x > 1"
    # (0, 1) uses up its events although HAVING drops it
    assert matched(query, "ABBAB", x=[0, 1, 2, 0, 2]) == [(3, 4)]


# ------------------------------------------------------------------------------- in order of start

START = "AFTER MATCH SKIP PAST LAST EVENT IN ORDER OF START"
LONG = "OR(SEQ(A a, B b, C c), SEQ(B d, D e)) WITHIN 9 AFTER MATCH SKIP PAST LAST EVENT"


@pytest.mark.streams(slow=True)
def test_the_first_to_begin_wins(matched):
    assert matched(LONG, "ABDC") == [(None, None, None, 1, 2)]
    assert matched(f"{LONG} IN ORDER OF START", "ABDC") == [(0, 1, 3, None, None)]


def test_the_order_of_completion_can_be_said(matched):
    assert matched(f"{LONG} IN ORDER OF END", "ABDC") == [(None, None, None, 1, 2)]


def test_of_those_that_begin_together_the_first_to_end_wins(matched):
    query = f"SEQ(A a, B b) WITHIN 9 {START}"
    assert matched(query, "AABBAB") == [(0, 2), (4, 5)]


def test_one_that_never_completes_is_in_nobodys_way(matched):
    assert matched(f"{LONG} IN ORDER OF START", "ABD") == [(None, None, None, 1, 2)]


def test_to_the_next_event_by_start(matched):
    query = "SEQ(A a, B b) WITHIN 9 AFTER MATCH SKIP TO NEXT EVENT IN ORDER OF START"
    assert matched(query, "AABB") == [(0, 2), (1, 2)]


@pytest.mark.in_process("a stream without a window is refused")
def test_by_start_without_a_window(matched):
    query = f"OR(SEQ(A a, B b, C c), SEQ(B d, D e)) {START}"
    assert matched(query, "ABDXC") == [(0, 1, 4, None, None)]


def test_by_start_each_partition_for_itself(matched):
    query = f"OR(SEQ(A a, C c), SEQ(B d, D e)) WHERE [k] WITHIN 9 {START}"
    # q has no A: its B and D are not used up by what is between A and C
    assert matched(query, "ABBDDC", k="ppqpqp") == [(None, None, 2, 4), (0, 5, None, None)]


def test_by_start_the_longest_of_adjacent_events(matched):
    query = f"SEQ(A a, B+ b[], C c) USING partition WITHIN 9 {START}"
    assert matched(query, "ABBCABC") == [(0, (1, 2), 3), (4, (5,), 6)]


# ------------------------------------------------------------------- what is only known later


@pytest.mark.streams(slow=True)
def test_beside_a_negation_at_the_end(matched):
    query = "SEQ(A a, B b, !C c) WITHIN 4 AFTER MATCH SKIP PAST LAST EVENT"
    assert matched(query, "AABBXXXX") == [(0, 2)]
    # a C inside its window spoils the first, but not the second, which is complete before it
    assert matched(query, "AXXBCXAB") == [(6, 7)]


def test_what_the_negation_spoils_uses_up_nothing(matched):
    query = "OR(SEQ(A a, B b, !C c), SEQ(B d, D e)) WITHIN 6 AFTER MATCH SKIP PAST LAST EVENT"
    assert matched(query, "ABXD") == [(0, 1, None, None)]
    assert matched(query, "ABXDC") == [(None, None, 1, 3)]


def test_beside_a_negation_at_the_end_by_start(matched):
    query = f"OR(SEQ(A a, B b, !C c), SEQ(B d, D e)) WITHIN 6 {START}"
    assert matched(query, "ABXD") == [(0, 1, None, None)]
    assert matched(query, "ABXDC") == [(None, None, 1, 3)]


def test_past_a_greedy_loop_at_the_end(matched):
    query = "A a -> (B b THEN)++ WITHIN 9 AFTER MATCH SKIP PAST LAST EVENT"
    assert matched(query, "ABBXAB") == [(0, (1, 2)), (4, (5,))]


def test_past_a_greedy_loop_at_the_end_by_start(matched):
    query = f"SEQ(A a, B++ b[]) WITHIN 9 {START}"
    assert matched(query, "AABXB") == [(0, (2, 4))]
