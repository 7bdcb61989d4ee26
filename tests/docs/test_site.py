"""The documentation builds as a site, and every link in it leads somewhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, ROOT

DOCS = [page for page in PAGES if page.parent.name == "docs"]
SCRIPT = "docs/site/pages.py"


def run(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    command = (sys.executable, *command)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def build(folder: Path) -> "subprocess.CompletedProcess[str]":
    return run(folder, "-m", "zensical", "build", "--strict")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    for name in ("src", "docs"):
        (folder / name).symlink_to(ROOT / name)
    for done in (run(folder, str(ROOT / SCRIPT), "build/docs"), build(folder)):
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build" / "site"


@pytest.mark.slow  # `make docs`; links and navigation are tested below and in test_docs
def test_every_page_is_in_the_site(site: Path):
    assert [page.name for page in DOCS if not (site / f"{page.stem}.html").exists()] == []


def test_every_page_is_in_the_navigation():
    named = re.findall(r": (\w+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(page.name for page in DOCS)


@pytest.mark.slow
def test_what_pages_link_to_in_the_repository_is_in_the_site(site: Path):
    assert "market_alarm" in (site / "repository/examples/market_alarm.py.html").read_text()
    assert 'id="six-figures"' in (site / "repository/index.html").read_text()
    assert (site / "repository/benchmarks/results/papers_dense.svg").exists()


@pytest.mark.slow
def test_the_site_can_be_searched(site: Path):
    assert "skip-till-next-match" in (site / "search.json").read_text()


@pytest.mark.slow
def test_bars_in_the_code_of_tables_have_no_backslash(site: Path):
    bars = re.findall(r"<code>[^<]*\\\|[^<]*</code>", (site / "sql_migration.html").read_text())
    assert bars == []


def test_a_link_to_a_file_that_is_not_there_is_an_error(tmp_path: Path):
    (tmp_path / "docs" / "site").mkdir(parents=True)
    shutil.copy(ROOT / SCRIPT, tmp_path / SCRIPT)
    (tmp_path / "docs" / "index.md").write_text("[gone](gone.md), ![g](a/g.png), [s](../s.py)\n")
    done = run(tmp_path, SCRIPT, "build/docs")
    assert done.returncode == 1
    assert [line.rpartition(" ")[2] for line in done.stderr.splitlines()] == [
        "gone.md", "a/g.png", "../s.py",
    ]  # fmt: skip


def test_a_link_to_a_heading_that_is_not_there_is_an_error(tmp_path: Path):
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    (tmp_path / "build" / "docs").mkdir(parents=True)
    (tmp_path / "build" / "docs" / "index.md").write_text("# One\n\n[one](#one) [away](#away)\n")
    done = build(tmp_path)
    assert done.returncode == 1
    assert "1 issue found" in done.stdout + done.stderr
