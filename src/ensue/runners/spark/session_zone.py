"""The zone of a session: that of its TIMESTAMP columns, as Spark SQL has it."""

from pyspark.sql import SparkSession


def session_zone(session: SparkSession) -> str:
    """The name of the zone, such as Europe/Zurich."""
    return str(session.conf.get("spark.sql.session.timeZone"))
