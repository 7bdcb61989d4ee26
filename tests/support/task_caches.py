"""The tasks that a process holds in memory."""

from ensue.runtime.tasks import task_state as cache
from ensue.runtime.tasks.task import Task


def live_tasks() -> list[tuple[bytes, Task]]:
    """The tasks in the memory of this process by stamp, the last used one last."""
    return [(live.stamp, live.task) for live in cache._live.values()]


def forget_live() -> None:
    """Drops the tasks in memory, as if the process had ended."""
    cache._live.clear()
