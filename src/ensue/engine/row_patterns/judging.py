"""Conditions on the match evaluated by a compiled kernel."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ensue.columns.arrow_kinds import Unit
from ensue.columns.values import Vector
from ensue.computed import cached_property
from ensue.engine.row_patterns.partitions import Partitions, text_ranks
from ensue.plan.row_patterns.plan import RowPlan
from ensue.schema import Kind
from ensue.source.cache import loop
from ensue.source.row_pattern_conditions import JudgedByKernel, kernel_of

_WIDE = 2.0**62


class CompiledConditions:
    """The generated search of a clause, compiled."""

    def __init__(self, judged: JudgedByKernel, *, nullable: bool) -> None:
        self._judged = judged
        self._nullable = nullable
        self.wholes = len(judged.registers.wholes)
        self.reals = len(judged.registers.reals)

    @cached_property
    def kernel(self) -> Callable[..., int]:
        return loop(self._judged.text, "search")

    def arguments(self, partitions: Partitions) -> tuple[Any, ...] | None:
        """Constants and features of all rows; None: a sum of theirs might leave 64 bits."""
        rows, features = partitions.rows, self._judged.features
        whole = np.zeros((max(1, len(features)), rows), np.int64)
        real = np.zeros((max(1, len(features)), rows), np.float64)
        there = np.ones((max(1, len(features)), rows if self._nullable else 1), np.bool_)
        texts: list[tuple[int, Vector]] = []
        for feature in features:
            vector = partitions.vector(feature.expr)
            if vector.valid is not None and not vector.valid.all():
                if not self._nullable:
                    return None
                there[feature.number] = vector.valid
            if vector.kind is Kind.NULL:
                continue
            if vector.kind is Kind.STRING:
                texts.append((feature.number, vector))
            elif feature.integral:
                whole[feature.number] = vector.values
            else:
                real[feature.number] = vector.values
        for (number, _), ranks in zip(texts, text_ranks([v for _, v in texts]), strict=True):
            whole[number] = ranks
        for number in self._judged.summed:
            most = float(np.abs(whole[number].astype(np.float64)).max()) if rows else 0.0
            if most * max(1, rows) >= _WIDE:
                return None
        return (*self._judged.constants.arrays(), whole, real, there)


class Judges:
    """The kernels that may judge the rows of a clause, made when they are asked for."""

    def __init__(self, plan: RowPlan) -> None:
        self._plan = plan
        self._known: dict[tuple[Unit, bool], CompiledConditions | None] = {}

    def of(self, unit: Unit) -> Iterator[CompiledConditions]:
        """One for rows where nothing is NULL, and one for others; none: no kernel takes them."""
        for nullable in (False, True):
            if (unit, nullable) not in self._known:
                judged = kernel_of(self._plan, unit, nullable=nullable)
                made = None if judged is None else CompiledConditions(judged, nullable=nullable)
                self._known[unit, nullable] = made
            found = self._known[unit, nullable]
            if found is not None:
                yield found
