"""`ensue run` with queries that define events: levels, traces, pictures, errors."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet
import pytest

from ensue.cli.main import main

LINES = "t,kind,id\n1,A,1\n2,B,1\n3,A,2\n4,B,2\n5,C,1\n"
PAIR = "EVENT Pair AS SEQ(A a, B b) WHERE [id] WITHIN 5 RETURN b.id AS id;"
HIERARCHY = f"{PAIR}\nSEQ(Pair x, Pair y, C c) WITHIN 10 RETURN x.id AS before, y.id AS after"


@pytest.fixture
def events(tmp_path: Path) -> tuple:
    file = tmp_path / "events.csv"
    file.write_text(LINES)
    return ("--events", file, "--time", "t", "--type", "kind")


@pytest.fixture
def run(capsys):
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def hierarchy(tmp_path: Path) -> Path:
    (tmp_path / "pairs.ensue").write_text(PAIR)
    file = tmp_path / "hierarchy.ensue"
    file.write_text(HIERARCHY.replace(PAIR, 'IMPORT "pairs.ensue";'))
    return file


def test_the_top_is_what_is_asked_for(run, hierarchy, events):
    code, out, err = run("run", hierarchy, *events, "--format", "json")
    assert code == 0, err
    assert [(m["before"], m["after"]) for m in map(json.loads, out.splitlines())] == [(1, 2)]


def test_all_levels_are_shown_one_below_the_other(run, hierarchy, events):
    code, out, err = run("run", hierarchy, *events, "--levels", "all")
    assert code == 0, err
    assert out.index("Pair: 2 matches") < out.index("top: 1 match")
    assert "2 levels in" in err


def test_levels_have_a_file_each(run, hierarchy, events, tmp_path):
    code, _, err = run("run", hierarchy, *events, "--levels", "Pair", "--output", tmp_path / "found")
    assert code == 0, err
    names = sorted(p.name for p in (tmp_path / "found").iterdir())
    assert names == ["Pair.parquet", "top.parquet"]
    assert pyarrow.parquet.read_table(tmp_path / "found" / "Pair.parquet").num_rows == 2


def test_a_level_does_not_share_its_file_with_the_query_on_top(run, hierarchy, events, tmp_path):
    text = HIERARCHY.replace("Pair", "top")
    code, _, err = run("run", text, *events, "--levels", "all", "--output", tmp_path / "found")
    assert code == 2, err
    assert "'top' and the query without a name would share the folder 'top'" in err
    assert not (tmp_path / "found").exists()


def test_levels_as_json_need_a_folder(run, hierarchy, events):
    code, _, err = run("run", hierarchy, *events, "--levels", "all", "--format", "json")
    assert code == 2
    assert "need a folder" in err


def test_a_trace_stands_behind_the_table(run, hierarchy, events):
    code, out, err = run("run", hierarchy, *events, "--trace", 3)
    assert code == 0, err
    assert "members" not in out
    assert "├─ x  Pair  1 to 2" in out
    assert "└─ c  C" in out


def test_a_trace_does_not_disturb_what_programs_read(run, hierarchy, events):
    code, out, err = run("run", hierarchy, *events, "--trace", 1, "--format", "json")
    assert code == 0
    assert json.loads(out)["members"]["x"]["id"] == 1
    assert "├─ x  Pair" in err


def test_the_first_match_is_drawn(run, hierarchy, events, tmp_path):
    code, _, err = run("run", hierarchy, *events, "--picture", tmp_path / "match.svg")
    assert code == 0, err
    said = " ".join(ElementTree.parse(tmp_path / "match.svg").getroot().itertext())
    assert "x Pair" in said
    code, _, err = run("run", hierarchy, *events, "--picture", tmp_path / "no" / "match.svg")
    assert code == 2
    assert "cannot write" in err


def test_a_hierarchy_can_be_checked(run, hierarchy, events, tmp_path):
    assert run("check", hierarchy)[0] == 0
    code, out, err = run("check", hierarchy, *events)
    assert (code, out) == (0, "ok: the query fits the events\n"), err
    hierarchy.write_text(hierarchy.read_text().replace("x.id", "x.ids"))
    code, _, err = run("check", hierarchy)
    assert code == 2
    assert "did you mean 'id'?" in err
    (tmp_path / "pairs.ensue").write_text(PAIR.replace("[id]", "[idd]"))
    hierarchy.write_text(hierarchy.read_text().replace("x.ids", "x.id"))
    code, _, err = run("check", hierarchy, *events)
    assert code == 2
    assert "in the definition of Pair" in err


def test_a_type_that_looks_like_a_defined_one_is_pointed_out(run):
    code, _, err = run("check", HIERARCHY.replace("Pair y", "Pairs y"))
    assert code == 0
    assert "'Pairs' is an input event type" in err


def test_a_hierarchy_goes_with_other_queries(run, events, tmp_path):
    folder = tmp_path / "found"
    given = (HIERARCHY, "SEQ(A a, B b)", "--levels", "all", "--output", folder, "--format", "json")
    code, _, err = run("run", *given, *events)
    assert code == 0
    assert "2 queries in" in err
    names = {"query1.Pair.jsonl", "query1.jsonl", "query2.jsonl"}
    assert {file.name for file in folder.iterdir()} == names


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((HIERARCHY, "--levels", "Pairs"), "did you mean 'Pair'?"),
        (("SEQ(A a, B b)", "--levels", "all"), "has no definitions"),
        ((HIERARCHY, "SEQ(A a, B b)", "--levels", "Pairs"), "did you mean 'Pair'?"),
        ((HIERARCHY, "SEQ(A a, B b)", "--trace", "1"), "is for a single query"),
        (("SEQ(A a, B b)", "SEQ(B a, B b)", "--trace", 1), "--trace is for a single query"),
    ],
)
def test_what_does_not_go_together_is_said(run, events, arguments, problem):
    code, _, err = run("run", *arguments, *events)
    assert code == 2
    assert problem in err


def test_an_import_is_looked_for_beside_the_file(run, hierarchy, events, monkeypatch, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert run("check", hierarchy)[0] == 0
    (tmp_path / "pairs.ensue").unlink()
    code, _, err = run("check", hierarchy)
    assert code == 2
    assert f"looked for in {tmp_path}" in err
