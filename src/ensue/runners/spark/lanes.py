"""The lanes of a stream in Spark: how many, and the numbers under which Spark keeps them."""

from pyspark.sql import DataFrame

from ensue.errors import EventError

MOST_LANES = 4_096


def lane_count(frame: DataFrame, lanes: int | None) -> int:
    """How many lanes a stream has: as many as are asked for, or as Spark shuffles to."""
    if lanes is None:
        lanes = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    if not 1 <= lanes <= MOST_LANES:
        raise EventError(f"lanes={lanes}: a stream has 1 to {MOST_LANES} lanes")
    return lanes


def lane_keys(lanes: int) -> list[int]:
    """The numbers under which Spark keeps lanes.

    They are chosen so that Spark's hash spreads the lanes evenly over as many partitions, or over
    a divisor of it. The number 0 is always among them: that lane notices if the count changes.

    >>> keys = lane_keys(4)
    >>> sorted(spark_hash(key) % 4 for key in keys), 0 in keys
    ([0, 1, 2, 3], True)
    """
    keys: dict[int, int] = {}
    number = 0
    while len(keys) < lanes:
        keys.setdefault(spark_hash(number) % lanes, number)
        number += 1
    return list(keys.values())


def spark_hash(number: int) -> int:
    """Spark's hash of an int column (Murmur3 of 32 bits, seed 42)."""
    mixed = number * 0xCC9E2D51 & 0xFFFFFFFF
    mixed = (mixed << 15 | mixed >> 17) & 0xFFFFFFFF
    value = 42 ^ (mixed * 0x1B873593 & 0xFFFFFFFF)
    value = (value << 13 | value >> 19) & 0xFFFFFFFF
    value = (value * 5 + 0xE6546B64) & 0xFFFFFFFF
    value ^= 4  # bytes
    value = (value ^ value >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value
