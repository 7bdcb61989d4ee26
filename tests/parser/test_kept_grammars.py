"""Tables of grammars that are kept: the same trees, and nothing worse than making them anew."""

import subprocess
import sys

import lark
import pytest
from lark import Lark

from ensue import cache_files as private_files
from ensue.parser import grammar as kept_grammars
from ensue.parser.grammar import ParameterPostLex
from support.cases import each_case
from support.parser_tables import GRAMMARS

TEXTS = [
    "SEQ(A a, !B b, C c) WHERE [id] and a.x > 3 WITHIN 5 minutes RETURN a.*, count(*) AS n",
    "A a THEN NEXT (B|C)+ b[] UNTIL X u WHERE b[i].x > b[i-1].x or a.order IN (1, 2)",
    "EVENT E AS A a JOIN ARCHIVE old B b RANGE 5 days BEFORE START ON [id] HAVING a.x > 1",
]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path))
    monkeypatch.setattr(private_files, "_warned", set())
    private_files.get_cache_folder.cache_clear()
    yield tmp_path / "compiled"
    private_files.get_cache_folder.cache_clear()


def read() -> Lark:
    """With a start that is not among those of the package."""
    start = ["start", "condition"]
    return kept_grammars.load_grammar("ensue.parser", "patterns.lark", start=start, postlex=ParameterPostLex())


def trees(parser: Lark) -> list[str]:
    found = [parser.parse(text, start="start") for text in TEXTS]
    spans = [
        [(str(t.data), t.meta.start_pos, t.meta.end_pos) for t in tree.iter_subtrees() if t.children] for tree in found
    ]
    return [tree.pretty() + str(span) for tree, span in zip(found, spans, strict=True)]


def test_kept_tables_read_the_same_trees(place, monkeypatch):
    made = trees(read())
    assert len(list(place.glob("grammar-*"))) == 1
    monkeypatch.setattr(kept_grammars, "Lark", Loaded)
    assert trees(read()) == made


class Loaded(Lark):
    """A Lark that cannot be made of a grammar, only loaded."""

    def __init__(self, *_args, **_options):
        raise AssertionError("the kept tables are not used")


def test_what_cannot_be_loaded_is_made_anew(place, monkeypatch):
    wanted = trees(read())
    (kept,) = place.glob("grammar-*")
    with each_case() as case:
        for content in (b"", b"no pickle", b"\x80\x04]."):
            with case(content):
                monkeypatch.setattr(private_files, "_warned", set())
                private_files.write_cached(kept.name, content, place)
                with pytest.warns(private_files.CacheWarning, match="rebuilt"):
                    assert trees(read()) == wanted
    assert trees(read()) == wanted  # and it is whole again


def test_a_damaged_file_is_not_loaded(place):
    wanted = trees(read())
    (kept,) = place.glob("grammar-*")
    kept.write_bytes(kept.read_bytes()[:-1])
    with pytest.warns(private_files.CacheWarning, match="is damaged"):
        assert trees(read()) == wanted


def test_another_grammar_is_another_file(place):
    read()
    kept_grammars.load_grammar("ensue.parser.opsl", "opsl.lark", start=["definition"])
    assert len(list(place.glob("grammar-*"))) == 2


def test_processes_know_a_grammar_by_the_same_name(place):
    program = "from ensue.parser import pattern_parser as p; p.load_pattern_grammar('window')"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], check=True)
    assert len(list(place.glob("grammar-*"))) == 1


@pytest.mark.parametrize("path", GRAMMARS, ids=lambda path: path.name)
def test_the_tables_in_the_package_are_those_of_its_grammars(path, place):
    version = path.read_bytes().partition(b"\n")[0].decode().split()[1]
    if version != lark.__version__:
        pytest.skip(f"the package has tables of Lark {version}: others are computed, and kept in the cache")
    GRAMMARS[path].__wrapped__()
    assert not list(place.glob("grammar-*")), "run `make grammars`"
