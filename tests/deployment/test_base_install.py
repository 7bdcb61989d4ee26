"""What works after a plain `pip install .`, and what the rest says that it needs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow

MISSING = """
import ensue

table = [{"t": 1, "type": "A"}, {"t": 2, "type": "B"}]
found = ensue.match(table, "SEQ(A a, B b)", time="t", type="type")
print(found.num_rows, "match")
clause = "MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS at PATTERN (A) DEFINE A AS TRUE)"
for ask in (
    lambda: ensue.sql(f"SELECT * FROM x {clause}", tables={"x": table}),
    lambda: ensue.Service,
    lambda: ensue.start(None, "out", checkpoint="checkpoint"),
):
    try:
        ask()
    except ensue.RunnerError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=300)
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", str(ROOT)]
    subprocess.run(pip, check=True, timeout=900)
    return folder / "bin"


def said(*command: str | Path, cwd: Path) -> str:
    settings = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("engine", [(), ("--engine", "local")])
def test_the_demo_runs(programs: Path, tmp_path: Path, engine: tuple[str, ...]):
    command = ("-m", "demos.shop", "--folder", tmp_path, "--events", "5000", *engine)
    shown = said(programs / "python", *command, cwd=ROOT / "examples")
    assert shown.count("0 missed, 0 false, 0 reported twice") == 2
    assert ("Spark needs the package pyspark" in shown) == (not engine)


def test_what_is_missing_is_named_with_a_command_that_installs_it(programs: Path, tmp_path: Path):
    lines = said(programs / "python", "-c", MISSING, cwd=tmp_path).splitlines()
    assert lines[0] == "1 match"
    assert lines[1].endswith("needs the package sqlglot, which is not installed")
    assert lines[2].startswith(f"  hint: pip install '{ROOT}[sql]', or pip install 'duckdb>=")
    assert lines[4] == f"  hint: pip install '{ROOT}[service]'"
    assert lines[6] == f"  hint: pip install '{ROOT}[spark]'"
