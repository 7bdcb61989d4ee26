"""A compact structure between events: nodes of events, and numbers of each partition."""

import numpy as np
import numpy.typing as npt

from ensue.columns.distinct import distinct
from ensue.kernels import arena
from ensue.source.kernel_inputs import INSTANCE_TOP, NODE_TOP
from ensue.structures.compact.nodes import TIME_STATE
from ensue.structures.compact.source import SETTLE, CompactSource
from ensue.structures.instances import InstancesState
from ensue.structures.tables import Table


class CompactState(InstancesState[CompactSource]):
    """Events as nodes, or by partition what is known of them."""

    @property
    def partial_matches(self) -> int:
        """How many events are kept."""
        if self.source.lives_in_nodes:
            return super().partial_matches
        return int(np.count_nonzero(self._rows_by_key()))

    @property
    def population(self) -> int:
        return super().population + int(self.meta[NODE_TOP])

    def _rows_by_key(self) -> Table:
        """The columns by partition that hold rows of the stream, 0 where there is none."""
        low, high, _ = self.source.rows_by_key or (0, 0, 0)
        return self.tables["K"][:, low:high]

    def live_keys(self) -> npt.NDArray[np.bool_]:
        if self.source.lives_in_nodes:
            return super().live_keys()
        return np.asarray(np.any(self._rows_by_key() != 0, axis=1))

    def expire_instances(self, now: float | None) -> None:
        frame, tables = self.frame, self.tables
        if frame.window is None or (now is None and not frame.by_events):
            return
        time = float(now or 0) if frame.real_time else int(now or 0)
        self.kernel(SETTLE)(time, *(tables[name] for name in TIME_STATE))
        if not len(self.entries):
            return
        self.keep_only(self.inside_window(time))

    def keep_only(self, alive: npt.NDArray[np.bool_]) -> None:
        tables = self.tables
        self.meta[INSTANCE_TOP] = arena.keep_linked(
            tables["A"],
            tables["AF"],
            len(alive),
            tables["tops"],
            alive,
            np.empty(len(alive), np.int64),
            np.array(self.source.links, np.int64),
        )

    def held_rows(self, now: float | None) -> npt.NDArray[np.int64]:
        """The rows of the stream that a later answer may still need, ascending."""
        self.expire_instances(now)
        if self.source.rows_by_key:
            rows = self._rows_by_key().ravel()
            return distinct(rows[rows != 0] + self.source.rows_by_key[2])
        nodes = self.entries
        if self.source.beginnings:
            mask = nodes[:, self.source.instances.columns.wholes["mask"]]
            nodes = nodes[(mask & self.source.beginnings) != 0]
        return distinct(nodes[:, arena.ROW])

    @property
    def kleene_events(self) -> tuple[Table, int, int]:
        return self.tables["N"], 0, 1
