"""What goes to the stream of a service together, and what comes back."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.state import from_bytes, to_bytes
from ensue.errors import StateError
from ensue.runners.spark.service_files import STEPS
from ensue.service.matching.steps import Step

MOST_BYTES = 16 << 20  # of the events of a parcel, as the file of the service has them
MOST_STEPS = 5_000


@dataclass(frozen=True, slots=True)
class Parcel:
    """Steps that are matched together, with their events."""

    steps: tuple[tuple[Step, pa.Table], ...]

    @property
    def last(self) -> int:
        return self.steps[-1][0].position

    def table(self) -> pa.Table:
        """As rows of a file."""
        floor = self.steps[0][0].version
        rows = [
            {
                "position": step.position,
                "head": step.matched_from(floor).head,
                "body": to_bytes(events) if events.num_rows else b"",
            }
            for step, events in self.steps
        ]
        return pa.Table.from_pylist(rows, schema=STEPS)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a micro-batch found."""

    upto: int  # the position of its last step
    matches: tuple[tuple[int, pa.Table], ...]  # by position, in order
    counted: tuple[dict[str, Any], ...]  # what lanes hold

    @classmethod
    def read(cls, path: Path) -> "Answer":
        """The answer in a file."""
        try:
            with pa.ipc.open_file(path) as reader:
                table = reader.read_all()
        except pa.ArrowInvalid as error:
            raise StateError(
                f"{path} is not what was written: {error}\n"
                "  hint: bring back the folder of the stream together with its file"
            ) from None
        ends = table.filter(pc.is_valid(table["counted"]))
        rows = table.filter(pc.is_valid(table["found"])).sort_by(
            [("position", "ascending"), ("lane", "ascending")]
        )
        matches = tuple(
            (row["position"], from_bytes(row["found"]))
            for row in rows.select(["position", "found"]).to_pylist()
        )
        counted = tuple(json.loads(text) for text in ends["counted"].to_pylist())
        return cls(min(ends["position"].to_pylist(), default=0), matches, counted)

    def behind(self, position: int, nothing: pa.Table) -> pa.Table:
        """The matches of steps behind a position, as one table."""
        tables = [table for at, table in self.matches if at > position]
        return pa.concat_tables([nothing, *tables])

    @property
    def left_out(self) -> dict[str, tuple[int, str]]:
        """Subscriptions that lanes go on without: the newest version then, and why."""
        return {
            name: (v, why) for one in self.counted for name, (v, why) in one["left_out"].items()
        }

    @property
    def held_bytes(self) -> Counter[str]:
        """What subscriptions hold, if lanes hold much, by name."""
        found: Counter[str] = Counter()
        for one in self.counted:
            found.update(one["bytes"])
        return found

    def total(self, name: str) -> int:
        """A counter, added up over lanes."""
        return sum(int(one[name]) for one in self.counted)
