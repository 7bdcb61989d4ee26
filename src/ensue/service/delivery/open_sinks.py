"""The kinds of sinks, who may use them, and the open sink of each active target."""

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ensue.errors import EnsueError, ServiceError, did_you_mean
from ensue.service.brokers.kafka import make_kafka_sink
from ensue.service.brokers.mqtt import make_mqtt_sink
from ensue.service.brokers.nats import make_nats_sink
from ensue.service.delivery.addresses import AddressGuard
from ensue.service.delivery.sink import Sink
from ensue.service.delivery.webhooks import WebhookLimits, Webhooks
from ensue.service.errors import NotAllowedError
from ensue.service.secrets import create_secrets
from ensue.service.settings import ServiceLimits
from ensue.service.store.target_store import Target

_log = logging.getLogger(__name__)

SinkFactory = Callable[[Mapping[str, Any]], Sink]


@dataclass(slots=True)
class _Open:
    sink: Sink
    spec: tuple[str, str, str]
    used: float
    held: bool = False


class OpenSinks:
    """Opens sinks on demand, and again when a configuration has changed."""

    def __init__(self, makes: Mapping[str, SinkFactory], idle: float) -> None:
        self._makes = dict(makes)
        self._idle = idle  # seconds without use after which a sink is closed
        self._open: dict[int, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def hold(self, target: Target, clock: Callable[[], float]) -> AsyncIterator[Sink]:
        """Yields the sink of a target, which is not closed meanwhile."""
        spec = (target.kind, target.config, target.secrets)
        entry = self._open.get(target.id)
        if entry is not None and entry.spec != spec:
            await self._close(target.id)
            entry = None
        if entry is None:
            entry = self._open[target.id] = _Open(self._make(target), spec, clock())
        entry.held = True
        try:
            yield entry.sink
        finally:
            entry.held = False
            entry.used = clock()

    async def close_idle(self, now: float) -> None:
        for id, entry in list(self._open.items()):
            if not entry.held and now - entry.used >= self._idle:
                await self._close(id)

    async def close(self) -> None:
        for id in list(self._open):
            await self._close(id)

    async def _close(self, id: int) -> None:
        entry = self._open.pop(id, None)
        if entry is None:
            return
        try:
            await entry.sink.close()
        except Exception:  # noqa: BLE001 - it is dropped in any case
            _log.exception("the sink of target %d could not be closed", id)

    def _make(self, target: Target) -> Sink:
        make = self._makes.get(target.kind)
        if make is None:
            hint = did_you_mean(target.kind, self._makes)
            raise ServiceError(f"targets of kind '{target.kind}' are not supported here\n  hint: {hint}")
        config: dict[str, Any] = json.loads(target.config)
        secrets = json.loads(target.secrets)
        try:
            return make({**config, "secrets": secrets} if secrets else config)
        except EnsueError:
            raise
        except Exception as error:  # reported as a failing target
            _log.exception("the sink of target %d could not be created", target.id)
            message = f"the configuration is invalid: {type(error).__name__}"
            raise ServiceError(message) from error


WEBHOOK = "webhook"
_BROKER_SINKS = {"kafka": make_kafka_sink, "mqtt": make_mqtt_sink, "nats": make_nats_sink}


class SinkRegistry:
    """All kinds of sinks of a service."""

    def __init__(self, limits: ServiceLimits) -> None:
        self._limits = limits
        bounds = WebhookLimits(seconds=limits.webhook_seconds, at_once=limits.webhook_requests)
        self.webhooks = Webhooks(AddressGuard(limits.allow), bounds)
        self.makes: Mapping[str, SinkFactory] = {WEBHOOK: self.webhooks.make, **_BROKER_SINKS}

    async def check(self, kind: str, config: Mapping[str, Any], *, trusted: bool) -> None:
        """Rejects a target that cannot work, or that its user must not create.

        Brokers are usually inside a private network that users must not probe: users who are not
        `trusted` may only name those in the limit `brokers`.
        """
        if kind not in self.makes:
            hint = did_you_mean(kind, self.makes)
            raise ServiceError(f"there are no targets of kind '{kind}'\n  hint: {hint}")
        if kind == WEBHOOK:
            await self.webhooks.check({**config, "secrets": create_secrets(kind)})
            return
        self.makes[kind](config)
        if not trusted and "ca" in config:
            raise NotAllowedError(
                "'ca' names a file on the host of the service\n  hint: an administrator can create such a target"
            )
        servers = config.get("servers") or config.get("server") or ()
        texts = [servers] if isinstance(servers, str) else [str(server) for server in servers]
        named = {server for text in texts for server in text.split(",")}
        if not trusted and not named <= set(self._limits.brokers):
            raise NotAllowedError(
                f"targets of kind {kind} may only name brokers from the service's list\n"
                "  hint: an administrator can set the limit 'brokers', or create the target"
            )

    async def close(self) -> None:
        await self.webhooks.close()
