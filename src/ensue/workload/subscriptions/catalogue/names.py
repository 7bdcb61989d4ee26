"""Which subscriptions there are at a version, by name, and where each was defined last."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from ensue.errors import QueryError, did_you_mean
from ensue.workload.subscriptions.catalogue.change import Kind

_ROW_BITS = 32
_FILE = "names.arrow"


class Names:
    """The names in use, each with the version and the row of its definition.

    >>> names = Names()
    >>> names.take(1, [(Kind.ADD, "a"), (Kind.ADD, "b")])
    >>> names.take(2, [(Kind.CANCEL, "a"), (Kind.REPLACE, "b")])
    >>> list(names)
    [('b', 2, 1)]
    >>> names.checked([(Kind.ADD, "b")])
    Traceback (most recent call last):
    ensue.errors.QueryError: there is a subscription 'b' already
      hint: replace it, or cancel it first
    """

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        mask = (1 << _ROW_BITS) - 1
        for name, place in self._places.items():
            yield name, place >> _ROW_BITS, place & mask

    def place(self, name: str) -> tuple[int, int]:
        """The version and the row that define a name."""
        if name not in self._places:
            raise _unknown(name, self._places)
        place = self._places[name]
        return place >> _ROW_BITS, place & ((1 << _ROW_BITS) - 1)

    def checked(self, changes: Iterable[tuple[Kind, str]]) -> None:
        """Refuses changes that cannot follow: a name in use is added, an unknown one goes."""
        now: dict[str, bool] = {}
        for kind, name in changes:
            known = now.get(name, name in self._places)
            if kind is Kind.ADD and known:
                raise QueryError(
                    f"there is a subscription '{name}' already",
                    hint="replace it, or cancel it first",
                )
            if kind is not Kind.ADD and not known:
                raise _unknown(name, self._places)
            now[name] = kind is not Kind.CANCEL

    def take(self, version: int, changes: Iterable[tuple[Kind, str]]) -> None:
        """Moves on to the next version."""
        for row, (kind, name) in enumerate(changes):
            if kind is Kind.CANCEL:
                self._places.pop(name, None)
            else:
                self._places[name] = version << _ROW_BITS | row

    # ------------------------------------------------------------------------ in a snapshot

    def save(self, folder: Path) -> None:
        places = pa.array(self._places.values(), pa.int64())
        table = pa.table({"name": pa.array(self._places, pa.string()), "place": places})
        with pa.ipc.new_file(str(folder / _FILE), table.schema) as writer:
            writer.write_table(table, max_chunksize=1 << 16)

    @classmethod
    def open(cls, folder: Path) -> "Names":
        """The names that were saved there."""
        names = cls()
        with pa.memory_map(str(folder / _FILE)) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                names._places.update(
                    zip(batch["name"].to_pylist(), batch["place"].to_pylist(), strict=True)
                )
        return names


def _unknown(name: str, known: dict[str, int]) -> QueryError:
    near = list(known) if len(known) <= 10_000 else []  # else nearness takes too long
    return QueryError(f"there is no subscription '{name}'", hint=did_you_mean(name, near))
