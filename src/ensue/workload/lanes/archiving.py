"""The recent events of a lane become files of its archive.

The files are part of the archive when the driver commits them, behind the matches of the
micro-batch. Until then nobody sees them: the lane of an attempt that fails is the one before it,
with its own cut.
"""

from ensue.archives.writing import written
from ensue.archives.written_files import Added
from ensue.workload.lanes.lane import Lane
from ensue.workload.stage import Archives, LookedUp, Remembers, Stage


def archived(lane: Lane, stage: Stage) -> list[Added]:
    """Writes the events that a lane has released, if they are enough; none, if they are not."""
    asked = stage.archiving if isinstance(stage, Archives) else None
    if asked is None or lane.watermark is None or not isinstance(lane.matcher, Remembers):
        return []
    given = lane.matcher.hand_over(lane.watermark, asked.rows, asked.age)
    return [] if given is None else written(asked.archive, given.events, given.first, "lane")


def looked_up(lane: Lane) -> LookedUp:
    """What a lane has read of archives so far, and what it keeps."""
    return lane.matcher.looked_up() if isinstance(lane.matcher, Remembers) else LookedUp()
