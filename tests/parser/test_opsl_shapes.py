"""A text of a known shape is read as if nothing was known: the same tree, places and errors."""

import dataclasses
import re
import threading
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.errors import QueryError, Span
from ensue.parser.opsl import opsl_parser as opsl
from ensue.parser.opsl.opsl_parser import MAX_CACHED_TREES, ParseTreeCache
from ensue.printing.opsl_printer import format_subscription
from support.seeds import scaled
from support.subscriptions import USUAL, subscriptions

CONSTANT = re.compile(r"(?P<circle>CIRCLE \([^)]*\))|(?P<text>'[^']*')|(?P<number>(?<![\w.])[0-9.]+)")
OTHERS = {
    "circle": ["CIRCLE (1 1, 1)", "circle( 10.5 -2, 3e2 )", "CIRCLE (0 0, 0)"],
    "text": ["''", "'it''s a long, long text; (really) = 5'", "'b%'"],
    "number": ["7", "-3", "+ 12", "1234567.5", "1e400", ".5", "99999999999999999999"],
}


def read(text, shapes):
    """What a text stands for, with all places, or the error with its place."""
    kept, opsl._shapes = opsl._shapes, shapes
    try:
        return _with_spans(opsl.parse_subscription(text))
    except QueryError as error:
        return str(error)
    finally:
        opsl._shapes = kept


def _with_spans(value):
    match value:
        case Span(start, end):
            return start, end
        case tuple():
            return [_with_spans(one) for one in value]
        case Mapping():
            return {name: _with_spans(one) for name, one in value.items()}
        case _ if dataclasses.is_dataclass(value):
            fields = dataclasses.fields(value)
            return type(value).__name__, {f.name: _with_spans(getattr(value, f.name)) for f in fields}
        case _:
            return value, type(value).__name__


@settings(max_examples=scaled(50))
@given(subscriptions(USUAL), st.data())
def test_other_constants(subscription, data):
    text = format_subscription(subscription)
    shapes = ParseTreeCache()
    read(text, shapes)
    for _ in range(3):
        other = CONSTANT.sub(lambda m: data.draw(st.sampled_from([m[0], *OTHERS[m.lastgroup]])), text)
        assert read(other, shapes) == read(other, ParseTreeCache())
    assert read(text, shapes) == read(text, ParseTreeCache())


PAIRS = [
    ("(ARITH:id = 17) -- 5 of them", "(ARITH:id = 1) -- 6 of them"),
    ("(ARITH:\"x 1\" = 17)", "(ARITH:\"x 2\" = 17)"),
    ("(ARITH:id = 17) && E-1, E-1 = (ARITH:v=2)", "(ARITH:id = 5) && E-1, E-1 = (ARITH:v= 20)"),
    ("(STRING:a = 'b')", "(STRING:a = 5)"),
    ("(STRING:a = 'b')", "(STRING:a = 'b)"),
    ("(ARITH:id = 17)", "(ARITH:id = 17 18)"),
    ("=|(ARITH:id = 17; 5)(ARITH:id = 2)", "=|(ARITH:id = 17; 5 minuts)(ARITH:id = 2)"),
    ("=|(ARITH:id = 17; 5 m)(ARITH:id = 2)", "=|(ARITH:id = 17; 1e300 m)(ARITH:id = 2)"),
    ("@(CIRCLE (1 1, 1))(ARITH:id = 1)", "@(POLYGON ((0 0, 1 1, 2 0)))(ARITH:id = 100)"),
    ("@(CIRCLE (1 1, 1))(ARITH:id = 1)", "@(POINT (1 1))(ARITH:id = 100)"),
    ("(ARITH:id = 17)", "(ARITH:id = \0n)"),
    ("(TIME:t > TIMESTAMP '2026-01-31')", "(TIME:t > TIMESTAMP 'never')"),
    ("DIST(ARITH:a=1;<;5)(ARITH:a=2)", "DIST(ARITH:a=10;<;-5)(ARITH:a=2)"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_one_after_the_other(first, second):
    shapes = ParseTreeCache()
    for text in (first, second, first, second, second):
        assert read(text, shapes) == read(text, ParseTreeCache())


def test_a_shape_is_parsed_once():
    parsed = []

    def parse(text):
        parsed.append(text)
        return opsl._grammar().parse(text)

    shapes = ParseTreeCache()
    for number in range(5):
        shapes.tree(f"(ARITH:id = {number * 7}, STRING:name = '{'x' * number}')", parse)
    assert len(parsed) == 1


def test_shapes_are_bounded():
    shapes = ParseTreeCache()
    for number in range(MAX_CACHED_TREES + 50):
        shapes.tree(f"(ARITH:a{number} = 1)", opsl._grammar().parse)
    assert len(shapes._templates) == MAX_CACHED_TREES
    shapes.tree(f"(STRING:a = '{'x' * 5_000}')", opsl._grammar().parse)
    assert len(shapes._templates) == MAX_CACHED_TREES


def test_threads_do_not_meet():
    wrong = []

    def work(letter):
        for number in range(300):
            text = f"(STRING:name = '{letter * number}', ARITH:id = {number})"
            found = opsl.parse_subscription(text).root.predicates
            if [p.value for p in found] != [letter * number, number]:
                wrong.append(text)
            if [text[p.span.start : p.span.end] for p in found] != text[1:-1].split(", "):
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
