"""The atoms of a template: conditions of its variables on single events, which the index routes
by."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ensue.ir.expression import COMPARISONS, Between, Binary, Constant, Expr, FieldRef, In, Literal
from ensue.ir.subscription import EventTest, Predicate, PredicateType
from ensue.planner.physical_plan import PhysicalPlan, Role
from ensue.planner.subscription_templates import get_constant_number
from ensue.schema import ANY, ValueKind, get_type_names
from ensue.vector.arrow_types import get_field_kinds
from ensue.vector.event_table import StreamSchema

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

Slot = int  # the number of a constant
Values = Sequence[int | float | str]


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
    """Builds the atoms from the roles of a plan."""
    kinds = get_field_kinds(shape.arrow)
    variables = []
    for role in _roles(plan):
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


def _roles(plan: PhysicalPlan) -> Iterator[Role]:
    for role in plan.roles:
        if role.inner is None:
            yield role
        else:
            yield from _roles(role.inner)


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
