"""What Ensue changes in the processes that run Python for Spark: their collector and their output.

PySpark's daemon calls `gc.collect()` after each task of a worker. That visits every object of
every loaded module, of which Ensue, Numba and Arrow have some 200,000: in small micro-batches it
takes most of a worker's processor time.
"""

import gc
import os
import sys
from pathlib import Path

from pyspark import TaskContext

# the process that asks a StatefulProcessor on the driver's machine for its state variables
_INIT_WORKER = "pyspark.sql.streaming.transform_with_state_driver_worker"
_frozen = {"modules": 0}  # how many were loaded when the collector was last told


def freeze_loaded_code() -> None:
    """Called at the end of a task; freezes all objects if modules were loaded since the last time.

    Only a worker of Spark does so: the collector of the user's own process is the user's.
    """
    if TaskContext.get() is None or len(sys.modules) == _frozen["modules"]:
        return
    _frozen["modules"] = len(sys.modules)
    gc.collect()
    gc.freeze()


def silence_init_worker() -> None:
    """Drops what PySpark prints while a stream starts: Spark copies it to the user's terminal.

    That process prints the steps of its work and whole schemas; its errors take other ways.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name == _INIT_WORKER:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until it ends
