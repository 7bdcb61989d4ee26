"""Infers a schema from a query, to plan it without events."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from types import MappingProxyType

from ensue.analyzer.query import check_structure
from ensue.analyzer.types import get_constant_kind
from ensue.functions import FUNCTIONS
from ensue.functions.record import ArgumentType
from ensue.ir import expression
from ensue.ir.expression import Expr
from ensue.ir.hierarchy import get_pattern_types
from ensue.ir.pattern import OperatorCall
from ensue.ir.query import Query
from ensue.ir.selection import ByEvents, ByTime, ByUnits
from ensue.ir.traits import is_input
from ensue.ir.traversal import iterate_atoms, iterate_max_gaps, iterate_operator_calls, map_results_to_events
from ensue.schema import EventType, Schema, ValueKind, get_type_names

NOTE = "the kinds of fields are assumed from how the query uses them"
TIME, TYPE = "time", "type"
ANYTHING = "event"  # the type of events if a query names none
INSTANTS = (ValueKind.TIMESTAMP, ValueKind.DATE)
COORDINATES = ("x", "y")
TIMES = (TIME, "start", "end")  # fields that mean the time of an event unless used otherwise

_ASSUMED = {
    ArgumentType.NUMBER: ValueKind.FLOAT,
    ArgumentType.WHOLE: ValueKind.INTEGER,
    ArgumentType.TEXT: ValueKind.STRING,
    ArgumentType.TIME: ValueKind.TIMESTAMP,
    ArgumentType.CONDITION: ValueKind.BOOLEAN,
    ArgumentType.UNIT: ValueKind.STRING,
    ArgumentType.ZONE: ValueKind.STRING,
    ArgumentType.REGEXP: ValueKind.STRING,
    ArgumentType.PLACE: ValueKind.PLACE,
    ArgumentType.WRITTEN: ValueKind.FLOAT,
}

Slot = tuple[str, str]  # event type, field
Term = ValueKind | Slot | None  # the kind of a value, or the field it reads; None: unknown


def infer_schema(*queries: Query) -> Schema:
    """Event types with the fields that queries name, of kinds that fit their use."""
    queries = tuple(map(check_structure, queries))
    named = tuple(dict.fromkeys(name for query in queries for name in get_pattern_types(query))) or (ANYTHING,)
    use, kinds = _Use(), []
    for query in queries:
        use.types = {a.variable: get_type_names(a.type) or named for a in iterate_atoms(query.pattern)}
        use.results = {a.variable: dict(a.operator.z) for a in iterate_operator_calls(query.pattern)}
        use.origins = map_results_to_events(query.pattern)
        for applied in iterate_operator_calls(query.pattern):
            use.read_operator(applied)
        for expr in query.where:
            use.require(expr, ValueKind.BOOLEAN)
        for column in query.returns:
            use.term(column.expr)
        if query.having is not None:
            use.require(query.having, ValueKind.BOOLEAN)
        for equivalence in query.equivalence:
            slots = [use.slot(a.variable, equivalence.field_name) for a in iterate_atoms(query.pattern)]
            for left, right in pairwise(slots):
                use.agree(left, right)
            use.compared |= set(slots)
        kinds.append(_time_kind(query, use))
    time_kind = next((kind for kind in kinds if kind is not ValueKind.INTEGER), ValueKind.INTEGER)
    location: str | tuple[str, str] | None = None
    fields: dict[str, dict[str, ValueKind]] = {name: {} for name in named}
    for type_, name in use.slots:
        kind = use.kind((type_, name), time_kind)
        if name in ("start", "end") and kind is time_kind:
            continue  # they are the time of the event
        if kind is ValueKind.PLACE and name == "location":
            location = COORDINATES  # the most common location columns
            continue
        if kind is ValueKind.PLACE:
            location, kind = name, ValueKind.STRING
        fields[type_][name] = kind
    if location is COORDINATES:
        for names in fields.values():
            names |= dict.fromkeys(COORDINATES, ValueKind.FLOAT)
    time = TIME
    while any(names.get(time, time_kind) is not time_kind for names in fields.values()):
        time = f"event_{time}"
    columns = {time: time_kind, TYPE: ValueKind.STRING}
    types = {name: EventType(name, MappingProxyType(columns | kinds)) for name, kinds in fields.items()}
    return Schema(MappingProxyType(types), time, time, time_kind, type_column=TYPE, location=location)


def _time_kind(query: Query, use: "_Use") -> ValueKind:
    for window in (query.within, *iterate_max_gaps(query.pattern)):
        match window:
            case ByTime():
                return ValueKind.TIMESTAMP
            case ByUnits():
                return ValueKind.INTEGER
            case ByEvents() | None:
                pass
    parameters = [p.value for a in iterate_operator_calls(query.pattern) for p in a.parameters]
    if any(isinstance(value, timedelta) for value in parameters):
        return ValueKind.TIMESTAMP
    for slot in use.slots:
        kind = use.evidence(slot)
        if slot[1] in TIMES and (kind is ValueKind.INTEGER or kind in INSTANTS):
            return kind
    return ValueKind.INTEGER


@dataclass
class _Use:
    """The use of the fields of a query: which have the same kind, and the evidence of their kind.

    The analyzer reports contradictions.
    """

    types: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by variable: its type, or its types
    slots: dict[Slot, Slot] = field(default_factory=dict)  # union-find: to one of the same kind
    shown: dict[Slot, ValueKind] = field(default_factory=dict)
    compared: set[Slot] = field(default_factory=set)  # only tested for equality
    results: dict[str, dict[str, ValueKind]] = field(default_factory=dict)  # by variable
    origins: dict[str, str] = field(default_factory=dict)  # of results, their only event

    def slot(self, variable: str, name: str) -> Slot:
        slot, *others = ((type_, name) for type_ in self.types[variable])
        for same in (slot, *others):
            self.slots.setdefault(same, same)
        for other in others:
            if self.leader(other) != self.leader(slot):
                self.agree(slot, other)
        return slot

    def leader(self, slot: Slot) -> Slot:
        while self.slots[slot] != slot:
            slot = self.slots[slot]
        return slot

    def evidence(self, slot: Slot) -> ValueKind | None:
        return self.shown.get(self.leader(slot))

    def kind(self, slot: Slot, time_kind: ValueKind) -> ValueKind:
        """The kind of a field by its evidence, else a likely one."""
        same_name = [s for s in self.slots if s[1] == slot[1] and s != slot]
        group = [s for s in self.slots if self.leader(s) == self.leader(slot)]
        for candidate in [slot, *same_name]:
            if (kind := self.evidence(candidate)) is not None:
                return kind
        if any(name in TIMES for _, name in group):
            return time_kind
        return ValueKind.INTEGER if set(group) <= self.compared else ValueKind.FLOAT

    def agree(self, left: Term, right: Term) -> None:
        """Records that both have the same kind."""
        match left, right:
            case tuple(), tuple():
                a, b = self.leader(left), self.leader(right)
                kind = self.shown.get(a) or self.shown.get(b)
                self.slots[b] = a
                if kind is not None:
                    self.shown[a] = kind
            case tuple(), ValueKind():
                self._show(left, right)
            case ValueKind(), tuple():
                self._show(right, left)
            case _:
                pass

    def _show(self, slot: Slot, kind: ValueKind) -> None:
        if kind is ValueKind.NULL:
            return
        known = self.shown.setdefault(self.leader(slot), kind)
        if known is ValueKind.FLOAT and kind is ValueKind.INTEGER:
            self.shown[self.leader(slot)] = kind  # integers are stricter

    def require(self, expr: Expr, kind: ValueKind) -> None:
        """Records that an expression must have a kind."""
        match expr:
            case expression.Binary(operator="+" | "-" | "*" | "%", left=left, right=right) if kind.numeric:
                self.require(left, kind)
                self.require(right, kind)
            case _:
                self.agree(self.term(expr), kind)

    def term(self, expr: Expr) -> Term:
        """The kind or field of an expression; records the evidence of its parts."""
        match expr:
            case expression.Literal(value=value):
                kind = get_constant_kind(value)
                return ValueKind.FLOAT if kind is ValueKind.INTEGER else kind
            case expression.FieldRef(name=None):
                return ValueKind.OTHER
            case expression.FieldRef(variable=variable, name=str(name)) if variable in self.results:
                return self._infer_result(variable, name)
            case expression.FieldRef(variable=variable, name=str(name)):
                return self.slot(variable, name)
            case expression.FieldRef():
                return None
            case expression.Aggregate():
                return self._aggregate(expr)
            case expression.Unary(operator="not", operand=operand):
                self.require(operand, ValueKind.BOOLEAN)
                return ValueKind.BOOLEAN
            case expression.Unary(operand=operand):
                return self._number_unless_known(self.term(operand))
            case expression.Binary(operator="and" | "or" | "||", left=left, right=right):
                kind = ValueKind.STRING if expr.operator == "||" else ValueKind.BOOLEAN
                self.require(left, kind)
                self.require(right, kind)
                return kind
            case expression.Binary(operator=operator, left=left, right=right) if operator in expression.COMPARISONS:
                self._compare(left, (right,), equality=operator in ("=", "!="))
                return ValueKind.BOOLEAN
            case expression.Binary():
                return self._infer_arithmetic(expr, None)
            case expression.IsNull(operand=operand):
                self.term(operand)
                return ValueKind.BOOLEAN
            case expression.In(operand=operand, options=options):
                self._compare(operand, options, equality=True)
                return ValueKind.BOOLEAN
            case expression.Between(operand=operand, low=low, high=high):
                self._compare(operand, (low, high), equality=False)
                return ValueKind.BOOLEAN
            case expression.Like(operand=operand):
                self.require(operand, ValueKind.STRING)
                return ValueKind.BOOLEAN
            case expression.FunctionCall(function=function, arguments=arguments):
                return self._call(function, arguments)

    def read_operator(self, applied: OperatorCall) -> None:
        """Records the fields that an operator reads of its events, or of its inputs' events."""
        for part, names in zip(applied.inputs, applied.operator.takes, strict=True):
            if is_input(part):
                event = self.origins.get(part.variable, part.variable)
                attributes = (*TIMES, *self.results.get(part.variable, {}))
                for name in names:
                    if event in self.types and name not in attributes:
                        self.slot(event, name)

    def _infer_result(self, variable: str, name: str) -> Term:
        if name in self.results[variable]:
            return self.results[variable][name]
        if name in ("start", "end") or variable not in self.origins:
            return None
        return self.slot(self.origins[variable], name)

    def _compare(self, operand: Expr, others: Iterable[Expr], *, equality: bool) -> None:
        for other in others:
            if self._takes_time(operand, other) or self._takes_time(other, operand):
                continue
            left, right = self.term(operand), self.term(other)
            self.agree(left, right)
            if equality:
                self.compared |= {t for t in (left, right) if isinstance(t, tuple)}

    def _takes_time(self, computed: Expr, other: Expr) -> bool:
        """`b.time - a.time < 5 minutes`: a difference compared with a duration."""
        if isinstance(computed, expression.Binary) and computed.operator in ("+", "-"):
            length = self.term(other)
            if length is ValueKind.DURATION:
                self.agree(self._infer_arithmetic(computed, length), length)
                return True
        return False

    def _get_known_kind(self, term: Term) -> ValueKind | None:
        return self.evidence(term) if isinstance(term, tuple) else term

    def _number_unless_known(self, term: Term) -> Term:
        if self._get_known_kind(term) is None:
            self.agree(term, ValueKind.FLOAT)
        return self._get_known_kind(term) or ValueKind.FLOAT

    def _infer_arithmetic(self, expr: expression.Binary, expected: ValueKind | None) -> Term:
        terms = self.term(expr.left), self.term(expr.right)
        left, right = map(self._get_known_kind, terms)
        if expr.operator in ("+", "-"):
            if expected is ValueKind.DURATION and left is None and right is None:
                left = right = ValueKind.TIMESTAMP if expr.operator == "-" else ValueKind.DURATION
            elif right is ValueKind.DURATION:
                left = left or ValueKind.TIMESTAMP
            elif left is ValueKind.DURATION and expr.operator == "+":
                right = right or ValueKind.TIMESTAMP
            elif expr.operator == "-" and (left in INSTANTS or right in INSTANTS):
                left, right = left or ValueKind.TIMESTAMP, right or ValueKind.TIMESTAMP
        left, right = left or ValueKind.FLOAT, right or ValueKind.FLOAT
        self.agree(terms[0], left)
        self.agree(terms[1], right)
        return _result(expr.operator, left, right)

    def _aggregate(self, expr: expression.Aggregate) -> Term:
        if expr.argument is None:
            return ValueKind.FLOAT
        term = self.term(expr.argument)
        match expr.function:
            case "count":
                return ValueKind.FLOAT
            case "min" | "max" | "first" | "last":
                return term
            case _:
                return self._number_unless_known(term)

    def _call(self, function: str, arguments: tuple[Expr, ...]) -> Term:
        record = FUNCTIONS[function]
        same = []
        for argument, takes in zip(arguments, record.get_argument_types(len(arguments)), strict=True):
            if takes is ArgumentType.ANY:
                same.append(self.term(argument))
            elif takes in _ASSUMED:
                self.require(argument, _ASSUMED[takes])
            else:
                self.term(argument)
        for other in same[1:]:
            self.agree(same[0], other)
        if isinstance(record.gives, ValueKind):
            # integers are numbers: values compared with them need not be integers
            return ValueKind.FLOAT if record.gives is ValueKind.INTEGER else record.gives
        if not same:
            return ValueKind.FLOAT
        return next((t for t in same if isinstance(t, ValueKind)), same[0])


def _result(operator: str, left: ValueKind, right: ValueKind) -> ValueKind:
    if ValueKind.DURATION in (left, right):
        if left in INSTANTS or right in INSTANTS:
            return ValueKind.TIMESTAMP
        return ValueKind.FLOAT if operator == "/" and left is right else ValueKind.DURATION
    if left in INSTANTS and right in INSTANTS:
        return ValueKind.DURATION
    return ValueKind.FLOAT
