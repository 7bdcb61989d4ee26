"""A new node of a pattern is missed nowhere: code asks for its form, or mypy names the place."""

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

import ensue
from ensue.ir.pattern import Pattern

SOURCE = Path(ensue.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
NODES = {node.__name__ for node in get_args(Pattern)}

# What a new node asks to be changed, beside its class and its words in patterns.lark.
KNOW_NODES = {
    "ir/traits.py",  # what it is
    "analyzer/derivatives.py",  # what remains of it after an event: the states of runs
    "printing/pattern_printer.py",  # how it is written
    "planner/capabilities.py",  # which structures know it
    "reference/arrangements.py",  # what it means
}
MOST_FILES = 5


def names_of_nodes(tree: ast.Module) -> set[str]:
    """What a module calls the nodes that it imports; plans have an Apply of their own."""
    return {
        alias.asname or alias.name
        for statement in tree.body
        if isinstance(statement, ast.ImportFrom) and statement.module == "ensue.ir.pattern"
        for alias in statement.names
        if alias.name in NODES
    }


def named(expression: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(expression) if isinstance(n, ast.Name)}


def questions(tree: ast.Module) -> Iterator[ast.AST]:
    """Wherever a class is asked for: isinstance, a comparison of types, a class in a match."""
    nodes = names_of_nodes(tree)
    if not nodes:
        return
    for found in ast.walk(tree):
        match found:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, classes]):
                if named(classes) & nodes:
                    yield found
            case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=others):
                if any(named(other) & nodes for other in others):
                    yield found
            case ast.MatchClass(cls=ast.Name(id=name)) if name in nodes:
                yield found
            case _:
                pass


def catches_all(case: ast.match_case) -> bool:
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


def mentions(case: ast.match_case, nodes: set[str]) -> bool:
    """Whether a case is one of a node or of a form."""
    inside = list(ast.walk(case.pattern))
    classes = [n.cls for n in inside if isinstance(n, ast.MatchClass)]
    values = [n.value for n in inside if isinstance(n, ast.MatchValue)]
    return any(named(c) & nodes for c in classes) or any("Form" in named(v) for v in values)


def place(module: Path) -> str:
    return module.relative_to(SOURCE).as_posix()


@cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"))


def test_only_few_modules_ask_which_node_it_is():
    asking = {place(m) for m in MODULES if any(questions(parsed(m)))}
    assert asking == KNOW_NODES
    assert len(KNOW_NODES) <= MOST_FILES  # beside the node itself and the grammar


def test_only_forms_are_told_from_nodes_by_isinstance():
    for module in MODULES:
        tree = parsed(module)
        by_hand = [n for n in questions(tree) if not isinstance(n, ast.MatchClass)]
        assert not by_hand or place(module) == "ir/traits.py", place(module)


def test_no_match_over_nodes_or_forms_has_a_default():
    for module in MODULES:
        tree = parsed(module)
        nodes = names_of_nodes(tree)
        if not nodes and "Form." not in module.read_text(encoding="utf-8"):
            continue
        for found in ast.walk(tree):
            if isinstance(found, ast.Match) and any(mentions(c, nodes) for c in found.cases):
                line = f"{place(module)}:{found.lineno}"
                assert not any(map(catches_all, found.cases)), line


def test_such_places_are_found():
    tree = ast.parse(
        "from ensue.ir.pattern import Atom, Seq as S\n"
        "from ensue.planner.physical_plan import Apply\n"
        "isinstance(x, S | int)\n"
        "isinstance(x, Apply)\n"
        "type(x) is Atom\n"
        "match x:\n  case [S()]: pass\n  case other: pass\n"
    )
    assert len(list(questions(tree))) == 3
    (found,) = (n for n in ast.walk(tree) if isinstance(n, ast.Match))
    assert [mentions(c, names_of_nodes(tree)) for c in found.cases] == [True, False]
    assert [catches_all(c) for c in found.cases] == [False, True]


@pytest.mark.slow
def test_mypy_names_every_place_that_a_new_node_misses(tmp_path):
    shutil.copytree(SOURCE, tmp_path / "src" / "ensue")
    shutil.copy(SOURCE.parents[1] / "pyproject.toml", tmp_path)
    nodes = tmp_path / "src" / "ensue" / "ir" / "pattern.py"
    text = nodes.read_text(encoding="utf-8")
    union = next(line for line in text.splitlines() if line.startswith("Pattern = "))
    toy = '@dataclass(frozen=True)\nclass Gap:\n    parts: tuple["Pattern", ...]\n'
    toy += "    span: Span | None = None\n\n\n"
    nodes.write_text(text.replace(union, f"{toy}{union} | Gap"), encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "-p", "ensue", "--cache-dir", str(tmp_path / "cache")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    errors = [line for line in ended.stdout.splitlines() if ": error: " in line]
    flagged = {line.split(":")[0].removeprefix("src/ensue/") for line in errors}
    assert flagged == KNOW_NODES, ended.stdout
