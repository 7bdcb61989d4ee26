"""Operators as data: how a node of a join tree combines its parts into one result.

The operator paper's S = (Q, F, Z): Q decides which parts match, F computes the start and end of
the result, Z lists its attributes. Conditions of the query are not operators: they join the Q of
the node that evaluates them. A node knows its operator by this description alone, so that a
user-defined operator is planned and compiled like a built-in one.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ensue.analyzer.user_operators import get_constant_arguments
from ensue.ir.pattern import Atom, OperatorCall
from ensue.ir.traits import is_input, is_operator_call
from ensue.ir.user_operator import TIME_ATTRIBUTES, OperatorInputs
from ensue.schema import ValueKind


class PartOrder(Enum):
    """The time part of Q: the order of the parts."""

    BEFORE = "before"  # every event of the left part is before every event of the right one
    APART = "apart"  # in any order, but no event is in both
    ONE = "one"  # a single part, or one of several


@dataclass(frozen=True, slots=True)
class OperatorArgument:
    """An argument of a function: a value of one of the parts."""

    side: int  # 0: the left or only part, 1: the right one
    name: str  # "start", "end", or a field of the part's event


@dataclass(frozen=True, slots=True)
class OperatorFunction:
    """A function that kernels call.

    `text` defines `name` and becomes part of the kernel's source, so it must be self-contained.
    The function is not called with a missing value: Q is then false.
    """

    name: str
    text: str
    arguments: tuple[OperatorArgument, ...]


@dataclass(frozen=True, slots=True)
class OperatorAttribute:
    """A value of the result, which conditions of higher nodes may read."""

    name: str
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class JoinOperator:
    """S = (Q, F, Z), with the cost of each for one combination of parts, in comparisons.

    A node costs C_Q + P_Q * C_F + C_Z for each of them (`planner/cost_model.py`).
    """

    name: str
    order: PartOrder  # Q: the time part
    fits: OperatorFunction | None = None  # Q: without the query's conditions
    # F gives (start, end, *attributes); None: from the first start to the last end
    builds: OperatorFunction | None = None
    attributes: tuple[OperatorAttribute, ...] = ()  # Z: in addition to the events of the parts
    # whether F returns these times: the first start, the last end
    keeps: tuple[bool, bool] = (False, False)
    remembers: bool = False  # unary: the left side of its Q is the previous event and its result
    passes: float = 1.0  # probability that the time part holds

    @property
    def starts_naturally(self) -> bool:
        """Whether a result starts with its first event."""
        return self.builds is None or self.keeps[0]

    @property
    def ends_naturally(self) -> bool:
        return self.builds is None or self.keeps[1]


SEQUENCE = JoinOperator("sequence", PartOrder.BEFORE, passes=0.5)
CONJUNCTION = JoinOperator("conjunction", PartOrder.APART)


LAST, EVENT = 0, 1  # the sides of a repeat: the previous event, the current event
WHOLE = 2  # of F: the events of the result, which bound its times
JIT = 'njit(error_model="python")'  # a division by zero raises an error, as in Python
IN_TICKS = (ValueKind.TIMESTAMP, ValueKind.DATE, ValueKind.DURATION)


def describe_operator(applied: OperatorCall, number: int, *, python: bool = False) -> JoinOperator:
    """Describes a user-defined operator; `python`: its functions are not compiled."""
    user = applied.operator
    order = PartOrder.ONE
    if user.over is OperatorInputs.PAIR:
        order = PartOrder.BEFORE if user.in_order else PartOrder.APART
    return JoinOperator(
        user.name,
        order,
        fits=_fits(applied, number, python),
        builds=_builds(applied, number, python),
        attributes=tuple(OperatorAttribute(name, kind) for name, kind in user.z),
        keeps=user.keeps,
        remembers=user.over is OperatorInputs.REPEAT,
        passes=user.passes,
    )


def _fits(applied: OperatorCall, number: int, python: bool) -> OperatorFunction | None:
    if applied.operator.q is None:
        return None
    sides = _sides(applied)
    if applied.operator.over is OperatorInputs.REPEAT:
        attributes = dict(applied.operator.z)
        last = [read for read in sides[0] if read[0] not in attributes]
        sides = [[*last, *((name, name, kind) for name, kind in attributes.items())], sides[0]]
    call = _Call(f"asks{number}", applied, "q", sides, python)
    lines = [f"    return bool({call.text()})"]
    return OperatorFunction(call.name, call.write_function([], lines), call.arguments())


def _builds(applied: OperatorCall, number: int, python: bool) -> OperatorFunction | None:
    if applied.operator.f is None or (all(applied.operator.keeps) and not applied.operator.z):
        return None
    call = _Call(f"makes{number}", applied, "f", _sides(applied), python)
    if applied.operator.over is OperatorInputs.REPEAT:
        call.first = EVENT
    lines = [f"    made = {call.text()}"]
    for position, name in enumerate(TIME_ATTRIBUTES):
        lines.append(f"    {name} = {_to_stored(applied.time, f'made[{position}]', applied.tick)}")
    lines += [
        "    if not start >= low:",
        "        start = low",
        "    if start > high:",
        "        start = high",
        "    if not end >= start:",
        "        end = start",
        "    if end > high:",
        "        end = high",
    ]
    values = [
        _to_stored(kind, f"made[{position}]", applied.tick) for position, (_, kind) in enumerate(applied.operator.z, 2)
    ]
    lines.append(f"    return ({', '.join(['start', 'end', *values])},)")
    ends = (OperatorArgument(WHOLE, "start"), OperatorArgument(WHOLE, "end"))
    text = call.write_function(["low", "high"], lines)
    return OperatorFunction(call.name, text, (*call.arguments(), *ends))


InputValue = tuple[str, str, ValueKind]  # name in functions, name in the node's part, kind


def _sides(applied: OperatorCall) -> list[list[InputValue]]:
    """The values of each input that functions read."""
    assert applied.time is not None

    def attributes(part: Atom | OperatorCall) -> dict[str, ValueKind]:
        return dict(part.operator.z) if is_operator_call(part) else {}

    times: list[InputValue] = [(name, name, applied.time) for name in TIME_ATTRIBUTES]
    return [
        times + [(r.field, r.field if r.field in attributes(part) else r.column, r.kind) for r in reads]
        for part, reads in zip(applied.inputs, applied.reads, strict=True)
        if is_input(part)
    ]


def _to_stored(kind: ValueKind | None, value: str, tick: int) -> str:
    """Converts a number that F returned to the kernel's representation."""
    match kind:
        case ValueKind.FLOAT:
            return f"float({value})"
        case ValueKind.BOOLEAN:
            return f"(1 if {value} else 0)"
        case ValueKind.TIMESTAMP | ValueKind.DURATION if tick != 1:
            return f"(int({value}) // {tick})"
        case _:
            return f"int({value})"


def _from_stored(kind: ValueKind, value: str, tick: int) -> str:
    """Converts a number of the kernel to the argument of a function: Python's types in Python."""
    match kind:
        case ValueKind.BOOLEAN:
            return f"bool({value})"
        case ValueKind.FLOAT | ValueKind.DECIMAL:
            return f"float({value})"
        case _:
            return f"int({value}) * {tick}" if kind in IN_TICKS and tick != 1 else f"int({value})"


class _Call:
    """A call of a user's function, with the definitions it needs."""

    def __init__(
        self, name: str, applied: OperatorCall, which: str, sides: Sequence[Sequence[InputValue]], python: bool
    ) -> None:
        self.name = name
        self.applied = applied
        self.which = which
        self.sides = sides
        self.decorated = [] if python else [f"@{JIT}"]
        self.first = 0  # number of the first side

    def arguments(self) -> tuple[OperatorArgument, ...]:
        return tuple(
            OperatorArgument(side, place) for side, seen in enumerate(self.sides, self.first) for _, place, _ in seen
        )

    def text(self) -> str:
        records = []
        for side, seen in enumerate(self.sides):
            values = [
                _from_stored(kind, self._value(side, k), self.applied.tick) for k, (_, _, kind) in enumerate(seen)
            ]
            records.append(f"{self.name}_{side}({', '.join(values)})")
        constants = [repr(value) for value in self._constants()]
        return f"{self.name}_user({', '.join([*records, *constants])})"

    def write_function(self, more: list[str], lines: list[str]) -> str:
        """Defines the function."""
        user = self.applied.operator
        function = f"get_function({user.fingerprint!r}, {self.which!r})"
        head = [
            "from collections import namedtuple",
            "from ensue.codegen.user_functions import get_function",
            f"{self.name}_user = {f'{JIT}({function})' if self.decorated else function}",
        ]
        for side, seen in enumerate(self.sides):
            fields = tuple(name for name, _, _ in seen)
            head.append(f"{self.name}_{side} = namedtuple('Event', {fields!r})")
        names = [self._value(s, k) for s, seen in enumerate(self.sides) for k in range(len(seen))]
        head += [*self.decorated, f"def {self.name}({', '.join([*names, *more])}):", *lines]
        return "\n".join(head)

    def _value(self, side: int, k: int) -> str:
        return f"{'xy'[side]}{k}"

    def _constants(self) -> tuple[object, ...]:
        """The constants of the query, and the defaults of omitted ones."""
        user = self.applied.operator
        function = user.q if self.which == "q" else user.f
        assert function is not None
        if self.which == "f" and not user.constants_for_f:
            return ()
        constants = list(get_constant_arguments(self.applied))
        parameters = list(inspect.signature(function).parameters.values())
        omitted = parameters[len(parameters) - len(user.parameters) + len(constants) :]
        return (*constants, *(p.default for p in omitted))
