"""Conditions on the match so far as the text of compiled code.

What a condition looks at is either the row that is to be mapped (a feature of that row), a row
that was mapped before (its number is a register of the search), or an aggregate over such rows
(registers too). Features are computed for all rows before the search.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ensue.algebra.check.kinds import kind_of
from ensue.algebra.functions import FUNCTIONS
from ensue.algebra.functions.record import OverPoints
from ensue.algebra.predicate import (
    ARITHMETIC,
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
from ensue.algebra.row_patterns.values import (
    REACHED,
    ROW,
    MatchNumber,
    Navigation,
    Reach,
    RowAggregate,
    RowValue,
    asks_match,
)
from ensue.algebra.walk import nodes, rewrite_expr
from ensue.plan.physical_rules.features import KERNEL_KINDS, Place
from ensue.plan.row_patterns.conditions import is_own_row
from ensue.plan.row_patterns.plan import RowPlan
from ensue.schema import Kind
from ensue.source.constants import Constants
from ensue.source.expressions import Feature, Features, Text, Writer
from ensue.source.names import words
from ensue.source.row_patterns import Registers, Taking, matched_text

_HERE = "row"  # the variable of fields of the row that is to be mapped
_CONSTANT = "@"  # the variable of a text that is compared
_SUMS = ("count", "sum", "avg", "min", "max")


@dataclass(frozen=True, slots=True)
class _Kinds:
    columns: Mapping[str, Kind]
    results: frozenset[str] = frozenset()

    def of(self, expr: Expr) -> Kind:
        return kind_of(expr, lambda f: self.columns[f.name or ""])


@dataclass(slots=True)
class JudgedByKernel:
    """The kernel of a clause, and what it is to be given."""

    text: str
    features: tuple[Feature, ...]
    summed: frozenset[int]  # features whose sums must stay in 64 bits
    registers: Registers
    constants: Constants


def kernel_of(plan: RowPlan, unit: str, *, nullable: bool) -> JudgedByKernel | None:
    """The kernel that judges all conditions of a clause; None: no kernel takes some of them."""
    writer = _ConditionWriter(plan, unit, nullable=nullable)
    lowered: list[list[Expr]] = []
    for variable, conditions in zip(plan.automaton.variables, plan.conditions, strict=True):
        lowered.append([])
        for condition in conditions.matched:
            expr = writer.lowered(condition, variable)
            if expr is None or not writer.fits(expr):
                return None
            lowered[-1].append(expr)
    return writer.written(lowered)


@dataclass(slots=True)
class _Register:
    """Something that the search remembers of the rows of some variables."""

    name: str
    fresh: str
    real: bool = False


@dataclass(slots=True)
class _ConditionWriter:
    plan: RowPlan
    unit: str
    nullable: bool
    reaches: list[Reach] = field(default_factory=list)
    features: Features = field(init=False)
    constants: Constants = field(default_factory=Constants)
    registers: dict[str, _Register] = field(default_factory=dict)
    summed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.features = Features(_Kinds(self.plan.columns))  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------- lowering

    def lowered(self, condition: RowValue, variable: str) -> Expr | None:
        """A condition over fields of the row, and aggregates that stand for other reaches."""
        for reach in condition.reaches:
            if isinstance(reach, Navigation) and asks_match(reach):
                return None
            if isinstance(reach, RowAggregate) and (
                reach.function not in _SUMS
                or len(reach.arguments) > 1
                or reach.distinct
                or reach.order
                or asks_match(reach)
            ):
                return None

        def standing(node: Expr) -> Expr:
            if not isinstance(node, Field) or node.variable != REACHED:
                return node
            reach = condition.reach(node)
            if is_own_row(reach, variable):
                assert isinstance(reach, Navigation)
                if reach.shift == 0:
                    return rewrite_expr(reach.expr, _here)
            return self._stands_for(reach)

        return _texts_beside(rewrite_expr(condition.expr, standing))

    def _stands_for(self, reach: Reach) -> Aggregate:
        reach = replace(reach, span=None)
        if reach not in self.reaches:
            self.reaches.append(reach)
        name = f"#{self.reaches.index(reach)}"
        match reach:
            case Navigation(expr=expr):
                return Aggregate("last", name, expr)
            case RowAggregate(function=function, arguments=arguments):
                return Aggregate(function, name, arguments[0] if arguments else None)
            case MatchNumber():
                return Aggregate("count", name, None)

    def fits(self, expr: Expr) -> bool:
        """Whether compiled code can judge an expression."""
        kinds = self.features.kinds
        if _of_the_row(expr):
            return kinds.of(expr) in KERNEL_KINDS
        match expr:
            case Literal(value=value):
                return not isinstance(value, str)
            case Field():
                return False
            case Aggregate(argument=argument):
                return argument is None or kinds.of(argument) in KERNEL_KINDS
            case Binary(operator=operator, left=left, right=right):
                if operator in COMPARISONS and kinds.of(left) is Kind.STRING is kinds.of(right):
                    return all(_of_the_row(e) or isinstance(e, Aggregate) for e in (left, right))
                known = operator in (*COMPARISONS, *ARITHMETIC, "and", "or")
                return known and self.fits(left) and self.fits(right)
            case IsNull(operand=Aggregate()):
                return True
            case Unary(operand=operand) | IsNull(operand=operand):
                return self.fits(operand)
            case Between(operand=operand, low=low, high=high):
                return all(map(self.fits, (operand, low, high)))
            case In(operand=operand, options=options):
                return all(map(self.fits, (operand, *options)))
            case Call(function=function, arguments=arguments):
                form = FUNCTIONS[function].kernel
                known = form is not None and not isinstance(form, OverPoints)
                return known and all(map(self.fits, arguments))
            case Like():
                return False

    # -------------------------------------------------------------------------------- writing

    def written(self, lowered: list[list[Expr]]) -> JudgedByKernel:
        writer = Writer(self.features, self.unit, self.constants)
        takings: list[Taking] = []
        in_time = self.plan.recognition.within is not None
        for number, conditions in enumerate(lowered):
            seen = _Seen(self, number)
            tests = [writer.condition(expr, seen) for expr in conditions]
            if in_time:
                tests.insert(0, "times[i] - times[r] < horizon")
            takings.append(
                Taking(number, " and ".join(tests) or "True", (), tuple(seen.statements))
            )
        remembered = [
            Taking(t.variable, t.condition, tuple(self._remembered(t.variable)), t.prepared)
            for t in takings
        ]
        whole = tuple(r.name for r in self.registers.values() if not r.real)
        real = tuple(r.name for r in self.registers.values() if r.real)
        fresh = {r.name: r.fresh for r in self.registers.values()}
        registers = Registers(whole, real, fresh)
        everything = {name for t in remembered for name in (t.condition, *t.prepared)}
        used = {word for text in everything for word in words(text)}
        text = matched_text(
            "Conditions on the match are written into it.",
            remembered, registers, tuple(self.constants.readings(used)),
        )  # fmt: skip
        return JudgedByKernel(
            text, self.features.all(), frozenset(self.summed), registers, self.constants
        )

    def feature(self, feature: Feature, row: str) -> Text:
        """A feature of a row that is there."""
        table = "W" if feature.integral else "F"
        value = f"{table}[{feature.number}, {row}]"
        return value, f"V[{feature.number}, {row}]" if self.nullable else None

    def register(self, name: str, fresh: str, *, real: bool = False) -> str:
        self.registers.setdefault(name, _Register(name, fresh, real))
        return name

    def number(self, variables: tuple[str, ...]) -> str:
        """What a set of variables is called in names of registers."""
        names = self.plan.automaton.variables
        return "_".join(str(names.index(v)) for v in variables)

    def has(self, variable: int, variables: tuple[str, ...]) -> bool:
        return not variables or self.plan.automaton.variables[variable] in variables

    def _remembered(self, variable: int) -> Iterator[str]:
        """The statements that remember a row that was mapped to a variable."""
        deepest: dict[tuple[str, ...], int] = {}
        furthest: dict[tuple[str, ...], int] = {}
        for number, reach in enumerate(self.reaches):
            match reach:
                case Navigation(variables=variables, offset=offset) if variables:
                    if self.has(variable, variables):
                        of = furthest if reach.first else deepest
                        of[variables] = max(of.get(variables, 0), offset)
                case RowAggregate(variables=variables) if self.has(variable, variables):
                    yield from self._added(number, reach)
                case _:
                    pass
        for variables, most in deepest.items():
            name = self.number(variables)
            for k in range(most, 0, -1):
                if f"l_{name}_{k}" in self.registers:
                    yield f"l_{name}_{k} = l_{name}_{k - 1}"
            if f"l_{name}_0" in self.registers:
                yield f"l_{name}_0 = i"
        for variables, most in furthest.items():
            name = self.number(variables)
            for k in range(most + 1):
                yield f"{'el' if k else ''}if f_{name}_{k} < 0:"
                yield f"    f_{name}_{k} = i"

    def _added(self, number: int, reach: RowAggregate) -> Iterator[str]:
        """An aggregate with one more row."""
        counted, feature = self.parts(reach)
        test = f"if {counted}:" if counted is not None else "if True:"
        yield test
        if feature is not None and reach.function in ("min", "max"):
            value = self.feature(feature, "i")[0]
            yield f"    if c_{number} == 0 or {_better(reach.function, value, f'b_{number}')}:"
            yield f"        b_{number} = {value}"
        elif feature is not None and reach.function in ("sum", "avg"):
            yield f"    s_{number} += {self.feature(feature, 'i')[0]}"
        yield f"    c_{number} += 1"

    def parts(self, reach: RowAggregate) -> tuple[str | None, Feature | None]:
        """When a row counts in an aggregate (None: always), and the feature of its argument."""
        tests: list[str] = []
        feature = None
        if reach.arguments:
            feature = self.features.of(rewrite_expr(reach.arguments[0], _here))
            known = self.feature(feature, "i")[1]
            tests += [known] if known is not None else []
        if reach.only is not None:
            value, known = self.feature(self.features.of(rewrite_expr(reach.only, _here)), "i")
            tests += [known] if known is not None else []
            tests.append(f"{value} != 0")
        return " and ".join(tests) or None, feature


@dataclass(slots=True)
class _Seen:
    """Where the text of one variable's condition finds what it speaks of."""

    writer: _ConditionWriter
    variable: int
    statements: list[str] = field(default_factory=list)  # before the condition

    def feature(self, place: Place, feature: Feature) -> Text:
        assert place[0] == _HERE
        return self.writer.feature(feature, "i")

    def aggregate(self, aggregate: Aggregate, feature: Feature | None) -> Text:
        if aggregate.variable == _CONSTANT:
            assert feature is not None
            return f"W[{feature.number}, i]", None
        number = int(aggregate.variable[1:])
        reach = self.writer.reaches[number]
        match reach:
            case MatchNumber():
                return "(number[p] + 1)", None
            case Navigation():
                assert feature is not None
                return self._at_row(number, reach, feature)
            case RowAggregate():
                return self._aggregated(number, reach)

    def _say(self, *lines: str) -> None:
        self.statements += [line for line in lines if line not in self.statements]

    def _at_row(self, number: int, reach: Navigation, feature: Feature) -> Text:
        row = f"x{number}"
        self._say(f"{row} = {self._row(reach)}")
        if reach.shift:
            self._say(
                f"if {row} >= 0:\n"
                f"    {row} += {reach.shift}\n"
                f"    if {row} < first_row or {row} >= bounds[p + 1]:\n"
                f"        {row} = -1"
            )
        value, known = self.writer.feature(feature, row)
        there = f"{row} >= 0"
        return value, f"({there})" if known is None else f"({there} and {known})"

    def _row(self, reach: Navigation) -> str:
        k, own = reach.offset, self.writer.has(self.variable, reach.variables)
        if not reach.variables:
            if reach.first:
                return f"r + {k} if r + {k} <= i else -1"
            return f"i - {k} if i - {k} >= r else -1"
        name = self.writer.number(reach.variables)
        if reach.first:
            rows = [self.writer.register(f"f_{name}_{j}", "-1") for j in range(k + 1)]
            if not own:
                return rows[k]
            last = "i" if k == 0 else f"(i if {rows[k - 1]} >= 0 else -1)"
            return f"{rows[k]} if {rows[k]} >= 0 else {last}"
        if own and k == 0:
            return "i"
        rows = [self.writer.register(f"l_{name}_{j}", "-1") for j in range(k + (not own))]
        return rows[-1]

    def _aggregated(self, number: int, reach: RowAggregate) -> Text:
        writer = self.writer
        counted, feature = writer.parts(reach)
        writer.register(f"c_{number}", "0")
        own = writer.has(self.variable, reach.variables)
        adds = counted if counted is not None else "True"
        self._say(f"n{number} = c_{number}" + (f" + (1 if {adds} else 0)" if own else ""))
        if reach.function == "count":
            return f"n{number}", None
        assert feature is not None
        value = writer.feature(feature, "i")[0]
        if reach.function in ("sum", "avg"):
            if feature.integral:
                writer.summed.add(feature.number)
            writer.register(
                f"s_{number}", "0" if feature.integral else "0.0", real=not feature.integral
            )
            nothing = "0" if feature.integral else "0.0"
            self._say(
                f"y{number} = s_{number}"
                + (f" + ({value} if {adds} else {nothing})" if own else "")
            )
            if reach.function == "sum":
                return f"y{number}", f"n{number} > 0"
            return f"(y{number} / n{number})", f"n{number} > 0"
        writer.register(
            f"b_{number}", "0" if feature.integral else "0.0", real=not feature.integral
        )
        self._say(f"y{number} = b_{number}")
        if own:
            better = _better(reach.function, value, f"b_{number}")
            self._say(f"if {adds} and (c_{number} == 0 or {better}):\n    y{number} = {value}")
        return f"y{number}", f"n{number} > 0"


def _better(function: str, value: str, best: str) -> str:
    sign = "<" if function == "min" else ">"
    return f"({value} {sign} {best} or ({best} != {best} and {value} == {value}))"


def _here(node: Expr) -> Expr:
    if isinstance(node, Field) and node.variable == ROW:
        return replace(node, variable=_HERE)
    return node


def _of_the_row(expr: Expr) -> bool:
    """Whether an expression looks at the row that is to be mapped alone."""
    found = [n for n in nodes(expr) if isinstance(n, Field | Aggregate)]
    return bool(found) and all(isinstance(n, Field) for n in found)


def _texts_beside(expr: Expr) -> Expr:
    """Texts that are compared with what is not of the row stand in a feature of their own."""

    def text(side: Expr) -> Expr:
        if isinstance(side, Literal) and isinstance(side.value, str):
            return Aggregate("last", _CONSTANT, replace(side, span=None))
        return side

    def beside(node: Expr) -> Expr:
        match node:
            case Binary(operator=operator, left=left, right=right) if (
                operator in COMPARISONS and not _of_the_row(node)
            ):
                return replace(node, left=text(left), right=text(right))
            case _:
                return node

    return rewrite_expr(expr, beside)
