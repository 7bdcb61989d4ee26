"""What the documentation shows is what happens."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, PASTED, ROOT, Example, examples, pasted, printed

import ensue
from ensue.planner.planner_options import list_switches

QUERIES = [e for page in PAGES for e in examples(page, "ensue")]
SQL = [e for page in PAGES for e in examples(page, "sql")]
ANSWERED = [e for e in (*QUERIES, *SQL) if e.expected is not None]
UNANSWERED = [e for e in QUERIES if e.expected is None]
# streams, which other tests start every day
SLOW = ("streaming.md", "past.md", "history.md", "subscriptions_streams.md", "planning.md", "limits.md")
_LINK = re.compile(r"\]\(([^)#\s]+)?(?:#([\w-]+))?\)")


def _pages_with_python() -> list[object]:
    found = []
    for page in PAGES:
        code = "".join(e.code for e in examples(page, "python"))
        if code and page not in PASTED:
            marks = [pytest.mark.spark] if "pyspark" in code else []
            marks += [pytest.mark.slow] if page.name in SLOW else []
            found.append(pytest.param(page, id=page.name, marks=marks))
    return found


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    """What all queries give, from one process that does not compile them: it is much quicker."""
    given = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("pages.py")), "--judge"],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert given.returncode == 0, given.stderr
    return json.loads(given.stdout)


@pytest.mark.parametrize("example", ANSWERED, ids=lambda e: e.name)
def test_a_query_gives_the_matches_shown(example: Example, answers: dict[str, str]):
    assert answers[example.name] == example.expected


@pytest.mark.parametrize("page", _pages_with_python())
def test_python_examples_print_what_is_shown(page: Path):
    if any("pyspark" in e.code for e in examples(page, "python")):
        from ensue.backends.spark.session import get_or_create_session

        get_or_create_session()  # the page's own getOrCreate then finds it
    for example, output in printed(page):
        if example.expected is not None:
            assert output.rstrip() == example.expected.rstrip(), example.name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_only_pages_that_are_pasted_show_what_commands_print(page: Path):
    shown = [e.name for e in examples(page, "sh") if e.expected is not None]
    assert page in PASTED or shown == []


@pytest.mark.parametrize(
    "spark",
    [
        pytest.param(False, id="without Spark"),
        pytest.param(True, id="with Spark", marks=[pytest.mark.spark, pytest.mark.slow]),
    ],
)
def test_pages_that_are_pasted_line_by_line_give_what_they_show(spark: bool):
    given = pasted(spark=spark)
    shown = {e.name: e for page in PASTED for e in examples(page, "python", "sh")}
    assert given.keys() >= {name for name, e in shown.items() if "spark" not in e.code}
    for name, output in given.items():
        if shown[name].expected is not None:
            assert output.rstrip() == shown[name].expected.rstrip(), name


def test_queries_without_an_answer_can_be_read():
    for example in UNANSWERED:
        ensue.parse(example.code)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path):
    for match in _LINK.finditer(page.read_text(encoding="utf-8")):
        path, anchor = match[1] or "", match[2]
        if "://" in path:
            continue
        target = page.parent / path if path else page
        assert target.exists(), match[0]
        if anchor:
            assert anchor in _anchors(target), match[0]


@pytest.mark.parametrize("name", ["architecture.md", "papers.md"])
def test_files_that_are_named_exist(name: str):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    folder = ""
    for place in re.findall(r"`([\w/]+(?:\.(?:py|lark)|/))`", text):
        homes = (ROOT, ROOT / "src" / "ensue", ROOT / "src" / "ensue" / folder)
        assert any((home / place).exists() for home in homes), place
        if "/" in place:
            folder = str(Path(place).parent)  # of `choose.py` in "`planner/schema_inference.py`, `choose.py`"


def test_every_rule_that_can_be_switched_off_is_described_once():
    section = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8").split("\n## ")
    (table,) = (part for part in section if part.startswith("Switching rules off\n"))
    described = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert described == list(list_switches())


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_modules_that_pages_name_exist():
    """A path with a folder is one in the repository or in its package."""
    pages = (*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md")
    missing = [
        f"{page.name}: {path}"
        for page in pages
        for path in re.findall(r"`(\w+(?:/\w+)+\.py)`", page.read_text("utf-8"))
        if not any((ROOT / folder / path).exists() for folder in (".", "src/ensue", "src"))
    ]
    assert missing == []
