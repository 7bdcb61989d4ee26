"""A template of subscriptions: the plan of queries that differ only in constants, and the atoms of its variables.

The atoms are the conditions on single events, by which the index routes events to subscriptions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.cached import cached_property
from ensue.engine.engine import Engine
from ensue.engine.program import Program
from ensue.engine.reference_engine import ReferenceEngine, find_used_columns
from ensue.ir.canonical_form import canonical_form
from ensue.ir.expression import COMPARISONS, Between, Binary, Constant, Expr, FieldRef, In, Literal
from ensue.ir.query import Query
from ensue.ir.selection import ByEvents, Strategy
from ensue.ir.subscription import EventTest, Predicate, PredicateType
from ensue.ir.traversal import iterate_atoms, iterate_positive_atoms
from ensue.operators.subscriptions.growing_columns import Column, GrowingColumns
from ensue.options import Limits
from ensue.planner.physical_plan import PhysicalPlan, ReferencePlan, Role
from ensue.planner.planner import choose_plan
from ensue.planner.subscription_templates import (
    SUBSCRIPTION,
    ExtractedTemplate,
    add_subscription_key,
    extract_constants,
    get_constant_name,
    get_constant_number,
    keep_constants,
)
from ensue.schema import ANY, EventType, Schema, ValueKind, get_type_names, types_overlap
from ensue.vector.arrow_numpy import build_texts, wrap_numbers
from ensue.vector.arrow_types import get_field_kinds
from ensue.vector.event_table import StreamSchema

Ints = npt.NDArray[np.int64]
Slot = int  # the number of a constant
Values = Sequence[int | float | str]
TemplateId = str  # equal for queries of one template, in every process
_NUMBERS: dict[ValueKind, Any] = {ValueKind.INTEGER: np.int64, ValueKind.FLOAT: np.float64}
_ARROW = {ValueKind.INTEGER: pa.int64(), ValueKind.FLOAT: pa.float64(), ValueKind.STRING: pa.string()}

_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TYPES = {
    ValueKind.INTEGER: PredicateType.ARITH,
    ValueKind.FLOAT: PredicateType.ARITH,
    ValueKind.STRING: PredicateType.STRING,
    ValueKind.BOOLEAN: PredicateType.BOOL,
}
_PYTHON_TYPES: dict[ValueKind, tuple[type, ...]] = {
    ValueKind.INTEGER: (int, float),
    ValueKind.FLOAT: (int, float),
    ValueKind.STRING: (str,),
    ValueKind.BOOLEAN: (bool,),
}
EVERY_EVENT = EventTest(())


@dataclass(frozen=True, slots=True)
class TemplateMode:
    """How the subscriptions of a template are matched."""

    alone: str | None = None  # why each has a separate engine; None: one plan for all
    every_event: bool = False  # events that fit no variable count


class QueryTemplate:
    """Queries over the same events that differ only in their constants.

    The plan's rows are pairs of an event and a subscription, with the subscription's constants
    beside the event's fields.
    """

    def __init__(self, query: Query, kinds: tuple[ValueKind, ...], shape: StreamSchema, mode: TemplateMode) -> None:
        self.kinds = kinds
        self.mode = mode
        self.query = query
        self.shape = _add_constants(shape, kinds)
        self.physical, self.schema = self.shape.physical(query)
        self.plan = choose_plan(self.physical, self.schema)
        self.atoms = TemplateAtoms(()) if mode.every_event else build_template_atoms(self.plan, shape)
        used = find_used_columns(self.plan.query, self.schema)
        self.columns = [name for name in shape.arrow.names if name in used]
        self.constants = TemplateConstants(kinds)
        self.id = get_template_id(query, kinds)
        self.users = 0

    @cached_property
    def _program(self) -> Program:
        """The kernel, generated once for all engines."""
        return Program(self.plan, self.schema, self.shape.unit, nullable=False)

    def engine(self, limits: Limits) -> Engine | ReferenceEngine:
        if isinstance(self.plan.structure, ReferencePlan):
            return ReferenceEngine(self.plan, self.schema, self.shape.unit, limits)
        return Engine(self.plan, self.schema, self.shape.unit, limits=limits, program=self._program)

    @property
    def filters_matches(self) -> bool:
        """Whether matches of its engine are filtered by residual conditions, HAVING or LIMIT."""
        query = self.physical
        return bool(self.plan.residual) or query.having is not None or query.limit is not None

    @cached_property
    def repeats(self) -> bool:
        """Whether the same events can match twice, in different roles."""
        types = [atom.type for atom in iterate_positive_atoms(self.query.pattern)]
        return not self.schema.typed or any(types_overlap(*pair) for pair in combinations(types, 2))

    def rows(self, events: pa.Table, keys: Ints, rows: Ints) -> pa.Table:
        """Adds the subscription and its constants to events."""
        table = events.append_column(SUBSCRIPTION, wrap_numbers(keys))
        for number, column in enumerate(self.constants.take(rows)):
            table = table.append_column(get_constant_name(number), column)
        return table


class TemplateConstants:
    """The constants of all subscriptions of a template, one row for each."""

    def __init__(self, kinds: tuple[ValueKind, ...]) -> None:
        types = [_NUMBERS.get(kind, object) for kind in kinds]
        self._rows = GrowingColumns(**{str(number): Column(type, fill=type()) for number, type in enumerate(types)})
        self._texts: dict[str, pa.Array] = {}  # columns of texts, until a subscription is added

    def add(self, values: Values) -> int:
        """Stores the constants of a subscription and returns their row."""
        row = self._rows.take()
        for number, value in enumerate(values):
            self._rows[str(number)][row] = value
        self._texts.clear()
        return row

    def drop(self, row: int) -> None:
        self._rows.unused.append(row)

    def take(self, rows: Ints) -> list[pa.Array]:
        """Returns the constants of some rows as columns."""
        columns = []
        for name, values in self._rows.items():
            if values.dtype != object:
                columns.append(wrap_numbers(values[rows]))
                continue
            if name not in self._texts:
                self._texts[name] = build_texts(values[: self._rows.count].tolist())
            columns.append(self._texts[name].take(wrap_numbers(rows)))
        return columns


def choose_mode(query: Query) -> TemplateMode:
    """Decides whether subscriptions share a plan, and whether irrelevant events can be dropped.

    With skip-till strategies irrelevant events never affect matches.
    """
    reason = None
    if Strategy.STRICT in query.strategies:
        reason = "strict_contiguity looks at every event of the stream"
    elif Strategy.PARTITION in query.strategies:
        reason = "partition_contiguity looks at every event of its key"
    elif isinstance(query.within, ByEvents):
        reason = "its window counts every event"
    return TemplateMode(reason, every_event=reason is not None)


def get_template_id(query: Query, kinds: tuple[ValueKind, ...]) -> TemplateId:
    return canonical_form((query, kinds))


def find_template(
    query: Query, shape: StreamSchema, known: Mapping["TemplateId", "QueryTemplate"]
) -> tuple[QueryTemplate, Values]:
    """Finds or creates the template of a checked query, and returns it with the constants."""
    mode = choose_mode(query)
    parameterized = extract_constants(query, shape.schema)
    template = _find_or_create(parameterized, mode, shape, known)
    if isinstance(template.plan.structure, ReferencePlan) and parameterized.values:
        # maybe no kernel supports the constants as parameters
        constant_free = keep_constants(query)
        separate = _find_or_create(constant_free, mode, shape, known)
        if not isinstance(separate.plan.structure, ReferencePlan):
            template, parameterized = separate, constant_free
    return template, parameterized.values


def _find_or_create(
    parameterized: ExtractedTemplate,
    mode: TemplateMode,
    shape: StreamSchema,
    known: Mapping["TemplateId", "QueryTemplate"],
) -> QueryTemplate:
    for query in (parameterized.query, add_subscription_key(parameterized.query)):
        if (template := known.get(get_template_id(query, parameterized.kinds))) is not None:
            return template
    if mode.alone is not None:
        return QueryTemplate(parameterized.query, parameterized.kinds, shape, mode)
    created = QueryTemplate(add_subscription_key(parameterized.query), parameterized.kinds, shape, mode)
    if isinstance(created.plan.structure, ReferencePlan):
        separate = TemplateMode(f"no compiled structure takes it: {created.plan.structure.reason}")
        return QueryTemplate(parameterized.query, parameterized.kinds, shape, separate)
    return created


def _add_constants(shape: StreamSchema, kinds: tuple[ValueKind, ...]) -> StreamSchema:
    """The shape of events with a subscription and its constants."""
    added = {SUBSCRIPTION: ValueKind.INTEGER}
    added |= {get_constant_name(number): kind for number, kind in enumerate(kinds)}
    arrow = shape.arrow
    for name, kind in added.items():
        arrow = arrow.append(pa.field(name, _ARROW[kind]))
    schema = shape.schema
    types = {
        name: EventType(name, MappingProxyType({**event_type.fields, **added}))
        for name, event_type in schema.types.items()
    }
    common = None if schema.common is None else MappingProxyType({**schema.common, **added})
    wider: Schema = replace(schema, types=MappingProxyType(types), common=common)
    return replace(shape, schema=wider, arrow=arrow, hidden=(*shape.hidden, *added))


# ---------------------------------------------------------------------------- atoms


@dataclass(frozen=True, slots=True)
class TemplatePredicate:
    """A predicate whose values may be constants of the subscription."""

    type: PredicateType
    column: str
    operator: str
    values: tuple[Literal | Slot, ...]

    def bind(self, constants: Values) -> Predicate:
        values: tuple[Constant, ...] = tuple(
            value.value if isinstance(value, Literal) else constants[value] for value in self.values
        )
        value = values if self.operator == "IN" else values[0]
        return Predicate(self.type, self.column, self.operator, value)


@dataclass(frozen=True, slots=True)
class TemplateAtoms:
    """The atoms of a template: an event that satisfies none is in no match.

    Conditions that need more than one event are left to the plan.
    """

    variables: tuple[tuple[TemplatePredicate, ...], ...]

    def list_atoms(self, constants: Values) -> list[EventTest]:
        """Returns the distinct atoms of a subscription with these constants."""
        tests = (tuple(predicate.bind(constants) for predicate in predicates) for predicates in self.variables)
        return [EventTest(predicates) for predicates in dict.fromkeys(tests)]


def build_template_atoms(plan: PhysicalPlan, shape: StreamSchema) -> TemplateAtoms:
    """Builds the atoms from the roles of a plan, or from the types of its variables if it has none."""
    kinds = get_field_kinds(shape.arrow)
    atoms = iterate_atoms(plan.query.pattern)
    variables = []
    for role in _iterate_roles(plan.roles or [Role(atom.variable, atom.type) for atom in atoms]):
        predicates = [predicate for c in role.conditions for predicate in _read_predicates(c, kinds)]
        column = shape.schema.type_column
        typed = shape.schema.typed and column is not None and kinds[column] is ValueKind.STRING
        if column is None or not typed or role.type == ANY:
            variables.append(tuple(predicates))
            continue
        for name in get_type_names(role.type):
            of_type = TemplatePredicate(PredicateType.STRING, column, "=", (Literal(name),))
            variables.append((of_type, *predicates))
    return TemplateAtoms(tuple(dict.fromkeys(variables)))


def _iterate_roles(roles: Iterable[Role]) -> Iterator[Role]:
    for role in roles:
        if role.inner is None:
            yield role
        else:
            yield from _iterate_roles(role.inner.roles)


def _read_predicates(condition: Expr, kinds: dict[str, ValueKind]) -> Iterator[TemplatePredicate]:
    match condition:
        case Binary(operator="and", left=left, right=right):
            yield from _read_predicates(left, kinds)
            yield from _read_predicates(right, kinds)
        case Binary(operator=operator, left=left, right=right) if operator in COMPARISONS:
            yield from _read_comparison(left, operator, right, kinds)
            yield from _read_comparison(right, _FLIPPED[operator], left, kinds)
        case Between(operand=operand, low=low, high=high, negated=False):
            yield from _read_comparison(operand, ">=", low, kinds)
            yield from _read_comparison(operand, "<=", high, kinds)
        case In(operand=FieldRef(name=str(name)), options=options, negated=False):
            values = tuple(v for o in options if (v := _value(o, kinds.get(name))) is not None)
            if len(values) == len(options):
                yield TemplatePredicate(_TYPES[kinds[name]], name, "IN", values)
        case _:
            return


def _read_comparison(
    left: Expr, operator: str, right: Expr, kinds: dict[str, ValueKind]
) -> Iterator[TemplatePredicate]:
    name = left.name if isinstance(left, FieldRef) else None
    if name is None or get_constant_number(name) is not None:
        return
    kind = kinds.get(name)
    value = _value(right, kind)
    plain = operator in ("=", "!=") or kind in (ValueKind.INTEGER, ValueKind.FLOAT)
    if kind is not None and value is not None and plain:
        yield TemplatePredicate(_TYPES[kind], name, operator, (value,))


def _value(expr: Expr, kind: ValueKind | None) -> Literal | Slot | None:
    """Returns the value that a field is compared with, if the index supports it."""
    if kind is None or kind not in _TYPES:
        return None
    if isinstance(expr, FieldRef):
        return get_constant_number(expr.name)
    if isinstance(expr, Literal) and type(expr.value) in _PYTHON_TYPES[kind]:
        return Literal(expr.value)
    return None
