"""The forms of nodes: one example of each node, which says what the rest of the code relies on."""

from typing import get_args

import pytest

from ensue.ir.pattern import GROUPS, And, Atom, Kleene, Maybe, Not, OperatorCall, Or, Pattern, Repeat, Seq, Then
from ensue.ir.selection import Strategy
from ensue.ir.traits import (
    NodeForm,
    get_form,
    get_parts,
    get_positive_parts,
    is_event,
    is_input,
    is_list,
    is_loop,
    is_negation,
    is_operator_call,
    is_plain,
    is_sequence,
    replace_parts,
)
from ensue.ir.user_operator import operator
from ensue.parser.pattern_parser import parse
from ensue.printing.pattern_printer import format_head, format_pattern

A, B = Atom("A", "a"), Atom("B", "b")
NEAR = operator("near", q=lambda a, b: b.start - a.start < 5)
EXAMPLES: dict[type, tuple[str, Pattern]] = {
    Atom: ("A a", A),
    Kleene: ("A+ a[]", Kleene(A, 1, None)),
    Repeat: ("SEQ(A a, B b)+", Repeat(Seq((A, B)), 1, None)),
    Maybe: ("SEQ(A a, B? b)", Maybe(B)),
    Seq: ("SEQ(A a, B b)", Seq((A, B))),
    Then: ("SEQ(A a THEN NEXT B b)", Then(B, Strategy.NEXT)),
    And: ("AND(A a, B b)", And((A, B))),
    Or: ("OR(A a, B b)", Or((A, B))),
    Not: ("SEQ(A a, !B b, C c)", Not(B)),
    OperatorCall: ("near(A a, B b) n", OperatorCall(NEAR, (A, B), (), "n")),
}
each = pytest.mark.parametrize("example", EXAMPLES.values(), ids=[n.__name__ for n in EXAMPLES])


def everything(pattern: Pattern) -> list[Pattern]:
    return [pattern, *(inner for part in get_parts(pattern) for inner in everything(part))]


def test_every_node_has_an_example():
    assert set(EXAMPLES) == set(get_args(Pattern))


@each
def test_every_node_can_be_read_and_written(example):
    text, node = example
    query = parse(text, operators=[NEAR])
    assert node in everything(query.pattern)
    assert format_pattern(query.pattern) == text


@each
def test_a_node_is_the_same_around_the_same_parts(example):
    _, node = example
    assert replace_parts(node, get_parts(node)) == node


@each
def test_tests_for_single_nodes_agree_with_the_form(example):
    _, node = example
    kind = get_form(node)
    assert is_event(node) == (kind is NodeForm.EVENT)
    assert is_list(node) == (kind is NodeForm.LIST)
    assert is_loop(node) == (kind is NodeForm.LOOP)
    assert is_operator_call(node) == (kind is NodeForm.RESULT)
    assert is_input(node) == (kind in (NodeForm.EVENT, NodeForm.RESULT))
    assert is_negation(node) == (kind is NodeForm.ABSENCE)
    assert is_sequence(node) == (kind is NodeForm.SEQUENCE)


@each
def test_the_word_of_a_group_is_known(example):
    _, node = example
    head = format_head(node)
    assert format_pattern(node).startswith(f"{head}(") == (head in GROUPS)


def test_a_group_of_absences_has_no_parts_present():
    assert get_positive_parts(Seq((Not(A), B, Not(A)))) == [B]
    assert get_positive_parts(A) == []


def test_what_an_operator_or_an_entry_asks_is_more_than_its_form():
    more = (OperatorCall, Then)
    assert not any(is_plain(EXAMPLES[kind][1]) for kind in more)
    assert all(is_plain(node) for kind, (_, node) in EXAMPLES.items() if kind not in more)
