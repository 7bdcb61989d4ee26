"""Sinks that are open: one for each target that has had something to send lately."""

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ensue.errors import EnsueError, ServiceError, did_you_mean
from ensue.service.delivery.contract import Sink
from ensue.service.store.targets import Target

_log = logging.getLogger(__name__)

Make = Callable[[Mapping[str, Any]], Sink]


@dataclass(slots=True)
class _Open:
    sink: Sink
    made_of: tuple[str, str, str]
    used: float
    held: bool = False


class OpenSinks:
    """Opens sinks as targets need them, anew when a configuration has changed."""

    def __init__(self, makes: Mapping[str, Make], idle: float) -> None:
        self._makes = dict(makes)
        self._idle = idle  # seconds unused, after which a sink is closed
        self._open: dict[int, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def held(self, target: Target, clock: Callable[[], float]) -> AsyncIterator[Sink]:
        """The sink of a target; it stays open while it is held."""
        made_of = (target.kind, target.config, target.secrets)
        found = self._open.get(target.id)
        if found is not None and found.made_of != made_of:
            await self._close(target.id)
            found = None
        if found is None:
            found = self._open[target.id] = _Open(self._made(target), made_of, clock())
        found.held = True
        try:
            yield found.sink
        finally:
            found.held = False
            found.used = clock()

    async def close_idle(self, now: float) -> None:
        """Closes what has not been used for a while."""
        for id, one in list(self._open.items()):
            if not one.held and now - one.used >= self._idle:
                await self._close(id)

    async def close(self) -> None:
        """Closes all."""
        for id in list(self._open):
            await self._close(id)

    async def _close(self, id: int) -> None:
        closed = self._open.pop(id, None)
        if closed is None:
            return
        try:
            await closed.sink.close()
        except Exception:  # noqa: BLE001 - it is let go of in any case
            _log.exception("the sink of target %d did not close", id)

    def _made(self, target: Target) -> Sink:
        make = self._makes.get(target.kind)
        if make is None:
            hint = did_you_mean(target.kind, self._makes)
            raise ServiceError(
                f"targets of kind '{target.kind}' are not supported here\n  hint: {hint}"
            )
        config: dict[str, Any] = json.loads(target.config)
        secrets = json.loads(target.secrets)
        try:
            return make({**config, "secrets": secrets} if secrets else config)
        except EnsueError:
            raise
        except Exception as error:  # the target is shown as one that fails
            _log.exception("no sink can be made for target %d", target.id)
            said = f"no sink can be made of the configuration: {type(error).__name__}"
            raise ServiceError(said) from error
