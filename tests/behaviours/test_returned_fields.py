"""`RETURN a.*`, `RETURN *`, and whole events as plain columns."""

import pyarrow as pa
import pytest

import ensue
from ensue.errors import QueryError

pytestmark = [pytest.mark.stateless, pytest.mark.filterwarnings("ignore:no event is of type")]

EVENTS = pa.table(
    {"at": [10, 11, 12, 13], "type": list("AABB"), "price": [1.5, 2.5, 3.5, None]},
    schema=pa.schema({"at": pa.int64(), "type": pa.string(), "price": pa.float64()}),
)
STANDARD = ["match_id", "start", "end"]


def rows(runner, query, events=EVENTS, **options):
    """The result without ids, by time."""
    options = {"time": "at", "type": "type"} | options
    found = runner.match(events, query, **options).drop_columns(["match_id"])
    return sorted(found.to_pylist(), key=lambda row: (row["end"], row["start"], str(row)))


@pytest.mark.streams(slow=True)
def test_every_field_of_an_event_is_a_column(runner):
    found = rows(runner, "SEQ(A a, B b) WITHIN 1 RETURN a.*, b.price AS p")
    assert found == [{"start": 11, "end": 12, "a_at": 11, "a_type": "A", "a_price": 2.5, "p": 3.5}]


def test_two_events_of_the_same_fields(runner):
    (row,) = rows(runner, "SEQ(A a, B b) WITHIN 1 RETURN a.*, b.*")
    assert list(row) == ["start", "end", "a_at", "a_type", "a_price", "b_at", "b_type", "b_price"]


def test_the_fields_of_a_kleene_variable_are_lists(runner):
    found = rows(runner, "SEQ(A+ a[], B b) WHERE a.LEN = 2 WITHIN 2 RETURN a.*")
    assert found == [{"start": 10, "end": 12, "a_at": [10, 11], "a_type": ["A", "A"], "a_price": [1.5, 2.5]}]


def test_one_event_of_a_kleene_variable(runner):
    query = "SEQ(A+ a[], B b) WHERE a.LEN = 2 WITHIN 2 RETURN a[1].* AS first, a[a.LEN].* AS last"
    (row,) = rows(runner, query)
    assert (row["first_at"], row["last_at"], row["last_price"]) == (10, 11, 2.5)


def test_a_name_in_front_of_the_fields(runner):
    (row,) = rows(runner, "SEQ(A a, B b) WITHIN 1 RETURN a.* AS low")
    assert list(row) == ["start", "end", "low_at", "low_type", "low_price"]


def test_an_event_that_is_not_there_has_nulls(runner):
    (row,) = rows(runner, "SEQ(A a, C? c, B b) WITHIN 1 RETURN c.*, a.at AS at")
    assert row == {
        "start": 11, "end": 12, "c_at": None, "c_type": None, "c_price": None, "at": 11,
    }  # fmt: skip


@pytest.mark.everywhere(slow=True)
def test_tables_have_their_own_fields(runner):
    tables = {"A": pa.table({"at": [1, 2], "x": [5, 6]}), "B": pa.table({"at": [3], "y": ["u"]})}
    found = rows(runner, "SEQ(A a, B b) WITHIN 1 RETURN a.*, b.*", tables, type=None)
    assert found == [{"start": 2, "end": 3, "a_at": 2, "a_x": 6, "b_at": 3, "b_y": "u"}]


def test_events_of_several_types_have_the_fields_of_all(runner):
    tables = {"A": pa.table({"at": [1], "x": [5]}), "B": pa.table({"at": [3], "y": ["u"]})}
    found = rows(runner, "(A|B) e RETURN e.*", tables, type=None)
    assert found == [
        {"start": 1, "end": 1, "e_at": 1, "e_x": 5, "e_y": None},
        {"start": 3, "end": 3, "e_at": 3, "e_x": None, "e_y": "u"},
    ]


def test_a_field_of_two_kinds_is_not_left_out_in_silence(runner):
    tables = {"A": pa.table({"at": [1], "x": [5]}), "B": pa.table({"at": [3], "x": ["u"]})}
    with pytest.raises(QueryError, match="'x' of event e does not have the same kind"):
        rows(runner, "(A|B) e RETURN e.*", tables, type=None)


def test_all_variables_and_something_computed(runner):
    (row,) = rows(runner, "SEQ(A a, B b) WITHIN 1 RETURN *, b.price - a.price AS gain")
    assert list(row) == ["start", "end", "a", "b", "gain"]
    assert row["a"] == EVENTS.slice(1, 1).to_pylist()[0]


def test_fields_of_a_result_of_an_operator():
    near = ensue.operator("near", q=lambda a, b: b.price > a.price)
    found = ensue.match(EVENTS, "near(A a, B b) r RETURN r.*, a.*", time="at", type="type", definitions=[near])
    assert found.column_names[3:] == ["r_start", "r_end", "a_at", "a_type", "a_price"]


def test_fields_of_events_made_of_events():
    query = "EVENT P AS SEQ(A a, B b) RETURN a.*, b.price AS p; SEQ(P x) RETURN x.*"
    found = ensue.match(EVENTS, query, time="at", type="type")
    own = ["x_a_at", "x_a_type", "x_a_price", "x_p", "x_start", "x_end", "x_match_id"]
    assert found.column_names == [*STANDARD, *own]
    assert found.column("x_a_price").to_pylist() == [1.5, 2.5, 1.5, 2.5]


def test_fields_of_live_and_archived_events(runner):
    if runner.name == "semantics":
        pytest.skip("the judge of JOIN ARCHIVE lists the events of matches, not columns")
    past = pa.table({"at": [1, 2], "type": ["B", "B"], "y": [7, 8]})
    archives = {"old": ensue.archive(past, time="at", type="type", key=[])}
    query = "A a JOIN ARCHIVE old B b RANGE 9 BEFORE START RETURN a.*, b.*"
    found = rows(runner, query, EVENTS.slice(0, 1), archives=archives)
    assert [(row["a_price"], row["b_y"]) for row in found] == [(1.5, 7), (1.5, 8)]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SEQ(A a, B b) RETURN a.*, a.*", "two columns are called 'a_at'"),
        ("SEQ(A a, B b) RETURN a.*, b.price AS a_price", "two columns are called 'a_price'"),
        ("SEQ(A a, B b) RETURN c.*", "unknown variable 'c'"),
        ("SEQ(A a, !C c, B b) RETURN c.*", "c is negated"),
        ("SEQ(A a, B b) WHERE a.* > 1", "expected a name, found '\\*'"),
        ("SEQ(A a, B b) RETURN a.* + 1", "found '\\+'"),
    ],
)
def test_what_is_refused(query, words):
    with pytest.raises(QueryError, match=words):
        ensue.match(EVENTS, query, time="at", type="type")


# ------------------------------------------------------------------------------- flat=True


@pytest.mark.streams(slow=True)
def test_whole_events_as_plain_columns(runner):
    (row,) = rows(runner, "SEQ(A+ a[], C? c, B b) WHERE a.LEN = 2 WITHIN 2", options=ensue.OutputOptions(flat=True))
    assert row == {
        "start": 10, "end": 12, "a.at": [10, 11], "a.type": ["A", "A"], "a.price": [1.5, 2.5],
        "c.at": None, "c.type": None, "c.price": None, "b.at": 12, "b.type": "B", "b.price": 3.5,
    }  # fmt: skip


def test_plain_columns_where_nothing_is_found(runner):
    found = runner.match(
        EVENTS, "SEQ(B b, A a) WITHIN 5", time="at", type="type", options=ensue.OutputOptions(flat=True)
    )
    wanted = [f"{v}.{f}" for v in "ba" for f in ("at", "type", "price")]
    assert (found.num_rows, found.column_names) == (0, [*STANDARD, *wanted])


def test_several_queries_and_levels_as_plain_columns():
    query = "EVENT P AS SEQ(A a, B b); SEQ(P p)"
    found = ensue.match(EVENTS, query, time="at", type="type", options=ensue.OutputOptions(levels="all", flat=True))
    assert found["P"].column_names[3:5] == ["a.at", "a.type"]
    assert "p.a.at" in found[""].column_names
    found = ensue.match(EVENTS, ["A a", "B b"], time="at", type="type", options=ensue.OutputOptions(flat=True))
    assert [table.column_names[3] for table in found.values()] == ["a.at", "b.at"]


def test_the_same_query_with_and_without_plain_columns():
    given = {"time": "at", "type": "type"}
    nested, plain, again = (
        ensue.match(EVENTS, "SEQ(A a, B b)", options=ensue.OutputOptions(flat=flat), **given)
        for flat in (False, True, False)
    )
    assert nested.schema == again.schema
    assert "a.at" in plain.column_names


def test_two_plain_columns_of_one_name():
    with pytest.raises(QueryError, match=r"two columns would be called 'a\.price'"):
        ensue.match(
            EVENTS, 'A a RETURN a, a.at AS "a.price"', time="at", type="type", options=ensue.OutputOptions(flat=True)
        )


def test_what_is_traced_is_nested():
    query = "EVENT P AS SEQ(A a, B b); SEQ(P p)"
    with pytest.raises(QueryError, match="flat=True cannot be combined with trace=True"):
        ensue.match(EVENTS, query, time="at", type="type", options=ensue.OutputOptions(trace=True, flat=True))
