"""Regular expressions find what others find, and never run away."""

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.algebra.functions import call
from ensue.algebra.regular import compiled
from ensue.errors import QueryError

letters = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\D", "é", r"\."])
pieces = letters | st.sampled_from([r"\b", "^", "$"])


def around(inner):
    # no loops in loops: what an empty turn means there, no two engines agree on
    repeated = st.tuples(letters, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,2}"]))
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        repeated.map("".join),
    )


expressions = st.recursive(pieces, around, max_leaves=6)
texts = st.text("abB1é. \n", max_size=8)


@settings(max_examples=400, deadline=None)
@given(expressions, texts, st.sampled_from(["", "(?i)"]))
def test_what_is_found_is_what_python_and_re2_find(expression, text, flag):
    found = compiled(flag + expression).search(text)
    python = re.compile(flag + expression.replace("$", r"\Z"), re.ASCII).search(text)
    assert (None if python is None else python.span()) == (found and found[:2])
    portable = compiled(flag + expression).portable
    re2 = pc.match_substring_regex(pa.array([text]), pattern=portable)[0].as_py()
    assert re2 == (found is not None)


@pytest.mark.parametrize("expression", ["(a*)*b", "(a|a)*b", "(?:a+)+$", "(a?){30}a{30}$"])
def test_no_expression_runs_away(expression):
    assert compiled(expression).search("a" * 2_000 + "c") is None


@pytest.mark.parametrize(
    "expression",
    [
        "(a",
        "a)",
        "*",
        "a**",
        "[a",
        "[]",
        r"\1",
        "(?=a)",
        r"\B",
        "a{2000}",
        "(a{100}){100}",
        "(" * 99,
    ],
)
def test_what_is_none_is_refused(expression):
    with pytest.raises(QueryError):
        compiled(expression)


@pytest.mark.parametrize(
    ("function", "arguments", "result"),
    [
        ("regexp_matches", ("order 17", r"\d+"), True),
        ("regexp_matches", ("order", r"\d+"), False),
        ("regexp_matches", ("order", "(a"), None),
        ("regexp_matches", ("a" * 10_000_000, "a"), None),
        ("regexp_extract", ("order 17", r"\d+"), "17"),
        ("regexp_extract", ("k=v", r"(\w)=(\w)", 2), "v"),
        ("regexp_extract", ("k=v", r"(\w)=(\w)", 3), None),
        ("regexp_extract", ("k", r"(\w)=(\w)"), ""),
        ("regexp_replace", ("a1b22", r"\d+", "#"), "a#b#"),
        ("regexp_replace", ("k=v", r"(\w)=(\w)", r"\2=\1\\"), "v=k\\"),
        ("regexp_replace", ("ab", "", "-"), "-a-b-"),
    ],
)
def test_functions_of_regular_expressions(function, arguments, result):
    assert call(function, arguments) == result
