"""What is loaded when, where pyspark may be imported, and names that hide a missing concept."""

import ast
import subprocess
import sys
from pathlib import Path

import ensue

SOURCE = Path(ensue.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(ended.stdout.split())


def test_import_ensue_loads_nothing_heavy():
    heavy = {"numba", "pyspark", "pyarrow", "numpy", "pandas", "polars", "lark", "rich"}
    assert not loaded_by("import ensue") & heavy


def test_the_command_line_starts_without_arrow_or_numba():
    assert not loaded_by("import ensue.cli.main") & {"numba", "pyspark", "pyarrow", "numpy"}


EXTRAS = ("sqlglot", "duckdb", "polars", "pyspark", "shapely", "deltalake", "fastapi")
WITHOUT_EXTRAS = f"""
import sys
sys.modules |= dict.fromkeys({EXTRAS})  # importing one of them is then an ImportError
import ensue
events = [{{"t": 1, "type": "A"}}, {{"t": 2, "type": "B"}}]
found = ensue.match(events, "SEQ(A a, B b)", time="t", type="type", structure="reference")
assert found.num_rows == 1
"""


def test_a_query_runs_where_only_ensue_itself_is_installed():
    assert "ensue.runners.local" in loaded_by(WITHOUT_EXTRAS)


def test_the_workers_of_spark_need_no_sql():
    blocked = "import sys\nsys.modules |= dict.fromkeys(('sqlglot', 'duckdb'))\n"
    assert "pyspark" in loaded_by(f"{blocked}import ensue.runners.spark.batch")
    assert "pyspark" in loaded_by(f"{blocked}import ensue.runners.spark.stream")


def test_only_spark_runners_import_pyspark():
    for module in MODULES:
        place = module.relative_to(SOURCE)
        if place.parent == Path("runners/spark"):
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
