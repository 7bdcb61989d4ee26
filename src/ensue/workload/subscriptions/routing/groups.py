"""Atoms that ask for one type are a group, with keys of its own."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

NO_TYPE = 0  # the group of atoms that ask for no type, or for several


class Groups:
    """A number for each type that living atoms ask for, by the code of its text.

    >>> groups = Groups()
    >>> groups.take(17), groups.take(4), groups.take(17), groups.of(np.array([4, 5, 17])).tolist()
    (1, 2, 1, [2, 0, 1])
    """

    def __init__(self) -> None:
        self._by_code: dict[int, int] = {}
        self._codes = [-1]
        self._uses = [0]
        self._free: list[int] = []
        self._sorted: tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]] | None = None

    def __len__(self) -> int:
        """One more than the greatest number there ever was."""
        return len(self._codes)

    def take(self, code: int) -> int:
        """The group of a type, which has one atom more."""
        group = self._by_code.get(code)
        if group is None:
            self._sorted = None
            if self._free:
                group = self._free.pop()
            else:
                group = len(self._codes)
                self._codes.append(-1)
                self._uses.append(0)
            self._by_code[code] = group
            self._codes[group] = code
        self._uses[group] += 1
        return group

    def give_back(self, group: int) -> None:
        """One atom less."""
        if group == NO_TYPE:
            return
        self._uses[group] -= 1
        if self._uses[group] == 0:
            self._sorted = None
            del self._by_code[self._codes[group]]
            self._codes[group] = -1
            self._free.append(group)

    def of(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """The groups of types."""
        if self._sorted is None:
            pairs = sorted(self._by_code.items())
            self._sorted = (
                np.array([code for code, _ in pairs], np.int64),
                np.array([group for _, group in pairs], np.int32),
            )
        known, groups = self._sorted
        if not len(known):
            return np.zeros(len(codes), np.int32)
        places = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        return np.where(known[places] == codes, groups[places], np.int32(NO_TYPE))

    def items(self) -> list[tuple[int, int]]:
        """Codes and numbers of atoms by group, to `restore` from."""
        return list(zip(self._codes, self._uses, strict=True))

    @classmethod
    def restore(cls, items: Sequence[tuple[int, int]]) -> "Groups":
        groups = cls()
        groups._codes = [code for code, _ in items]
        groups._uses = [uses for _, uses in items]
        groups._by_code = {code: g for g, code in enumerate(groups._codes) if code >= 0}
        groups._free = [g for g, code in enumerate(groups._codes) if g and code < 0]
        return groups
