"""Instance stacks between events."""

import numpy as np
import numpy.typing as npt

from ensue.columns.distinct import distinct
from ensue.kernels import arena
from ensue.structures.instances import InstancesState
from ensue.structures.stacks.source import StacksSource


class StacksState(InstancesState[StacksSource]):
    """The instances that later events may build sequences with, and negated events."""

    @property
    def is_blank(self) -> bool:
        return self.population == 0

    def expire_instances(self, now: float | None) -> None:
        if not len(self.entries):
            return
        alive = self.inside_window(now)
        if self.source.stacks.pushed:
            # pushed negations leave instances that only older RIPs lead to, or nothing at all
            arena.drop_unreached(self.tables["A"], self.tables["tops"], alive)
        self.keep_only(alive)

    def keep_only(self, alive: npt.NDArray[np.bool_]) -> None:
        self.keep_instances(alive, [arena.RIP])

    def held_rows(self, now: float | None) -> npt.NDArray[np.int64]:
        self.expire_instances(now)
        return distinct(self.entries[:, arena.ROW])
