"""Several queries on Spark: those that can split the stream alike share a shuffle."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column

from ensue.columns.arrow_kinds import fields_of
from ensue.runners.spark.frames import WholeStreamWarning, hashed, relevant_to
from ensue.workload.prepared import Prepared


@dataclass(frozen=True)
class Group:
    """Queries that find all they need in the lanes of one key."""

    key: tuple[str, ...]  # empty: one lane for all events
    numbers: tuple[int, ...]  # of the queries
    queries: tuple[Prepared, ...]

    def columns(self) -> list[Column]:
        """What the stream is split by."""
        kinds = fields_of(self.queries[0].shape.arrow)
        return [hashed(name, kinds[name]) for name in self.key]

    def relevant(self) -> Column | None:
        """When an event can matter to one of the queries; None: always."""
        return relevant_to(self.queries, self.key)


def groups_of(queries: Sequence[Prepared]) -> list[Group]:
    """Queries by the key they are split by: one of their own, or the whole of a smaller one.

    A query partitioned by (user, device) goes with one by user: events that are equal in both are
    equal in one.
    """
    keys = [_key(prepared) for prepared in queries]
    least = sorted({k for k in keys if k and not any(o and o < k for o in keys)}, key=sorted)
    chosen = [next((small for small in least if small <= key), key) for key in keys]
    groups = []
    for key in dict.fromkeys(chosen):
        numbers = tuple(n for n, k in enumerate(chosen) if k == key)
        groups.append(Group(tuple(sorted(key)), numbers, tuple(queries[n] for n in numbers)))
        if not key:
            warnings.warn(
                f"{len(numbers)} of the {len(queries)} queries have no [attr] that would split "
                "the stream: one task, on one core, will match all events for them",
                WholeStreamWarning,
                stacklevel=5,
            )
    return groups


def _key(prepared: Prepared) -> frozenset[str]:
    """What splits the stream of one query."""
    plan = prepared.plan
    if plan.whole_stream:
        return frozenset()
    return frozenset(e.field_name for e in plan.query.equivalence)
