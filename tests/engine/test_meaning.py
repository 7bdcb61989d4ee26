"""What saved states and match ids know a query by stays the same while the code changes.

`tests/state/meaning/1.json` has the texts and digests that were written when a query's text was
its `repr`; `state_before` is the digest before generated functions named another module. They are
never written again. `2.json` has the digests of version 2; `--bless` adds what is missing.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue.algebra import pattern, policy, predicate, query, window
from ensue.algebra.canonical_text import query_text
from ensue.algebra.pattern import Leave
from ensue.algebra.policy import InOrderOf
from ensue.algebra.query import Query
from ensue.algebra.tower import Tower
from ensue.columns.stream import shape_of
from ensue.engine import meaning
from ensue.engine.meaning import VERSION, require_same, stamp
from ensue.engine.state import packed, unpacked
from ensue.errors import QueryError, StateError
from ensue.plan.physical import Tree
from ensue.plan.planning import Planning
from ensue.plan.structure_text import structure_text, structure_texts_before
from ensue.plan.towers.modules import Module
from ensue.results.identity import fingerprint
from ensue.workload.live_matcher import LiveMatcher, restored
from ensue.workload.prepared import Prepared, prepare
from ensue.workload.queries.shared_matcher import SharedMatcher
from ensue.workload.stage import Fed
from support import modules, towers
from support.joins import random_join
from support.negations import random_negations
from support.queries import random_query, random_repeats
from support.streams import random_events

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # with JIT off, scalars warn

FOLDER = Path(__file__).parent.parent / "state" / "meaning"
CASES = json.loads((FOLDER / "1.json").read_text(encoding="utf-8"))
WITH_STATE = [case for case in CASES if "state" in case]

# Their code has other fingerprints in other versions of Python: these are set.
OPERATORS = [
    replace(ensue.operator(name, known=False, **parts), fingerprint=f"{number:016x}")
    for number, (name, parts) in enumerate(
        {
            "near": {"q": lambda a, b, by: b.start - a.end <= by},
            "rise": {"f": lambda a, b: (a.start, b.end, b.x - a.x), "z": {"by": "integer"}},
            "big": {
                "over": "each",
                "q": lambda e, least: e.x >= least,
                "f": lambda e: (e.start, e.end, e.x * 2),
                "z": {"twice": "integer"},
                "cost": 3.0,
            },
            "dedup": {"over": "repeat", "q": lambda r, e, t: e.start - r.start >= t},
        }.items()
    )
]


def queries_of(text: str) -> list[Query]:
    found = ensue.parse(text, operators=OPERATORS)
    if isinstance(found, Tower):
        return [*(definition.query for definition in found.definitions), found.query]
    return [found]


def prepared(case: dict) -> Prepared:
    shape = shape_of(random_events(Random(0), 1).schema, time="t", type="type", order=())
    given = case.get("planning", {})
    planning = Planning(
        structure=given.get("structure"), modules=tuple(map(Module.of, given.get("modules", ())))
    )
    (found,) = queries_of(case["query"])
    return prepare(found, shape, planning)


def known_by(ready: Prepared) -> tuple:
    """What states are stamped by: plan, schema, unit."""
    _, schema = ready.shape.physical(ready.query)
    return ready.plan, schema, ready.shape.unit


# ------------------------------------------------------------------- texts and ids of before


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_queries_have_the_texts_they_had(case):
    assert [query_text(found) for found in queries_of(case["query"])] == case["texts"]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_match_ids_are_those_of_before(case):
    assert [fingerprint(found).hex() for found in queries_of(case["query"])] == case["ids"]


@pytest.mark.parametrize("case", WITH_STATE, ids=range(len(WITH_STATE)))
def test_states_of_before_fit(case):
    known = known_by(prepared(case))
    for digest in (case["state"], case.get("state_before", case["state"])):
        require_same({"query": digest}, *known)
    with pytest.raises(StateError, match="another query"):
        require_same({"query": "0" * 64}, *known)


@pytest.mark.parametrize("place", range(len(WITH_STATE)))
def test_stamps_stay(place, bless):
    file, case = FOLDER / f"{VERSION}.json", WITH_STATE[place]
    stamps = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    name = json.dumps([case["query"], case.get("planning")])
    if bless and name not in stamps:
        stamps[name] = stamp(*known_by(prepared(case)))["query"]
        text = json.dumps(stamps, indent=1, ensure_ascii=False)
        file.write_text(f"{text}\n", encoding="utf-8")
    assert stamp(*known_by(prepared(case))) == {"query": stamps[name], "text": VERSION}


# --------------------------------------------------------------- against repr, while it is that

# The fields that were in the repr of each node. A field that is not here is to be written only
# where it is not at its default: see `algebra/canonical_text.py`.
NODES = {
    "Literal": "value",
    "Field": "variable name at nth",
    "Aggregate": "function variable argument at parameter",
    "Unary": "operator operand",
    "Binary": "operator left right",
    "IsNull": "operand negated",
    "In": "operand options negated",
    "Between": "operand low high negated",
    "Like": "operand pattern negated",
    "Call": "function arguments",
    "Atom": "type variable",
    "Kleene": "atom least most leave begun inner pause until",
    "Repeat": "part least most leave begun inner pause until",
    "Maybe": "part",
    "Seq": "parts",
    "Then": "part how pause",
    "And": "parts",
    "Or": "parts",
    "Interval": "after until",
    "Not": "part interval",
    "Reading": "field column kind",
    "Apply": "operator inputs parameters variable reads time tick",
    "ByTime": "nanoseconds",
    "ByUnits": "amount",
    "ByEvents": "count",
    "AfterMatch": "to variable order",
    "Choose": "choice",
    "Equivalence": "field_name",
    "Returned": "expr name every over",
    "Limit": "count",
    "Query": "pattern name strategy where equivalence within after returns having exists limit"
    " choose all_events whole unfinished",
    "SortKey": "expr descending nulls_first",
    "WholeResult": "keys order first",
}
LATER = (
    "exists",
    "limit",
    "choose",
    "unfinished",
    "all_events",
    "whole",
)  # fields of Query that only queries with one of them show
WITHOUT_MEANING = ("span", "text")


def nodes() -> dict[str, str]:
    found = {}
    for module in (predicate, pattern, window, policy, query):
        for name, node in vars(module).items():
            if is_dataclass(node) and node.__module__ == module.__name__:
                named = [f.name for f in fields(node) if f.name not in WITHOUT_MEANING]
                found[name] = " ".join(named)
    return found


def test_every_field_of_a_node_is_in_its_text():
    """Who adds a field or a node writes it into the text, and here."""
    assert nodes() == NODES


def by_repr(found: Query) -> str:
    text = repr(found).replace(", interval=None", "")  # written only where there is one
    for said in (f"leave={Leave.FORK!r}", "inner=None", "pause=None", "until=None"):
        text = text.replace(f", {said}", "")
    for said in (", every=False, over=None", ", all_events=False, whole=None"):
        text = text.replace(said, "")
    text = text.replace(f", order={InOrderOf.END!r}", "").replace(", unfinished=False", "")
    text = text.replace(f"order={InOrderOf.START!r}", "order='start'")
    later = f", exists={found.exists}, limit={found.limit!r}, choose={found.choose!r})"
    assert text.endswith(later)
    text = text.removesuffix(later) + ")"
    if found.exists or found.limit is not None:
        text += f" exists={found.exists} limit={found.limit!r}"
    assert found.choose is None  # no random text has it
    return text


def random_texts(seed: int) -> Iterator[str]:
    for write in (random_query, random_repeats, random_negations, random_join):
        yield write(Random(seed))
    yield modules.random_tower(Random(seed))[0]
    yield towers.random_tower(Random(seed))


@pytest.mark.parametrize("block", range(10))
def test_a_text_is_what_repr_was(block):
    if nodes() != NODES:
        pytest.skip("nodes are not what they were: the samples of before judge alone")
    checked = 0
    for seed in range(40 * block, 40 * block + 40):
        for text in random_texts(seed):
            try:
                found = queries_of(text)
            except QueryError:
                continue
            for one in found:
                assert query_text(one) == by_repr(one)
                checked += 1
    assert checked > 100


@pytest.mark.parametrize("seed", range(60))
def test_a_tree_of_before_is_what_repr_was(seed):
    random = Random(f"tree {seed}")
    text, given = modules.random_tower(random) if seed % 2 else (random_join(random), ())
    case = {"query": text, "planning": {"structure": "tree"}}
    if given:
        case["planning"]["modules"] = [module.described() for module in given]
    try:
        plan = prepared(case).plan
    except QueryError:
        pytest.skip("no query, or none for a tree")
    if not isinstance(plan.structure, Tree):
        pytest.skip("not a tree")
    from ensue.plan.physical_rules.ordering import as_written

    tree = as_written(plan.structure, plan.query.where)
    shown = f"Tree(root={tree.root!r})" + "".join(repr(module) for module in tree.modules)
    assert list(structure_texts_before(plan.structure, plan.query.where)) == [shown]


# ------------------------------------------------------------------------------- what it tells


@pytest.mark.parametrize(
    "others",
    [
        ("A a WHERE a.x = 1", "A a WHERE a.x = 1.0", "A a WHERE a.x = true"),
        ("A a WHERE a.x = 0.0", "A a WHERE a.x = -0.0"),
        ("SEQ(A a, B b) LIMIT 1", "SEQ(A a, B b) LIMIT 2", "SEQ(A a, B b)"),
        ("A a RETURN EXISTS", "A a RETURN a.x", "A a"),
    ],
)
def test_queries_that_mean_different_things_have_different_texts(others):
    texts = {query_text(ensue.parse(text)) for text in others}
    assert len(texts) == len(others)


def test_how_a_query_is_written_does_not_matter():
    one = ensue.parse("pattern A a -> B b where a.x<b.x within 5 min")
    assert query_text(one) == query_text(ensue.parse(ensue.show(one)))


def test_the_order_in_which_conditions_are_tried_does_not_matter():
    text = "SEQ(A a, B b) WHERE a.x < b.x and a.y < b.y and a.s = b.s WITHIN 9"
    plan = prepared({"query": text, "planning": {"structure": "tree"}}).plan
    root = plan.structure.root
    turned = replace(plan.structure, root=replace(root, checks=root.checks[::-1]))
    assert turned != plan.structure
    where = plan.query.where
    assert structure_text(turned, where) == structure_text(plan.structure, where)


# ------------------------------------------------------------------------------- saved states


def rest_of(matcher, events: pa.Table) -> list[pa.Table]:
    return [matcher.feed(events.slice(30)), matcher.finish()]


def as_lines(tables: list[pa.Table]) -> list[str]:
    return sorted(map(str, pa.concat_tables(tables).to_pylist()))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tree", "SEQ(A a, AND(B b, C c)) WHERE b.x > a.x and [k] WITHIN 9"),
        ("operators", "SEQ(rise(A a, B b) r, C c) WHERE r.by < c.x WITHIN 9"),
    ],
)
def test_the_state_of_a_tree_of_before_is_restored(name, text):
    events = random_events(Random(f"meaning {name}"), 60)
    ready = prepared({"query": text, "planning": {"structure": "tree"}})
    first = LiveMatcher(ready).feed(events.slice(0, 30))
    matcher = restored(ready, (FOLDER / f"{name}.state").read_bytes())
    whole = LiveMatcher(ready)
    found = as_lines([first, *rest_of(matcher, events)])
    assert found
    assert found == as_lines([whole.feed(events), whole.finish()])


SEVERAL = [
    "SEQ(A a, B b, C c) WHERE skip_till_next_match(a, b, c) { [k] and b.x >= a.x } WITHIN 9",
    "SEQ(A a, B b) WHERE [k] WITHIN 9",
    "SEQ(A a, B b, !C c) WHERE [k] and c.x > a.x WITHIN 6",
    "SEQ(A a, B b) WHERE [k] WITHIN 9 RETURN COUNT(*) AS n",
]


def several(texts: list[str] = SEVERAL) -> SharedMatcher:
    return SharedMatcher([prepared({"query": text}) for text in texts])


def of_before() -> bytes:
    """As a lane hands it over."""
    return packed({}, {}, {"several": (FOLDER / "several.state").read_bytes()})


def fed(events: pa.Table) -> Fed:
    return Fed(events, {}, ())


def test_the_state_of_several_queries_of_before_is_restored():
    events = random_events(Random("meaning several"), 60)
    whole, before, after = several(), several(), several()
    everything = [whole.feed(fed(events)), whole.finish()]
    first = before.feed(fed(events.slice(0, 30)))
    after.restore(of_before())
    rest = [after.feed(fed(events.slice(30))), after.finish()]
    for number in range(len(SEVERAL)):
        found = as_lines([tables[number] for tables in (first, *rest)])
        assert found == as_lines([tables[number] for tables in everything])


@pytest.mark.parametrize("texts", [SEVERAL[1:], SEVERAL[:1], SEVERAL[::-1]])
def test_the_state_of_other_queries_of_before_is_refused(texts):
    with pytest.raises(StateError, match="another"):
        several(texts).restore(of_before())


def test_the_state_of_several_queries_fits_them_only():
    events, matcher = random_events(Random("meaning several"), 60), several()
    matcher.feed(fed(events.slice(0, 30)))
    state = matcher.save()
    several().restore(state)
    for texts in (SEVERAL[:-1], SEVERAL[::-1], [*SEVERAL[:-1], "SEQ(A a, B b) WITHIN 9"]):
        with pytest.raises(StateError, match="another set of queries"):
            several(texts).restore(state)


def test_the_text_is_the_same_in_every_process():
    """Sets of names have another order in each: none is in a text."""
    code = (
        "from tests.engine.test_meaning import several, prepared, SEVERAL, known_by, stamp\n"
        "print(several()._fingerprint(), [stamp(*known_by(prepared({'query': q})))"
        " for q in SEVERAL])"
    )
    root = Path(__file__).parent.parent.parent
    path = os.pathsep.join([str(root), str(root / "tests"), *sys.path])
    found = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def test_a_state_with_a_text_of_a_later_version_says_what_to_do():
    ready = prepared({"query": SEVERAL[0]})
    engine = ready.engine()
    header, arrays, blobs = unpacked(engine.save())
    assert header["text"] == meaning.VERSION
    later = packed(header | {"text": 9}, arrays, blobs)
    with pytest.raises(StateError, match=r"version 9, and this release reads versions 1 to 2\n"):
        ready.engine().restore(later)
    matcher = several()
    header, arrays, blobs = unpacked(unpacked(matcher.save())[2]["several"])
    with pytest.raises(StateError, match="restore it with the release that saved it"):
        several().restore(packed({}, {}, {"several": packed(header | {"text": 9}, arrays, blobs)}))
