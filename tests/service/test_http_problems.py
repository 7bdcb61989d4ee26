"""Errors over HTTP: problem+json, with the place and a way out."""

import logging
import re

import pytest

from ensue.errors import EventError, LimitError, QueryError, RunnerError, ServiceError, StateError
from ensue.service.errors import IntakeStoppedError
from ensue.service.web.problem_details import PROBLEM_MEDIA, describe_problem
from support.http_service import API, Web, web
from support.services import HERE, LEFT, point, run

KNOWN = {"type", "title", "status", "detail"}


def told(answer, status: int, kind: str) -> dict:
    """The problem, which is one."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM_MEDIA
    found = answer.json()
    assert found.keys() >= KNOWN
    assert (found["status"], found["type"]) == (status, f"urn:ensue:{kind}")
    return found


def test_a_query_error_has_its_place_in_the_text(tmp_path):
    text = "=|(@(Depot)(A); 60)\n  (DIST(Depot; >; 20)(B)),\n  A = (ARITH:id = 1)"

    async def story():
        async with web(tmp_path) as w:
            for path in ("/check", "/subscriptions", "/trial"):
                found = told(await w.ask("ann", "POST", path, json={"text": text}), 422, "query")
                assert found["text"] == text
                place = text.index("B")
                assert text[found["start"] : found["end"]] == "B"
                assert (found["start"], found["line"]) == (place, 2)
                assert found["column"] == place - text.index("\n")
                assert found["hint"]
                assert "\n" not in found["detail"]

    run(story)


def test_a_region_that_is_missing_or_wrong_is_told(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            body = {"text": "@(Depto)(ARITH:id = 1)"}
            found = told(await w.ask("ann", "POST", "/check", json=body), 422, "query")
            assert "Depot" in found["hint"]
            body["regions"] = {"Depto": "POLYGON ((0 0, 1 1))"}
            told(await w.ask("ann", "POST", "/check", json=body), 422, "query")
            bow = "POLYGON ((0 0, 4 4, 4 0, 0 4, 0 0))"
            said = told(await w.ask("ann", "POST", "/regions", json={"name": "Bow", "text": bow}), 422, "query")
            assert "Bow" in said["detail"]

    run(story)


@pytest.mark.parametrize(
    "text",
    [
        'IMPORT "/etc/passwd"; SEQ(A a, B b) WITHIN 5',
        "import '../secret.ensue';\nSEQ(A a, B b) WITHIN 5",
        "-- a comment\n;;IMPORT\n\n'x'; A a",
    ],
)
def test_no_file_of_the_server_is_read_for_a_subscription(tmp_path, text: str):
    async def story():
        async with web(tmp_path) as w:
            made = await w.ask("ann", "POST", "/subscriptions", json={"text": HERE.format(id=1)})
            own = f"/subscriptions/{made.json()['id']}"
            for method, path in (("POST", "/check"), ("POST", "/trial"), ("POST", "/subscriptions"), ("PATCH", own)):
                for language in (None, "patterns", "opsl"):
                    body = {"text": text, **({"language": language} if language else {})}
                    found = told(await w.ask("ann", method, path, json=body), 422, "query")
                    assert found["text"] == text
                    assert "cannot import files" in found["detail"]

    run(story)


@pytest.mark.parametrize("path", ["/nothing", "/subscriptions/1/nothing", "/me/"])
def test_what_there_is_not_is_a_problem(tmp_path, path: str):
    async def story():
        async with web(tmp_path) as w:
            told(await w.ask("ann", "GET", path), 404, "not-found")
            told(await w.ask("ann", "GET", "/elsewhere#"), 404, "not-found")

    run(story)


def test_another_way_to_ask_is_a_problem(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            answer = await w.ask("ann", "PUT", "/me")
            told(answer, 405, "method-not-allowed")
            assert answer.headers["allow"] == "GET"

    run(story)


def test_a_body_that_is_no_json_is_a_problem(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            headers = {"content-type": "application/json"}
            for body in ("{", "[1,", '{"text": "a"', "nonsense", "\x00", b"\xff\xfe"):
                answer = await w.ask("ann", "POST", "/check", content=body, headers=headers)
                told(answer, 400, "no-json")
            nothing = await w.ask("ann", "POST", "/check", headers=headers)
            told(nothing, 422, "invalid")

    run(story)


MISSHAPEN = [
    ("POST", "/check", []),
    ("POST", "/check", {"text": 7}),
    ("POST", "/check", {"text": "a", "txet": "b"}),
    ("POST", "/check", {"text": "a", "template": "enters"}),
    ("POST", "/subscriptions", {"text": "a", "quiet": -1}),
    ("POST", "/subscriptions", {"text": "a", "quiet": "soon"}),
    ("POST", "/subscriptions", {"text": "a", "expires": "soon"}),
    ("POST", "/subscriptions", {"text": "a", "name": ""}),
    ("POST", "/subscriptions", {"text": "a", "targets": [{"config": {}}]}),
    ("POST", "/regions", {"name": "A"}),
    ("POST", "/regions", {"name": "A", "text": "x", "geojson": {}}),
    ("POST", "/regions/import", {"type": "Feature", "features": []}),
    ("GET", "/subscriptions?state=asleep", None),
    ("GET", "/subscriptions?limit=0", None),
    ("GET", "/subscriptions?limit=1001", None),
    ("GET", "/notifications?after=-1", None),
    ("GET", "/notifications?after=99999999999999999999999", None),
    ("GET", "/subscriptions/nonsense", None),
    ("GET", "/subscriptions/-1", None),
    ("GET", "/subscriptions/99999999999999999999999", None),
    ("GET", "/notes/99999999999999999999999", None),
    ("DELETE", "/targets/1e3", None),
]


def test_a_request_of_another_form_is_a_problem_that_says_where(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            for method, path, body in MISSHAPEN:
                sent = {} if body is None else {"json": body}
                found = told(await w.ask("ann", method, path, **sent), 422, "invalid")
                assert found["errors"], (method, path, body)
                assert all(one["where"] and one["detail"] for one in found["errors"])

    run(story)


WRONG = [
    ("POST", "/subscriptions", {}, "text"),
    ("POST", "/subscriptions", {"template": "entres"}, "enters"),
    ("POST", "/templates/entres", {}, "enters"),
    ("POST", "/templates/enters", {"values": {}}, "region"),
    ("POST", "/regions", {"name": "1 a", "text": "CIRCLE (0 0, 1)"}, "name"),
    ("POST", "/regions", {"name": "A", "geojson": {"type": "Point"}}, "Point"),
    ("POST", "/trial", {"text": HERE.format(id=1), "since": "soon"}, "since"),
]


def test_what_is_wrong_in_itself_is_told_with_a_hint(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            for method, path, body, word in WRONG:
                answer = await w.ask("ann", method, path, json=body)
                assert answer.status_code == 422, answer.text
                found = answer.json()
                assert word in found["detail"] + found.get("hint", "")

    run(story)


def test_a_name_that_is_taken_is_a_conflict(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            body = {"text": LEFT.format(id=1), "name": "left"}
            assert (await w.ask("ann", "POST", "/subscriptions", json=body)).status_code == 201
            told(await w.ask("ann", "POST", "/subscriptions", json=body), 409, "conflict")
            region = {"name": "Yard", "text": "CIRCLE (0 0, 1)"}
            assert (await w.ask("ann", "POST", "/regions", json=region)).status_code == 201
            said = told(await w.ask("ann", "POST", "/regions", json=region), 409, "conflict")
            assert "PUT" in said["hint"]
            told(await w.ask("root", "POST", "/users", json={"name": "ann"}), 409, "conflict")

    run(story)


def test_events_are_refused_with_a_clear_state_while_intake_is_stopped(tmp_path):
    async def story():
        async with web(tmp_path, limits={"free_bytes": 1 << 60}) as w:
            answer = await w.ask("ann", "POST", "/events", json=[point(1, 1, 0.0)])
            found = told(answer, 507, "intake-stopped")
            assert "disk" in found["detail"]
            assert int(answer.headers["retry-after"]) > 0
            alive = await w.ask(None, "GET", "/health#")
            assert (alive.status_code, alive.json()) == (503, {"state": "intake stopped"})
            assert (await w.ask("ann", "GET", "/health")).json()["state"] == "intake stopped"
            assert (await w.ask("ann", "GET", "/notifications")).status_code == 200

    run(story)


async def broken(w: Web, error: Exception) -> None:
    """Has one endpoint fail."""

    async def fail(**_: object) -> None:
        raise error

    w.service.subscriptions = fail  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize(
    "error",
    [RuntimeError("the password is hunter2"), StateError("/var/lib/secret.db cannot be read"), KeyError("hunter2")],
)
def test_what_nobody_foresaw_is_told_by_a_number_that_is_in_the_log(tmp_path, caplog, error):
    async def story():
        async with web(tmp_path) as w:
            await broken(w, error)
            with caplog.at_level(logging.ERROR):
                answer = await w.ask("ann", "GET", "/subscriptions")
            found = told(answer, 500, "failed")
            assert "hunter2" not in answer.text
            assert "secret" not in answer.text
            assert found["number"] in caplog.text
            assert str(error) in caplog.text
            assert (await w.ask("ann", "GET", "/me")).status_code == 200

    run(story)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (QueryError("what", hint="so"), 422),
        (EventError("what\n  hint: so"), 422),
        (LimitError("what\n  hint: so"), 422),
        (ServiceError("what\n  hint: so"), 422),
        (RunnerError("what\n  hint: so"), 503),
        (IntakeStoppedError("what\n  hint: so"), 503),
    ],
)
def test_errors_of_ours_keep_their_words(error, status: int):
    found = describe_problem(error).content
    assert (found["status"], found["detail"], found["hint"]) == (status, "what", "so")


def test_every_answer_has_the_headers_that_keep_browsers_safe(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            asked = [
                await w.ask("ann", "GET", "/me"),
                await w.ask(None, "GET", "/me"),
                await w.ask(None, "GET", "/api/docs"),
                await w.ask("ann", "GET", "/nothing"),
                await w.ask("ann", "POST", "/check", content="{"),
                await w.ask("ann", "HEAD", "/notifications/stream"),
                await w.client.post("/sign-in", data={"token": "x"}),
            ]
            for answer in asked:
                policy = answer.headers["content-security-policy"]
                parts = dict(part.strip().partition(" ")[::2] for part in policy.split(";") if part.strip())
                assert parts["default-src"] == "'none'"
                assert parts["script-src"] == parts["style-src"] == "'self'"
                assert parts["frame-ancestors"] == parts["base-uri"] == "'none'"
                assert parts["form-action"] == "'self'"
                assert "unsafe" not in policy
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert answer.headers["referrer-policy"] == "same-origin"
                assert "no-store" in answer.headers["cache-control"]
                assert "server" not in answer.headers

    run(story)


# -------------------------------------------------------------------------------- the description


def test_the_description_of_the_api_is_complete(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            return (await w.ask(None, "GET", "/openapi.json")).json()

    found = run(story)
    assert found["openapi"].startswith("3.")
    assert f"{API}/notifications/stream" in found["paths"]
    for path, ways in found["paths"].items():
        for way, endpoint in ways.items():
            assert endpoint["description"], (way, path)
            for status, answer in endpoint["responses"].items():
                if status[0] in "45":
                    assert list(answer["content"]) == [PROBLEM_MEDIA], (way, path, status)
    events = found["paths"][f"{API}/events"]["post"]["requestBody"]["content"]
    assert "application/vnd.apache.arrow.stream" in events


def test_the_page_with_the_endpoints_loads_nothing_from_elsewhere(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            page = await w.ask(None, "GET", "/api/docs")
            assert page.headers["content-type"].startswith("text/html")
            assert "://" not in page.text
            tags = re.findall(r"<[^>]*>", page.text.lower())
            assert not [tag for tag in tags if re.search(r"<script| style=| on\w+=", tag)]
            described = (await w.ask(None, "GET", "/openapi.json")).json()
            for path in described["paths"]:
                assert f"<code>{path}</code>" in page.text
            style = await w.ask(None, "GET", "/api/docs.css")
            assert style.headers["content-type"].startswith("text/css")

    run(story)
