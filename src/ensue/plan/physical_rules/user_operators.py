"""A user's operator as the planner and the kernels see operators: functions of numbers."""

import inspect
from collections.abc import Sequence

from ensue.algebra.check.applied import arguments
from ensue.algebra.form import is_input, is_result
from ensue.algebra.operator import TIMES, Over
from ensue.algebra.pattern import Apply, Atom, Reading
from ensue.plan.physical_rules.operators import (
    CONDITION,
    Argument,
    Attribute,
    Function,
    Operator,
    Order,
)
from ensue.schema import Kind

LAST, EVENT = 0, 1  # the sides of a repeat: the event before, the event at hand
WHOLE = 2  # of F: the events of the result, which its times lie within
JIT = 'njit(error_model="python")'  # a division by zero is an error, as in Python
IN_TICKS = (Kind.TIMESTAMP, Kind.DATE, Kind.DURATION)


def operator_of(applied: Apply, number: int, *, python: bool = False) -> Operator:
    """The operator of a node; `python`: its functions are not compiled."""
    user = applied.operator
    repeat = user.over is Over.REPEAT
    attributes = tuple(Attribute(name, kind) for name, kind in user.z)
    order = Order.ONE
    if user.over is Over.PAIR:
        order = Order.BEFORE if user.in_order else Order.APART
    return Operator(
        user.name,
        order,
        fits=_fits(applied, number, python),
        builds=_builds(applied, number, python),
        attributes=attributes,
        keeps=user.keeps,
        remembers=repeat,
        q_cost=user.cost * CONDITION,
        passes=user.passes,
    )


# ---------------------------------------------------------------------------------- functions


def _fits(applied: Apply, number: int, python: bool) -> Function | None:
    if applied.operator.q is None:
        return None
    sides = _sides(applied)
    if applied.operator.over is Over.REPEAT:
        own = dict(applied.operator.z)
        last = [seen for seen in sides[0] if seen[0] not in own]
        sides = [[*last, *((name, name, kind) for name, kind in own.items())], sides[0]]
    call = _Call(f"asks{number}", applied, "q", sides, python)
    lines = [f"    return bool({call.text()})"]
    return Function(call.name, call.defined([], lines), call.arguments())


def _builds(applied: Apply, number: int, python: bool) -> Function | None:
    if applied.operator.f is None or (all(applied.operator.keeps) and not applied.operator.z):
        return None
    call = _Call(f"makes{number}", applied, "f", _sides(applied), python)
    if applied.operator.over is Over.REPEAT:
        call.first = EVENT
    lines = [f"    made = {call.text()}"]
    for place, name in enumerate(TIMES):
        lines.append(f"    {name} = {_kept(applied.time, f'made[{place}]', applied.tick)}")
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
        _kept(kind, f"made[{place}]", applied.tick)
        for place, (_, kind) in enumerate(applied.operator.z, 2)
    ]
    lines.append(f"    return ({', '.join(['start', 'end', *values])},)")
    ends = (Argument(WHOLE, "start"), Argument(WHOLE, "end"))
    text = call.defined(["low", "high"], lines)
    return Function(call.name, text, (*call.arguments(), *ends))


Seen = tuple[str, str, Kind]  # what functions call it, what the node's part calls it, its kind


def _sides(applied: Apply) -> list[list[Seen]]:
    """What functions see of each input."""
    assert applied.time is not None
    times: list[Seen] = [(name, name, applied.time) for name in TIMES]
    return [
        times + [(r.field, _place(part, r), r.kind) for r in reads]
        for part, reads in zip(applied.inputs, applied.reads, strict=True)
        if is_input(part)
    ]


def _place(part: Atom | Apply, reading: Reading) -> str:
    own = dict(part.operator.z) if is_result(part) else {}
    return reading.field if reading.field in own else reading.column


def _kept(kind: Kind | None, value: str, tick: int) -> str:
    """A number that F gave, as kernels keep it."""
    match kind:
        case Kind.FLOAT:
            return f"float({value})"
        case Kind.BOOLEAN:
            return f"(1 if {value} else 0)"
        case Kind.TIMESTAMP | Kind.DURATION if tick != 1:
            return f"(int({value}) // {tick})"
        case _:
            return f"int({value})"


def _shown(kind: Kind, value: str, tick: int) -> str:
    """A number that kernels keep, as functions see it: where they run as Python, Python's own."""
    match kind:
        case Kind.BOOLEAN:
            return f"bool({value})"
        case Kind.FLOAT | Kind.DECIMAL:
            return f"float({value})"
        case _:
            return f"int({value}) * {tick}" if kind in IN_TICKS and tick != 1 else f"int({value})"


class _Call:
    """A call of a user's function, with what it needs around it."""

    def __init__(
        self,
        name: str,
        applied: Apply,
        which: str,
        sides: Sequence[Sequence[Seen]],
        python: bool,
    ) -> None:
        self.name = name
        self.applied = applied
        self.which = which
        self.sides = sides
        self.decorated = [] if python else [f"@{JIT}"]
        self.first = 0  # the number of the first side

    def arguments(self) -> tuple[Argument, ...]:
        return tuple(
            Argument(side, place)
            for side, seen in enumerate(self.sides, self.first)
            for _, place, _ in seen
        )

    def text(self) -> str:
        records = []
        for side, seen in enumerate(self.sides):
            values = [
                _shown(kind, self._value(side, k), self.applied.tick)
                for k, (_, _, kind) in enumerate(seen)
            ]
            records.append(f"{self.name}_{side}({', '.join(values)})")
        constants = [repr(value) for value in self._constants()]
        return f"{self.name}_given({', '.join([*records, *constants])})"

    def defined(self, more: list[str], lines: list[str]) -> str:
        """The text that defines the function."""
        user = self.applied.operator
        given = f"given({user.fingerprint!r}, {self.which!r})"
        head = [
            "from collections import namedtuple",
            "from ensue.source.operator_functions import given",
            f"{self.name}_given = {f'{JIT}({given})' if self.decorated else given}",
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
        """The constants of the query, and the defaults of those that it leaves out."""
        user = self.applied.operator
        function = user.q if self.which == "q" else user.f
        assert function is not None
        if self.which == "f" and not user.constants_for_f:
            return ()
        found = list(arguments(self.applied))
        parameters = list(inspect.signature(function).parameters.values())
        left = parameters[len(parameters) - len(user.parameters) + len(found) :]
        return (*found, *(p.default for p in left))
