"""Every notebook runs from its first cell to its last, and says what it is meant to say."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from tests.docs.pages import ROOT

import ensue

FOLDER = ROOT / "examples" / "notebooks"
SAYS = {
    "first_steps": ["15 thefts found, 15 planted", "hint: try one of these"],
    "logins_on_spark": ["12 found on Spark, 12 here", "the same matches as on the table: True"],
    "match_recognize": ["13 V shapes; 156 peaks", "hint: did you mean 'price'?"],
    "hierarchies": ["'SectorCollapse': 7, 'MarketAlarm': 2", "└─ b  Stock", "image/svg+xml"],
    "subscriptions": ["8 subscriptions told; 8 on the table"],
}
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def _marked(notebook: Path) -> object:
    marks = [pytest.mark.slow, *([pytest.mark.spark] if "pyspark" in notebook.read_text() else [])]
    return pytest.param(notebook, id=notebook.stem, marks=marks)


@pytest.mark.parametrize("notebook", [_marked(n) for n in NOTEBOOKS])
def test_a_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = str(Path(ensue.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("ENSUE_COMPILE", "auto")  # as for whoever opens it
    read = nbformat.read(notebook, as_version=4)
    (tmp_path / "samples").symlink_to(ROOT / "examples" / "samples")
    here = tmp_path / "notebooks"
    here.mkdir()
    client = NotebookClient(read, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(here)}})
    client.execute()
    said = "\n".join(str(output) for cell in read.cells for output in cell.get("outputs", ()))
    assert [words for words in SAYS[notebook.stem] if words not in said] == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda n: n.stem)
def test_outputs_are_not_stored(notebook: Path):
    cells = nbformat.read(notebook, as_version=4).cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


def test_every_notebook_is_described():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"[{n.name}]({n.name})" in readme for n in NOTEBOOKS)
