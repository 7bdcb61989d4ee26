"""A plan for a query without events: the kinds of fields are assumed from how they are used."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from types import MappingProxyType

from ensue.algebra.check.kinds import kind_of_constant
from ensue.algebra.check.query import check, check_structure
from ensue.algebra.form import is_input
from ensue.algebra.functions import FUNCTIONS
from ensue.algebra.functions.record import Takes
from ensue.algebra.pattern import Apply
from ensue.algebra.predicate import (
    COMPARISONS,
    Aggregate,
    Between,
    Binary,
    Call,
    Expr,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.algebra.query import Query
from ensue.algebra.tower import types_of
from ensue.algebra.walk import atoms, origins, pauses, results
from ensue.algebra.window import ByEvents, ByTime, ByUnits
from ensue.plan.choose import choose
from ensue.plan.physical import Plan
from ensue.plan.planning import DEFAULT, Planning
from ensue.schema import EventType, Kind, Schema, names_of

NOTE = "the kinds of fields are assumed from how the query uses them"
TIME, TYPE = "time", "type"
ANYTHING = "event"  # the type of events where a query names none
INSTANTS = (Kind.TIMESTAMP, Kind.DATE)
COORDINATES = ("x", "y")
TIMES = (TIME, "start", "end")  # fields that mean the time of an event unless used otherwise

_ASSUMED = {
    Takes.NUMBER: Kind.FLOAT,
    Takes.WHOLE: Kind.INTEGER,
    Takes.TEXT: Kind.STRING,
    Takes.TIME: Kind.TIMESTAMP,
    Takes.CONDITION: Kind.BOOLEAN,
    Takes.UNIT: Kind.STRING,
    Takes.ZONE: Kind.STRING,
    Takes.REGEXP: Kind.STRING,
    Takes.PLACE: Kind.PLACE,
    Takes.WRITTEN: Kind.FLOAT,
}

Slot = tuple[str, str]  # event type, field
Term = Kind | Slot | None  # what is known of a value: its kind, or the field it is; None: nothing


def plan_without_events(query: Query, planning: Planning = DEFAULT) -> Plan:
    """The plan for events that fit the query.

    >>> from ensue.algebra.pattern import Atom, Seq
    >>> small = Binary("<", Field("a", "x"), Field("b", "x"))
    >>> plan_without_events(Query(Seq((Atom("A", "a"), Atom("B", "b"))), where=(small,))).notes
    ('the kinds of fields are assumed from how the query uses them',)
    """
    schema = assumed_schema(query)
    plan = choose(check(query, schema), schema, planning)
    return replace(plan, notes=(*plan.notes, NOTE))


def assumed_schema(query: Query) -> Schema:
    """Event types with the fields that a query names, of kinds that fit their use."""
    query = check_structure(query)
    named = types_of(query) or (ANYTHING,)
    use = _Use({a.variable: names_of(a.type) or named for a in atoms(query.pattern)})
    use.results = {a.variable: dict(a.operator.z) for a in results(query.pattern)}
    use.origins = origins(query.pattern)
    for applied in results(query.pattern):
        use.taken_by(applied)
    for expr in query.where:
        use.wants(expr, Kind.BOOLEAN)
    for column in query.returns:
        use.term(column.expr)
    if query.having is not None:
        use.wants(query.having, Kind.BOOLEAN)
    for equivalence in query.equivalence:
        slots = [use.slot(a.variable, equivalence.field_name) for a in atoms(query.pattern)]
        for left, right in pairwise(slots):
            use.agree(left, right)
        use.compared |= set(slots)
    time_kind = _time_kind(query, use)
    location: str | tuple[str, str] | None = None
    fields: dict[str, dict[str, Kind]] = {name: {} for name in named}
    for type_, name in use.slots:
        kind = use.kind((type_, name), time_kind)
        if name in ("start", "end") and kind is time_kind:
            continue  # they are the time of the event
        if kind is Kind.PLACE and name == "location":
            location = COORDINATES  # a likely way to say where an event was
            continue
        if kind is Kind.PLACE:
            location, kind = name, Kind.STRING
        fields[type_][name] = kind
    if location is COORDINATES:
        for names in fields.values():
            names |= dict.fromkeys(COORDINATES, Kind.FLOAT)
    time = TIME
    while any(names.get(time, time_kind) is not time_kind for names in fields.values()):
        time = f"event_{time}"
    columns = {time: time_kind, TYPE: Kind.STRING}
    types = {
        name: EventType(name, MappingProxyType(columns | found)) for name, found in fields.items()
    }
    return Schema(
        MappingProxyType(types),
        time,
        time,
        time_kind,
        type_column=TYPE,
        location=location,
    )


def _time_kind(query: Query, use: "_Use") -> Kind:
    for window in (query.within, *pauses(query.pattern)):
        match window:
            case ByTime():
                return Kind.TIMESTAMP
            case ByUnits():
                return Kind.INTEGER
            case ByEvents() | None:
                pass
    parameters = [p.value for a in results(query.pattern) for p in a.parameters]
    if any(isinstance(value, timedelta) for value in parameters):
        return Kind.TIMESTAMP
    for slot in use.slots:
        kind = use.evidence(slot)
        if slot[1] in TIMES and (kind is Kind.INTEGER or kind in INSTANTS):
            return kind
    return Kind.INTEGER


@dataclass
class _Use:
    """How the fields of a query are used: which agree with each other, and what shows their kind.

    Contradictions are left for the check of the query, which can say what is wrong.
    """

    types: dict[str, tuple[str, ...]]  # by variable: its type, or its types
    slots: dict[Slot, Slot] = field(default_factory=dict)  # to one it agrees with, or itself
    shown: dict[Slot, Kind] = field(default_factory=dict)
    compared: set[Slot] = field(default_factory=set)  # only ever tested for equality
    results: dict[str, dict[str, Kind]] = field(default_factory=dict)  # attributes by variable
    origins: dict[str, str] = field(default_factory=dict)  # of results, their only event

    def slot(self, variable: str, name: str) -> Slot:
        slot, *others = ((type_, name) for type_ in self.types[variable])
        for one in (slot, *others):
            self.slots.setdefault(one, one)
        for one in others:
            if self.leader(one) != self.leader(slot):
                self.agree(slot, one)
        return slot

    def leader(self, slot: Slot) -> Slot:
        while self.slots[slot] != slot:
            slot = self.slots[slot]
        return slot

    def evidence(self, slot: Slot) -> Kind | None:
        return self.shown.get(self.leader(slot))

    def kind(self, slot: Slot, time_kind: Kind) -> Kind:
        """The kind of a field, as far as it shows, else a likely one."""
        same_name = [s for s in self.slots if s[1] == slot[1] and s != slot]
        group = [s for s in self.slots if self.leader(s) == self.leader(slot)]
        for one in [slot, *same_name]:
            if (kind := self.evidence(one)) is not None:
                return kind
        if any(name in TIMES for _, name in group):
            return time_kind
        return Kind.INTEGER if set(group) <= self.compared else Kind.FLOAT

    # -------------------------------------------------------------------------- agreement

    def agree(self, left: Term, right: Term) -> None:
        """Both are of one kind."""
        match left, right:
            case tuple(), tuple():
                a, b = self.leader(left), self.leader(right)
                kind = self.shown.get(a) or self.shown.get(b)
                self.slots[b] = a
                if kind is not None:
                    self.shown[a] = kind
            case tuple(), Kind():
                self._show(left, right)
            case Kind(), tuple():
                self._show(right, left)
            case _:
                pass

    def _show(self, slot: Slot, kind: Kind) -> None:
        if kind is Kind.NULL:
            return
        known = self.shown.setdefault(self.leader(slot), kind)
        if known is Kind.FLOAT and kind is Kind.INTEGER:
            self.shown[self.leader(slot)] = kind  # what needs whole numbers is stricter

    def wants(self, expr: Expr, kind: Kind) -> None:
        """An expression that stands where only one kind may."""
        match expr:
            case Binary(operator="+" | "-" | "*" | "%", left=left, right=right) if kind.numeric:
                self.wants(left, kind)
                self.wants(right, kind)
            case _:
                self.agree(self.term(expr), kind)

    # ------------------------------------------------------------------------ expressions

    def term(self, expr: Expr) -> Term:
        """What is known of an expression's value; on the way, what it shows of its parts."""
        match expr:
            case Literal(value=value):
                kind = kind_of_constant(value)
                return Kind.FLOAT if kind is Kind.INTEGER else kind
            case Field(name=None):
                return Kind.OTHER
            case Field(variable=variable, name=str(name)) if variable in self.results:
                return self._of_result(variable, name)
            case Field(variable=variable, name=str(name)):
                return self.slot(variable, name)
            case Field():
                return None
            case Aggregate():
                return self._aggregate(expr)
            case Unary(operator="not", operand=operand):
                self.wants(operand, Kind.BOOLEAN)
                return Kind.BOOLEAN
            case Unary(operand=operand):
                return self._number_unless_known(self.term(operand))
            case Binary(operator="and" | "or", left=left, right=right):
                self.wants(left, Kind.BOOLEAN)
                self.wants(right, Kind.BOOLEAN)
                return Kind.BOOLEAN
            case Binary(operator="||", left=left, right=right):
                self.wants(left, Kind.STRING)
                self.wants(right, Kind.STRING)
                return Kind.STRING
            case Binary(operator=operator, left=left, right=right) if operator in COMPARISONS:
                self._compare(left, (right,), equality=operator in ("=", "!="))
                return Kind.BOOLEAN
            case Binary():
                return self._computed(expr, None)
            case IsNull(operand=operand):
                self.term(operand)
                return Kind.BOOLEAN
            case In(operand=operand, options=options):
                self._compare(operand, options, equality=True)
                return Kind.BOOLEAN
            case Between(operand=operand, low=low, high=high):
                self._compare(operand, (low, high), equality=False)
                return Kind.BOOLEAN
            case Like(operand=operand):
                self.wants(operand, Kind.STRING)
                return Kind.BOOLEAN
            case Call(function=function, arguments=arguments):
                return self._called(function, arguments)

    def taken_by(self, applied: Apply) -> None:
        """What an operator takes of its events, or of those that its inputs are made of."""
        for part, names in zip(applied.inputs, applied.operator.takes, strict=True):
            if is_input(part):
                event = self.origins.get(part.variable, part.variable)
                own = (*TIMES, *self.results.get(part.variable, {}))
                for name in names:
                    if event in self.types and name not in own:
                        self.slot(event, name)

    def _of_result(self, variable: str, name: str) -> Term:
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
        if isinstance(computed, Binary) and computed.operator in ("+", "-"):
            length = self.term(other)
            if length is Kind.DURATION:
                self.agree(self._computed(computed, length), length)
                return True
        return False

    def _known(self, term: Term) -> Kind | None:
        return self.evidence(term) if isinstance(term, tuple) else term

    def _number_unless_known(self, term: Term) -> Term:
        if self._known(term) is None:
            self.agree(term, Kind.FLOAT)
        return self._known(term) or Kind.FLOAT

    def _computed(self, expr: Binary, wanted: Kind | None) -> Term:
        terms = self.term(expr.left), self.term(expr.right)
        left, right = map(self._known, terms)
        if expr.operator in ("+", "-"):
            if wanted is Kind.DURATION and left is None and right is None:
                left = right = Kind.TIMESTAMP if expr.operator == "-" else Kind.DURATION
            elif right is Kind.DURATION:
                left = left or Kind.TIMESTAMP
            elif left is Kind.DURATION and expr.operator == "+":
                right = right or Kind.TIMESTAMP
            elif expr.operator == "-" and (left in INSTANTS or right in INSTANTS):
                left, right = left or Kind.TIMESTAMP, right or Kind.TIMESTAMP
        left, right = left or Kind.FLOAT, right or Kind.FLOAT
        self.agree(terms[0], left)
        self.agree(terms[1], right)
        return _result(expr.operator, left, right)

    def _aggregate(self, expr: Aggregate) -> Term:
        if expr.argument is None:
            return Kind.FLOAT
        term = self.term(expr.argument)
        match expr.function:
            case "count":
                return Kind.FLOAT
            case "min" | "max" | "first" | "last":
                return term
            case _:
                return self._number_unless_known(term)

    def _called(self, function: str, arguments: tuple[Expr, ...]) -> Term:
        record = FUNCTIONS[function]
        alike = []
        for argument, wanted in zip(arguments, record.wanted(len(arguments)), strict=True):
            if wanted is Takes.ANY:
                alike.append(self.term(argument))
            elif wanted in _ASSUMED:
                self.wants(argument, _ASSUMED[wanted])
            else:
                self.term(argument)
        for other in alike[1:]:
            self.agree(alike[0], other)
        if isinstance(record.gives, Kind):
            # whole numbers are numbers: what they are compared with need not be whole
            return Kind.FLOAT if record.gives is Kind.INTEGER else record.gives
        if not alike:
            return Kind.FLOAT
        return next((t for t in alike if isinstance(t, Kind)), alike[0])


def _result(operator: str, left: Kind, right: Kind) -> Kind:
    if Kind.DURATION in (left, right):
        if left in INSTANTS or right in INSTANTS:
            return Kind.TIMESTAMP
        return Kind.FLOAT if operator == "/" and left is right else Kind.DURATION
    if left in INSTANTS and right in INSTANTS:
        return Kind.DURATION
    return Kind.FLOAT
