"""The process that forks Spark's Python workers in tests, with all that they need imported.

Spark forks a worker where a task finds none idle, and ends one that idles for a minute: a hundred
of them come and go in a run. Each would import for two to three seconds what this process imports
once. It is the module of `spark.python.daemon.module`.
"""

import pandas  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import ensue.backends.spark.batch
import ensue.backends.spark.state_store  # noqa: F401

if __name__ == "__main__":
    manager()
