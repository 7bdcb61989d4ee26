"""Sessions of the console: signing in with a token, and what its pages need to know.

A page asks for `Annotated[Access, Depends(page_access)]`; who is not signed in is sent to do so.
"""

import hmac
from urllib.parse import quote

from fastapi import FastAPI, Request
from starlette.responses import RedirectResponse, Response

from ensue.service.access import Access, Accounts
from ensue.service.refusals import NotAllowedError, UnauthenticatedError
from ensue.service.web.guard import ACCESS, COOKIE, SIGN_IN, SIGN_OUT, cookie_of

_SEE_OTHER = 303


class SignInNeeded(Exception):  # noqa: N818  it is no mistake of anybody
    """A page that only those see who are signed in."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


async def page_access(request: Request) -> Access:
    """Who looks at a page; who is not signed in is sent to do so, and back afterwards."""
    access = request.scope.get(ACCESS)
    if not isinstance(access, Access):
        query = f"?{request.url.query}" if request.url.query else ""
        raise SignInNeeded(request.url.path + query)
    return access


def csrf_token(request: Request) -> str:
    """What a page sends as X-CSRF-Token with every change; empty if no session is needed."""
    access = request.scope.get(ACCESS)
    return (access.csrf or "") if isinstance(access, Access) else ""


def add_sessions(app: FastAPI, accounts: Accounts) -> None:
    """Adds signing in and out: forms that the console's pages show."""

    async def to_sign_in(_: Request, error: Exception) -> Response:
        path = error.path if isinstance(error, SignInNeeded) else "/"
        asked = "" if path == "/" else f"?next={quote(path, safe='/')}"
        return RedirectResponse(SIGN_IN + asked, _SEE_OTHER)

    @app.post(SIGN_IN, include_in_schema=False)
    async def sign_in(request: Request) -> Response:
        form = await request.form()
        where = own_path(str(form.get("next", "/")))
        try:
            begun = await accounts.sign_in(str(form.get("token", "")).strip())
        except UnauthenticatedError as refused:
            address = request.client.host if request.client else ""
            accounts.refused(str(refused), address)
            again = f"&next={quote(where, safe='/')}" if where != "/" else ""
            return RedirectResponse(f"{SIGN_IN}?refused=1{again}", _SEE_OTHER)
        answer = RedirectResponse(where, _SEE_OTHER)
        answer.set_cookie(
            COOKIE,
            begun.cookie,
            path="/",
            max_age=accounts.session_seconds,
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    @app.post(SIGN_OUT, include_in_schema=False)
    async def sign_out(request: Request) -> Response:
        form = await request.form()
        given = str(form.get("csrf", "")) or request.headers.get("x-csrf-token", "")
        cookie = cookie_of(request.headers)
        if cookie is not None:
            wanted = csrf_token(request)
            if wanted and not hmac.compare_digest(given.encode(), wanted.encode()):
                raise NotAllowedError("the token of the page is missing\n  hint: load it again")
            await accounts.sign_out(cookie)
        answer = RedirectResponse(SIGN_IN, _SEE_OTHER)
        answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return answer

    app.add_exception_handler(SignInNeeded, to_sign_in)


def own_path(path: str) -> str:
    """A path of this service, to go to; anything else is its first page.

    >>> own_path("/regions?x=1"), own_path("//evil.example"), own_path("https://evil.example")
    ('/regions?x=1', '/', '/')
    """
    odd = not path.startswith("/") or path[1:2] in ("/", "\\") or not path.isprintable()
    return "/" if odd else path
