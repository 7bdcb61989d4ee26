"""Configuration of Kafka clients, and their errors as text."""

import re
from typing import Any

from ensue.service.endpoints import BrokerAccess

_BACKOFF = 500  # milliseconds; the client logs every attempt
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def check_topic_name(topic: str) -> str | None:
    """Explains why Kafka would reject a topic name, or returns None.

    >>> check_topic_name("trucks")
    """
    if _TOPIC.fullmatch(topic) and topic not in (".", ".."):
        return None
    return "is not a topic name\n  hint: letters, digits, '.', '_' and '-', at most 249"


def client_arguments(access: BrokerAccess) -> dict[str, Any]:
    """Returns address and credentials as arguments of a client."""
    protocol = "SSL" if access.tls else "PLAINTEXT"
    arguments: dict[str, Any] = {
        "bootstrap_servers": [str(server) for server in access.servers],
        "ssl_context": access.ssl_context(),
        # Half of ours, so that Kafka's own error arrives before our timeout.
        "request_timeout_ms": max(1, int(access.timeout * 500)),
        "retry_backoff_ms": _BACKOFF,
    }
    if access.username is None:
        return arguments | {"security_protocol": protocol}
    return arguments | {
        "security_protocol": f"SASL_{protocol}",
        "sasl_mechanism": access.mechanism,
        "sasl_plain_username": access.username,
        "sasl_plain_password": access.password.reveal() if access.password else "",
    }


def describe_kafka_error(access: BrokerAccess, error: BaseException, topic: str | None = None) -> str:
    """Describes an error to a user, without passwords."""
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
            # the client reports rejected accounts and closed ports by the same error
            account = ", or rejects the account" if access.username is not None else ""
            return f"{where} does not respond{account}"
        case _:
            text = access.without_secrets(str(error))
            return f"{where} reports {type(error).__name__}: {text}"
