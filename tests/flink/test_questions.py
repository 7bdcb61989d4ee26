"""Questions in Flink's Pattern API, asked of Ensue in its own words: it finds what Flink finds.

`questions.jsonl` has the questions, `recorded.jsonl` Flink's own answers, `random.jsonl` random
patterns with Flink's answers; `python -m benchmarks.peers.flink_cep.record` asks Flink again. A
question with `not_yet` cannot be asked of Ensue so far, one with `differs` has another answer
here; both say why.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ensue.codegen import kernel_cache as cache
from support.cases import each_case
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
BLOCK = 50


def _blocks(questions: list[Question], *, each: int = 1, first: int | None = None) -> list[Any]:
    """The questions in blocks; quick are every `each`-th, or the `first` ones."""
    quick = questions[:first:each]
    rest = [q for q in questions if q not in quick]
    return [
        pytest.param(part[start : start + BLOCK], id=f"{name}{start}", marks=marks)
        for name, part, marks in (("", quick, []), ("rest", rest, [pytest.mark.slow]))
        for start in range(0, len(part), BLOCK)
    ]


def _ask(ask: Ask, questions: list[Question]) -> None:
    with each_case() as case:
        for question in questions:
            reason = question.get("not_yet") or question.get("differs")
            with case(question["name"], xfail=reason):
                assert question["ensue"], "no words for it"
                assert ask(question) == flinks(ANSWERS[question["name"]])


def _ask_random(ask: Ask, questions: list[Question]) -> None:
    with each_case() as case:
        for question in questions:
            text = translated(question["flink"])
            asked = question | {"ensue": text, "typed": is_typed(question["flink"])}
            with case(question["name"], xfail=RANDOM_DIFFERS.get(question["name"])):
                assert ask(asked) == flinks(question), text


@pytest.mark.parametrize("questions", _blocks(QUESTIONS))
def test_ensue_finds_what_flink_finds(questions: list[Question]) -> None:
    _ask(matched, questions)


# The reference semantics is the judge of all kernels, too: every day it is asked a part of this.
@pytest.mark.parametrize("questions", _blocks(QUESTIONS, each=10))
def test_the_reference_semantics_finds_what_flink_finds(questions: list[Question]) -> None:
    _ask(meant, questions)


def test_every_question_has_an_answer_and_a_text_or_a_reason() -> None:
    assert [question["name"] for question in QUESTIONS] == list(ANSWERS)
    assert all(question["ensue"] or "not_yet" in question for question in QUESTIONS)
    assert len(QUESTIONS) >= 240


@pytest.mark.parametrize("questions", _blocks(RANDOM, first=100))
def test_random_patterns_find_what_flink_finds(questions: list[Question]) -> None:
    _ask_random(matched, questions)


@pytest.mark.parametrize("questions", _blocks(RANDOM, first=30))
def test_random_patterns_mean_what_flink_finds(questions: list[Question]) -> None:
    _ask_random(meant, questions)


def test_most_random_patterns_have_matches() -> None:
    assert sum(bool(question["matches"]) for question in RANDOM) > len(RANDOM) / 2
