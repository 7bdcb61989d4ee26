"""`ensue serve` and `ensue token` in a terminal."""

import json
import re
import signal
import sqlite3
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


def asked(url: str, body: dict[str, object] | None = None, token: str | None = None) -> dict[str, object]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    headers |= {} if token is None else {"authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, data, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, object] = json.load(answer)
    return found


def test_a_service_is_served_stopped_closed_by_a_token_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "a.db")
    assert main(["token", file, "--user", "ann"]) == 2
    assert "run ensue serve once" in capsys.readouterr().err
    process, url = started(file, *COLUMNS)
    asked(f"{url}/api/v1/subscriptions", {"text": "(ARITH:id = 1)", "name": "one"})
    asked(f"{url}/api/v1/events", {"ts": "2026-01-01T00:00:00Z", "id": 1})
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert main(["token", file, "--user", "ann", "--scopes", "read"]) == 0
    token = capsys.readouterr().out.split()[0]
    assert token.startswith("ens_")
    process, url = started(file)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        asked(f"{url}/api/v1/subscriptions")
    assert asked(f"{url}/api/v1/subscriptions", token=token)["items"] == []  # those of ann
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    with sqlite3.connect(file) as db:
        kinds = [kind for (kind,) in db.execute("SELECT kind FROM outbox ORDER BY number")]
    assert kinds == ["started", "match"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{file}"], "is new, so describe"),
        (["{file}", "--schema", "ts timestamp, id lng", "--time", "ts"], "no type 'lng'"),
        (["{file}", "--schema", "ts timestamp id", "--time", "ts"], "is not a column definition"),
        (["{file}", "--schema", "ts timestamp", "--time", "tss"], "did you mean 'ts'"),
        (["{file}", "--schema", "ts timestamp"], "--time is missing"),
        (["{file}", *COLUMNS, "--limit", "retentoin=5"], "did you mean 'retention'"),
        (["{file}", *COLUMNS, "--limit", "retention"], "NAME=VALUE"),
        (["{file}", *COLUMNS, "--source", "kafak://x/y"], "'kafak' is not a broker"),
        (["{file}", *COLUMNS, "--host", "0.0.0.0"], "ensue token"),
    ],
)
def test_a_mistake_is_said_and_mended(
    tmp_path: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "a.db")
    code = main(["serve", *(one.format(file=file) for one in arguments)])
    assert code != 0
    assert says in capsys.readouterr().err
