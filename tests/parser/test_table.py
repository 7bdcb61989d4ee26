"""The table of languages: a language is one record, and everything that reads queries finds it."""

import re

import pyarrow as pa
import pytest

import ensue
from ensue.cli.inputs import read_query
from ensue.errors import QueryError, Span
from ensue.ir.pattern import Atom, Seq
from ensue.ir.query import Query
from ensue.ir.selection import ByUnits
from ensue.ir.traversal import iterate_atoms
from ensue.parser.parameters import NO_PARAMETERS
from ensue.parser.registry import LANGUAGES, Language, detect_language

_CHAIN = re.compile(r"(?P<types>\w+(?: then \w+)*) in (?P<length>\d+)")


def _parse(text, folder=None, **_):
    written = _CHAIN.fullmatch(text.removeprefix("chain:").strip())
    if written is None:
        raise QueryError("a chain is 'A then B in 5'", span=Span(0, len(text)), text=text)
    types = written["types"].split(" then ")
    parts = tuple(Atom(type, f"e{number}") for number, type in enumerate(types))
    return Query(Seq(parts), within=ByUnits(int(written["length"])))


def _show(query):
    types = " then ".join(atom.type for atom in iterate_atoms(query.pattern))
    return f"chain: {types} in {query.within.amount:g}"


CHAINS = Language("chains", lambda text: text.startswith("chain:"), _parse, _show)
EVENTS = pa.table({"t": [1, 2, 3], "type": ["A", "B", "B"]})


@pytest.fixture
def chains(monkeypatch):
    monkeypatch.setitem(LANGUAGES, "chains", CHAINS)


@pytest.mark.usefixtures("chains")
def test_a_text_is_read_in_the_language_that_it_looks_like():
    query = ensue.parse("chain: A then B in 1")
    assert query == ensue.parse("SEQ(A e0, B e1) WITHIN 1")
    assert ensue.match(EVENTS, "chain: A then B in 1", time="t", type="type").num_rows == 1
    assert read_query("chain: A then B in 1", NO_PARAMETERS) == query
    assert detect_language("SEQ(A a, B b)").name == "patterns"


@pytest.mark.usefixtures("chains")
def test_a_language_may_be_asked_for_by_its_name():
    assert ensue.parse("A then B in 1", language="chains") == ensue.parse("chain: A then B in 1")
    with pytest.raises(QueryError, match="then"):
        ensue.parse("chain: A then B in 1", language="patterns")


@pytest.mark.usefixtures("chains")
def test_a_query_is_shown_in_any_language():
    query = ensue.parse("SEQ(A e0, B e1) WITHIN 1")
    assert ensue.show(query, "chains") == "chain: A then B in 1"
    assert ensue.show(ensue.parse("chain: A then B in 1")) == ensue.show(query)


@pytest.mark.usefixtures("chains")
def test_errors_are_those_of_the_language():
    with pytest.raises(QueryError, match="a chain is 'A then B in 5'"):
        ensue.parse("chain: A and B")


@pytest.mark.parametrize(
    ("name", "hint"), [("pattern", "did you mean 'patterns'"), ("prolog", "known here: patterns, opsl")]
)
def test_an_unknown_language_is_an_error_that_names_the_known_ones(name, hint):
    for use in (
        lambda: ensue.parse("SEQ(A a, B b)", language=name),
        lambda: ensue.show(ensue.parse("SEQ(A a, B b)"), name),
    ):
        with pytest.raises(QueryError, match=f"there is no query language '{name}'") as error:
            use()
        assert hint in str(error.value)


SHOWN = {
    "patterns": "SEQ(A a, B b) WITHIN 5",
    "opsl": "=|(ARITH:id = 1; 5)(ARITH:id = 2)",
    "sql": "MATCH_RECOGNIZE (PATTERN (A B+) DEFINE B AS price > PREV(price))",
}


def test_every_language_reads_what_it_shows():
    for language in LANGUAGES.values():
        query = ensue.parse(SHOWN[language.name])
        assert detect_language(SHOWN[language.name]) is language
        assert language.parse(language.show(query)) == query
        assert language.name == language.name.lower()
