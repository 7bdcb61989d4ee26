"""A join tree between events: results that wait for others, and what repeats remember."""

import numpy as np
import numpy.typing as npt

from ensue.columns.distinct import distinct
from ensue.kernels import arena
from ensue.structures.instances import InstancesState
from ensue.structures.tables import Table
from ensue.structures.tree.source import MEMORY, TreeSource


class TreeState(InstancesState[TreeSource]):
    """The entries of a tree's lists."""

    @property
    def population(self) -> int:
        remembered = len(self.tables[MEMORY[0]]) if self.source.memory.width else 0
        return super().population + remembered

    def live_keys(self) -> npt.NDArray[np.bool_]:
        alive = super().live_keys()
        if self.source.memory.width:
            # a repeat remembers its last event however long ago it was
            alive |= np.any(self.tables[MEMORY[0]] != 0, axis=1)
        return alive

    def expire_instances(self, now: float | None) -> None:
        if not len(self.entries):
            return
        alive = self.inside_window(now, "start")  # a joined result is as old as its first event
        if now is not None and self.source.instances.limits:
            alive &= self._inside_modules(now)
        self.keep_only(alive)

    def keep_only(self, alive: npt.NDArray[np.bool_]) -> None:
        self.keep_instances(alive, self.source.instances.links)

    def _inside_modules(self, now: float) -> npt.NDArray[np.bool_]:
        """Which entries may still be joined inside the modules they belong to (H4)."""
        records, starts = self.source.instances, self.times("start")
        lists = self.entries[:, records.columns.wholes["list"]]
        alive = np.ones(len(lists), np.bool_)
        for number, limit in records.limits.items():
            alive &= (lists != number) | (now - starts <= limit)
        return alive

    def held_rows(self, now: float | None) -> npt.NDArray[np.int64]:
        self.expire_instances(now)
        rows = distinct(self.entries[:, self.source.instances.rows])
        return rows[rows >= 0]

    @property
    def kleene_events(self) -> tuple[Table, int, int]:
        return self.tables["A"], self.source.instances.columns.wholes["back"], arena.ROW
