"""The benchmarks measure what they say: every way of running a query finds the same matches."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from benchmarks import arrow, first_answer, floor, kernel, loops, machine, performance, plots, readme, spark
from benchmarks.papers import subscriptions
from benchmarks.peers import by_hand
from benchmarks.tables import local_sheet
from benchmarks.workloads import WORKLOADS, Workload, events

import ensue
from support.seeds import scaled

SYMBOLS = 50
EVENTS = events(20_000, SYMBOLS)
RESULT_FILES = sorted(readme.RESULTS.glob("*.json"))


@pytest.mark.slow
def test_a_first_answer_is_measured_with_an_empty_and_a_filled_cache_and_after_pandas() -> None:
    empty, filled, warm = first_answer.readme_example(1)
    assert [empty["cache"], filled["cache"]] == ["empty", "filled"]
    assert warm["modules"]


@pytest.mark.slow
def test_every_kind_of_query_has_a_first_answer() -> None:
    found = first_answer.kinds(1, (1_000,))
    assert len(found) == 9
    assert all(report["empty"] > 0 and report["filled"] > 0 for report in found)


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda w: w.name)
def test_the_kernel_alone_finds_what_the_whole_call_finds(workload: Workload) -> None:
    ready = kernel.compiled(workload, EVENTS, SYMBOLS)
    alone = kernel.measured(ready.prepared, EVENTS, times=2)
    whole = arrow.measured(workload, EVENTS, SYMBOLS, times=1)
    assert alone.matches == whole.matches > 0


@pytest.mark.parametrize("pair", loops.PAIRS.values(), ids=lambda p: p.native.name)
def test_a_loop_and_its_encoding_have_the_same_matches(pair: loops.Pair, monkeypatch) -> None:
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)
    events_, rows = EVENTS.slice(0, 4_000), []
    for workload in (pair.native, pair.encoded):
        found = ensue.match(events_, workload.text(SYMBOLS), time="ts", type=workload.type)
        rows.append(sorted(_members(row) for row in found.to_pylist()))
    assert rows[0] == rows[1]
    assert rows[0]


@pytest.mark.parametrize("question", by_hand.QUESTIONS, ids=lambda q: q.name)
@pytest.mark.parametrize("ordered", [True, False], ids=["in order", "in any order"])
def test_code_by_hand_finds_what_a_query_finds(
    question: by_hand.Question, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)
    plain = by_hand.events(scaled(10_000), SYMBOLS, seed=3)
    for form in by_hand.FORMS:
        some = by_hand.arranged(plain, ordered=ordered, form=form, seed=3)
        report = by_hand.compare(question, some, 1, ordered=ordered, form=form)
        assert report["same"]
        assert report["matches"] > scaled(5)


def _members(match: dict[str, object]) -> list[str]:
    """The events of a match, whatever their variables."""
    bound = (value if isinstance(value, list) else [value] for value in match.values())
    return sorted(str(event) for events_ in bound for event in events_ if isinstance(event, dict))


def test_a_loop_of_n_events_holds_as_many_partial_matches_as_come_out(monkeypatch) -> None:
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)
    for report in loops.growth((20, 200)):
        assert report["matches"] == report["loop"]
        assert report["partial_matches"] <= report["loop"] + 1


def test_parquet_files_hold_all_events_in_order(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    folder = spark.written(EVENTS, tmp_path / "events")
    assert pq.read_table(folder).equals(EVENTS)


def test_the_page_is_rewritten_between_its_marks(tmp_path: Path) -> None:
    runs = {"matches": 3, "events_per_second": 5e6, "matches_per_second": 1e6}
    report = {
        "query": "next, unary",
        "events": 10,
        "symbols": 2,
        "compile_seconds": 1.0,
        "kernel": runs,
        "arrow": runs,
        "same": True,
    }
    here = {"cores": 2, "cpu": "X", "memory_bytes": 8 * 2**30, "python": "3", "date": "2026-01-01"}
    results = {"machine": here, "queries": [report]}
    (tmp_path / "local.json").write_text(json.dumps(results))
    page = "before\n<!-- tables:start -->\nold\n<!-- tables:end -->\nafter\n"
    tables = performance.write_blocks(performance.Results(tmp_path))["tables"]
    new = readme.replace_block(page, "tables", tables)
    assert local_sheet([report]).markdown() in new
    assert "2026-01-01." in new  # and no commit: these results name none
    assert "old" not in new
    assert readme.replace_block(new, "tables", tables) == new


def test_the_pages_have_the_figures_of_the_result_files() -> None:
    readme_text = readme.README.read_text(encoding="utf-8")
    assert readme.write_figures(readme.RESULTS) in readme_text
    assert len(readme_text.splitlines()) <= 200
    page = readme.PERFORMANCE.read_text(encoding="utf-8")
    assert readme.write_page(page, performance.Results(readme.RESULTS)) == page


def test_the_plots_of_the_page_are_those_of_the_result_files() -> None:
    drawn = {plot.name: plots.draw(plot) for plot in performance.list_all_plots(performance.Results(readme.RESULTS))}
    files = {path.stem: path.read_text(encoding="utf-8") for path in readme.RESULTS.glob("performance_*.svg")}
    assert drawn.keys() == files.keys()
    assert [name for name, svg in drawn.items() if not plots.tell_same(svg, files[name])] == []


def test_another_version_of_matplotlib_draws_the_same_figures_and_no_others() -> None:
    def by(version: str, figures: str, line: int) -> str:
        return f"Matplotlib v{version}, <dc:description>{figures}</dc:description> M 0 {line}"

    assert plots.tell_same(by("3.9", "[1]", 7), by("3.11", "[1]", 8))
    assert not plots.tell_same(by("3.9", "[1]", 7), by("3.11", "[2]", 7))
    assert not plots.tell_same(by("3.9", "[1]", 7), by("3.9", "[1]", 8))


def test_results_were_measured_at_a_commit_of_this_history() -> None:
    if machine.ask_git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("without the history of git")
    named = {path.name: json.loads(path.read_text())["machine"].get("commit") for path in RESULT_FILES}
    commits = {name: commit.removesuffix(machine.CHANGED) for name, commit in named.items() if commit}
    known = {c: machine.ask_git("merge-base", "--is-ancestor", c, "HEAD") is not None for c in set(commits.values())}
    assert [name for name, commit in commits.items() if not known[commit]] == []


def test_results_name_the_commit_and_whether_the_code_differed(monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[str, str | None] = {"rev-parse": "0a1b2c3d", "status": ""}
    monkeypatch.setattr(machine, "ask_git", lambda command, *_: said[command])
    described = machine.machine()
    assert described["commit"] == "0a1b2c3d"
    assert machine.sentence(described).endswith(", commit 0a1b2c3d")
    said["status"] = " M src/ensue/api.py"
    assert machine.machine()["commit"] == "0a1b2c3d with changes"
    said["rev-parse"] = None  # no git
    assert "commit" not in machine.machine()


def test_reading_a_loop_and_questions_on_one_core_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)
    monkeypatch.setattr(floor, "match_in_loop", floor.match_in_loop.py_func)
    read = floor.measured(1_000, SYMBOLS, 1)
    assert all(report["same"] for report in read)
    assert read[2]["matches"] == read[3]["matches"] > 0
    plain = by_hand.arranged(by_hand.events(1_000, SYMBOLS, seed=3), ordered=True, form="strings", seed=3)
    asked = by_hand.compare(by_hand.QUESTIONS[0], plain, 1, ordered=True, form="strings")
    asked = [asked | {"symbols": symbols, "cores": cores} for cores in (1, 4) for symbols in (1_000, 100_000)]
    for name, part, reports in (("floor", "queries", read), ("by_hand", "questions", asked)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"machine": machine.machine(), part: reports}))
    shutil.copy(readme.RESULTS / "threads.json", tmp_path)
    results = performance.Results(tmp_path)
    blocks = performance.write_blocks(results)
    assert "% of the loop" in blocks["plots"]
    assert "milliseconds of the clock" in blocks["compared"]
    drawn = performance.list_all_plots(results)
    titles = [panel.title for plot in drawn for panel in plot.panels]
    assert titles[1:5] == [
        f"{symbols} keys: {what}"
        for symbols in ("1,000", "100,000")
        for what in ("processor time, all cores together", "the clock, all cores")
    ]
    assert titles[-2:] == ["1 core: the clock", "4 cores: the clock"]
    assert all(name in plots.draw(drawn[0]) for name in (*floor.QUERIES, "without Ensue", "from dictionaries"))


def test_the_page_of_operators_has_the_figures_of_its_file() -> None:
    from benchmarks.papers import report

    result = json.loads((report.RESULTS / "papers_user_operators.json").read_text())
    page = report.OPERATORS.read_text()
    assert readme.replace_block(page, readme.TABLES, report.operator_figures(result)) == page


@pytest.mark.slow
def test_probes_of_an_archive_find_the_same_events(tmp_path: Path) -> None:
    from benchmarks.papers import archive_probe

    built = archive_probe.build(tmp_path, 6_000)
    assert built["events"] == 6_000
    for name in ("1,000 x 24 hours", "1 x 30 days"):
        found = [archive_probe.probe(tmp_path / layout, name, 1)["rows"] for layout in ("clustered", "arrival")]
        assert found[0] == found[1]


@pytest.mark.slow
def test_routing_finds_what_trying_all_atoms_finds() -> None:
    from benchmarks.papers import routing

    for name in ("even", "cities"):
        found = routing.spread(name, atoms=2_000, events=1_000, tried=1_000, times=1)
        assert found["matches"] == found["tried"]["as added"]["matches"] > 0


def test_shapes_of_subscriptions_find_what_their_queries_find() -> None:
    from benchmarks.papers import shapes

    assert shapes.as_one_plan(20, 2_000)["matches"] > 0  # it compares them itself
    several = shapes.on_nodes(10, 20, 1_000)
    assert several["matches"] > 0
    assert len(set(shapes.several_structures(1_000))) == 1_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(
            kind, name, id=f"{kind.name}-{name}",
        )
        for kind in subscriptions.KINDS
        for name in subscriptions.STREAMS
    ],
)  # fmt: skip
def test_subscriptions_and_fat_clients_find_what_is_planted(kind: subscriptions.Kind, name: str) -> None:
    prepared = subscriptions.Prepared(kind, 100)
    events = subscriptions.stream(kind, name, 100, 800)
    expected = subscriptions.planted(kind, name, 800)
    mine = subscriptions.ours(prepared, events, expected)  # both raise if one is missing
    theirs = subscriptions.fat_clients(prepared, events, expected)
    assert mine["matches"] == theirs["matches"] > 0
    assert mine["messages_between_parts"] == theirs["messages_between_parts"]
    assert mine["messages_to_clients"] < theirs["messages_to_clients"]


def test_queries_find_what_is_planted_for_the_subscriptions_they_stand_for() -> None:
    kind = subscriptions.KINDS[0]
    events = subscriptions.stream(kind, "paper", 100, 400)
    assert subscriptions.as_queries(kind, 100, 4, events)["matches"] == 8


def test_the_service_tells_subscribers_what_is_planted() -> None:
    from benchmarks.service import messages

    run = messages.measured(subscriptions.KINDS[0], "paper", 20, 200)
    assert run["told"]["match"] == run["planted"] > 0
    assert run["share"] <= 0.5


# ------------------------------------------------------------- every topic of make bench-papers

_LISTED = re.search(r"^PAPERS := ((?:.*\\\n)*.*)", (readme.ROOT / "Makefile").read_text(), re.MULTILINE)
assert _LISTED is not None
TOPICS = _LISTED[1].replace("\\\n", " ").split()
Step = Callable[[Any, Path], Any]


def _hierarchies(topic: Any, folder: Path) -> Any:
    first = next(iter(topic.cases(1, quick=True).values()))[0]
    return topic.compared(replace(first, events=1_000), 1)


def _live_archive(topic: Any, folder: Path) -> Any:
    asked = topic.query(0.4, 0.5, 500)
    setting = topic.Setting(topic.events(500, 500, 5), topic.events(500, 0, 5), asked)
    return topic.compared(setting, setting.archive(folder), 1)


def _several(topic: Any, folder: Path) -> Any:
    queries = [ensue.parse(topic.alert(number)) for number in range(3)]
    return topic.measured(queries, topic.events(1_000), 1)


def _subscriptions(topic: Any, folder: Path) -> Any:
    return topic.Prepared(topic.KINDS[0], 20)


LONG_STEPS = ("routing", "live_archive", "subscriptions")
# small enough for every day; what needs Spark is run with the slow tests
STEPS: dict[str, Step] = {
    "negation": lambda topic, _: topic.compared("middle", 20, topic.events(300), 1),
    "operators": lambda topic, _: [topic.condition_order(500, 1), topic.negation(500, 1)],
    "user_operators": lambda topic, _: [part(500, 1) for part in (topic.sequences, topic.attributes, topic.repeats)],
    "dense": lambda topic, _: topic.without_listing((10,), 500, 1),
    "several": _several,
    "drift": lambda topic, _: topic.run(600, 300),
    "hierarchies": _hierarchies,
    "definitions": lambda topic, _: topic.compared("few", 2_000, 1),
    "definitions_spark": lambda topic, _: topic.local(topic.stream(2_000, 50), 1),
    "live_archive": _live_archive,
    "partial_matches": lambda topic, _: topic.compared(1_500, 0.5),
    "archive_probe": lambda topic, folder: topic.build(folder, 1_000),
    "archive_stream": lambda topic, _: topic.passes(100, 0, 10, 5, 0.1, 1),
    "history": lambda topic, _: topic.timed(list),
    "routing": lambda topic, _: topic.spread("even", atoms=50, events=50, tried=50, times=1),
    "shapes": lambda topic, _: topic.on_nodes(2, 4, 200),
    "subscriptions": _subscriptions,
    "subscriptions_spark": lambda topic, _: [list(topic.asked(20)), topic.events(100)],
}


@pytest.mark.parametrize("topic", [pytest.param(t, marks=pytest.mark.slow if t in LONG_STEPS else ()) for t in TOPICS])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # uncompiled, scalars warn
def test_an_experiment_of_the_papers_takes_its_first_steps(
    topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)
    assert STEPS[topic](import_module(f"benchmarks.papers.{topic}"), tmp_path)


def _archived(topic: Any, session: Any, folder: Path) -> Any:
    bench = topic.Bench(session, folder, quick=True)
    bench.rows, bench.archived, bench.cars = 1_000, 5_000, 500
    bench.prepare()
    return bench.measured()["archive, grouped"]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("topic", "step"),
    [
        ("archive_stream", _archived),
        ("history", lambda topic, session, folder: topic.measured(session, folder, 200_000)),
        ("subscriptions_spark", lambda topic, session, folder: topic.measured(session, folder, 20, 4, 500)),
    ],
)
def test_an_experiment_of_the_papers_takes_its_first_steps_on_spark(
    topic: str, step: Callable[[Any, Any, Path], dict[str, Any]], spark: Any, tmp_path: Path
) -> None:
    found = step(import_module(f"benchmarks.papers.{topic}"), spark, tmp_path)
    assert found["matches"] > 0
