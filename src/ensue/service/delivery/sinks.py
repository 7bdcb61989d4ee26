"""All kinds of targets, and which of them may reach where."""

from collections.abc import Mapping
from typing import Any

from ensue.errors import ServiceError, did_you_mean
from ensue.service.delivery import kafka, mqtt, nats
from ensue.service.delivery.addresses import Guard
from ensue.service.delivery.open_sinks import Make
from ensue.service.delivery.webhooks import WebhookLimits, Webhooks
from ensue.service.refusals import NotAllowedError
from ensue.service.secrets import new_secrets
from ensue.service.settings import Limits

WEBHOOK = "webhook"
BROKERS = {"kafka": kafka.make, "mqtt": mqtt.make, "nats": nats.make}


class Sinks:
    """How notes leave a service."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        bounds = WebhookLimits(seconds=limits.webhook_seconds, at_once=limits.webhook_requests)
        self.webhooks = Webhooks(Guard(limits.allow), bounds)
        self.makes: Mapping[str, Make] = {WEBHOOK: self.webhooks.make, **BROKERS}

    async def check(self, kind: str, config: Mapping[str, Any], *, trusted: bool) -> None:
        """Refuses a target that cannot work, or that its user may not have.

        Brokers are mostly inside a network that users shall not look around in: whoever is not
        `trusted` names one of those that the limit `brokers` lists.
        """
        if kind not in self.makes:
            hint = did_you_mean(kind, self.makes)
            raise ServiceError(f"notes cannot be sent to '{kind}'\n  hint: {hint}")
        if kind == WEBHOOK:
            await self.webhooks.check({**config, "secrets": new_secrets(kind)})
            return
        self.makes[kind](config)
        if not trusted and "ca" in config:
            raise NotAllowedError(
                "'ca' names a file on the machine of the service\n"
                "  hint: an administrator can create such a target"
            )
        servers = config.get("servers") or config.get("server") or ()
        named = [servers] if isinstance(servers, str) else [str(one) for one in servers]
        every = {one for text in named for one in text.split(",")}
        if not trusted and not every <= set(self._limits.brokers):
            raise NotAllowedError(
                f"targets of kind {kind} may only name brokers that the service lists\n"
                "  hint: an administrator can set the limit 'brokers', or create the target"
            )

    async def close(self) -> None:
        """Closes connections that sinks share."""
        await self.webhooks.close()
