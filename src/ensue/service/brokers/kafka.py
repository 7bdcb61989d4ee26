"""How a client of Kafka is set up, and its errors in words."""

import re
from typing import Any

from ensue.service.endpoints import Access

_BACKOFF = 500  # milliseconds; the client logs every try
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def problem(topic: str) -> str | None:
    """Why Kafka would refuse a name of a topic, or None.

    >>> problem("trucks")
    """
    if TOPIC.fullmatch(topic) and topic not in (".", ".."):
        return None
    return "is not a topic name\n  hint: letters, digits, '.', '_' and '-', at most 249"


def settings(access: Access) -> dict[str, Any]:
    """Where a client is to go, and who we are there."""
    protocol = "SSL" if access.tls else "PLAINTEXT"
    found: dict[str, Any] = {
        "bootstrap_servers": [str(server) for server in access.servers],
        "ssl_context": access.ssl_context(),
        # Half of ours, so that Kafka's own reason comes before our patience ends.
        "request_timeout_ms": max(1, int(access.timeout * 500)),
        "retry_backoff_ms": _BACKOFF,
    }
    if access.username is None:
        return found | {"security_protocol": protocol}
    return found | {
        "security_protocol": f"SASL_{protocol}",
        "sasl_mechanism": access.mechanism,
        "sasl_plain_username": access.username,
        "sasl_plain_password": access.password.reveal() if access.password else "",
    }


def words(access: Access, error: BaseException, topic: str | None = None) -> str:
    """What is wrong, for a user; never with a password in it."""
    from aiokafka import errors

    where = f"Kafka at {access.shown}"
    match error:
        case errors.TopicAuthorizationFailedError():
            return f"{where} does not let this account use the topic '{topic}'"
        case errors.UnknownTopicOrPartitionError():
            return f"{where} has no topic '{topic}'\n  hint: create it there"
        case errors.MessageSizeTooLargeError() | errors.RecordListTooLargeError():
            return (
                f"a notification is larger than {where} accepts for the topic '{topic}'\n"
                "  hint: raise max.message.bytes of the topic"
            )
        case (
            TimeoutError()
            | OSError()
            | errors.KafkaConnectionError()
            | errors.KafkaTimeoutError()
            | errors.RequestTimedOutError()
            | errors.NodeNotReadyError()
        ):
            # the client tells refused accounts and closed ports by the same error
            account = ", or refuses the account" if access.username is not None else ""
            return f"{where} does not answer{account}"
        case _:
            said = access.without_secrets(str(error))
            return f"{where} says {type(error).__name__}: {said}"
