"""Questions in Flink's Pattern API, asked of Ensue in its own words: it finds what Flink finds.

`questions.jsonl` has the questions, `recorded.jsonl` Flink's own answers, `random.jsonl` random
patterns with Flink's answers; `python -m benchmarks.peers.flink_cep.record` asks Flink again. A
question with `not_yet` cannot be asked of Ensue so far, one with `differs` has another answer
here; both say why.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ensue.source import cache
from support.flink_questions import Matches, Question, flinks, matched, meant, read
from support.flink_texts import is_typed, translated

QUESTIONS = read("questions.jsonl")
ANSWERS = {answer["name"]: answer for answer in read("recorded.jsonl")}
RANDOM = read("random.jsonl")

RANDOM_DIFFERS: dict[str, str] = {}

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question has a kernel of its own: compiling them all would take half an hour."""
    monkeypatch.setattr(cache, "interpreted", True)


Ask = Callable[[Question], Matches]


def _case(question: Question, ask: Ask, reason: str | None, *, slow: bool) -> Any:
    marks: list[Any] = [pytest.mark.slow] if slow else []
    marks += [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
    return pytest.param(question, ask, id=f"{question['name']}-{ask.__name__}", marks=marks)


# The reference semantics is the judge of all kernels, too: every day it is asked a part of this.
@pytest.mark.parametrize(
    ("question", "ask"),
    [
        _case(q, ask, q.get("not_yet") or q.get("differs"), slow=ask is meant and number % 5 > 0)
        for number, q in enumerate(QUESTIONS)
        for ask in (meant, matched)
    ],
)
def test_ensue_finds_what_flink_finds(question: Question, ask: Ask) -> None:
    assert question["ensue"], "no words for it"
    assert ask(question) == flinks(ANSWERS[question["name"]])


def test_every_question_has_an_answer_and_a_text_or_a_reason() -> None:
    assert [question["name"] for question in QUESTIONS] == list(ANSWERS)
    assert all(question["ensue"] or "not_yet" in question for question in QUESTIONS)
    assert len(QUESTIONS) >= 240


@pytest.mark.parametrize(
    ("question", "ask"),
    [
        _case(q, ask, RANDOM_DIFFERS.get(q["name"]), slow=number >= 100)
        for number, q in enumerate(RANDOM)
        for ask in (meant, matched)
    ],
)
def test_random_patterns_find_what_flink_finds(question: Question, ask: Ask) -> None:
    text = translated(question["flink"])
    asked = question | {"ensue": text, "typed": is_typed(question["flink"])}
    assert ask(asked) == flinks(question), text


def test_most_random_patterns_have_matches() -> None:
    assert sum(bool(question["matches"]) for question in RANDOM) > len(RANDOM) / 2
