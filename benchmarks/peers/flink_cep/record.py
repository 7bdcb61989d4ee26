"""Writes down what Flink answers: `python -m benchmarks.peers.flink_cep.record`.

That asks the questions of `tests/flink` again, and the random ones. With arguments,
`record questions.jsonl recorded.jsonl`, it asks those of another file.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.peers.flink_cep.flink import answers
from benchmarks.peers.flink_cep.random_patterns import random_question

TESTS = Path(__file__).parents[3] / "tests" / "flink"
RANDOM = 500


def main(arguments: list[str]) -> None:
    """Records the questions of the tests, or of the file that is named."""
    if arguments:
        questions, recorded = map(Path, arguments)
        _write(recorded, answers(_lines(questions)))
        return
    _write(TESTS / "recorded.jsonl", answers(_lines(TESTS / "questions.jsonl")))
    asked = [random_question(seed) for seed in range(RANDOM)]
    found = zip(asked, answers(asked), strict=True)
    _write(TESTS / "random.jsonl", (question | answer for question, answer in found))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _write(path: Path, answered: Iterable[dict[str, Any]]) -> None:
    lines = [json.dumps(each) + "\n" for each in answered]
    path.write_text("".join(lines))
    print(f"{path}: {len(lines)} answers")


if __name__ == "__main__":
    main(sys.argv[1:])
