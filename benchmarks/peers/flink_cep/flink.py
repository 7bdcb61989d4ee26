"""Asks Flink's own matcher. Maven fetches Flink and compiles the program that asks, once."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.peers.flink_cep.notation import Row, calls, rows

HERE = Path(__file__).parent
CLASSES = HERE / "target" / "classes"
JARS = HERE / "target" / "jars"
MAIN = "ensue.peers.flinkcep.Answers"

Question = dict[str, Any]
Answer = dict[str, Any]


def answers(questions: Iterable[Question]) -> list[Answer]:
    """Flink's answer to each question, in their order.

    An answer has `matches`, each the numbers of its events (from 0) by the name of their part;
    `complete`, for each match the event that let Flink emit it, or -1 for the end of the stream;
    `timeouts`, the partial matches whose window ran out; or an `error`.
    """
    build()
    asked = list(questions)
    streams = [_streams(question) for question in asked]
    lines = [
        {"name": question["name"], "events": list(stream.values()), "pattern": calls(question["flink"])}
        for question, keyed in zip(asked, streams, strict=True)
        for stream in keyed
    ]
    found = iter(_run(lines))
    return [
        _merged(question["name"], [(stream, next(found)) for stream in keyed])
        for question, keyed in zip(asked, streams, strict=True)
    ]


def build() -> None:
    """Fetches Flink's jars and compiles the program, unless that is done and newer than both."""
    sources = [HERE / "pom.xml", *HERE.glob("src/**/*.java")]
    newest = max(path.stat().st_mtime for path in sources)
    compiled = list(CLASSES.glob("**/*.class"))
    if compiled and JARS.exists() and min(p.stat().st_mtime for p in compiled) >= newest:
        return
    goals = ["clean", "compile", "dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
    subprocess.run(["mvn", "-q", "-B", *goals], cwd=HERE, check=True)


def _streams(question: Question) -> list[dict[int, Row]]:
    """The events by their numbers: one stream, or one for each value of the question's key."""
    streams: dict[Any, dict[int, Row]] = {}
    for number, row in enumerate(rows(question["events"])):
        streams.setdefault(row.get(question.get("key")), {})[number] = row
    return list(streams.values())


def _run(lines: list[Question]) -> list[Answer]:
    done = subprocess.run(
        ["java", "-cp", f"{CLASSES}:{JARS}/*", MAIN],
        input="\n".join(map(json.dumps, lines)),
        capture_output=True,
        text=True,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if len(found) != len(lines):
        raise RuntimeError(f"{len(lines)} questions, {len(found)} answers: {done.stderr[-2000:]}")
    return found


def _merged(name: str, parts: list[tuple[dict[int, Row], Answer]]) -> Answer:
    """One answer of those for each key, with the events numbered as in the whole stream."""
    merged: Answer = {"name": name, "matches": [], "complete": [], "timeouts": []}
    for stream, answer in parts:
        if "error" in answer:
            return {"name": name, "error": answer["error"]}
        numbers = [*stream, -1]
        merged["complete"] += [numbers[each] for each in answer["complete"]]
        for kind in ("matches", "timeouts"):
            merged[kind] += [
                {part: [numbers[each] for each in events] for part, events in match.items()} for match in answer[kind]
            ]
    return merged
