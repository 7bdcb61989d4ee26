"""Tests that kernels do not make: LIKE and the order of texts, on the pairs that are left."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns import evaluate as vectors
from ensue.columns import functions, operators
from ensue.columns.rows import taken
from ensue.columns.values import constant

LateTest = tuple[str, str, str]  # column, operator, text


class LateTests:
    """The tests that living atoms ask for, numbered; equal ones are one.

    >>> tests = LateTests()
    >>> tests.take(("name", "LIKE", "a%")), tests.take(("name", "LIKE", "a%"))
    (0, 0)
    """

    def __init__(self) -> None:
        self._numbers: dict[LateTest, int] = {}
        self._tests: list[LateTest | None] = []
        self._uses: list[int] = []
        self._free: list[int] = []

    def take(self, test: LateTest) -> int:
        """The number of a test, which is used once more."""
        number = self._numbers.get(test)
        if number is not None:
            self._uses[number] += 1
            return number
        if self._free:
            number = self._free.pop()
            self._tests[number], self._uses[number] = test, 1
        else:
            number = len(self._tests)
            self._tests.append(test)
            self._uses.append(1)
        self._numbers[test] = number
        return number

    def give_back(self, number: int) -> None:
        self._uses[number] -= 1
        if self._uses[number] == 0:
            test = self._tests[number]
            assert test is not None
            del self._numbers[test]
            self._tests[number] = None
            self._free.append(number)

    def failed(
        self,
        events: pa.Table,
        rows: npt.NDArray[np.int32],
        numbers: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.bool_]:
        """Where the test of each number fails on the event of each row; test by test."""
        failed = np.zeros(len(rows), np.bool_)
        order = np.argsort(numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        for group in np.split(order, cuts[1:]):
            test = self._tests[int(numbers[group[0]])]
            assert test is not None
            distinct, places = np.unique(rows[group], return_inverse=True)
            column = taken(events.column(test[0]), distinct.astype(np.int64))
            failed[group] = ~_holds(test, column)[places]
        return failed

    def items(self) -> list[tuple[LateTest, int] | None]:
        return [
            None if test is None else (test, uses)
            for test, uses in zip(self._tests, self._uses, strict=True)
        ]

    @classmethod
    def restore(cls, items: Iterable[tuple[LateTest, int] | None]) -> "LateTests":
        tests = cls()
        for number, item in enumerate(items):
            if item is None:
                tests._tests.append(None)
                tests._uses.append(0)
                tests._free.append(number)
            else:
                test: Any = tuple(item[0])
                tests._tests.append(test)
                tests._uses.append(item[1])
                tests._numbers[test] = number
        return tests


def _holds(test: LateTest, column: pa.Array) -> npt.NDArray[np.bool_]:
    _, operator, text = test
    vector = vectors.from_arrow(column, "us")
    if operator == "LIKE":
        return vectors.truth(functions.like(vector, text))
    return vectors.truth(operators.compare(operator, vector, constant(text, "us")))
