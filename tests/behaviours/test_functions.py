"""Scalar functions: each is one record, and every way to compute it gives its plain meaning."""

import math
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import chain, product
from typing import Any

import pyarrow as pa
import pytest
from tests.docs.pages import ROOT

import ensue
from ensue.errors import QueryError
from ensue.functions import EARTH_LOCATION, FUNCTIONS, LOCATION, resolve_function_name
from ensue.functions.record import (
    ArgumentType,
    ArrowStringForm,
    FoldForm,
    InlineForm,
    NumpyForm,
    ResultType,
    RoutineForm,
    ScalarFunction,
)
from ensue.ir.values import fit_int64, to_instant, to_number
from ensue.runtime import workload
from ensue.schema import ValueKind
from ensue.vector.functions import ROUTINES

pytestmark = [
    pytest.mark.stateless,
    pytest.mark.filterwarnings("ignore:no event is of type"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

EVENTS = 8
STEPS = (0, 1, 3)  # from an event to those that it is paired with
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
    "i": ValueKind.INTEGER,
    "f": ValueKind.FLOAT,
    "s": ValueKind.STRING,
    "time": ValueKind.TIMESTAMP,
    "small": ValueKind.INTEGER,
    "yes": ValueKind.BOOLEAN,
    "unit": ValueKind.STRING,
    "written": ValueKind.STRING,
    "regexp": ValueKind.STRING,
}

TYPES = {
    ValueKind.INTEGER: pa.int64(),
    ValueKind.FLOAT: pa.float64(),
    ValueKind.STRING: pa.string(),
    ValueKind.BOOLEAN: pa.bool_(),
    ValueKind.TIMESTAMP: pa.timestamp("us"),
    ValueKind.DATE: pa.timestamp("us"),
    ValueKind.DURATION: pa.duration("us"),
}

# the columns that an argument may be, by what a function takes
COLUMNS = {
    ArgumentType.NUMBER: ("i", "f"),
    ArgumentType.WHOLE: ("small",),
    ArgumentType.TEXT: ("s",),
    ArgumentType.TIME: ("time",),
    ArgumentType.ANY: ("i", "f"),
    ArgumentType.CONDITION: ("yes",),
    ArgumentType.UNIT: ("unit",),
    ArgumentType.REGEXP: ("regexp",),
    ArgumentType.SIMPLE: ("i", "f", "written", "yes"),
    ArgumentType.MOMENT: ("time", "small", "f", "written"),
    ArgumentType.PRINTED: ("i", "f", "s", "yes", "time"),
}


ROUNDED = ("cbrt",)  # NumPy's may differ in the last bit from Python's


def of_places(record: ScalarFunction) -> bool:
    """Those have tests of their own (test_places.py), and so have zones (test_zones.py)."""
    return record.gives is ValueKind.PLACE or ArgumentType.PLACE in record.takes or ArgumentType.ZONE in record.takes


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


def arguments(record: ScalarFunction) -> list[tuple[str, ...]]:
    """Columns for the fewest arguments, and for one more where there may be."""
    counts = [record.least] if record.most == record.least else [record.least, record.least + 1]
    found = []
    for given in counts:
        found += product(*(COLUMNS[wanted] for wanted in record.get_argument_types(given)))
    return found


@dataclass(frozen=True)
class Called:
    """A function of columns of one event or of two, such as `round(a.f, b.small)`."""

    record: ScalarFunction
    columns: tuple[str, ...]
    variables: str

    @property
    def text(self) -> str:
        given = zip(self.variables, self.columns, strict=True)
        return f"{self.record.name}({', '.join(f'{v}.{c}' for v, c in given)})"

    @property
    def type(self) -> pa.DataType:
        return TYPES[self.record.kind([KINDS[column] for column in self.columns])]

    def meaning(self, a: dict[str, Any], b: dict[str, Any]) -> Any:
        """Its value for two events, by the plain meaning."""
        events = {"a": a, "b": b}
        given = zip(self.variables, self.columns, strict=True)
        value = self.record([events[v][c] for v, c in given])
        if value is None:
            return None
        if self.type == TYPES[ValueKind.FLOAT]:
            return float(value)
        return to_instant(value) if isinstance(value, date) else value


def calls(*records: ScalarFunction) -> list[Called]:
    """Calls with columns of every kind, of one event and of both."""
    return [
        Called(record, columns, (variables * len(columns))[: len(columns)])
        for record in records
        for columns in arguments(record)
        for variables in ("a", "ab")
        if variables == "a" or len(columns) > 1
    ]


def pairs(called: list[Called]) -> pa.Table:
    """An A and a B for pairs of rows, the B with the values that are meant of the calls."""
    rows = events().to_pylist()
    both = [(row, rows[(k + step) % EVENTS]) for k, row in enumerate(rows) for step in STEPS]
    table = pa.Table.from_pylist(
        [row | {"t": k, "type": "AB"[k % 2]} for k, row in enumerate(chain(*both))], events().schema
    )
    table = table.append_column("pair", pa.array([k // 2 for k in range(len(table))]))
    for k, call in enumerate(called):
        meant = chain(*((None, call.meaning(*pair)) for pair in both))
        table = table.append_column(f"meant{k}", pa.array(meant, call.type))
    return table


def shown(value: Any) -> Any:
    if isinstance(value, date):
        return to_instant(value)
    return "nan" if value != value else value


def numbers_of(values: list[Any]) -> list[float]:
    return [math.nan if value in (None, "nan") else value for value in values]


PAIRS = "SEQ(A a, B b) WHERE a.pair = b.pair"


def check(runner: Any, *records: ScalarFunction) -> None:
    """What is returned has the meant values, and conditions hold exactly with these."""
    check_returned(runner, calls(*records))
    if runner.name == "local":  # generated code is that of the other runners
        for some in batched(calls(*records), 40):
            check_conditions(runner, some)


def check_returned(runner: Any, called: list[Called]) -> None:
    table = pairs(called)
    returned = ", ".join(f"{call.text} AS v{k}, b.meant{k} AS m{k}" for k, call in enumerate(called))
    found = runner.match(table, f"{PAIRS} RETURN {returned}", time="t", type="type")
    assert found.num_rows == len(table) // 2
    for k, call in enumerate(called):
        value, meant = ([*map(shown, found[f"{c}{k}"].to_pylist())] for c in "vm")
        if call.record.name in ROUNDED:
            value, meant = (numbers_of(values) for values in (value, meant))
            assert value == pytest.approx(meant, rel=1e-15, nan_ok=True), call.text
        else:
            assert value == meant, call.text


def check_conditions(runner: Any, called: list[Called]) -> None:
    table = pairs(called)
    conditions = [
        f"({c.text} = b.meant{k} or ({c.text} IS NULL and b.meant{k} IS NULL) "
        f"or ({c.text} != {c.text} and b.meant{k} != b.meant{k}))"
        for k, c in enumerate(called)
        if c.record.name not in ROUNDED
    ]

    def hold(*conditions: str) -> bool:
        query = " and ".join([PAIRS, *conditions])
        found = runner.match(table, query, time="t", type="type")
        return bool(found.num_rows == len(table) // 2)

    if not hold(*conditions):
        assert [condition for condition in conditions if not hold(condition)] == []
        raise AssertionError("each condition holds for all pairs of events, together they do not")


def batched(called: list[Called], size: int) -> list[list[Called]]:
    return [called[k : k + size] for k in range(0, len(called), size)]


def test_every_way_to_compute_a_function_is_its_meaning(runner):
    check(runner, *(record for record in FUNCTIONS.values() if not of_places(record)))


# ---------------------------------------------------------------------- adding one, in one place


def _square(value: object) -> int | float | None:
    operand = to_number(value)
    return fit_int64(operand * operand) if isinstance(operand, int) else operand * operand


PLAIN_SQUARE = ScalarFunction("square", (ArgumentType.NUMBER,), ResultType.COMPUTED, _square, aliases=("sq",))
SQUARE = ScalarFunction(
    "square",
    (ArgumentType.NUMBER,),
    ResultType.COMPUTED,
    _square,
    aliases=("sq",),
    vector=NumpyForm("x * x", whole_null="np.abs(x.astype(np.float64)) > 3037000499.97605"),
    kernel=InlineForm("({x} * {x})", whole_known="product_fits({x}, {x})"),
)
MIDNIGHT = ScalarFunction(
    "midnight",
    (ArgumentType.TIME,),
    ValueKind.TIMESTAMP,
    lambda time: to_instant(time).replace(hour=0, minute=0, second=0, microsecond=0),
)
BACKWARDS = ScalarFunction("backwards", (ArgumentType.TEXT,), ValueKind.STRING, lambda text: str(text)[::-1])
NULLS = ScalarFunction(
    "nulls",
    (ArgumentType.ANY,),
    ValueKind.INTEGER,
    lambda *values: sum(value is None for value in values),
    repeats=True,
    sees_null=True,
)


@pytest.mark.parametrize("square", [PLAIN_SQUARE, SQUARE], ids=["plain meaning only", "all forms"])
def test_a_function_is_added_by_one_record(runner, monkeypatch, square):
    added = [square, MIDNIGHT, BACKWARDS, NULLS]
    for record in added:
        monkeypatch.setitem(FUNCTIONS, record.name, record)
    check(runner, *added)


def test_a_function_with_a_kernel_form_is_compiled_over_several_events(monkeypatch):
    query = "SEQ(A a, B b) WHERE square(a.i - b.i) > 3"
    monkeypatch.setitem(FUNCTIONS, "square", PLAIN_SQUARE)
    late = ensue.explain(query, events(), time="t", type="type")
    monkeypatch.setitem(FUNCTIONS, "square", SQUARE)
    workload._plan_call.cache_clear()  # it has the plan of the same query
    compiled = ensue.explain(query, events(), time="t", type="type")
    assert "finished matches\n  square(a.i - b.i) > 3" in late
    assert "finished matches" not in compiled


def test_a_new_function_is_known_by_its_other_names_and_checked(monkeypatch):
    with pytest.raises(QueryError, match="unknown function 'sq'"):
        ensue.match(events(), "A a WHERE sq(a.i) > 1", time="t", type="type")
    monkeypatch.setitem(FUNCTIONS, "square", SQUARE)
    assert resolve_function_name("sq") == "square"
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
    named = {f.vector.name for f in FUNCTIONS.values() if isinstance(f.vector, RoutineForm)}
    assert named == set(ROUTINES)


def test_what_has_no_vector_form_takes_strings_or_makes_them():
    plain = [f for f in FUNCTIONS.values() if f.vector is None]
    others = [f.name for f in plain if ValueKind.STRING not in f.takes[0].kinds]
    made = ["make_date", "make_timestamp", "strftime"]
    assert others == ["chr", "add_months", *made]


def test_the_page_of_the_language_names_every_function():
    page = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    section = page.split("- **Functions** of numbers:")[1].split("\n- **")[0]
    named = section.replace("`", " ").replace("(", " ").split()
    assert set(FUNCTIONS) - {LOCATION, EARTH_LOCATION} <= set(named)


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ({"takes": (ArgumentType.TEXT,), "kernel": InlineForm("{x}")}, "codes of strings"),
        ({"kernel": FoldForm("{a}")}, "functions of NULLs"),
        ({"kernel": InlineForm("{x}"), "sees_null": True}, "functions of NULLs"),
        ({"kernel": InlineForm("{x}"), "repeats": True}, "fixed number of arguments"),
        ({"vector": ArrowStringForm("texts")}, "a form over strings"),
    ],
)
def test_a_form_that_cannot_work_is_refused(form, problem):
    whole = {"takes": (ArgumentType.NUMBER,), "gives": ValueKind.FLOAT, "meaning": abs} | form
    with pytest.raises(ValueError, match=problem):
        ScalarFunction("f", **whole)
