"""`ensue run`, `check` and `explain` with SQL: tables are files."""

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from ensue.cli.main import main

LINES = ["symbol,day,price", "acme,1,12", "acme,2,10", "acme,3,8", "acme,4,9", "bolt,1,5", "bolt,2,4", "bolt,3,6"]
CLAUSE = """MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY day
    MEASURES FIRST(day) AS from_day, LAST(DOWN.price) AS low, LAST(day) AS to_day
    PATTERN (START_ROW DOWN+ UP+)
    DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)
)"""
QUERY = f"SELECT symbol, low FROM prices {CLAUSE} ORDER BY symbol"
TWO = f"""SELECT name, n
FROM (SELECT * FROM prices {CLAUSE}) MATCH_RECOGNIZE (
    ORDER BY symbol MEASURES count(*) AS n, LAST(symbol) AS symbol PATTERN (A+) DEFINE A AS low > 0
)
JOIN names USING (symbol)"""


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    file = tmp_path / "prices.csv"
    file.write_text("\n".join(LINES) + "\n")
    return file


@pytest.fixture
def names(tmp_path: Path) -> Path:
    file = tmp_path / "names.jsonl"
    file.write_text('{"symbol": "acme", "name": "Acme"}\n{"symbol": "bolt", "name": "Bolt"}\n')
    return file


@pytest.fixture
def run(capsys):
    """Runs the command; returns exit code, standard output and standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:  # argparse ends so
            code = end.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def json_lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


FOUND = [{"symbol": "acme", "low": 8}, {"symbol": "bolt", "low": 4}]


def test_rows_go_to_stdout_and_all_else_to_stderr(run, prices):
    code, out, err = run("run", QUERY, "--table", f"prices={prices}", "--format", "json")
    assert (code, json_lines(out)) == (0, FOUND)
    assert err.startswith("2 rows in ")


@pytest.mark.parametrize("option", ["--table", "--events"])
def test_a_file_without_a_name_is_a_table_called_like_it(run, prices, option):
    code, out, _ = run("run", QUERY, option, prices, "--format", "json")
    assert (code, json_lines(out)) == (0, FOUND)


def test_the_query_may_be_in_a_file_or_come_by_stdin(run, prices, tmp_path, monkeypatch):
    file = tmp_path / "falls.sql"
    file.write_text(f"-- falls\n{QUERY};\n")
    assert run("run", file, "--table", prices, "--format", "json")[0] == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(QUERY))
    code, out, _ = run("run", "-", "--table", prices, "--format", "json")
    assert (code, json_lines(out)) == (0, FOUND)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "arrow", "feather"])
def test_every_kind_of_file_is_a_table(run, tmp_path, ending):
    table = pa.csv.read_csv(io.BytesIO("\n".join(LINES).encode()))
    file = tmp_path / f"prices.{ending}"
    match ending:
        case "csv":
            pa.csv.write_csv(table, file)
        case "jsonl":
            file.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        case "parquet":
            pa.parquet.write_table(table, file)
        case _:
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as to:
                to.write_table(table)
    code, out, _ = run("run", QUERY, "--table", file, "--format", "json")
    assert (code, json_lines(out)) == (0, FOUND)


def test_several_files_of_one_name_are_one_table(run, tmp_path):
    for day, lines in (("monday", LINES[:5]), ("tuesday", [LINES[0], *LINES[5:]])):
        (tmp_path / f"{day}.csv").write_text("\n".join(lines))
    files = [f"--table={n}={tmp_path / d}.csv" for n, d in (("prices", "monday"), ("PRICES", "tuesday"))]
    code, out, _ = run("run", QUERY, *files, "--format", "json")
    assert (code, json_lines(out)) == (0, FOUND)


def test_several_clauses_and_tables(run, prices, names):
    tables = ("--table", prices, "--table", names)
    code, out, _ = run("run", TWO, *tables, "--format", "json")
    assert (code, json_lines(out)) == (0, [{"name": "Bolt", "n": 2}])


def test_the_output_is_written_as_its_ending_says(run, prices, tmp_path):
    target = tmp_path / "found.parquet"
    code, out, err = run("run", QUERY, "--table", prices, "--output", target)
    assert (code, out) == (0, "")
    assert str(target) in err
    assert pa.parquet.read_table(target).to_pylist() == FOUND


def test_a_table_shows_how_many_more(run, prices):
    _, out, _ = run("run", QUERY, "--table", prices, "--limit", 1)
    assert "acme" in out
    assert "bolt" not in out
    assert "... and 1 more" in out


@pytest.mark.parametrize("option", ["--table", "--events"])
def test_a_clause_alone_is_over_one_table_and_needs_no_time(run, prices, option):
    code, out, err = run("run", CLAUSE, option, prices, "--format", "json")
    assert code == 0
    assert [(row["symbol"], row["to_day"]) for row in json_lines(out)] == [("acme", 4), ("bolt", 3)]
    assert "taking" not in err


def test_a_clause_alone_over_several_tables_is_refused(run, prices, names):
    code, _, err = run("run", CLAUSE, "--table", prices, "--table", names)
    assert code == 2
    assert "reads one table" in err


def test_a_query_may_need_no_table(run):
    query = """SELECT n FROM (VALUES (1), (2)) AS t(x) MATCH_RECOGNIZE (
        ORDER BY x MEASURES count(*) AS n PATTERN (A+) DEFINE A AS true)"""
    code, out, _ = run("run", query, "--format", "json")
    assert (code, json_lines(out)) == (0, [{"n": 2}])


def test_columns_of_one_name_are_told_apart(run, prices):
    query = QUERY.replace("symbol, low", "symbol, low, low, low AS low_2, low")
    code, out, _ = run("run", query, "--table", prices, "--format", "json")
    assert code == 0
    assert list(json_lines(out)[0]) == ["symbol", "low", "low_3", "low_2", "low_4"]
    assert json_lines(out)[0]["low_4"] == 8


def test_a_file_may_stand_in_the_query(run, prices):
    expected = run("run", QUERY, "--table", prices)[:2]
    assert run("run", QUERY.replace("FROM prices", f"FROM '{prices}'"))[:2] == expected


def test_a_subquery_in_a_clause_reads_the_tables(run, prices):
    text = QUERY.replace("DEFINE", "DEFINE Z AS price > (SELECT avg(price) FROM prices),", 1)
    text = text.replace("PATTERN (", "PATTERN (Z?? ", 1)
    for command in ("run", "check", "explain"):
        assert run(command, text, "--table", prices)[0] == 0
    assert run("check", text)[:2] == (0, "ok: the query is valid\n")
    code, _, err = run("run", text.replace("avg(price)", "avg(prise)"), "--table", prices)
    assert (code, "a subquery runs once, before the clause" in err) == (2, True)


def test_a_query_names_a_file_that_is_not_there(run):
    code, _, err = run("run", QUERY.replace("FROM prices", "FROM 'nowhere.csv'"))
    assert (code, "there is no file or folder nowhere.csv" in err) == (3, True)


def test_limits_hold(run, prices):
    code, _, err = run("run", QUERY, "--table", prices, "--max-matches", 1)
    assert code == 2
    assert "max_matches" in err or "--max-matches" in err


# ---------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize("command", ["run", "check", "explain"])
def test_a_table_that_no_option_gives_is_named_with_a_way_out(run, prices, command):
    code, _, err = run(command, QUERY, "--table", f"price={prices}")
    assert code == 2
    assert "unknown table 'prices'" in err
    assert "hint: did you mean 'price'?" in err


def test_where_nothing_is_near_the_option_is_named(run):
    code, _, err = run("run", QUERY)
    assert code == 2
    assert "hint: name its file: --table prices=FILE" in err


def test_also_outside_of_clauses(run, prices):
    code, _, err = run("check", TWO, "--table", prices)
    assert code == 2
    assert "unknown table 'names'" in err
    assert "--table names=FILE" in err


def test_a_table_that_the_query_does_not_name_is_not_read(run, prices, tmp_path):
    missing = tmp_path / "other.csv"
    code, _, err = run("run", QUERY, "--table", prices, "--table", missing)
    assert code == 0
    assert "the query does not name the table other" in err


def test_a_file_that_is_not_there(run, tmp_path, prices):
    code, _, err = run("run", QUERY, "--table", f"prices={tmp_path / 'price.csv'}")
    assert code == 3
    assert "did you mean" in err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--time", "day"), "--time is not needed for SQL"),
        (("--type", "symbol"), "--type is not needed for SQL"),
        (("--levels", "all"), "--levels is for patterns"),
        (("--bad-events", "drop"), "--bad-events is for patterns"),
        (("--structure", "runs"), "--structure is for patterns"),
        (("--watermark", "1 s"), "--watermark is for streams"),
    ],
)
def test_options_of_patterns_and_streams_are_refused(run, prices, given, said):
    code, _, err = run("run", QUERY, "--table", prices, *given)
    assert code == 2
    assert said in err


def test_a_pattern_takes_no_table(run, prices):
    for command in ("run", "check", "explain"):
        code, _, err = run(command, "SEQ(A a, B b)", "--table", prices)
        assert code == 2
        assert "pass its events with --events" in err


def test_a_pattern_without_events(run):
    code, _, err = run("run", "SEQ(A a, B b)")
    assert code == 2
    assert "--events FILE" in err


def test_sql_goes_alone_and_not_over_a_stream(run, prices):
    for given in (("SEQ(A a, B b)", "--events", prices), ("--stream", "rate://10")):
        code, _, err = run("run", QUERY, *given)
        assert code == 2
        assert "this is SQL" in err


def test_sql_without_a_clause(run):
    code, _, err = run("run", "SELECT * FROM prices")
    assert code == 2
    assert "SQL without MATCH_RECOGNIZE" in err


def test_a_mistake_shows_before_files_are_read(run, tmp_path):
    query = QUERY.replace("DOWN+", "DOWN+ (")
    code, _, err = run("run", query, "--table", f"prices={tmp_path / 'none.csv'}")
    assert code == 2
    assert "^" in err


# ---------------------------------------------------------------------- check and explain


def test_check_reads_every_clause(run):
    assert run("check", TWO)[:2] == (0, "ok: the query is valid\n")
    assert run("check", CLAUSE)[:2] == (0, "ok: the query is valid\n")
    code, _, err = run("check", TWO.replace("low > 0", "low >"))
    assert code == 2
    assert "line 7" in err or "line 8" in err


def test_check_with_tables_knows_their_columns(run, prices, names):
    tables = ("--table", prices, "--table", names)
    assert run("check", TWO, *tables)[:2] == (0, "ok: the query fits the tables\n")
    code, _, err = run("check", TWO.replace("low > 0", "lou > 0"), *tables)
    assert code == 2
    assert "did you mean 'low'?" in err
    code, _, err = run("check", CLAUSE.replace("PREV(price)", "PREV(prise)"), *tables[:2])
    assert code == 2
    assert "did you mean 'price'?" in err


@pytest.mark.parametrize("given", [False, True])
def test_explain_tells_of_every_clause(run, prices, names, given):
    tables = ("--table", prices, "--table", names) if given else ()
    code, out, _ = run("explain", TWO, *tables)
    assert code == 0
    assert "clause 1, line 2, over prices" in out
    assert "clause 2, line 7, over (SELECT * FROM prices MATCH_RECOGNIZE" in out
    assert "price < PREV(price)" in out
    assert "low > 0" in out


def test_explain_of_a_clause_alone(run, prices):
    code, out, _ = run("explain", CLAUSE, "--table", prices)
    assert code == 0
    assert "price < PREV(price)" in out
    assert "clause 1" not in out


@pytest.mark.spark
def test_on_spark(run, prices, names):
    tables = ("--table", prices, "--table", names, "--engine", "spark", "--format", "json")
    code, out, _ = run("run", TWO, *tables)
    assert (code, json_lines(out)) == (0, [{"name": "Bolt", "n": 2}])
    code, out, _ = run("run", CLAUSE, "--table", prices, *tables[4:])
    assert code == 0
    assert sorted(row["to_day"] for row in json_lines(out)) == [3, 4]
    code, _, err = run("run", TWO, "--table", prices, *tables[4:])
    assert code == 2
    assert "--table names=FILE" in err


def test_arrow_files_are_no_stream(run, tmp_path):
    (tmp_path / "1.arrow").write_bytes(b"")
    for source in (tmp_path, tmp_path / "*.arrow"):
        given = ("--stream", source, "--watermark", "1 second", "--time", "ts")
        code, _, err = run("run", "SEQ(A a, B b) WITHIN 5 s", *given)
        assert code == 3
        assert "cannot stream Arrow files" in err


def test_several_sql_queries_are_refused_as_such(run, prices):
    code, _, err = run("run", QUERY, QUERY, "--table", prices)
    assert code == 2
    assert "one SQL query at a time" in err
