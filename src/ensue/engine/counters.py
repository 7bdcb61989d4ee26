"""What an engine has counted, in the words of the plan."""

import numpy as np
import numpy.typing as npt

from ensue.plan.estimates.counters import Counters, Tried
from ensue.source.counting import ScanCounts, kernel_counts
from ensue.source.kernel_inputs import Frame


def counters_of(
    frame: Frame, scan: ScanCounts, table: npt.NDArray[np.int64], found: int, partial: int
) -> Counters:
    """Counts of the scan and of the kernel's table, matches found, and partial ones alive."""
    checks, absences, places = kernel_counts(frame.tally.labels, table)
    passed = 0.0 if scan.first is None or scan.last is None else scan.last - scan.first
    return Counters(
        scan.events,
        passed / frame.ticks_per_second,
        {r.variable: r.type for r in frame.plan.roles if isinstance(r.type, str)},
        {variable: Tried(*count) for variable, count in scan.roles.items()},
        {label: Tried(*count) for label, count in scan.conditions.items()},
        checks,
        absences,
        places,
        found,
        partial,
        max(1, scan.partitions),
        scan.crowding,
    )
