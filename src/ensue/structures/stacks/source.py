"""The written kernel of instance stacks."""

from collections.abc import Mapping
from dataclasses import dataclass

from ensue.plan.physical import Stacks
from ensue.source.absence import Inside, Instances
from ensue.structures.instances import InstancesWritten


@dataclass(frozen=True, slots=True)
class StacksSource(InstancesWritten):
    """The text of a kernel and what the caller must know of it."""

    instances: Instances
    stacks: Stacks

    @property
    def returned(self) -> tuple[str, ...]:
        return ("O",)

    @property
    def complexes(self) -> Mapping[str, Inside]:
        return self.instances.complexes
