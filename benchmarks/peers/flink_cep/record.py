"""Writes down what Flink answers: `python -m benchmarks.peers.flink_cep.record`.

With arguments, `record questions.jsonl recorded.jsonl` does it for other files.
"""

import json
import sys
from pathlib import Path

from benchmarks.peers.flink_cep.flink import answers

TESTS = Path(__file__).parents[3] / "tests" / "flink"


def record(questions: Path, recorded: Path) -> int:
    """Asks Flink every question of a file; one answer a line."""
    asked = [json.loads(line) for line in questions.read_text().splitlines()]
    lines = [json.dumps(answer) for answer in answers(asked)]
    recorded.write_text("\n".join(lines) + "\n")
    return len(lines)


def main(arguments: list[str]) -> None:
    """Records the questions of the tests, or of the files that are named."""
    files = [Path(each) for each in arguments]
    pairs = (
        [(files[0], files[1])]
        if files
        else [(TESTS / "questions.jsonl", TESTS / "recorded.jsonl")]
    )
    for questions, recorded in pairs:
        print(f"{recorded}: {record(questions, recorded)} answers")


if __name__ == "__main__":
    main(sys.argv[1:])
