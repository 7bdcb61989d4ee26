"""Kernels that can be read: numbers have names, comments are never compiled, texts are shared."""

import ast
import io
import tokenize
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue.analyzer.query import check_query
from ensue.engine.program import Program, create_frame, format_kernel, write_kernel
from ensue.planner.physical_plan import ReferencePlan
from ensue.planner.planner import choose_plan
from ensue.planner.planner_options import PlannerOptions
from ensue.planner.schema_inference import infer_schema
from support.joins import random_join
from support.negations import random_negations
from support.queries import random_query

GOLDEN = Path(__file__).parent / "golden"
QUERIES = sorted(GOLDEN.glob("*.ensue"))
ASKED = "-- structure: "
TABLES = ("bigger", "table", "head", "I", "F", "N", "NF", "A", "AF", "tops", "T", "K", "KF", "L", "LF", "O", "P")


def planned(text, structure=None):
    """The plan of a query without events, and their assumed schema."""
    if text.startswith(ASKED):
        structure = text.splitlines()[0].removeprefix(ASKED)
    query = ensue.parse(text)
    schema = infer_schema(query)
    return choose_plan(check_query(query, schema), schema, PlannerOptions(structure=structure)), schema


def compiled_text(text, structure=None, *, nullable=False, counted=False):
    plan, schema = planned(text, structure)
    return Program(plan, schema, "us", nullable, counted).source.text


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_the_kernel_is_the_golden_one(path, bless):
    text = format_kernel(*planned(path.read_text(encoding="utf-8"))) + "\n"
    kept = path.with_suffix(".txt")
    if bless:
        kept.write_text(text, encoding="utf-8")
    assert text == kept.read_text(encoding="utf-8"), "pytest --bless rewrites the golden kernels"


def test_no_golden_kernel_is_left_over():
    assert {p.stem for p in GOLDEN.glob("*.txt")} == {p.stem for p in QUERIES}


# ----------------------------------------------------------------------------- every kernel


def _random_texts():
    for seed in range(2):
        random = Random(f"readable {seed}")
        yield random_query(random)
        yield random_negations(random)
        yield random_join(random)


def _kernels():
    """Plans of all sorts: of the golden queries, and of random ones on each structure."""
    for path in QUERIES:
        yield planned(path.read_text(encoding="utf-8"))
    for text in _random_texts():
        for structure in (None, "tree", "compact", "runs"):
            try:
                yield planned(text, structure)
            except ensue.QueryError:
                continue


@pytest.fixture(scope="module")
def kernels():
    found = [pair for pair in _kernels() if not isinstance(pair[0].structure, ReferencePlan)]
    assert {type(plan.structure).__name__ for plan, _ in found} == {
        "CompactPlan", "InstanceStacks", "JoinTree", "Nfa"
    }  # fmt: skip
    return found


@dataclass(frozen=True)
class Written:
    """A kernel as it is compiled and as it is shown."""

    compiled: str
    shown: str
    module: ast.Module  # of the compiled one


WAYS = {"plain": (False, False), "null": (True, False), "counted": (False, True)}


@pytest.fixture(scope="module", params=WAYS.values(), ids=WAYS)
def written(request, kernels):
    nullable, counted = request.param
    found = []
    for plan, schema in kernels:
        compiled, shown = (
            write_kernel(create_frame(plan, schema, "us", nullable, counted=counted, readable=readable)).text
            for readable in (False, True)
        )
        found.append(Written(compiled, shown, ast.parse(compiled)))
    return found


def test_no_test_is_always_true(written):
    for kernel in written:
        for node in ast.walk(kernel.module):
            if isinstance(node, ast.If):
                assert not isinstance(node.test, ast.Constant), ast.unparse(node)


def test_columns_and_codes_have_names(written):
    for kernel in written:
        for node in ast.walk(kernel.module):
            match node:
                case ast.Subscript(ast.Name(table), ast.Tuple([_, column])):
                    assert table in TABLES, ast.unparse(node)
                    assert not isinstance(column, ast.Constant), ast.unparse(node)
                case ast.Subscript(ast.Name(table), ast.Constant()):
                    assert table in ("wholes", "reals"), ast.unparse(node)
                case ast.Assign([ast.Name("code")], value):
                    assert not isinstance(value, ast.Constant), ast.unparse(node)


def test_only_names_in_use_are_defined(written):
    for kernel in written:
        names = [node for node in ast.walk(kernel.module) if isinstance(node, ast.Name)]
        read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        for node in kernel.module.body:
            if isinstance(node, ast.Assign):
                assert ast.unparse(node.targets[0]) in read, ast.unparse(node)


class _Numbered(ast.NodeTransformer):
    """Names in the order in which they are met."""

    def __init__(self):
        self.known = {}

    def _of(self, name):
        return f"n{self.known.setdefault(name, len(self.known))}"

    def visit_Name(self, node):
        node.id = self._of(node.id)
        return node

    def visit_arg(self, node):
        node.arg = self._of(node.arg)
        return node


def _code(text):
    return ast.dump(_Numbered().visit(ast.parse(text)))


def test_what_is_shown_is_what_is_compiled(written):
    for kernel in written:
        assert _code(kernel.compiled) == _code(kernel.shown), kernel.shown


def test_what_is_compiled_has_no_comments(written):
    for kernel in written:
        tokens = tokenize.generate_tokens(io.StringIO(kernel.compiled).readline)
        assert not [t.line for t in tokens if t.type == tokenize.COMMENT]


# ----------------------------------------------------------------------------- one text for many

SHARED = (
    "SEQ(A {v}, !C n, B w) WHERE [k] and w.{f} > {v}.{f} + {n} and n.{f} = {v}.{f} WITHIN {n}",
    "SEQ(A+ {v}[], B w) WHERE {v}[i].{f} > avg({v}[..i-1].{f}) + {n} WITHIN {n}",
    "SEQ(A {v}, AND(B w, C u)) WHERE w.{f} + u.{f} > {v}.{f} * {n} WITHIN {n}",
    "SEQ(A {v}, B w) WHERE {v}.{f} > {n} WITHIN {n} LIMIT {n}",
)


@pytest.mark.parametrize("text", SHARED)
def test_neither_constants_nor_names_make_another_kernel(text):
    structure = "tree" if "AND(" in text else None
    texts = {
        compiled_text(text.format(v=v, f=f, n=n), structure)
        for v, f, n in (("a", "x", 5), ("first", "price", 7), ('"an a"', '"x x"', 8))
    }
    assert len(texts) == 1


def test_showing_a_kernel_leaves_the_compiled_one_as_it_is():
    text = SHARED[0].format(v="a", f="x", n=5)
    before = compiled_text(text)
    assert ensue.explain(text, kernel=True)
    assert compiled_text(text) == before


def test_a_name_that_is_taken_does_not_confuse_a_kernel():
    text = 'SEQ(A "FIRST", B ROW, B+ ROW_a[]) WHERE ROW.TOP > "FIRST".PREVIOUS WITHIN 9'
    for structure in ("runs", "tree"):
        plan, schema = planned(text, structure)
        frames = [create_frame(plan, schema, "us", nullable=True, readable=r) for r in (0, 1)]
        compiled, shown = (write_kernel(frame).text for frame in frames)
        assert _code(compiled) == _code(shown)


def test_a_text_with_lines_in_it_stays_a_comment():
    text = "SEQ(A a, B b) WHERE a.x < b.x and (a.s = 'two\nlines' or b.x > 1) WITHIN 9"
    for structure in ("runs", "stacks"):
        ast.parse(format_kernel(*planned(text, structure)))


# ----------------------------------------------------------------------------- explain

PAIR = "SEQ(A a, B b) WHERE a.x < b.x WITHIN 5"
EVENTS = pa.table({"t": [1, 2], "type": ["A", "B"], "x": [1, 2]})


def test_explain_shows_the_kernel():
    told = ensue.explain(PAIR, kernel=True)
    plan = ensue.explain(PAIR)
    assert told.startswith(plan)
    kernel = told.removeprefix(plan).strip()
    assert kernel.startswith("# The kernel of\n#   PATTERN SEQ(A a, B b)\n#   WHERE a.x < b.x")
    assert "# a.x < b.x\n" in kernel
    assert "def step(" in kernel
    assert "A[p_a, FIELD_x] < f_x[i]" in ensue.explain(PAIR, EVENTS, time="t", type="type", kernel=True)


def test_explain_of_an_analysis_shows_the_kernel_too():
    given = {"time": "t", "type": "type", "kernel": True}
    told = ensue.explain(PAIR, EVENTS, **given, analyze=True)
    assert "def step(" in told.split("# The kernel of")[1]


def test_what_the_reference_runs_has_no_kernel():
    told = ensue.explain(PAIR, options=ensue.PlannerOptions(structure="reference"), kernel=True)
    assert "# No kernel: the reference semantics runs\n#   PATTERN SEQ(A a, B b)" in told
    assert "def step(" not in told


def test_a_negated_complex_event_has_a_kernel_of_its_own():
    told = ensue.explain("SEQ(A a, !SEQ(B b, C c), D d) WHERE a.x = b.x WITHIN 5", kernel=True)
    assert "# The kernel of\n#   PATTERN SEQ(B b, C c)" in told


def test_every_level_of_a_hierarchy_shows_its_kernel():
    hierarchy = f"EVENT Pair AS {PAIR} RETURN a.x AS x; SEQ(Pair p, Pair q) WHERE q.x > p.x WITHIN 9"
    told = ensue.explain(
        hierarchy, EVENTS, time="t", type="type", options=ensue.PlannerOptions(off="top_down"), kernel=True
    )
    assert told.count("# The kernel of") == 2
