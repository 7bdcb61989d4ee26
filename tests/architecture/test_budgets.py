"""Budgets of the code base, in pyproject.toml: growth is a decision that a commit states."""

import ast
import inspect
import re
import tomllib
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

import ensue

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ensue"
BUDGETS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["ensue"]["budgets"]
MODULES = sorted(SOURCE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = ("ensue", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(path)))


def line_count(paths: list[Path]) -> int:
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def folder_of(path: Path) -> str:
    inside = path.relative_to(SOURCE).parts
    return inside[0] if len(inside) > 1 else "."


@cache
def importers() -> dict[str, set[str]]:
    """The modules that import each module."""
    names = {module_name(path): path for path in MODULES}
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in names.items():
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    found[full if full in names else node.module].add(name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.name].add(name)
    return found


def test_lines_and_modules_stay_within_their_budget():
    assert line_count(MODULES) <= BUDGETS["lines"]
    assert len(MODULES) <= BUDGETS["modules"]


@pytest.mark.parametrize("folder", sorted({folder_of(path) for path in MODULES}))
def test_each_folder_stays_within_its_budget(folder):
    paths = [path for path in MODULES if folder_of(path) == folder]
    lines, modules = BUDGETS["folders"][folder]
    assert line_count(paths) <= lines
    assert len(paths) <= modules


def test_class_names_are_unique():
    places = defaultdict(list)
    for path in MODULES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module_name(path))
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_no_base_name_is_used_more_than_twice():
    names = Counter(path.stem for path in MODULES if path.stem != "__init__")
    assert not {name: count for name, count in names.items() if count > 2}


def test_no_thin_module_has_a_single_importer():
    thin = [
        module_name(path)
        for path in MODULES
        if path.stem not in ("__init__", "__main__")
        and line_count([path]) < 50
        and len(importers()[module_name(path)]) <= 1
    ]
    assert not thin


def test_public_functions_take_few_parameters():
    """The calls that take many are listed with their number, which must not grow."""
    many = {}
    for name in ensue.__all__:
        call = getattr(ensue, name)
        if inspect.isfunction(call):
            count = len(inspect.signature(call).parameters)
            if count > BUDGETS["parameters"]:
                many[name] = count
    listed = BUDGETS["many_parameters"]
    assert many.keys() <= listed.keys()
    assert not {name: count for name, count in many.items() if count > listed[name]}


# Words that the code had for concepts of the field; the language of queries keeps its own.
OLD_WORDS = (
    "algebra", "asked", "asking_less", "boxes", "brief_errors", "concerns", "correlations", "courier", "foresight",
    "kept_works", "lanes", "lapses", "leaving", "own_frames", "parcels", "patient", "places_of", "planned", "prepared",
    "private_files", "recognition", "runners", "sayings", "shelf", "slips", "structures", "tied", "together", "towers",
    "twins", "wishes", "workload_text", "worlds",
)  # fmt: skip
OLD_CLASSES = (
    "Asked", "Begun", "Concerns", "Correlation", "Fed", "Fits", "Given", "InTurn", "KeptLane", "Lane", "LooksBack",
    "NotSaidError", "Parcel", "PatientFleet", "Recognition", "Remembers", "Renews", "Saying", "Shelf", "Spreads",
    "Together", "Tower", "Twins", "Unseen", "Wanted", "Watchful", "Wishes",
)  # fmt: skip


def test_modules_and_classes_do_not_use_the_old_words():
    modules = {word for path in MODULES for word in path.relative_to(SOURCE).with_suffix("").parts}
    assert not modules & set(OLD_WORDS)
    classes = {node.name for path in MODULES for node in nodes_of(path) if isinstance(node, ast.ClassDef)}
    assert not classes & set(OLD_CLASSES)


# Parts of names: `lane` also forbids `lane_of` and `by_lane`.
OLD_NAMES = re.compile(
    r"(?:^|_)(towers?|lanes?|recognitions?|correlations?|wishes|couriers?|parcels?|sayings?|shel(?:f|ves)"
    r"|asked|pasts|told|mine)(?:_|$)",
    re.IGNORECASE,
)
# Whole names: functions named by a participle, and imports that keep the old name of a module.
OLD_FUNCTIONS = (
    "analysed", "blamed", "delivered", "described", "given", "held_rows", "joined", "made", "matched", "merged", "of",
    "others_hold", "owning", "renewed", "saved", "sent", "shown", "told", "wanted", "whole",
)  # fmt: skip
ALIASES = {"np", "npt", "pa", "pc", "pd", "pq", "ds", "sql", "spark", "paho", "clock"}


def test_no_name_in_the_code_has_an_old_word():
    found = set()
    for path in MODULES:
        for node in nodes_of(path):
            for field in ("id", "attr", "arg", "name", "asname"):
                name = getattr(node, field, None)
                if isinstance(name, str) and OLD_NAMES.search(name):
                    found.add(f"{module_name(path)}: {name}")
    assert not found, "\n".join(sorted(found))


def is_property(node: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def test_no_function_has_the_name_of_its_result():
    """Functions are verbs; those of `Statistics` are documented."""
    found = set()
    for path in MODULES:
        for node in (tree_of(path), *nodes_of(path)):
            if isinstance(node, ast.Module | ast.ClassDef) and getattr(node, "name", "") != "Statistics":
                functions = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
                found |= {f"{module_name(path)}: {f.name}" for f in functions
                          if f.name.lstrip("_") in OLD_FUNCTIONS and not is_property(f)}  # fmt: skip
    assert not found, "\n".join(sorted(found))


def test_imports_keep_the_names_of_modules():
    """A module that must be renamed to avoid a clash keeps its own name as a part of the new one."""
    found = set()
    for path in MODULES:
        for node in nodes_of(path):
            if isinstance(node, ast.Import | ast.ImportFrom):
                aliases = [a for a in node.names if a.asname and a.asname not in ALIASES]
                found |= {f"{module_name(path)}: {a.name} as {a.asname}" for a in aliases
                          if a.name.lower() not in a.asname.lower()}  # fmt: skip
    assert not found, "\n".join(sorted(found))


OLD_PROSE = re.compile(
    r"(?<![\w/])(towers?|lanes?|correlations?|recognitions?|courier|whoever|anew)\b(?!\.py)"
    r"|How it goes|What shall it find|do not get through|where nobody looks|beside a pipeline that only",
    re.IGNORECASE,
)


def test_the_documentation_uses_the_words_of_the_field():
    found = []
    for path in (*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if OLD_PROSE.search(line.replace("Event Recognition", "")):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:90]}")
    assert not found, "\n".join(found)
