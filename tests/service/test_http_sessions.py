"""Signing in to the console: cookies, the token of the page, and pages for those signed in."""

import asyncio
from typing import Annotated

import httpx2
import pytest
from fastapi import Depends, FastAPI, Request
from starlette.responses import PlainTextResponse

from ensue.service.access import Principal
from ensue.service.service import Service
from ensue.service.web.account_routes import get_csrf_token, require_session, sanitize_path
from ensue.service.web.app import make_app
from ensue.service.web.guard import COOKIE
from support.http_service import API, HOST, web
from support.services import HERE, run


def console(app: FastAPI, service: Service) -> None:
    """A console of one page."""

    @app.get("/", include_in_schema=False)
    async def page(request: Request, access: Annotated[Principal, Depends(require_session)]):
        return PlainTextResponse(f"{access.name} {get_csrf_token(request)}")

    @app.get("/regions", include_in_schema=False)
    async def regions(access: Annotated[Principal, Depends(require_session)]):
        return PlainTextResponse(access.name)


class Browser:
    """Keeps cookies and sends what a browser sends."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.same = {"origin": HOST, "sec-fetch-site": "same-origin"}

    async def sign_in(self, token: str, **more: str) -> httpx2.Response:
        return await self.client.post("/sign-in", data={"token": token, **more}, headers=self.same)

    async def csrf(self) -> str:
        return (await self.client.get("/")).text.partition(" ")[2]


def signed_in(story, tmp_path, *, base: str = HOST):
    """Runs a story with a browser that has no session yet."""

    async def whole():
        async with web(tmp_path) as w:
            app = make_app(w.service, console=console)
            transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
            async with httpx2.AsyncClient(transport=transport, base_url=base) as client:
                await story(w, Browser(client))

    run(whole)


def test_who_is_not_signed_in_is_sent_to_do_so_and_back(tmp_path):
    async def story(w, browser):
        away = await browser.client.get("/regions?a=b&c=d")
        assert away.status_code == 303
        assert away.headers["location"] == "/sign-in?next=/regions%3Fa%3Db%26c%3Dd"
        assert (await browser.client.get("/")).headers["location"] == "/sign-in"
        back = await browser.sign_in(w.people["ann"].token, next="/regions?a=b")
        assert (back.status_code, back.headers["location"]) == (303, "/regions?a=b")
        assert (await browser.client.get("/regions")).text == "ann"

    signed_in(story, tmp_path)


def test_the_cookie_is_for_this_site_and_no_script(tmp_path):
    async def story(w, browser):
        answer = await browser.sign_in(w.people["ann"].token)
        cookie = answer.headers["set-cookie"].lower()
        parts = {part.strip() for part in cookie.split(";")}
        assert {"httponly", "samesite=strict", "path=/"} <= parts
        assert "secure" not in parts
        assert w.people["ann"].token.lower() not in cookie

    signed_in(story, tmp_path)


def test_over_https_the_cookie_is_for_https_only(tmp_path):
    async def story(w, browser):
        browser.same = {}
        answer = await browser.sign_in(w.people["ann"].token)
        assert "secure" in answer.headers["set-cookie"].lower()

    signed_in(story, tmp_path, base="https://ensue.example")


@pytest.mark.parametrize("path", ["//evil.example", "https://evil.example", "/\\evil.example", "x", "", "/a\nb"])
def test_signing_in_leads_to_no_other_site(tmp_path, path: str):
    assert sanitize_path(path) == "/"


def test_a_wrong_token_is_refused_and_written_down(tmp_path):
    async def story(w, browser):
        for token in ("", "nonsense", "ens_" + "x" * 43):
            answer = await browser.sign_in(token, next="/regions")
            assert answer.headers["location"] == "/sign-in?refused=1&next=/regions"
            assert "set-cookie" not in answer.headers
        items = (await w.ask("root", "GET", "/audit?limit=3")).json()["items"]
        assert [one["action"] for one in items] == ["sign-in refused"] * 3

    signed_in(story, tmp_path)


def test_a_change_needs_the_token_of_the_page(tmp_path):
    async def story(w, browser):
        await browser.sign_in(w.people["ann"].token)
        csrf = await browser.csrf()
        assert csrf
        body = {"text": HERE.format(id=1)}

        async def create(**headers):
            given = {**browser.same, **{k.replace("_", "-"): v for k, v in headers.items()}}
            path = f"{API}/subscriptions"
            return (await browser.client.post(path, json=body, headers=given)).status_code

        assert await create() == 403
        assert await create(x_csrf_token="") == 403
        assert await create(x_csrf_token=csrf[:-1]) == 403
        assert await create(x_csrf_token=b"\xfc") == 403
        assert await create(x_csrf_token=csrf, origin="https://evil.example") == 403
        assert await create(x_csrf_token=csrf, sec_fetch_site="cross-site") == 403
        assert await create(x_csrf_token=csrf) == 201
        assert (await browser.client.get(f"{API}/subscriptions")).status_code == 200

    signed_in(story, tmp_path)


def test_the_token_of_one_session_is_not_that_of_another(tmp_path):
    async def story(w, browser):
        await browser.sign_in(w.people["bob"].token)
        theirs = await browser.csrf()
        await browser.sign_in(w.people["ann"].token)
        headers = {**browser.same, "x-csrf-token": theirs}
        answer = await browser.client.post(f"{API}/subscriptions", json={"text": HERE.format(id=1)}, headers=headers)
        assert answer.status_code == 403

    signed_in(story, tmp_path)


def test_signing_out_ends_the_session(tmp_path):
    async def story(w, browser):
        await browser.sign_in(w.people["ann"].token)
        cookie = browser.client.cookies[COOKIE]
        csrf = await browser.csrf()
        forged = await browser.client.post("/sign-out", headers=browser.same)
        assert forged.status_code == 403
        out = await browser.client.post("/sign-out", data={"csrf": csrf}, headers=browser.same)
        assert (out.status_code, out.headers["location"]) == (303, "/sign-in")
        browser.client.cookies.set(COOKIE, cookie)
        assert (await browser.client.get("/")).status_code == 303
        assert (await browser.client.get(f"{API}/me")).status_code == 401
        again = await browser.client.post("/sign-out", headers=browser.same)
        assert again.status_code == 303

    signed_in(story, tmp_path)


def test_a_session_ends_with_its_token(tmp_path):
    async def story(w, browser):
        made = await w.token("ann", "read")
        await browser.sign_in(made.token)
        assert (await browser.client.get(f"{API}/me")).status_code == 200
        await w.ask("root", "DELETE", f"/tokens/{made.id}")
        assert (await browser.client.get(f"{API}/me")).status_code == 401
        assert (await browser.client.get("/")).headers["location"] == "/sign-in"

    signed_in(story, tmp_path)


@pytest.mark.parametrize("cookie", ["nonsense", '"', "a; b", "\\x00"])
def test_a_cookie_of_nothing_is_no_session(tmp_path, cookie: str):
    async def story(w, browser):
        headers = {"cookie": f"{COOKIE}={cookie}"}
        assert (await browser.client.get(f"{API}/me", headers=headers)).status_code == 401
        assert (await browser.client.get("/", headers=headers)).status_code == 303

    signed_in(story, tmp_path)


def test_an_open_service_needs_no_signing_in(tmp_path):
    async def whole():
        async with web(tmp_path, people=False) as w:
            app = make_app(w.service, console=console)
            transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
            async with httpx2.AsyncClient(transport=transport, base_url=HOST) as client:
                assert (await client.get("/")).text == "local "
                body = {"text": HERE.format(id=1)}
                made = await client.post(f"{API}/subscriptions", json=body)
                assert made.status_code == 201
                foreign = await client.get("/", headers={"host": "evil.example"})
                assert foreign.status_code == 403

    run(whole)


def test_sessions_do_not_hinder_each_other(tmp_path):
    async def story(w, browser):
        answers = await asyncio.gather(*(browser.sign_in(w.people[who].token) for who in ("ann", "bob") * 5))
        cookies = [one.headers["set-cookie"].partition(";")[0] for one in answers]
        assert len(set(cookies)) == 10
        browser.client.cookies.clear()
        for place, cookie in enumerate(cookies):
            me = await browser.client.get(f"{API}/me", headers={"cookie": cookie})
            assert me.json()["user"] == ("ann", "bob")[place % 2]

    signed_in(story, tmp_path)
