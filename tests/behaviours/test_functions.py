"""Scalar functions: each is one record, and every way to compute it gives its plain meaning."""

import math
from datetime import date, datetime, timedelta
from itertools import product

import pyarrow as pa
import pytest
from tests.docs.pages import ROOT

import ensue
from ensue.algebra.functions import EARTH_LOCATION, FUNCTIONS, LOCATION, name_of
from ensue.algebra.functions.record import (
    Fold,
    Function,
    Gives,
    Inline,
    OverNumbers,
    OverTexts,
    Routine,
    Takes,
)
from ensue.algebra.values import fitting, instant, number
from ensue.columns.routines import ROUTINES
from ensue.errors import QueryError
from ensue.schema import Kind

pytestmark = [
    pytest.mark.filterwarnings("ignore:no event is of type"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

EVENTS = 8
INTS = [-3, None, 0, 7, 2**63 - 1, None, -(2**63), 2]
FLOATS = [0.5, math.nan, None, -2.5, 3.0, -0.0, math.inf, 1e300]
WORDS = ["ab", "", None, " Ab ", "Straße", "a", "ba", None]
TIMES = [None, *(datetime(1969, 12, 31, 23) + timedelta(hours=k) for k in range(EVENTS - 1))]
SMALL = [1, 2, None, -1, 0, 3, 1, 2]
YES = [True, False, None, True, None, False, True, False]
UNITS = ["day", "month", None, "Weeks", "hour", "fortnight", "quarter", "second"]
REGEXPS = ["a+", "(a", None, "^.b", "(?i)STRASSE", "a|(b)", "", "[^a]$"]
WRITTEN = ["12", " -7.9 ", None, "1e400", "2026-01-31 10:00:00.5", "true", "x", "2026-02-30"]

KINDS = {
    "i": Kind.INTEGER,
    "f": Kind.FLOAT,
    "s": Kind.STRING,
    "time": Kind.TIMESTAMP,
    "small": Kind.INTEGER,
    "yes": Kind.BOOLEAN,
    "unit": Kind.STRING,
    "written": Kind.STRING,
    "regexp": Kind.STRING,
}

# the columns that an argument may be, by what a function takes
COLUMNS = {
    Takes.NUMBER: ("i", "f"),
    Takes.WHOLE: ("small",),
    Takes.TEXT: ("s",),
    Takes.TIME: ("time",),
    Takes.ANY: ("i", "f"),
    Takes.CONDITION: ("yes",),
    Takes.UNIT: ("unit",),
    Takes.REGEXP: ("regexp",),
    Takes.SIMPLE: ("i", "f", "written", "yes"),
    Takes.MOMENT: ("time", "small", "f", "written"),
    Takes.PRINTED: ("i", "f", "s", "yes", "time"),
}


def of_places(record: Function) -> bool:
    """Those have tests of their own (test_places.py), and so have zones (test_zones.py)."""
    return record.gives is Kind.PLACE or Takes.PLACE in record.takes or Takes.ZONE in record.takes


def events() -> pa.Table:
    return pa.table(
        {
            "t": range(EVENTS),
            "type": list("ABABABAB"),
            "i": pa.array(INTS, pa.int64()),
            "f": pa.array(FLOATS, pa.float64()),
            "s": WORDS,
            "time": pa.array(TIMES, pa.timestamp("us")),
            "small": pa.array(SMALL, pa.int64()),
            "yes": YES,
            "unit": UNITS,
            "written": WRITTEN,
            "regexp": REGEXPS,
        }
    )


def arguments(record: Function) -> list[tuple[str, ...]]:
    """Columns for the fewest arguments, and for one more where there may be."""
    counts = [record.least] if record.most == record.least else [record.least, record.least + 1]
    found = []
    for given in counts:
        found += product(*(COLUMNS[wanted] for wanted in record.wanted(given)))
    return found


def by_hand(record: Function, columns: tuple[str, ...], over: str) -> list[tuple]:
    """The values of a function for every pair of an A and a later B, from its plain meaning."""
    rows, found = events().to_pylist(), []
    floats = record.kind([KINDS[column] for column in columns]) is Kind.FLOAT
    for a, b in product(rows, rows):
        if a["type"] == "A" and b["type"] == "B" and a["t"] < b["t"]:
            sources = {"a": a, "b": b}
            value = record([sources[v][c] for v, c in zip(over, columns, strict=True)])
            if floats and value is not None:
                value = float(value)
            found.append((a["t"], b["t"], value))
    return found


def alike(rows: list[tuple]) -> list[tuple]:
    return sorted(
        (a, b, "nan" if v != v else instant(v) if isinstance(v, date) else v) for a, b, v in rows
    )


def returned(runner, record: Function, columns: tuple[str, ...], over: str) -> list[tuple]:
    called = ", ".join(f"{v}.{c}" for v, c in zip(over, columns, strict=True))
    query = f"SEQ(A a, B b) RETURN a.t AS a, b.t AS b, {record.name}({called}) AS value"
    found = runner.match(events(), query, time="t", type="type").to_pylist()
    return [(row["a"], row["b"], row["value"]) for row in found]


def that_are_there(runner, record: Function, columns: tuple[str, ...], over: str) -> list[tuple]:
    called = ", ".join(f"{v}.{c}" for v, c in zip(over, columns, strict=True))
    # the first part looks at one event or at several, as `over` says; the second at both
    query = (
        f"SEQ(A a, B b) WHERE ({record.name}({called}) IS NOT NULL) = (b.t > a.t)"
        " RETURN a.t AS a, b.t AS b"
    )
    found = runner.match(events(), query, time="t", type="type").to_pylist()
    return sorted((row["a"], row["b"]) for row in found)


def check(runner, record: Function) -> None:
    for columns in arguments(record):
        for over in ("a" * len(columns), ("ab" * len(columns))[: len(columns)]):
            meant = by_hand(record, columns, over)
            context = f"{record.name}({columns}) over {over}"
            assert alike(returned(runner, record, columns, over)) == alike(meant), context
            there = sorted((a, b) for a, b, value in meant if value is not None)
            assert that_are_there(runner, record, columns, over) == there, context


@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items() if not of_places(f)])
def test_every_way_to_compute_a_function_is_its_meaning(runner, name):
    check(runner, FUNCTIONS[name])


# ---------------------------------------------------------------------- adding one, in one place


def _square(value: object) -> int | float | None:
    operand = number(value)
    return fitting(operand * operand) if isinstance(operand, int) else operand * operand


PLAIN_SQUARE = Function("square", (Takes.NUMBER,), Gives.COMPUTED, _square, aliases=("sq",))
SQUARE = Function(
    "square",
    (Takes.NUMBER,),
    Gives.COMPUTED,
    _square,
    aliases=("sq",),
    vector=OverNumbers("x * x", whole_null="np.abs(x.astype(np.float64)) > 3037000499.97605"),
    kernel=Inline("({x} * {x})", whole_known="product_fits({x}, {x})"),
)
MIDNIGHT = Function(
    "midnight",
    (Takes.TIME,),
    Kind.TIMESTAMP,
    lambda time: instant(time).replace(hour=0, minute=0, second=0, microsecond=0),
)
BACKWARDS = Function("backwards", (Takes.TEXT,), Kind.STRING, lambda text: str(text)[::-1])
NULLS = Function(
    "nulls",
    (Takes.ANY,),
    Kind.INTEGER,
    lambda *values: sum(value is None for value in values),
    repeats=True,
    sees_null=True,
)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(PLAIN_SQUARE, id="a number, plain meaning only"),
        pytest.param(SQUARE, id="a number, all forms"),
        pytest.param(MIDNIGHT, id="a time"),
        pytest.param(BACKWARDS, id="a string"),
        pytest.param(NULLS, id="NULLs are its business"),
    ],
)
def test_a_function_is_added_by_one_record(runner, monkeypatch, record):
    monkeypatch.setitem(FUNCTIONS, record.name, record)
    check(runner, record)


def test_a_function_with_a_kernel_form_is_compiled_over_several_events(monkeypatch):
    query = "SEQ(A a, B b) WHERE square(a.i - b.i) > 3"
    monkeypatch.setitem(FUNCTIONS, "square", PLAIN_SQUARE)
    late = ensue.explain(query, events(), time="t", type="type")
    monkeypatch.setitem(FUNCTIONS, "square", SQUARE)
    compiled = ensue.explain(query, events(), time="t", type="type")
    assert "finished matches\n  square(a.i - b.i) > 3" in late
    assert "finished matches" not in compiled


def test_a_new_function_is_known_by_its_other_names_and_checked(monkeypatch):
    with pytest.raises(QueryError, match="unknown function 'sq'"):
        ensue.match(events(), "A a WHERE sq(a.i) > 1", time="t", type="type")
    monkeypatch.setitem(FUNCTIONS, "square", SQUARE)
    assert name_of("sq") == "square"
    assert ensue.match(events(), "A a WHERE sq(a.small) > 0", time="t", type="type").num_rows
    with pytest.raises(QueryError, match="did you mean 'square'"):
        ensue.match(events(), "A a WHERE sqare(a.i) > 1", time="t", type="type")
    with pytest.raises(QueryError, match="square takes a number, and this is a string"):
        ensue.match(events(), "A a WHERE square(a.s) > 1", time="t", type="type")
    with pytest.raises(QueryError, match="square takes 1 argument, not 2"):
        ensue.match(events(), "A a WHERE square(a.i, 2) > 1", time="t", type="type")


def test_a_new_function_is_planned_without_events(monkeypatch):
    monkeypatch.setitem(FUNCTIONS, "square", SQUARE)
    assert "square" in ensue.explain("SEQ(A a, B b) WHERE square(a.x) > 1 and b.y > 1")


# ------------------------------------------------------------------------------ the table itself


def test_names_are_those_of_one_function_each():
    names = [name for f in FUNCTIONS.values() for name in (f.name, *f.aliases)]
    assert len(names) == len(set(names))
    assert all(name == record.name == name.lower() for name, record in FUNCTIONS.items())


def test_routines_are_those_that_records_name():
    named = {f.vector.name for f in FUNCTIONS.values() if isinstance(f.vector, Routine)}
    assert named == set(ROUTINES)


def test_what_has_no_vector_form_takes_strings_or_makes_them():
    plain = [f for f in FUNCTIONS.values() if f.vector is None]
    others = [f.name for f in plain if Kind.STRING not in f.takes[0].kinds]
    made = ["make_date", "make_timestamp", "strftime"]
    assert others == ["chr", "add_months", *made]


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in (LOCATION, EARTH_LOCATION)])
def test_the_page_of_the_language_names_every_function(name):
    page = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    section = page.split("- **Functions** of numbers:")[1].split("\n- **")[0]
    assert name in section.replace("`", " ").replace("(", " ").split()


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ({"takes": (Takes.TEXT,), "kernel": Inline("{x}")}, "codes of strings"),
        ({"kernel": Fold("{a}")}, "sees NULLs"),
        ({"kernel": Inline("{x}"), "sees_null": True}, "sees NULLs"),
        ({"kernel": Inline("{x}"), "repeats": True}, "all of its arguments"),
        ({"vector": OverTexts("texts")}, "a form over strings"),
    ],
)
def test_a_form_that_cannot_work_is_refused(form, problem):
    whole = {"takes": (Takes.NUMBER,), "gives": Kind.FLOAT, "meaning": abs} | form
    with pytest.raises(ValueError, match=problem):
        Function("f", **whole)
