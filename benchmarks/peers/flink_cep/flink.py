"""Asks Flink's own matcher: `answers(questions)`. Maven fetches Flink and compiles the asking program once."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.peers.flink_cep.notation import calls, rows

HERE = Path(__file__).parent
CLASSES = HERE / "target" / "classes"
JARS = HERE / "target" / "jars"
MAIN = "ensue.peers.flinkcep.Answers"

Question = dict[str, Any]
Answer = dict[str, Any]


def answers(questions: Iterable[Question]) -> list[Answer]:
    """Flink's answer to each question, in their order.

    An answer has `matches`, each the numbers of its events (from 0) by the name of their part; `complete`, for each
    match the event that let Flink emit it, or -1 for the end of the stream; `timeouts`, the partial matches whose
    window ran out; or an `error`.
    """
    build()
    lines = [
        json.dumps({"name": q["name"], "events": rows(q["events"]), "pattern": calls(q["flink"])})
        for q in questions
    ]
    done = subprocess.run(
        ["java", "-cp", f"{CLASSES}:{JARS}/*", MAIN],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if len(found) != len(lines):
        raise RuntimeError(f"{len(lines)} questions, {len(found)} answers: {done.stderr[-2000:]}")
    return found


def build() -> None:
    """Fetches Flink's jars and compiles the program, unless both are there and newer than the sources."""
    sources = [HERE / "pom.xml", *HERE.glob("src/**/*.java")]
    newest = max(path.stat().st_mtime for path in sources)
    compiled = list(CLASSES.glob("**/*.class"))
    if compiled and JARS.exists() and min(p.stat().st_mtime for p in compiled) >= newest:
        return
    goals = ["clean", "compile", "dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
    subprocess.run(["mvn", "-q", "-B", *goals], cwd=HERE, check=True)
