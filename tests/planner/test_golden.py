"""Plans kept as text: `pytest --bless` rewrites them; every query is also run and compared."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ensue.planner.explain.plan_description import describe_plan
from ensue.planner.explain.plan_node import format_plan
from ensue.planner.explain.plan_picture import draw_plan

GOLDEN = Path(__file__).parent / "golden"
QUERIES = sorted(GOLDEN.glob("*.ensue"))
EVERYTHING = ("runs along an automaton", "instance stacks", "compact:", "reference: slower exact path")


@pytest.fixture(params=QUERIES, ids=lambda path: path.stem)
def golden(request, case):
    return request.param, case(request.param.read_text(encoding="utf-8"))


def test_the_plan_is_the_golden_one(golden, request):
    path, told = golden
    text = format_plan(describe_plan(told.plan)) + "\n"
    kept = path.with_suffix(".txt")
    if request.config.getoption("--bless"):
        kept.write_text(text, encoding="utf-8")
    assert text == kept.read_text(encoding="utf-8"), "pytest --bless rewrites the golden plans"


@pytest.mark.filterwarnings("ignore:no event is of type")
def test_the_plan_finds_what_the_semantics_says(golden, uncompiled):
    _, told = golden
    total = 0
    for seed in range(40):
        events = told.events(seed)
        expected = told.expected(events)
        assert told.found(events) == expected
        total += len(expected)
        if seed >= 3 and total:
            break
    assert total, "no stream has a match: the comparison says nothing"


def test_every_structure_is_among_the_golden_plans():
    texts = [path.with_suffix(".txt").read_text(encoding="utf-8") for path in QUERIES]
    for structure in EVERYTHING:
        assert any(structure in text for text in texts)


def test_no_golden_plan_is_left_over():
    assert {p.stem for p in GOLDEN.glob("*.txt")} == {p.stem for p in QUERIES}


PROGRAM = """
import sys
from pathlib import Path
import ensue
for path in sys.argv[1:]:
    query = Path(path).read_text(encoding="utf-8")
    print(ensue.explain(query), ensue.picture(query))
"""


@pytest.mark.slow
def test_plans_do_not_depend_on_the_order_of_sets():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM, *map(str, QUERIES)],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2024")
    }
    assert len(outputs) == 1


def test_the_picture_is_the_same_each_time(golden):
    _, told = golden
    assert draw_plan(describe_plan(told.plan)) == draw_plan(describe_plan(told.plan))
