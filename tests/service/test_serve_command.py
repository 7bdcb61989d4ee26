"""`ensue serve` and `ensue token` in a terminal."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from ensue.cli.main import main

COLUMNS = ["--schema", "ts timestamp, id long", "--time", "ts"]


def started(*arguments: str) -> tuple["subprocess.Popen[str]", str]:
    """A service that runs, and where it listens."""
    command = [sys.executable, "-m", "ensue.cli", "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://\S+", line)
    assert found, line + (process.stderr.read() if process.stderr else "")
    return process, found[0]


def asked(url: str, body: dict[str, object] | None = None) -> dict[str, object]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, object] = json.load(answer)
    return found


def test_a_service_is_served_stopped_and_goes_on(tmp_path: Path) -> None:
    file = str(tmp_path / "a.db")
    process, url = started(file, *COLUMNS)
    asked(f"{url}/api/v1/subscriptions", {"text": "(ARITH:id = 1)", "name": "one"})
    asked(f"{url}/api/v1/events", {"ts": "2026-01-01T00:00:00Z", "id": 1})
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    process, url = started(file)
    found = asked(f"{url}/api/v1/notifications?after=0")["items"]
    assert isinstance(found, list)
    assert [note["kind"] for note in found] == ["started", "match"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name the file"),
        (["{file}"], "is new, so describe"),
        (["{file}", "--schema", "ts timestamp, id lng", "--time", "ts"], "no type 'lng'"),
        (["{file}", "--schema", "ts timestamp id", "--time", "ts"], "is not a column definition"),
        (["{file}", "--schema", "ts timestamp", "--time", "tss"], "did you mean 'ts'"),
        (["{file}", "--schema", "ts timestamp"], "--time says when"),
        (["{file}", *COLUMNS, "--limit", "retentoin=5"], "did you mean 'retention'"),
        (["{file}", *COLUMNS, "--limit", "retention"], "NAME=VALUE"),
        (["{file}", *COLUMNS, "--source", "kafak://x/y"], "'kafak' is neither a kind of broker"),
        (["{file}", *COLUMNS, "--host", "0.0.0.0"], "ensue token"),
        (["--demo", "--speed", "0"], "--speed"),
    ],
)
def test_a_mistake_is_said_and_mended(
    tmp_path: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "a.db")
    code = main(["serve", *(one.format(file=file) for one in arguments)])
    assert code != 0
    assert says in capsys.readouterr().err


def test_a_token_is_shown_once_and_closes_the_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "a.db")
    assert main(["token", file, "--user", "ann"]) == 2
    assert "ensue serve makes it" in capsys.readouterr().err
    process, _ = started(file, *COLUMNS)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert main(["token", file, "--user", "ann", "--scopes", "read"]) == 0
    assert capsys.readouterr().out.startswith("ens_")
    process, url = started(file)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        asked(f"{url}/api/v1/subscriptions")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
