"""A name of a file in the place of a query: said so, with the file that may be meant."""

from pathlib import Path

import pytest

import ensue
from ensue.cli.inputs import read_query_text
from ensue.cli.terminal import UsageError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queries").mkdir()
    (tmp_path / "my queries").mkdir()
    for name in ("thefts.ensue", "queries/late.ensue", "my queries/late.ensue"):
        (tmp_path / name).write_text("SEQ(A a, B b) WITHIN 5")
    return tmp_path


MISSPELT = {
    "theft.ensue": "did you mean 'thefts.ensue'?",
    "thefts.ensu": "did you mean 'thefts.ensue'?",
    "thefts.sql": "did you mean 'thefts.ensue'?",
    "queries/lat": "did you mean 'queries/late.ensue'?",
    "my queries/latte.ensue": "did you mean 'my queries/late.ensue'?",
    "quries/late.ensue": "there is no folder quries",
    "zzz.ensue": ": thefts.ensue",
}


@pytest.mark.parametrize("name", MISSPELT)
def test_a_misspelt_file_is_no_query(name):
    calls = (
        lambda: ensue.parse(name),
        lambda: ensue.parse(Path(name)),
        lambda: ensue.match(None, name, time="t"),
        lambda: ensue.match(None, [name], time="t"),
        lambda: ensue.explain(name),
        lambda: read_query_text(name),
    )
    for call in calls:
        with pytest.raises((ensue.QueryError, UsageError)) as raised:
            call()
        assert f"there is no query file {name}" in str(raised.value)
        assert MISSPELT[name] in str(raised.value)


def test_the_name_of_a_file_that_is_there_is_no_query_either():
    with pytest.raises(ensue.QueryError, match=r"pass pathlib.Path\('thefts.ensue'\)"):
        ensue.parse("thefts.ensue")
    assert ensue.parse(Path("thefts.ensue")) == ensue.parse("SEQ(A a, B b) WITHIN 5")


def test_on_the_command_line_it_is_read():
    assert read_query_text("my queries/late.ensue") == "SEQ(A a, B b) WITHIN 5"


@pytest.mark.parametrize(
    ("word", "why"), [("thefts", "did you mean 'thefts.ensue'"), ("queries", "is a folder"), ("./", "is a folder")]
)
def test_a_word_that_names_a_file_but_for_its_ending(word, why):
    with pytest.raises(UsageError, match=why):
        read_query_text(word)


@pytest.mark.parametrize(
    "text", ["A", "A+", "A->B", "SEQ(A,B)", "SEQ(A a, B b) WHERE a.x = b.txt", "A a WHERE a.x/2>1"]
)
def test_queries_are_queries(text):
    assert read_query_text(text) == text
    ensue.parse(text)


def test_an_import_that_is_not_there():
    with pytest.raises(ensue.QueryError, match=r"did you mean 'thefts\.ensue'"):
        ensue.parse('IMPORT "theft.ensue"; SEQ(A a, B b)')
