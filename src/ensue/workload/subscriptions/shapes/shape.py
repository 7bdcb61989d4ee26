"""One shape of subscriptions: its plan, its constants, and what is asked of single events."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.canonical_text import kind_text, query_text
from ensue.algebra.policy import Strategy
from ensue.algebra.query import Query
from ensue.algebra.walk import atoms, positives
from ensue.algebra.window import ByEvents
from ensue.columns.stream import Shape
from ensue.computed import cached_property
from ensue.engine.engine import Engine
from ensue.engine.program import Program
from ensue.engine.reference import ReferenceEngine, columns_used
from ensue.plan.choose import choose
from ensue.plan.limits import Limits
from ensue.plan.physical import Plan, Reference, Role
from ensue.plan.subscriptions.constants import (
    SUBSCRIPTION,
    Shaped,
    constant_name,
    keyed,
    shaped,
    unshaped,
)
from ensue.schema import EventType, Kind, Schema, overlap
from ensue.workload.subscriptions.nodes.growing import Growing
from ensue.workload.subscriptions.shapes.atoms import AtomsOf, Values, atoms_of

Ints = npt.NDArray[np.int64]
ShapeId = str  # equal for queries of one shape, whatever process they are in
_ARROW = {Kind.INTEGER: pa.int64(), Kind.FLOAT: pa.float64(), Kind.STRING: pa.string()}


@dataclass(frozen=True, slots=True)
class Way:
    """How the subscriptions of a shape are matched."""

    alone: str | None = None  # why each has an engine of its own; None: one plan for all
    every_event: bool = False  # events that no variable can take count too


class PatternShape:
    """Queries that differ in their constants only, over the same events.

    The plan's rows are pairs of an event and a subscription, with the subscription's constants
    beside the event's fields.
    """

    def __init__(self, query: Query, kinds: tuple[Kind, ...], shape: Shape, way: Way) -> None:
        self.kinds = kinds
        self.way = way
        self.query = query
        self.shape = _with_constants(shape, kinds)
        self.physical, self.schema = self.shape.physical(query)
        self.plan = choose(self.physical, self.schema)
        self.atoms = _atoms(self.plan, shape, way)
        used = columns_used(self.plan.query, self.schema)
        self.columns = [name for name in shape.arrow.names if name in used]
        self.constants = Constants(kinds)
        self.id = shape_id(query, kinds)
        self.users = 0

    @cached_property
    def _program(self) -> Program:
        """Its kernel is written once, however many engines follow."""
        return Program(self.plan, self.schema, self.shape.unit, nullable=False)

    def engine(self, limits: Limits) -> Engine | ReferenceEngine:
        """A matcher of rows, with none yet."""
        if isinstance(self.plan.structure, Reference):
            return ReferenceEngine(self.plan, self.schema, self.shape.unit, limits)
        return Engine(
            self.plan, self.schema, self.shape.unit, limits=limits, program=self._program
        )

    @property
    def chooses(self) -> bool:
        """Whether some of what its engine finds is left out."""
        query = self.physical
        return bool(self.plan.residual) or query.having is not None or query.limit is not None

    @cached_property
    def repeats(self) -> bool:
        """Whether the same events can be found twice, in different roles."""
        types = [atom.type for atom in positives(self.query.pattern)]
        return not self.schema.typed or any(overlap(*pair) for pair in combinations(types, 2))

    def rows(self, events: pa.Table, keys: Ints, places: Ints) -> pa.Table:
        """Events, each with its subscription and that one's constants."""
        table = events.append_column(SUBSCRIPTION, pa.array(keys))
        for number, column in enumerate(self.constants.taken(places)):
            table = table.append_column(constant_name(number), column)
        return table


class Constants:
    """The constants of all subscriptions of a shape: a row of a table for each."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self._kinds = kinds
        self._numbers = [
            Growing((), np.int64 if kind is Kind.INTEGER else np.float64) for kind in kinds
        ]
        self._texts: list[list[str | None]] = [[] for _ in kinds]
        self._arrays: dict[int, pa.Array] = {}  # of texts, until another subscription comes
        self._count = 0
        self._free: list[int] = []

    def add(self, values: Values) -> int:
        """The row of a subscription's constants."""
        if self._free:
            place = self._free.pop()
        else:
            place = self._count
            self._count += 1
            for kind, numbers, texts in zip(self._kinds, self._numbers, self._texts, strict=True):
                if kind is Kind.STRING:
                    texts.append(None)
                else:
                    numbers.add()
        for number, (kind, value) in enumerate(zip(self._kinds, values, strict=True)):
            if kind is Kind.STRING:
                assert isinstance(value, str)
                self._texts[number][place] = value
                self._arrays.pop(number, None)
            else:
                self._numbers[number].array[place] = value
        return place

    def drop(self, place: int) -> None:
        """Another subscription may have the row."""
        self._free.append(place)

    def taken(self, places: Ints) -> list[pa.Array]:
        """The constants of some rows, column by column."""
        found = []
        for number, kind in enumerate(self._kinds):
            if kind is Kind.STRING:
                if number not in self._arrays:
                    self._arrays[number] = pa.array(self._texts[number], pa.string())
                found.append(self._arrays[number].take(pa.array(places)))
            else:
                found.append(pa.array(self._numbers[number].array[places]))
        return found


def way_of(query: Query) -> Way:
    """Whether rows of many subscriptions may be mixed, and those left out that none can take.

    Where any event, or any that is of no use, may be passed over, what is not there never matters.
    """
    if Strategy.STRICT in query.strategies:
        return Way("strict_contiguity looks at every event of the stream", every_event=True)
    if Strategy.PARTITION in query.strategies:
        return Way("partition_contiguity looks at every event of its key", every_event=True)
    if isinstance(query.within, ByEvents):
        return Way("its window counts every event", every_event=True)
    return Way()


def shape_id(query: Query, kinds: tuple[Kind, ...]) -> ShapeId:
    """What a shape is known by."""
    return "\n".join((query_text(query), *map(kind_text, kinds)))


def shape_for(
    query: Query, shape: Shape, known: Mapping["ShapeId", "PatternShape"]
) -> tuple[PatternShape, Values]:
    """The shape of a checked query, one of those that are known if it is the same."""
    way = way_of(query)
    own = shaped(query, shape.schema)
    found = _found(own, way, shape, known)
    if isinstance(found.plan.structure, Reference) and own.values:
        # it may be the constants that no kernel takes
        whole = unshaped(query)
        plain = _found(whole, way, shape, known)
        if not isinstance(plain.plan.structure, Reference):
            found, own = plain, whole
    return found, own.values


def _found(
    own: Shaped, way: Way, shape: Shape, known: Mapping["ShapeId", "PatternShape"]
) -> PatternShape:
    for query in (own.query, keyed(own.query)):
        if (found := known.get(shape_id(query, own.kinds))) is not None:
            return found
    if way.alone is not None:
        return PatternShape(own.query, own.kinds, shape, way)
    made = PatternShape(keyed(own.query), own.kinds, shape, way)
    if isinstance(made.plan.structure, Reference):
        lone = Way(f"no compiled structure takes it: {made.plan.structure.reason}")
        return PatternShape(own.query, own.kinds, shape, lone)
    return made


def _atoms(plan: Plan, shape: Shape, way: Way) -> AtomsOf:
    if way.every_event:
        return AtomsOf(())
    if plan.roles:
        return atoms_of(plan, shape)
    roles = tuple(Role(atom.variable, atom.type) for atom in atoms(plan.query.pattern))
    return atoms_of(replace(plan, roles=roles), shape)


def _with_constants(shape: Shape, kinds: tuple[Kind, ...]) -> Shape:
    """The shape of events with a subscription and its constants."""
    added = {SUBSCRIPTION: Kind.INTEGER}
    added |= {constant_name(number): kind for number, kind in enumerate(kinds)}
    arrow = shape.arrow
    for name, kind in added.items():
        arrow = arrow.append(pa.field(name, _ARROW[kind]))
    schema = shape.schema
    types = {
        name: EventType(name, MappingProxyType({**one.fields, **added}))
        for name, one in schema.types.items()
    }
    common = None if schema.common is None else MappingProxyType({**schema.common, **added})
    wider: Schema = replace(schema, types=MappingProxyType(types), common=common)
    return replace(shape, schema=wider, arrow=arrow, hidden=(*shape.hidden, *added))
