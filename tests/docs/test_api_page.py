"""The API reference names everything public, and docstrings everything that a call takes."""

import inspect
import re

import pytest
from tests.docs.pages import ROOT

import ensue

PUBLIC = [name for name in ensue.__all__ if name != "__version__"]
RETURNED = ["Archive", "RunningStream"]  # by calls, with methods
OF_STREAMS = ("start", "remaining")  # run on the pages about streams
_ENTRY = re.compile(r"^ {4}(\w+): ", re.MULTILINE)


def test_everything_public_is_on_the_page():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    shown = [name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)$", page, re.MULTILINE)]
    assert sorted(shown) == sorted(PUBLIC + RETURNED)


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_has_an_example(name: str):
    text = inspect.getdoc(getattr(ensue, name)) or ""
    assert re.search(rf"\b{name}\(", text) if name in OF_STREAMS else ">>> " in text


@pytest.mark.parametrize("name", ["match", "sql", "start"])
def test_every_argument_is_described_once(name: str):
    call = getattr(ensue, name)
    described = _ENTRY.findall(inspect.getdoc(call) or "")
    assert sorted(described) == sorted(inspect.signature(call).parameters)
