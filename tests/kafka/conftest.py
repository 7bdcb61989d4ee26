"""A broker for the tests, if one can run here."""

from collections.abc import Iterator
from typing import Any

import pytest

from brokers import kafka


@pytest.fixture(scope="session")
def broker() -> Iterator[kafka.Broker]:
    reason = kafka.missing()
    if reason is not None:
        pytest.skip(reason)
    with kafka.Broker(partitions=3) as running:
        yield running


@pytest.fixture
def options(broker: kafka.Broker) -> dict[str, str]:
    # Writes into a topic that was just being made were refused for good, as out of order; we take
    # it that a second request was accepted before the first, so there is one at a time.
    one = {"kafka.max.in.flight.requests.per.connection": "1"}
    return {"kafka.bootstrap.servers": broker.address} | one


@pytest.fixture
def connected(spark: Any, broker: kafka.Broker) -> Any:
    """The session, with the connector in it."""
    jars = spark.conf.get("spark.jars", "")
    assert "spark-sql-kafka" in jars, "Spark was started without `spark` of tests/conftest.py"
    return spark
