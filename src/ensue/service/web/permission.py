"""Who asks, as endpoints want to know it."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request

from ensue.service.access import ADMIN, PUBLISH, READ, SUBSCRIBE, Access
from ensue.service.refusals import UnauthenticatedError
from ensue.service.web.guard import ACCESS


def access_of(request: Request) -> Access:
    """Who asks, whatever they may."""
    access = request.scope.get(ACCESS)
    if not isinstance(access, Access):
        raise UnauthenticatedError("this needs a token\n  hint: Authorization: Bearer ens_...")
    return access


def needs(scope: str) -> Callable[[Request], Awaitable[Access]]:
    """A dependency: who asks, if that scope is among theirs."""

    async def access(request: Request) -> Access:
        found = access_of(request)
        found.require(scope)
        return found

    return access


Reader = Annotated[Access, Depends(needs(READ))]
Subscriber = Annotated[Access, Depends(needs(SUBSCRIBE))]
Publisher = Annotated[Access, Depends(needs(PUBLISH))]
Admin = Annotated[Access, Depends(needs(ADMIN))]
