"""The clause MATCH_RECOGNIZE against the standard: every case of the modules beside this one."""

import importlib
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import ensue
from row_patterns.conformance.case import Case, refused
from support.cases import each_case

TOPICS = sorted(path.stem for path in Path(__file__).parent.glob("cases_*.py"))


def cases_by_topic() -> Iterator[tuple[str, Case]]:
    for topic in TOPICS:
        module = importlib.import_module(f"row_patterns.conformance.{topic}")
        for case in module.CASES:
            yield topic.removeprefix("cases_"), case


ALL = list(cases_by_topic())


class Shared:
    """A connection to the one database of all cases, whose settings are locked."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def execute(self, query: str, *given: Any) -> Any:
        return None if query.startswith("SET ") else self._opened.execute(query, *given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)


@pytest.fixture(scope="module", autouse=True)
def one_database() -> Iterator[None]:
    """Opening a database takes as long as all the rest of a case."""
    connect, kept = duckdb.connect, []

    def connected(*given: Any, **options: Any) -> Shared:
        if not kept:
            kept.append(connect(*given, **options))
            kept[0].execute("SET GLOBAL TimeZone = 'UTC'")
            kept[0].execute("SET enable_external_access = false")
        return Shared(kept[0].cursor())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb, "connect", connected)
        yield
    assert kept, "no case needs a database"


def by_topic(*, wrong: bool = False, fails: bool = False) -> Any:
    """The cases of each topic that are right, wrong, or fail on their rows."""
    topics: dict[str, list[Case]] = {}
    for topic, case in ALL:
        if (case.error is not None) == wrong and case.runtime_error == fails:
            topics.setdefault(topic, []).append(case)
    return pytest.mark.parametrize("cases", topics.values(), ids=topics)


def run(case: Case) -> pa.Table:
    tables = {name: pa.table(columns) for name, columns in (case.tables or {}).items()}
    return ensue.sql(case.sql, tables=tables)


def plain(value: Any) -> Any:
    """Numbers of any type as int or float, lists as tuples: what the value says, not its type."""
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, Decimal | float) and value == int(value):
        return int(value)
    if isinstance(value, Decimal):
        return float(value)
    return value


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    return [plain(row) for row in zip(*columns, strict=True)]


@by_topic()
def test_answers(cases: list[Case]) -> None:
    with each_case() as named:
        for case in cases:
            with named(case.name):
                _answers(case)


def _answers(case: Case) -> None:
    answer = run(case)
    found, expected = rows_of(answer), [plain(row) for row in case.rows]
    if case.ordered:
        assert found == expected
    else:
        assert sorted(found, key=repr) == sorted(expected, key=repr)
    if case.columns is not None:
        names = [name.lower() for name in answer.column_names]
        assert names == [name.lower() for name in case.columns]


# refused by DuckDB, which does not say where
WITHOUT_PLACE = ("a variable outside", "too many names for the output")


@by_topic(wrong=True)
def test_refuses(cases: list[Case]) -> None:
    with each_case() as named:
        for case in cases:
            with named(case.name):
                with pytest.raises(ensue.QueryError) as caught:
                    run(case)
                assert re.search(case.error, str(caught.value), re.IGNORECASE)
                if case.name not in WITHOUT_PLACE:
                    assert re.search(r"line \d+, column \d+", str(caught.value))


@by_topic(fails=True)
def test_fails_on_these_rows(cases: list[Case]) -> None:
    with each_case() as named:
        for case in cases:
            with named(case.name), pytest.raises(ensue.EnsueError):
                run(case)


def test_refused_queries_are_right_but_for_one_part() -> None:
    right = refused("right", subset="SUBSET U = (A, B)")
    assert rows_of(run(right)) == [(1,)]


def test_every_case_has_a_name_of_its_own() -> None:
    names = [(topic, case.name) for topic, case in ALL]
    assert len(names) == len(set(names))


def test_every_case_says_how_it_ends() -> None:
    for _, case in ALL:
        ends = [case.rows is not None, case.error is not None, case.runtime_error]
        assert ends.count(True) == 1, case.name
