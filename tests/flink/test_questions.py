"""Questions in Flink's Pattern API, asked of Ensue in its own words: it finds what Flink finds.

`questions.jsonl` has the questions, `recorded.jsonl` Flink's own answers; `python -m
benchmarks.peers.flink_cep.record` asks Flink again. A question with `not_yet` cannot be asked in
our words so far, one with `differs` has another answer here; both say why.
"""

from collections.abc import Callable

import pytest

from ensue.source import cache
from support.flink_questions import Matches, Question, flinks, matched, meant, read

QUESTIONS = read("questions.jsonl")
ANSWERS = {answer["name"]: answer for answer in read("recorded.jsonl")}

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


def _case(question: Question) -> object:
    reason = question.get("not_yet") or question.get("differs")
    marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
    return pytest.param(question, id=question["name"], marks=marks)


@pytest.mark.parametrize("ask", [meant, matched])
@pytest.mark.parametrize("question", map(_case, QUESTIONS))
def test_ensue_finds_what_flink_finds(
    question: Question, ask: Callable[[Question], Matches], monkeypatch: pytest.MonkeyPatch
) -> None:
    # compiling a kernel takes a second or two, and each question has one of its own
    monkeypatch.setattr(cache, "interpreted", True)
    assert question["ensue"], "no words for it"
    assert ask(question) == flinks(ANSWERS[question["name"]])


def test_every_question_has_an_answer_and_a_text_or_a_reason() -> None:
    assert [question["name"] for question in QUESTIONS] == list(ANSWERS)
    assert all(bool(q["ensue"]) != ("not_yet" in q) for q in QUESTIONS)
    assert len(QUESTIONS) >= 240
