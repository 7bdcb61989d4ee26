"""The forms of nodes: one example of each node, which says what the rest of the code relies on."""

from typing import get_args

import pytest

from ensue.algebra.form import (
    Form,
    form,
    is_absence,
    is_event,
    is_input,
    is_list,
    is_loop,
    is_result,
    is_sequence,
    parts,
    plain,
    present,
    with_parts,
)
from ensue.algebra.operator import operator
from ensue.algebra.pattern import (
    GROUPS,
    And,
    Apply,
    Atom,
    Kleene,
    Maybe,
    Not,
    Or,
    Pattern,
    Repeat,
    Seq,
    Then,
)
from ensue.algebra.policy import Strategy
from ensue.algebra.text import show_head, show_pattern
from ensue.languages.patterns import parse

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
    Apply: ("near(A a, B b) n", Apply(NEAR, (A, B), (), "n")),
}
each = pytest.mark.parametrize("example", EXAMPLES.values(), ids=[n.__name__ for n in EXAMPLES])


def everything(pattern: Pattern) -> list[Pattern]:
    return [pattern, *(inner for part in parts(pattern) for inner in everything(part))]


def test_every_node_has_an_example():
    assert set(EXAMPLES) == set(get_args(Pattern))


@each
def test_every_node_can_be_read_and_written(example):
    text, node = example
    query = parse(text, operators=[NEAR])
    assert node in everything(query.pattern)
    assert show_pattern(query.pattern) == text


@each
def test_a_node_is_the_same_around_the_same_parts(example):
    _, node = example
    assert with_parts(node, parts(node)) == node


@each
def test_tests_for_single_nodes_agree_with_the_form(example):
    _, node = example
    kind = form(node)
    assert is_event(node) == (kind is Form.EVENT)
    assert is_list(node) == (kind is Form.LIST)
    assert is_loop(node) == (kind is Form.LOOP)
    assert is_result(node) == (kind is Form.RESULT)
    assert is_input(node) == (kind in (Form.EVENT, Form.RESULT))
    assert is_absence(node) == (kind is Form.ABSENCE)
    assert is_sequence(node) == (kind is Form.SEQUENCE)


@each
def test_the_word_of_a_group_is_known(example):
    _, node = example
    head = show_head(node)
    assert show_pattern(node).startswith(f"{head}(") == (head in GROUPS)


def test_a_group_of_absences_has_no_parts_present():
    assert present(Seq((Not(A), B, Not(A)))) == [B]
    assert present(A) == []


def test_what_an_operator_or_an_entry_asks_is_more_than_its_form():
    more = (Apply, Then)
    assert not any(plain(EXAMPLES[kind][1]) for kind in more)
    assert all(plain(node) for kind, (_, node) in EXAMPLES.items() if kind not in more)
