"""What is loaded when, where pyspark may be imported, and names that hide a missing concept."""

import ast
import os
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import get_args

import pytest

import ensue
from ensue.api import ParsedQuery
from ensue.runtime.query_kinds import KINDS

SOURCE = Path(ensue.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    usual = {name: value for name, value in os.environ.items() if name != "ENSUE_COMPILE"}
    ended = subprocess.run([sys.executable, "-c", code], env=usual, capture_output=True, text=True, check=True)
    return set(ended.stdout.split())


def test_import_ensue_loads_nothing_heavy():
    heavy = {"numba", "pyspark", "pyarrow", "numpy", "pandas", "polars", "lark", "rich"}
    assert not loaded_by("import ensue") & heavy


def test_the_command_line_starts_without_arrow_or_numba():
    assert not loaded_by("import ensue.cli.main") & {"numba", "pyspark", "pyarrow", "numpy"}


FIRST_MATCH = """
import os
os.environ.pop("ENSUE_COMPILE", None)  # tests compile what users first interpret
import ensue
import pandas
events = pandas.DataFrame({"t": [1, 2], "kind": ["A", "B"]})
found = ensue.match(events, "SEQ(A a, B b) WITHIN 5", time="t", type="kind")
assert len(found) == 1
"""
UNUSED = (
    "archives", "reference", "operators.subscriptions", "operators.archive_join", "adaptive",
    "operators.hierarchy", "operators.row_match", "geo_columns",
    "parser.opsl.opsl_parser", "parser.sql", "sampling", "spilling_matcher", "geometry", "spark",
    "physical.nfa", "physical.join_tree", "physical.compact",
)  # fmt: skip


def test_the_first_match_loads_few_modules():
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    loaded = {m for m in loaded_by(FIRST_MATCH) if m == "ensue" or m.startswith("ensue.")}
    assert len(loaded) <= project["tool"]["ensue"]["budgets"]["modules_loaded_by_match"]
    for part in UNUSED:
        assert not [m for m in loaded if m.endswith(f".{part}") or f".{part}." in m], part


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_of_query_names_a_node_and_functions_that_exist(kind):
    assert all(isinstance(resolve_name(node), type) for node in (kind.node, kind.operator))
    functions = (kind.analyze, kind.plan, kind.describe, kind.parse, kind.reference)
    assert all(callable(resolve_name(function)) for function in functions)
    assert kind.reference.startswith("ensue.reference")


def test_every_runnable_query_has_a_kind():
    runnable = {f"{node.__module__}:{node.__qualname__}" for node in get_args(ParsedQuery)}
    assert runnable <= {kind.node for kind in KINDS}


EXTRAS = ("sqlglot", "duckdb", "polars", "pyspark", "deltalake", "fastapi")
WITHOUT_EXTRAS = f"""
import sys
sys.modules |= dict.fromkeys({EXTRAS})  # importing one of them is then an ImportError
import ensue
events = [{{"t": 1, "type": "A"}}, {{"t": 2, "type": "B"}}]
found = ensue.match(events, "SEQ(A a, B b)", time="t", type="type", options=ensue.PlannerOptions(structure="reference"))
assert found.num_rows == 1
"""


NEEDED_BY_OTHERS = (
    "ensue.archives.file_archive",
    "ensue.archives.factory",
    "ensue.operators.subscriptions.subscription_operator",
    "numba",
)


def test_a_query_runs_where_only_ensue_itself_is_installed():
    loaded = loaded_by(WITHOUT_EXTRAS)
    assert "ensue.backends.local" in loaded
    for unasked in NEEDED_BY_OTHERS:
        assert find_spec(unasked), f"there is no {unasked} any more"
        assert unasked not in loaded


def test_the_first_subscription_loads_no_compiler():
    loaded = loaded_by("""
import ensue
fleet = ensue.Subscriptions(time="t")
fleet.add("one", "(ARITH:id = 1)")
live = ensue.live(fleet, schema={"t": "int64", "id": "int64"})
assert live.feed([{"t": 1, "id": 1}, {"t": 2, "id": 2}]).num_rows == 1
""")
    assert "ensue.operators.subscriptions.subscription_matcher" in loaded
    assert "numba" not in loaded


ARROW_EVENTS = """
import os
os.environ.pop("ENSUE_COMPILE", None)
import ensue, numpy, pyarrow
numbers = numpy.arange(200)
t = pyarrow.Array.from_buffers(pyarrow.int64(), 200, [None, pyarrow.py_buffer(numbers)])
offsets = pyarrow.py_buffer(numpy.arange(201, dtype=numpy.int32))
kind = pyarrow.StringArray.from_buffers(200, offsets, pyarrow.py_buffer(b"AB" * 100))
events = pyarrow.Table.from_arrays([t, kind, t], ["t", "kind", "x"])
watched = ensue.Subscriptions(time="t", type="kind")
watched.add("one", "=|(A; 5)B, A = (STRING:kind = 'A'), B = (STRING:kind = 'B')")
rise = "EVENT Rise AS SEQ(A a, B b) WITHIN 5 RETURN b.x AS x; SEQ(Rise r, A a) WHERE a.x > r.x WITHIN 5"
clause = "MATCH_RECOGNIZE (ORDER BY t MEASURES LAST(UP.x) AS top PATTERN (A UP+) DEFINE UP AS x > PREV(x))"
"""
ANSWERS = {
    "pattern": 'ensue.match(events, "SEQ(A a, B b) WHERE b.x > a.x WITHIN 5", time="t", type="kind")',
    "Kleene": 'ensue.match(events, "SEQ(A+ a[], B b) WHERE a[i].x > 3 WITHIN 5", time="t", type="kind")',
    "SQL": 'ensue.sql("SELECT * FROM events " + clause, tables={"events": events})',
    "hierarchy": 'ensue.match(events, rise, time="t", type="kind")',
    "several": 'ensue.match(events, ["SEQ(A a, B b) WITHIN 5", "SEQ(B a, A b) WITHIN 5"], time="t", type="kind")',
    "subscriptions": "ensue.match(events, watched)",
    "live": 'ensue.live(rise, schema=events.schema, time="t", type="kind").feed(events)',
    "live subscriptions": "ensue.live(watched, schema=events.schema).feed(events)",
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_first_answer_to_arrow_events_loads_no_other_tables(kind):
    """Arrow imports pandas by itself, in a quarter of a second, to build an array of Python values."""
    loaded = loaded_by(ARROW_EVENTS + ANSWERS[kind])
    assert "ensue.vector.event_table" in loaded
    assert not loaded & {"pandas", "pyarrow.parquet", "pyarrow.dataset", "asyncio", "numba"}


def test_the_workers_of_spark_need_no_sql():
    blocked = "import sys\nsys.modules |= dict.fromkeys(('sqlglot', 'duckdb'))\n"
    both = "import ensue.backends.spark.batch, ensue.backends.spark.stream"
    assert "pyspark" in loaded_by(f"{blocked}{both}")


def test_only_spark_runners_import_pyspark():
    for module in MODULES:
        place = module.relative_to(SOURCE)
        if place.parent == Path("backends/spark") or "pyspark" not in module.read_text("utf-8"):
            continue
        assert "pyspark" not in imported(module), place


def imported(module: Path) -> set[str]:
    """The top-level packages a module imports, wherever in it, unless for types only."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_no_module_is_named_after_a_missing_concept():
    vague = ("util", "helper", "manager", "common", "misc")
    assert not [m.name for m in MODULES if any(word in m.stem for word in vague)]


def test_type_checkers_are_told_that_there_are_types():
    assert (SOURCE / "py.typed").is_file()
