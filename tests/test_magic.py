"""`%%ensue`: queries in cells of a notebook."""

import subprocess
import sys

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ensue

interactiveshell = pytest.importorskip("IPython.core.interactiveshell")

CLAUSE = """MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY day
    MEASURES FIRST(day) AS from_day, LAST(day) AS to_day
    PATTERN (START_ROW DOWN+ UP+)
    DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)
)
"""
QUERY = f"SELECT * FROM prices {CLAUSE}"
PATTERN = "SEQ(A a, B b) WHERE [id] WITHIN 5 RETURN a.id AS id\n"
COLUMNS = {"symbol": ["acme"] * 4, "day": [1, 2, 3, 4], "price": [9, 7, 8, 10]}
EVENTS = {"t": [1, 2, 3], "kind": ["A", "B", "A"], "id": [1, 1, 2]}


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A shell of its own for each test, with the extension loaded."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    interactiveshell.InteractiveShell.clear_instance()
    shell = interactiveshell.InteractiveShell.instance()
    shell.user_ns |= {"pd": pd, "pl": pl, "pa": pa}
    shell.run_line_magic("load_ext", "ensue")
    yield shell
    shell.history_manager.end_session()
    interactiveshell.InteractiveShell.clear_instance()


@pytest.fixture
def cell(shell, capsys):
    """Runs a cell; returns its value and what was shown."""

    def cell(text: str):
        done = shell.run_cell(text)
        said = capsys.readouterr()
        return done, said.out + said.err

    return cell


def test_sql_finds_its_tables_among_the_variables(shell, cell):
    shell.user_ns["prices"] = pa.table(COLUMNS)
    done, _ = cell(f"%%ensue\n{QUERY}")
    assert done.result.to_pylist() == [{"symbol": "acme", "from_day": 1, "to_day": 4}]


def test_the_result_is_put_into_the_variable_that_is_named(shell, cell):
    shell.user_ns["prices"] = pa.table(COLUMNS)
    done, _ = cell(f"%%ensue found\n{QUERY}")
    assert shell.user_ns["found"] is done.result
    assert cell("found.num_rows")[0].result == 1


@pytest.mark.parametrize("world", [pd.DataFrame, pl.DataFrame])
def test_tables_of_a_library_give_one_of_it(shell, cell, world):
    shell.user_ns |= {"prices": world(COLUMNS), "events": world(EVENTS)}
    assert type(cell(f"%%ensue\n{QUERY}")[0].result) is world
    options = "--events events --time t --type kind"
    assert type(cell(f"%%ensue {options}\n{PATTERN}")[0].result) is world


def test_a_pattern_is_looked_for_in_a_variable(shell, cell):
    shell.user_ns["events"] = pa.table(EVENTS)
    done, _ = cell(f"%%ensue found --events events --time t --type kind\n{PATTERN}")
    assert shell.user_ns["found"] is done.result
    assert done.result["id"].to_pylist() == [1]


def test_a_pattern_knows_the_operators_and_definitions_that_are_variables(shell, cell):
    shell.user_ns["events"] = pa.table(EVENTS)
    shell.user_ns["near"] = ensue.operator("near", q=lambda a, b: True)
    shell.user_ns["pairs"] = ensue.define("EVENT Pair AS SEQ(A a, B b) WITHIN 9")
    for query in ("near(A a, B b) r WITHIN 9", "Pair p"):
        assert cell(f"%%ensue --events events --time t --type kind\n{query}")[0].result.num_rows > 0


def test_a_dict_of_tables_is_one_for_each_type(shell, cell):
    shell.user_ns["events"] = {"A": pd.DataFrame({"t": [1], "id": [7]}), "B": pd.DataFrame({"t": [2], "id": [7]})}
    done, _ = cell(f"%%ensue --events events --time t\n{PATTERN}")
    assert done.result["id"].tolist() == [7]


def test_a_clause_alone_needs_no_time(shell, cell):
    shell.user_ns["prices"] = pd.DataFrame(COLUMNS)
    done, _ = cell(f"%%ensue --events prices\n{CLAUSE}")
    assert done.result["to_day"].tolist() == [4]


def test_names_of_tables_go_by_letters_in_any_case(shell, cell):
    shell.user_ns["Prices"] = pa.table(COLUMNS)
    assert cell(f"%%ensue\n{QUERY}")[0].result.num_rows == 1


def test_a_variable_that_is_called_like_a_column_is_no_table(shell, cell):
    shell.user_ns |= {"prices": pd.DataFrame(COLUMNS), "symbol": pl.DataFrame(EVENTS)}
    assert type(cell(f"%%ensue\n{QUERY}")[0].result) is pd.DataFrame


def test_variables_that_are_no_tables_are_not_taken(shell, cell):
    shell.user_ns["prices"] = pd.Series([1, 2])
    done, shown = cell(f"%%ensue\n{QUERY}")
    assert not done.success
    assert "unknown table 'prices'" in shown


def test_an_error_is_its_text_and_nothing_else(shell, cell):
    shell.user_ns["prices"] = pa.table(COLUMNS)
    done, shown = cell("%%ensue\n" + QUERY.replace("PREV(price)", "PREV(prise)", 1))
    assert not done.success
    assert shown.strip().splitlines() == [
        "there is no column 'prise'",
        "  line 5, column 33",
        "        DEFINE DOWN AS price < PREV(prise), UP AS price > PREV(price)",
        "                                    ^^^^^",
        "  hint: did you mean 'price'?",
    ]


def test_a_failed_cell_sets_no_variable(shell, cell):
    cell(f"%%ensue found\n{QUERY}")
    assert "found" not in shell.user_ns


@pytest.mark.parametrize(
    ("line", "query", "said"),
    [
        ("", PATTERN, "hint: %%ensue --events events"),
        ("--events evnts --time t", PATTERN, "did you mean 'events'?"),
        ("--events events --type kind", PATTERN, "time"),
        ("--time day", QUERY, "--time is not needed for SQL"),
        ("--wrong", QUERY, "UsageError: unrecognized arguments: --wrong"),
        ("not-a-name", QUERY, "the name of a variable"),
        ('"open', QUERY, "No closing quotation"),
    ],
)
def test_what_is_wrong_is_said_in_a_line_or_two(shell, cell, line, query, said):
    shell.user_ns["events"] = pa.table(EVENTS)
    done, shown = cell(f"%%ensue {line}\n{query}")
    assert not done.success
    assert said in shown
    assert "Traceback" not in shown


def test_import_ensue_does_not_load_ipython():
    code = "import ensue, sys; ensue.load_ipython_extension; print('IPython' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"


def test_an_error_shows_the_line_of_the_cell_and_what_is_wrong(cell):
    done, said = cell("import ensue\nx = 1\nensue.parse('SEQ(A a,')")
    assert isinstance(done.error_in_exec, Exception)
    lines = said.splitlines()
    assert lines[:3] == ["QueryError", "the cell, line 3", "    ensue.parse('SEQ(A a,')"]
    assert "expected" in said
    assert len(lines) < 12


def test_other_errors_are_shown_as_ever(cell):
    _, said = cell("1 / 0")
    assert "ZeroDivisionError" in said
    assert "Traceback" in said


def test_an_error_of_a_task_of_spark_is_told_without_its_pages(cell):
    failing = """
class PythonException(Exception):
    pass

PythonException.__module__ = "pyspark.errors.exceptions.captured"
said = "Traceback\\nensue.errors.EventError: no time\\n  hint: drop it\\n\\tat org.x"
raise PythonException(said)
"""
    _, said = cell(failing)
    assert "no time\n  hint: drop it" in said
    assert "org.x" not in said


def test_arrow_tables_are_shown_as_tables(shell):
    found = pa.table({"match_id": ["0123456789abcdef"], "x": ["<b>"]})
    shown, _ = shell.display_formatter.format(found)
    assert "&lt;b&gt;" in shown["text/html"]
    assert ">0123456789<" in shown["text/html"]


def test_plans_queries_and_pictures_are_shown(shell):
    import ensue

    shown, _ = shell.display_formatter.format(ensue.explain("SEQ(A a, B b)"))
    assert shown["text/plain"].startswith("pattern    SEQ")
    assert shown["text/html"].startswith("<pre")
    shown, _ = shell.display_formatter.format(ensue.parse("SEQ(A a, B b)"))
    assert shown["text/plain"] == "PATTERN SEQ(A a, B b)"
    shown, _ = shell.display_formatter.format(ensue.picture("SEQ(A a, B b)"))
    assert shown["image/svg+xml"].startswith("<svg")


def test_parameters_are_variables(shell, cell):
    shell.user_ns |= {"events": pa.table(EVENTS), "prices": pd.DataFrame(COLUMNS)}
    shell.user_ns |= {"gap": 5, "wanted": [1], "low": 8, "first_day": 2}
    text = "SEQ(A a, B b) WHERE [id] and a.id IN :wanted WITHIN :gap RETURN a.id AS id"
    done, _ = cell(f"%%ensue --events events --time t --type kind\n{text}")
    assert done.result["id"].to_pylist() == [1]
    clause = CLAUSE.replace("price > PREV(price)", "price > PREV(price) AND price > :low")
    done, _ = cell(f"%%ensue\nSELECT from_day FROM prices {clause} WHERE from_day < :first_day")
    assert list(done.result["from_day"]) == []
    _, shown = cell("%%ensue --events events --time t --type kind\nA a WHERE a.id = :wantd")
    assert "no value is given for :wantd" in shown
    assert "did you mean 'wanted'?" in shown
