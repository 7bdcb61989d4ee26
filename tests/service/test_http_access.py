"""Every endpoint as the wrong user, as nobody, with too little scope, with a token gone by."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from support.http_service import API, Web, web, where
from support.services import HERE, LEFT, point, run

NOWHERE = 987_654  # the number of nothing
LOCAL_HOOKS = {"allow": ["127.0.0.0/8"]}
HOOK = {"kind": "webhook", "config": {"url": "http://127.0.0.1:9/hook"}}
REGION = "POLYGON ((0 0, 4 0, 4 4, 0 0))"


@dataclass(frozen=True)
class Endpoint:
    """One way to ask, what it takes to be answered, and whose things it is about."""

    method: str
    path: str  # with {subscription}, {target}, {note}, {region} of ann
    scope: str | None  # none: everybody may
    sent: dict[str, Any] = field(default_factory=dict)
    status: int = 200

    @property
    def owned(self) -> bool:
        """Whether it names something that belongs to one user."""
        return any(name in self.path for name in ("{subscription}", "{target}", "{note}"))

    def at(self, **ids: Any) -> str:
        return self.path.format(**ids)


def json(**fields: Any) -> dict[str, Any]:
    return {"json": fields}


ENDPOINTS = [
    Endpoint("GET", "/me", "any"),
    Endpoint("GET", "/stream", "read"),
    Endpoint("POST", "/subscriptions", "subscribe", json(text=HERE.format(id=5)), 201),
    Endpoint("POST", "/subscriptions/bulk", "subscribe", json(items=[{"text": HERE.format(id=5)}])),
    Endpoint("GET", "/subscriptions", "read"),
    Endpoint("GET", "/subscriptions/{subscription}", "read"),
    Endpoint("PATCH", "/subscriptions/{subscription}", "subscribe", json(quiet=3)),
    Endpoint("POST", "/subscriptions/{subscription}/pause", "subscribe"),
    Endpoint("POST", "/subscriptions/{subscription}/resume", "subscribe"),
    Endpoint("GET", "/subscriptions/{subscription}/notes", "read"),
    Endpoint("GET", "/subscriptions/{subscription}/explain", "read"),
    Endpoint("GET", "/subscriptions/{subscription}/why-not", "read"),
    Endpoint("GET", "/subscriptions/{subscription}/targets", "read"),
    Endpoint("POST", "/subscriptions/{subscription}/targets", "subscribe", {"json": HOOK}, 201),
    Endpoint("POST", "/targets/{target}/off", "subscribe"),
    Endpoint("POST", "/targets/{target}/on", "subscribe"),
    Endpoint("POST", "/targets/{target}/rotate", "subscribe", json(keep=0)),
    Endpoint("POST", "/targets/{target}/redeliver", "subscribe", json(numbers=[])),
    Endpoint("GET", "/targets/{target}/dead", "read"),
    Endpoint("DELETE", "/targets/{target}", "subscribe", status=204),
    Endpoint("POST", "/check", "read", json(text=HERE.format(id=5))),
    Endpoint("POST", "/trial", "read", json(text=HERE.format(id=1))),
    Endpoint("GET", "/templates", "read"),
    Endpoint("POST", "/templates/enters", "read", json(values={"region": "Depot", "within": 300})),
    Endpoint("GET", "/regions", "read"),
    Endpoint("POST", "/regions", "subscribe", json(name="Yard", text=REGION), 201),
    Endpoint("PUT", "/regions/Yard", "subscribe", json(text=REGION)),
    Endpoint("DELETE", "/regions/Yard", "subscribe", status=204),
    Endpoint("POST", "/regions/import", "subscribe", json(type="FeatureCollection", features=[])),
    Endpoint("POST", "/events", "publish", {"json": [point(90, 9, 0.0)]}),
    Endpoint("GET", "/events/bad", "read"),
    Endpoint("GET", "/positions", "read"),
    Endpoint("GET", "/notifications", "read"),
    Endpoint("HEAD", "/notifications/stream", "read"),
    Endpoint("GET", "/notes/{note}", "read"),
    Endpoint("GET", "/objects", "read"),
    Endpoint("GET", "/objects/1/track", "read"),
    Endpoint("GET", "/health", "read"),
    Endpoint("GET", "/health/targets", "read"),
    Endpoint("GET", "/explain", "admin"),
    Endpoint("GET", "/users", "admin"),
    Endpoint("POST", "/users", "admin", json(name="new"), 201),
    Endpoint("PATCH", "/users/{user}", "admin", json(off=False)),
    Endpoint("GET", "/users/{user}/tokens", "admin"),
    Endpoint("POST", "/users/{user}/tokens", "admin", json(scopes=["read"]), 201),
    Endpoint("DELETE", "/tokens/{token}", "admin", status=204),
    Endpoint("GET", "/audit", "read"),
    Endpoint("DELETE", "/subscriptions/{subscription}", "subscribe"),
    Endpoint("GET", "/metrics#", "read"),
    Endpoint("GET", "/health#", None),
    Endpoint("GET", "/api/docs", None),
    Endpoint("GET", "/api/docs.css", None),
    Endpoint("GET", "/api/v1/openapi.json", None),
]

# Forms of the console, tested in test_http_sessions.py.
FORMS = {("POST", "/sign-in"), ("POST", "/sign-out")}
# Tested beside the others as HEAD, and as a stream in test_http_stream.py.
STREAMS = {("GET", f"{API}/notifications/stream")}

TOO_LITTLE = {
    "read": ("publish",),
    "subscribe": ("read", "publish"),
    "publish": ("subscribe",),
    "admin": ("subscribe", "publish"),
}


async def ask(w: Web, endpoint: Endpoint, token: str | None, ids: Any) -> httpx2.Response:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return await w.client.request(endpoint.method, where(endpoint.at(**ids)), headers=headers, **endpoint.sent)


async def furnished(w: Web) -> dict[str, Any]:
    """Things of ann's: a subscription with a target, a note, a region; and a user and a token."""
    made = (await w.ask("ann", "POST", "/subscriptions", json={"text": LEFT.format(id=1)})).json()
    target = (await w.ask("ann", "POST", f"/subscriptions/{made['id']}/targets", json=HOOK)).json()
    await w.ask("ann", "POST", "/events", json=[point(1, 1, 5.0), point(2, 1, 50.0)])
    await w.ask("ann", "POST", "/regions", json={"name": "Mine", "text": REGION})
    notes = (await w.ask("ann", "GET", "/notifications")).json()["items"]
    spare = await w.token("bob", "read")
    return {
        "subscription": made["id"], "target": target["id"], "note": notes[-1]["number"],
        "user": w.people["bob"].id, "token": spare.id,
    }  # fmt: skip


def endpoints_of(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Every way to ask that the application has, however routers are nested."""

    def walk(routes: Any, prefix: str) -> Iterator[tuple[str, str]]:
        for route in routes:
            if hasattr(route, "original_router"):
                yield from walk(route.original_router.routes, prefix + route.include_context.prefix)
            else:
                for method in route.methods - {"HEAD"}:
                    yield method, prefix + route.path

    return walk(app.routes, "")


def pattern_of(path: str) -> str:
    """A path with all that varies made the same."""
    return "/".join("*" if "{" in part else part for part in path.split("/"))


def test_every_endpoint_has_its_entry_here(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            return set(endpoints_of(w.app))

    there = {(method, pattern_of(path)) for method, path in run(story)}
    fixed = {"/templates/enters", "/objects/1/track", "/regions/Yard"}
    listed = set()
    for one in ENDPOINTS:
        path = one.path
        for known in fixed:
            if path == known:
                parts = known.split("/")
                parts[2] = "{name}"
                path = "/".join(parts)
        listed.add((one.method, pattern_of(where(path))))
    assert there - listed - FORMS - STREAMS == set(), "write an entry for these"
    assert listed - there - {("HEAD", f"{API}/notifications/stream")} == set(), "these are gone"
    assert len(there) > 40


def test_whoever_may_is_answered(tmp_path):
    async def story():
        async with web(tmp_path, limits=LOCAL_HOOKS) as w:
            ids = await furnished(w)
            token = (await w.token("ann", "admin", "publish")).token
            wrong = []
            for one in ENDPOINTS:
                answer = await ask(w, one, token, ids)
                if answer.status_code != one.status:
                    wrong.append((one.method, one.path, answer.status_code, answer.text))
            assert wrong == []

    run(story)


@pytest.mark.parametrize("kind", ["nobody", "unknown", "expired", "revoked", "switched off"])
def test_nobody_is_answered_without_a_token_that_holds(tmp_path, kind: str):
    async def story():
        async with web(tmp_path, limits=LOCAL_HOOKS) as w:
            ids = await furnished(w)
            token = {"nobody": None, "unknown": "ens_" + "x" * 43}.get(kind)
            if kind == "expired":
                token = (await w.token("ann", "admin", age=1.0, at=time.time() - 10)).token
            elif kind == "revoked":
                made = await w.token("ann", "admin")
                token = made.token
                assert (await w.ask("root", "DELETE", f"/tokens/{made.id}")).status_code == 204
            elif kind == "switched off":
                token = (await w.token("ann", "admin")).token
                path = f"/users/{w.people['ann'].id}"
                off = await w.ask("root", "PATCH", path, json={"off": True})
                assert off.json()["off"] is True
            for one in ENDPOINTS:
                answer = await ask(w, one, token, ids)
                if one.scope is None and token is None:
                    assert answer.status_code == one.status, one
                    continue
                assert answer.status_code == 401, (one, answer.text)
                assert answer.headers["www-authenticate"] == "Bearer"
                if one.method != "HEAD":
                    assert answer.headers["content-type"] == "application/problem+json"
                    assert answer.json()["type"] == "urn:ensue:unauthenticated"

    run(story)


def test_too_little_scope_is_refused_by_every_endpoint(tmp_path):
    async def story():
        async with web(tmp_path, limits=LOCAL_HOOKS) as w:
            ids = await furnished(w)
            tokens = {scope: (await w.token("ann", *less)).token for scope, less in TOO_LITTLE.items()}
            before = (await w.ask("ann", "GET", f"/subscriptions/{ids['subscription']}")).json()
            for one in ENDPOINTS:
                if one.scope not in tokens:
                    continue
                answer = await ask(w, one, tokens[one.scope], ids)
                assert answer.status_code == 403, (one, answer.text)
                if one.method != "HEAD":
                    assert one.scope in answer.json()["detail"]
            after = (await w.ask("ann", "GET", f"/subscriptions/{ids['subscription']}")).json()
            for told in (before, after):  # the courier may have tried its target in between
                told.pop("counters")
                told.pop("targets")
            assert before == after

    run(story)


def test_what_is_somebody_elses_is_as_if_it_were_not_there(tmp_path):
    async def story():
        async with web(tmp_path, limits=LOCAL_HOOKS) as w:
            ids = await furnished(w)
            nothing = dict.fromkeys(ids, NOWHERE)
            # An administrator is a user like others, as far as the things of users go.
            for who in ("bob", "root"):
                token = w.people[who].token
                for one in filter(lambda e: e.owned, ENDPOINTS):
                    theirs = await ask(w, one, token, ids)
                    missing = await ask(w, one, token, nothing)
                    assert theirs.status_code == missing.status_code == 404, (one, theirs.text)
                    said = theirs.json()
                    for id in ids.values():
                        said["detail"] = said["detail"].replace(f" {id}", f" {NOWHERE}")
                    assert said == missing.json()
                    assert theirs.headers.keys() == missing.headers.keys()

    run(story)


def test_lists_have_ones_own_things_only(tmp_path):
    async def story():
        async with web(tmp_path, limits=LOCAL_HOOKS) as w:
            await furnished(w)
            await w.ask("ann", "POST", "/events", json=[{"id": "nonsense"}])
            await w.ask(
                "ann", "POST", "/events", json=[point(5, 1, 0.0)],
                headers={"producer": "gps", "sequence": "7"},
            )  # fmt: skip
            for path in ("/subscriptions", "/events/bad", "/positions", "/notifications", "/audit"):
                mine = (await w.ask("ann", "GET", path)).json()["items"]
                theirs = (await w.ask("bob", "GET", path)).json()["items"]
                assert mine, path
                assert theirs == [], path
            mine = (await w.ask("ann", "GET", "/regions")).json()["items"]
            theirs = (await w.ask("bob", "GET", "/regions")).json()["items"]
            assert [one["name"] for one in mine] == ["Depot", "Mine"]
            assert [one["name"] for one in theirs] == ["Depot"]
            assert theirs[0]["shared"]

    run(story)


def test_the_names_of_two_users_do_not_clash(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            sent = {"producer": "gps", "sequence": "1"}
            for who in ("ann", "bob"):
                made = await w.ask(who, "POST", "/subscriptions", json={"text": HERE.format(id=1), "name": "x"})
                assert made.status_code == 201
                body = {"name": "Yard", "text": REGION}
                assert (await w.ask(who, "POST", "/regions", json=body)).status_code == 201
                done = await w.ask(who, "POST", "/events", json=[point(1, 1, 0.0)], headers=sent)
                assert done.json()["accepted"] == 1
            again = await w.ask("ann", "POST", "/events", json=[point(1, 1, 0.0)], headers=sent)
            assert (again.json()["accepted"], again.json()["repeated"]) == (0, 1)
            assert (await w.ask("ann", "GET", "/positions")).json()["items"][0]["next"] == 2
            await w.ask("bob", "DELETE", "/regions/Yard")
            left = (await w.ask("ann", "GET", "/regions")).json()["items"]
            assert "Yard" in [one["name"] for one in left]

    run(story)


def test_the_region_of_another_user_cannot_be_used_or_changed(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            await w.ask("ann", "POST", "/regions", json={"name": "Mine", "text": REGION})
            text = "@(Mine)(ARITH:id = 1)"
            assert (await w.ask("ann", "POST", "/check", json={"text": text})).status_code == 200
            refused = await w.ask("bob", "POST", "/check", json={"text": text})
            assert refused.status_code == 422
            assert (await w.ask("bob", "DELETE", "/regions/Mine")).status_code == 404
            await w.ask("bob", "PUT", "/regions/Mine", json={"text": "CIRCLE (1 1, 1)"})
            mine = (await w.ask("ann", "GET", "/regions")).json()["items"]
            assert next(one for one in mine if one["name"] == "Mine")["text"] == REGION

    run(story)


def test_an_administrator_sees_the_health_of_all_and_others_their_own(tmp_path):
    async def story():
        async with web(tmp_path, limits=LOCAL_HOOKS) as w:
            await furnished(w)
            await w.ask("bob", "POST", "/subscriptions", json={"text": HERE.format(id=2)})
            seen = {who: (await w.ask(who, "GET", "/health")).json() for who in ("ann", "bob", "root")}
            assert [seen[who]["subscriptions"] for who in seen] == [1, 1, 2]
            assert "outbox" in seen["root"]
            assert "outbox" not in seen["ann"]
            texts = {who: (await w.ask(who, "GET", "/metrics#")).text for who in seen}
            ann = f'user="{w.people["ann"].id}"'
            assert ann in texts["ann"]
            assert ann not in texts["bob"]
            assert ann in texts["root"]

    run(story)


def test_brokers_are_for_those_who_are_trusted(tmp_path):
    async def story():
        async with web(tmp_path, limits={"brokers": ["known.example:9092"]}) as w:
            path = {}
            for who in ("ann", "root"):
                made = await w.ask(who, "POST", "/subscriptions", json={"text": HERE.format(id=1)})
                path[who] = f"/subscriptions/{made.json()['id']}/targets"
            inside = {"kind": "kafka", "config": {"servers": "10.0.0.1:9092", "topic": "t"}}
            listed = {"kind": "kafka", "config": {"servers": "known.example:9092", "topic": "t"}}
            refused = await w.ask("ann", "POST", path["ann"], json=inside)
            assert refused.status_code == 403
            whole = {"text": HERE.format(id=1), "targets": [inside]}
            refused = await w.ask("ann", "POST", "/subscriptions", json=whole)
            assert refused.status_code == 403
            assert (await w.ask("ann", "POST", path["ann"], json=listed)).status_code == 201
            assert (await w.ask("root", "POST", path["root"], json=inside)).status_code == 201

    run(story)


def test_listeners_know_which_tokens_hold(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            ann = w.people["ann"].token_id
            assert ann in await w.service.listeners.standing()
            await w.ask("root", "DELETE", f"/tokens/{ann}")
            assert ann not in await w.service.listeners.standing()

    run(story)


# -------------------------------------------------------------------------------- open services


def test_an_open_service_is_for_everybody_on_this_machine(tmp_path):
    async def story():
        async with web(tmp_path, people=False) as w:
            me = (await w.ask(None, "GET", "/me")).json()
            assert (me["user"], me["open"]) == ("local", True)
            made = await w.ask(None, "POST", "/subscriptions", json={"text": HERE.format(id=1)})
            assert made.status_code == 201

    run(story)


@pytest.mark.parametrize("way", [("GET", "/me"), ("GET", "/subscriptions"), ("POST", "/check")])
def test_an_open_service_answers_under_names_of_this_machine_only(tmp_path, way):
    foreign = ("evil.example", "evil.example:8765", "10.0.0.7", "127.0.0.1.evil.example", "", "[")

    async def story():
        async with web(tmp_path, people=False) as w:
            for host in foreign:
                answer = await w.ask(None, *way, headers={"host": host}, json={})
                assert answer.status_code == 403, (host, answer.text)

    run(story)


def test_an_open_service_knows_the_names_of_this_machine(tmp_path):
    async def story():
        async with web(tmp_path, people=False) as w:
            for host in ("localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:8765"):
                answer = await w.ask(None, "GET", "/me", headers={"host": host})
                assert answer.status_code == 200, host

    run(story)


def test_an_open_service_is_not_for_other_machines(tmp_path):
    async def story():
        async with web(tmp_path, people=False) as w:
            transport = httpx2.ASGITransport(w.app, client=("10.0.0.7", 1))
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
                assert (await client.get(f"{API}/me")).status_code == 403

    run(story)


def test_an_open_service_takes_no_changes_from_pages_of_other_sites(tmp_path):
    foreign = (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    )

    async def story():
        async with web(tmp_path, people=False) as w:
            body = {"text": HERE.format(id=1)}
            for headers in foreign:
                answer = await w.ask(None, "POST", "/subscriptions", json=body, headers=headers)
                assert answer.status_code == 403, headers
            assert (await w.ask(None, "GET", "/subscriptions")).json()["items"] == []

    run(story)


def test_an_open_service_takes_changes_from_its_own_pages(tmp_path):
    async def story():
        async with web(tmp_path, people=False) as w:
            headers = {"origin": "http://127.0.0.1:8765", "sec-fetch-site": "same-origin"}
            answer = await w.ask(None, "POST", "/subscriptions", json={"text": HERE.format(id=1)}, headers=headers)
            assert answer.status_code == 201

    run(story)


def test_the_first_token_closes_an_open_service_at_once(tmp_path):
    async def story():
        async with web(tmp_path, people=False) as w:
            user = (await w.ask(None, "POST", "/users", json={"name": "ann"})).json()
            path = f"/users/{user['id']}/tokens"
            made = await w.ask(None, "POST", path, json={"scopes": ["admin"]})
            assert made.status_code == 201
            assert (await w.ask(None, "GET", "/me")).status_code == 401
            bearer = {"authorization": f"Bearer {made.json()['token']}"}
            me = (await w.ask(None, "GET", "/me", headers=bearer)).json()
            assert (me["user"], me["open"]) == ("ann", False)

    run(story)


def test_there_is_no_way_in_from_other_sites(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            asked = await w.ask(
                None,
                "OPTIONS",
                "/subscriptions",
                headers={"origin": "https://evil.example", "access-control-request-method": "POST"},
            )
            assert asked.status_code in (401, 405)
            assert not [name for name in asked.headers if name.startswith("access-control")]
            read = await w.ask("ann", "GET", "/me", headers={"origin": "https://evil.example"})
            assert not [name for name in read.headers if name.startswith("access-control")]

    run(story)


def test_refused_sign_ins_are_in_the_audit_log(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            await w.ask(None, "GET", "/me", headers={"authorization": "Bearer ens_nonsense"})
            await w.ask(None, "GET", "/me", headers={"authorization": "Basic YTpi"})
            items = (await w.ask("root", "GET", "/audit?limit=2")).json()["items"]
            assert [one["action"] for one in items] == ["sign-in refused"] * 2
            assert {one["subject"] for one in items} == {"127.0.0.1"}

    run(story)


def test_changes_are_in_the_audit_log(tmp_path):
    async def story():
        async with web(tmp_path, limits=LOCAL_HOOKS) as w:
            ids = await furnished(w)
            before = (await w.ask("ann", "GET", "/audit?limit=1")).json()["items"][0]["id"]
            changing = [one for one in ENDPOINTS if one.scope == "subscribe" and one.path != "/regions/import"]
            for one in changing:
                answer = await ask(w, one, w.people["ann"].token, ids)
                assert answer.status_code == one.status
            items = (await w.ask("ann", "GET", "/audit?limit=1000")).json()["items"]
            new = [one for one in items if one["id"] > before]
            assert len(new) == len(changing)
            assert all(one["name"] == "ann" for one in new)

    run(story)
