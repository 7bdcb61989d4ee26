"""Whatever is written, OPSL gives a subscription or an error that points into the text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.analyzer.normal_form import build_alternatives
from ensue.errors import QueryError
from ensue.ir.canonical_form import canonical_subscription
from ensue.parser.opsl.opsl_parser import parse_subscription
from ensue.parser.registry import claims_opsl
from ensue.printing.opsl_printer import format_subscription
from support.seeds import scaled
from support.subscriptions import SMALL, subscriptions

PIECES = [
    "!", "=|", "|=", "|", "||", "&&", "(", ")", ";", ",", "=", "<", ">", "@", "IN", "OVLP", "SPL",
    "DIST", "$x;", "$y;", "$x", "A", "B", "Depot", "5", "-5", "1e999", "5 minutes", "'text'", "'",
    "ARITH", "STRING", "TIME", ":", "id", "LIKE", "TRUE", "TIMESTAMP '2026-01-31'", "WITH",
    "select", "latest", "within", ".", "CIRCLE (1 1, 1)", "POLYGON ((0 0, 1 1, 2 0))", "--", "/*",
    "\n", " ", "(ARITH:id = 1)", "$x; = (ARITH:id = 1)", "A = (ARITH:id = 2)", "NaN", "\0", '"',
]  # fmt: skip


def parsed(text):
    try:
        return parse_subscription(text, {"Depot": "CIRCLE (1 1, 1)"})
    except QueryError as error:
        return error


def is_understood(text):
    claims_opsl(text)
    found = parsed(text)
    if isinstance(found, QueryError):
        assert found.problem
        assert str(found)
        if found.span is not None:
            assert 0 <= found.span.start <= found.span.end <= len(text)
        return
    assert parse_subscription(format_subscription(found)) == found
    assert canonical_subscription(found)
    build_alternatives(found)


@settings(max_examples=scaled(200))
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_pieces_in_any_order(text):
    is_understood(text)


@given(st.text(max_size=40))
def test_any_text(text):
    is_understood(text)


@settings(max_examples=scaled(100))
@given(subscriptions(SMALL).map(format_subscription), st.data())
def test_a_text_with_a_slip(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 6)))
    is_understood(text[:start] + data.draw(st.sampled_from(["", *PIECES])) + text[end:])
