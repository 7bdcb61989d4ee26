"""All kinds of sources, by name."""

from ensue.errors import ServiceError, did_you_mean
from ensue.service.endpoints import endpoint_of
from ensue.service.sources import folder, kafka, mqtt, nats
from ensue.service.sources.contract import Source

SOURCES = {"folder": folder.make, "kafka": kafka.make, "mqtt": mqtt.make, "nats": nats.make}


def source_of(url: str) -> Source:
    """The source that a URL names.

    >>> source_of("mqtt://localhost/trucks").name
    'mqtt:trucks'
    """
    kind, config = endpoint_of(url)
    if kind not in SOURCES:
        raise ServiceError(f"'{kind}' is not a source\n  hint: {did_you_mean(kind, SOURCES)}")
    return SOURCES[kind](config)
