"""The documentation builds as a site, and every link in it leads somewhere."""

import logging
import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from tests.docs.pages import PAGES, ROOT

DOCS = [page for page in PAGES if page.parent.name == "docs"]


def _built(site: Path, **changed: object) -> None:
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(site), **changed)
    config.plugins.on_startup(command="build", dirty=False)
    build(config)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    _built(folder)
    return folder


def test_every_page_is_in_the_site(site: Path):
    assert [page.name for page in DOCS if not (site / f"{page.stem}.html").exists()] == []


def test_what_pages_link_to_in_the_repository_is_in_the_site(site: Path):
    assert "market_alarm" in (site / "repository/examples/market_alarm.py.html").read_text()
    assert 'id="six-figures"' in (site / "repository/index.html").read_text()
    assert (site / "repository/benchmarks/results/papers_dense.svg").exists()


def test_the_site_can_be_searched(site: Path):
    assert "skip-till-next-match" in (site / "search/search_index.json").read_text()


def test_bars_in_the_code_of_tables_have_no_backslash(site: Path):
    bars = re.findall(r"<code>[^<]*\\\|[^<]*</code>", (site / "sql_migration.html").read_text())
    assert bars == []


def test_a_broken_link_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text("# One\n\n[gone](gone.md) and [away](#away)\n")
    monkeypatch.setattr(logging.getLogger("mkdocs"), "propagate", True)
    with pytest.raises(Abort, match="2 warnings"):
        _built(tmp_path / "site", docs_dir=str(pages), nav=["index.md"], plugins=[], hooks=[])
    assert "gone.md" in caplog.text
    assert "#away" in caplog.text
