"""Regular expressions mean the same on columns and row by row, and cannot run away."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.errors import QueryError
from ensue.functions import call_function
from ensue.functions.string import compile_regexp
from support.seeds import scaled

letters = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\D", r"\pL", "é", r"\."])
pieces = letters | st.sampled_from([r"\b", "^", "$"])


def around(inner):
    repeated = st.tuples(letters, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,2}"]))
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        repeated.map("".join),
    )


expressions = st.recursive(pieces, around, max_leaves=6)
texts = st.lists(st.text("abB1éÉ. \n", max_size=8), min_size=1)


@settings(max_examples=scaled(200), deadline=None)
@given(expressions, texts, st.sampled_from(["", "(?i)", "(?s)"]))
def test_columns_and_rows_agree(expression, texts, flag):
    column = pc.match_substring_regex(pa.array(texts), pattern=flag + expression)
    found = [call_function("regexp_matches", (text, flag + expression)) for text in texts]
    assert found == column.to_pylist()


@pytest.mark.parametrize("expression", ["(a*)*b", "(a|a)*b", "(?:a+)+$", "(a?){30}a{30}$"])
def test_no_expression_runs_away(expression):
    assert call_function("regexp_matches", ("a" * 100_000 + "c", expression)) is False


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("(a", "missing ): "),
        ("a)", "unexpected ): "),
        ("*", "no argument for repetition operator: *"),
        ("a**", r"bad repetition operator: **"),
        ("[a", "missing ]: [a"),
        (r"\1", r"invalid escape sequence: \1"),
        ("(?=a)", "invalid perl operator: (?="),
        ("a{2000}", "invalid repetition size: {2000}"),
        ("(a{100}){100}", "invalid repetition size: {100}"),
        (".{1000}" * 200, "pattern too large"),
        ("\ud800", "half a character"),
    ],
)
def test_an_invalid_expression_is_refused_with_its_problem(expression, problem):
    with pytest.raises(QueryError) as raised:
        compile_regexp(expression)
    assert problem in raised.value.problem


@pytest.mark.parametrize(
    ("function", "arguments", "result"),
    [
        ("regexp_matches", ("order 17", r"\d+"), True),
        ("regexp_matches", ("order", r"\d+"), False),
        ("regexp_matches", ("order", "(a"), None),
        ("regexp_matches", ("a" * 1_000_000 + "b", "b$"), True),
        ("regexp_count", ("a1b22", r"\d+"), 2),
        ("regexp_count", ("baac", "a*"), 4),
        ("regexp_count", ("a" * 100_000, "a.*b|a"), None),
        ("regexp_extract", ("order 17", r"\d+"), "17"),
        ("regexp_extract", ("k=v", r"(\w)=(\w)", 2), "v"),
        ("regexp_extract", ("k=v", r"(\w)=(\w)", 3), None),
        ("regexp_extract", ("k", r"(\w)=(\w)"), ""),
        ("regexp_extract", ("b", "(a)?b", 1), ""),
        ("regexp_replace", ("a1b22", r"\d+", "#"), "a#b#"),
        ("regexp_replace", ("k=v", r"(\w)=(\w)", r"\2=\1\\"), "v=k\\"),
        ("regexp_replace", ("äb", "b", r"[\0\7]"), "ä[b]"),
        ("regexp_replace", ("ab", "", "-"), "-a-b-"),
    ],
)
def test_functions_of_regular_expressions(function, arguments, result):
    assert call_function(function, arguments) == result
