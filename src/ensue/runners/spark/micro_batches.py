"""Which micro-batch a task is of.

Spark tells its tasks by two local properties. The call that reads them is public; their names are
in no documentation, and no documented call tells a task the same. Tried with PySpark 4.3 in tasks
of `mapInArrow`, before and behind an exchange, in a classic session and with Spark Connect: both
are there, and the id of the query is the one that its checkpoint keeps. In batch jobs they are
missing.
"""

from pyspark import TaskContext

from ensue.errors import RunnerError
from ensue.workload.stage import MicroBatch

_BATCH_ID, _QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"


def micro_batch() -> MicroBatch | None:
    """The micro-batch of the task that this runs in; None: Spark does not say."""
    context = TaskContext.get()
    if context is None:
        return None
    number, stream = (context.getLocalProperty(name) for name in (_BATCH_ID, _QUERY_ID))
    return None if number is None or stream is None else MicroBatch(stream, int(number))


def no_micro_batch() -> RunnerError:
    """What to say where it has to be known."""
    return RunnerError(
        "this Spark does not tell its tasks which micro-batch they belong to, so they cannot "
        "agree "
        "on its subscriptions\n"
        "  hint: run the stream with the PySpark that Ensue is tested with (4.3)"
    )
