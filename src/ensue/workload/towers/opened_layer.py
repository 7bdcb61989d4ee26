"""A layer whose boxes stand open: one matcher finds it with all that is inside them.

The matcher gives the events at the bottom of each match. From them the complex events in between
are made, layer by layer, as if they had been found on their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.towers.behind import AT, FROM
from ensue.algebra.towers.inlining import Box, Inlined, Path
from ensue.algebra.walk import atoms
from ensue.columns.distinct import distinct
from ensue.columns.matches import Matches
from ensue.columns.rows import no_rows
from ensue.plan.towers.modules import Module
from ensue.results.gather import Gathered
from ensue.results.identity import ORDINAL
from ensue.workload.prepared import Prepared, build_result
from ensue.workload.towers.layer_stream import LayerStream, folded

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Opened:
    """How a layer is found with the boxes in it, and how to put them together again."""

    flat: Prepared  # the one matcher
    stream: LayerStream  # of its events
    inlined: Inlined
    layers: Mapping[str, tuple[Prepared, LayerStream]]  # of the boxes, by definition


def modules_of(inlined: Inlined) -> tuple[Module, ...]:
    """The boxes as modules of a join tree."""
    return tuple(
        Module(b.name, b.box, b.variables, b.within, b.level, b.precursor) for b in inlined.boxes
    )


def put_together(
    opened: Opened, own: tuple[Prepared, LayerStream], matches: Matches, events: pa.Table
) -> pa.Table:
    """The result of a layer, given the matches of its flat query as rows of the events."""
    gathered = Gathered(matches, events, opened.flat.shape.columns_of(opened.flat.query))
    for conjunct in opened.flat.plan.residual:
        matches = gathered.matches.where(gathered.holds(conjunct))
        gathered = gathered.of(matches)
    boxes = {box.path: box for box in opened.inlined.boxes}
    return _Making(opened, own, gathered.matches, events, boxes).of(())


@dataclass(frozen=True, slots=True)
class _Making:
    opened: Opened
    own: tuple[Prepared, LayerStream]
    matches: Matches
    events: pa.Table
    boxes: Mapping[Path, Box]

    def of(self, path: Path) -> pa.Table:
        """The complex events of a box, one a match; of the layer itself for ()."""
        prepared, stream = self.own if not path else self.opened.layers[self.boxes[path].name]
        flat = self.opened.inlined.leaves[path]
        types = {a.variable: a.type for a in atoms(prepared.query.pattern)}
        rows: dict[str, Ints] = {}
        lists: dict[str, tuple[Ints, Ints]] = {}
        pieces, numbers = [], []
        base = 0
        by_type: dict[str, list[str]] = {}
        for variable, name in flat.items():
            if name in self.matches.rows or name in self.matches.lists:
                type_ = types[variable]
                named = isinstance(type_, str) and type_ in stream.complex_
                complex_ = str(type_) if named else ""
                by_type.setdefault(complex_, []).append(variable)
        for complex_, variables in by_type.items():
            found = distinct(np.concatenate([self.matches.elements(flat[v]) for v in variables]))
            part = self.events.take(pa.array(found))
            numbers.append(part.column(ORDINAL).to_numpy())
            pieces.append(self._piece(stream, complex_, part))
            for variable in variables:
                _place(self.matches, flat[variable], variable, found, base, rows, lists)
            base += len(found)
        for variable in types:
            inner = (*path, variable)
            if inner in self.boxes:
                made = folded(self.of(inner))
                pieces.append(stream.of_complex(self.boxes[inner].name, made))
                numbers.append(np.zeros(made.num_rows, np.int64))
                rows[variable] = base + np.arange(made.num_rows)
                base += made.num_rows
        return self._built(
            prepared, stream, Matches(rows, lists, self.matches.count), pieces, numbers
        )

    def _piece(self, stream: LayerStream, complex_: str, part: pa.Table) -> pa.Table:
        """Some events of the flat query as those of a layer's stream."""
        flat = self.opened.stream
        if complex_:
            return stream.of_complex(complex_, flat.back(complex_, part))
        raw = part.select(stream.raw.arrow.names).cast(stream.raw.arrow)
        found = stream.of_raw(raw, part.column(AT).to_numpy(), part.column(FROM).to_numpy())
        return no_rows(stream.shape.arrow) if found is None else found

    def _built(
        self,
        prepared: Prepared,
        stream: LayerStream,
        matches: Matches,
        pieces: list[pa.Table],
        numbers: list[Ints],
    ) -> pa.Table:
        table = pa.concat_tables(pieces).unify_dictionaries()
        order = stream.order(pieces)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        numbered = table.append_column(ORDINAL, pa.array(np.concatenate(numbers)))
        moved = matches.moved(lambda rows: np.where(rows < 0, np.int64(-1), place[rows]))
        done = replace(prepared, plan=replace(prepared.plan, residual=()))
        return build_result(done, moved, numbered.take(pa.array(order)))


def _place(
    matches: Matches,
    flat: str,
    variable: str,
    found: Ints,
    base: int,
    rows: dict[str, Ints],
    lists: dict[str, tuple[Ints, Ints]],
) -> None:
    """Where a variable's events are among those that were taken out."""
    if flat in matches.lists:
        offsets, elements = matches.lists[flat]
        lists[variable] = offsets, base + np.searchsorted(found, elements)
    else:
        bound = matches.rows[flat]
        rows[variable] = np.where(bound < 0, np.int64(-1), base + np.searchsorted(found, bound))
