"""Writes row pattern predicates on the match so far as the source of compiled code.

A predicate reads the row to be mapped (a feature of that row), a row that was mapped before (its
number is a register of the search), or an aggregate over such rows (registers too). Features are
computed for all rows before the search.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ensue.analyzer.types import infer_kind
from ensue.codegen.expressions import ConditionWriter, Feature, FeatureSet, ValueText
from ensue.codegen.names import KernelConstants, find_names
from ensue.codegen.row_pattern_search import SearchRegisters, VariableTexts, write_match_search
from ensue.functions import FUNCTIONS
from ensue.functions.record import PointsForm
from ensue.ir.expression import (
    ARITHMETIC,
    COMPARISONS,
    Aggregate,
    Between,
    Binary,
    Expr,
    FieldRef,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.ir.row_pattern import (
    OPERAND,
    ROW,
    MatchNumber,
    Navigation,
    RowAggregate,
    RowExpression,
    RowOperand,
    reads_match_columns,
)
from ensue.ir.traversal import iterate_nodes, rewrite_expr
from ensue.planner.features import KERNEL_KINDS, EventRef
from ensue.planner.row_pattern_plan import RowPatternPlan, is_own_row
from ensue.schema import ValueKind

_HERE = "row"  # the variable of fields of the row to be mapped
_CONSTANT = "@"  # the variable of a compared string
_SUMS = ("count", "sum", "avg", "min", "max")


@dataclass(frozen=True, slots=True)
class _Kinds:
    columns: Mapping[str, ValueKind]
    results: frozenset[str] = frozenset()

    def get_kind(self, expr: Expr) -> ValueKind:
        return infer_kind(expr, lambda f: self.columns[f.name or ""])


@dataclass(slots=True)
class RowPatternKernel:
    """The search kernel of a clause, and its inputs."""

    text: str
    features: tuple[Feature, ...]
    summed: frozenset[int]  # features whose sums must stay in 64 bits
    registers: SearchRegisters
    constants: KernelConstants


def build_kernel(plan: RowPatternPlan, unit: str, *, nullable: bool) -> RowPatternKernel | None:
    """The kernel that evaluates all predicates of a clause; None if one of them cannot compile."""
    writer = _ConditionWriter(plan, unit, nullable=nullable)
    lowered: list[list[Expr]] = []
    for variable, conditions in zip(plan.automaton.variables, plan.conditions, strict=True):
        lowered.append([])
        for condition in conditions.matched:
            expr = writer.lower(condition, variable)
            if expr is None or not writer.fits(expr):
                return None
            lowered[-1].append(expr)
    return writer.write(lowered)


@dataclass(slots=True)
class _Register:
    """A value that the search stores about the rows of some variables."""

    name: str
    fresh: str
    real: bool = False


@dataclass(slots=True)
class _ConditionWriter:
    plan: RowPatternPlan
    unit: str
    nullable: bool
    operands: list[RowOperand] = field(default_factory=list)
    features: FeatureSet = field(init=False)
    constants: KernelConstants = field(default_factory=KernelConstants)
    registers: dict[str, _Register] = field(default_factory=dict)
    summed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.features = FeatureSet(_Kinds(self.plan.columns))  # type: ignore[arg-type]

    def lower(self, condition: RowExpression, variable: str) -> Expr | None:
        """A predicate over fields of the row, with aggregates in place of other reaches."""
        for reach in condition.operands:
            if isinstance(reach, Navigation) and reads_match_columns(reach):
                return None
            if isinstance(reach, RowAggregate) and (
                reach.function not in _SUMS
                or len(reach.arguments) > 1
                or reach.distinct
                or reach.order
                or reads_match_columns(reach)
            ):
                return None

        def replace_reach(node: Expr) -> Expr:
            if not isinstance(node, FieldRef) or node.variable != OPERAND:
                return node
            reach = condition.reach(node)
            if is_own_row(reach, variable):
                assert isinstance(reach, Navigation)
                if reach.shift == 0:
                    return rewrite_expr(reach.expr, _shift_to_current)
            return self._placeholder(reach)

        return _strings_as_features(rewrite_expr(condition.expr, replace_reach))

    def _placeholder(self, reach: RowOperand) -> Aggregate:
        reach = replace(reach, span=None)
        if reach not in self.operands:
            self.operands.append(reach)
        name = f"#{self.operands.index(reach)}"
        match reach:
            case Navigation(expr=expr):
                return Aggregate("last", name, expr)
            case RowAggregate(function=function, arguments=arguments):
                return Aggregate(function, name, arguments[0] if arguments else None)
            case MatchNumber():
                return Aggregate("count", name, None)

    def fits(self, expr: Expr) -> bool:
        """Whether compiled code can evaluate an expression."""
        kinds = self.features.kinds
        if _reads_row_only(expr):
            return kinds.get_kind(expr) in KERNEL_KINDS
        match expr:
            case Literal(value=value):
                return not isinstance(value, str)
            case FieldRef():
                return False
            case Aggregate(argument=argument):
                return argument is None or kinds.get_kind(argument) in KERNEL_KINDS
            case Binary(operator=operator, left=left, right=right):
                both = (left, right)
                if operator in COMPARISONS and all(kinds.get_kind(e) is ValueKind.STRING for e in both):
                    return all(_reads_row_only(e) or isinstance(e, Aggregate) for e in both)
                supported = operator in (*COMPARISONS, *ARITHMETIC, "and", "or")
                return supported and self.fits(left) and self.fits(right)
            case IsNull(operand=Aggregate()):
                return True
            case Unary(operand=operand) | IsNull(operand=operand):
                return self.fits(operand)
            case Between(operand=operand, low=low, high=high):
                return all(map(self.fits, (operand, low, high)))
            case In(operand=operand, options=options):
                return all(map(self.fits, (operand, *options)))
            case FunctionCall(function=function, arguments=arguments):
                form = FUNCTIONS[function].kernel
                supported = form is not None and not isinstance(form, PointsForm)
                return supported and all(map(self.fits, arguments))
            case Like():
                return False

    def write(self, lowered: list[list[Expr]]) -> RowPatternKernel:
        writer = ConditionWriter(self.features, self.unit, self.constants)
        in_time = self.plan.row_pattern.within is not None
        accesses = [_RowAccess(self, number) for number in range(len(lowered))]
        tests = []
        for access, conditions in zip(accesses, lowered, strict=True):
            parts = ["times[i] - times[r] < horizon"] if in_time else []
            parts += [writer.condition(expr, access) for expr in conditions]
            tests.append(" and ".join(parts) or "True")
        # all conditions have named their registers
        updating = [
            VariableTexts(n, test, tuple(self._updates(n)), tuple(access.statements))
            for n, (test, access) in enumerate(zip(tests, accesses, strict=True))
        ]
        whole = tuple(r.name for r in self.registers.values() if not r.real)
        real = tuple(r.name for r in self.registers.values() if r.real)
        fresh = {r.name: r.fresh for r in self.registers.values()}
        registers = SearchRegisters(whole, real, fresh)
        texts = {text for t in updating for text in (t.condition, *t.prepared)}
        used = {word for text in texts for word in find_names(text)}
        text = write_match_search(
            "Conditions on the match are written into it.",
            updating, registers, tuple(self.constants.readings(used)),
        )  # fmt: skip
        return RowPatternKernel(text, self.features.all(), frozenset(self.summed), registers, self.constants)

    def feature(self, feature: Feature, row: str) -> ValueText:
        """A feature of an existing row."""
        table = "W" if feature.integral else "F"
        value = f"{table}[{feature.number}, {row}]"
        return value, f"V[{feature.number}, {row}]" if self.nullable else None

    def register(self, name: str, fresh: str, *, real: bool = False) -> str:
        self.registers.setdefault(name, _Register(name, fresh, real))
        return name

    def number(self, variables: tuple[str, ...]) -> str:
        """The part of a register name for a set of variables."""
        names = self.plan.automaton.variables
        return "_".join(str(names.index(v)) for v in variables)

    def has(self, variable: int, variables: tuple[str, ...]) -> bool:
        return not variables or self.plan.automaton.variables[variable] in variables

    def _updates(self, variable: int) -> Iterator[str]:
        """The statements that update registers after a row was mapped to a variable."""
        deepest: dict[tuple[str, ...], int] = {}
        furthest: dict[tuple[str, ...], int] = {}
        for number, reach in enumerate(self.operands):
            match reach:
                case Navigation(variables=variables, offset=offset) if variables:
                    if self.has(variable, variables):
                        depths = furthest if reach.first else deepest
                        depths[variables] = max(depths.get(variables, 0), offset)
                case RowAggregate(variables=variables) if self.has(variable, variables):
                    yield from self._accumulate(number, reach)
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

    def _accumulate(self, number: int, reach: RowAggregate) -> Iterator[str]:
        """Adds a row to an aggregate."""
        counted, feature = self.parts(reach)
        yield f"if {counted}:" if counted is not None else "if True:"
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
            feature = self.features.get_feature(rewrite_expr(reach.arguments[0], _shift_to_current))
            known = self.feature(feature, "i")[1]
            tests += [known] if known is not None else []
        if reach.only is not None:
            value, known = self.feature(self.features.get_feature(rewrite_expr(reach.only, _shift_to_current)), "i")
            tests += [known] if known is not None else []
            tests.append(f"{value} != 0")
        return " and ".join(tests) or None, feature


@dataclass(slots=True)
class _RowAccess:
    """Access for one variable's predicate to rows and registers."""

    writer: _ConditionWriter
    variable: int
    statements: list[str] = field(default_factory=list)  # before the condition

    def feature(self, place: EventRef, feature: Feature) -> ValueText:
        assert place[0] == _HERE
        return self.writer.feature(feature, "i")

    def aggregate(self, aggregate: Aggregate, feature: Feature | None) -> ValueText:
        if aggregate.variable == _CONSTANT:
            assert feature is not None
            return f"W[{feature.number}, i]", None
        number = int(aggregate.variable[1:])
        reach = self.writer.operands[number]
        match reach:
            case MatchNumber():
                return "(number[p] + 1)", None
            case Navigation():
                assert feature is not None
                return self._at_row(number, reach, feature)
            case RowAggregate():
                return self._write_aggregate(number, reach)

    def _prepare(self, *lines: str) -> None:
        self.statements += [line for line in lines if line not in self.statements]

    def _at_row(self, number: int, reach: Navigation, feature: Feature) -> ValueText:
        row = f"x{number}"
        self._prepare(f"{row} = {self._row(reach)}")
        if reach.shift:
            self._prepare(
                f"if {row} >= 0:\n"
                f"    {row} += {reach.shift}\n"
                f"    if {row} < first_row or {row} >= bounds[p + 1]:\n"
                f"        {row} = -1"
            )
        value, known = self.writer.feature(feature, row)
        present = f"{row} >= 0"
        return value, f"({present})" if known is None else f"({present} and {known})"

    def _row(self, reach: Navigation) -> str:
        k, current = reach.offset, self.writer.has(self.variable, reach.variables)
        if not reach.variables:
            if reach.first:
                return f"r + {k} if r + {k} <= i else -1"
            return f"i - {k} if i - {k} >= r else -1"
        name = self.writer.number(reach.variables)
        if reach.first:
            rows = [self.writer.register(f"f_{name}_{j}", "-1") for j in range(k + 1)]
            if not current:
                return rows[k]
            last = "i" if k == 0 else f"(i if {rows[k - 1]} >= 0 else -1)"
            return f"{rows[k]} if {rows[k]} >= 0 else {last}"
        if current and k == 0:
            return "i"
        rows = [self.writer.register(f"l_{name}_{j}", "-1") for j in range(k + (not current))]
        return rows[-1]

    def _write_aggregate(self, number: int, reach: RowAggregate) -> ValueText:
        writer = self.writer
        counted, feature = writer.parts(reach)
        writer.register(f"c_{number}", "0")
        current = writer.has(self.variable, reach.variables)
        adds = counted if counted is not None else "True"
        self._prepare(f"n{number} = c_{number}" + (f" + (1 if {adds} else 0)" if current else ""))
        if reach.function == "count":
            return f"n{number}", None
        assert feature is not None
        value = writer.feature(feature, "i")[0]
        zero, real = ("0", False) if feature.integral else ("0.0", True)
        if reach.function in ("sum", "avg"):
            if feature.integral:
                writer.summed.add(feature.number)
            writer.register(f"s_{number}", zero, real=real)
            added = f" + ({value} if {adds} else {zero})" if current else ""
            self._prepare(f"y{number} = s_{number}{added}")
            if reach.function == "sum":
                return f"y{number}", f"n{number} > 0"
            return f"(y{number} / n{number})", f"n{number} > 0"
        writer.register(f"b_{number}", zero, real=real)
        self._prepare(f"y{number} = b_{number}")
        if current:
            better = _better(reach.function, value, f"b_{number}")
            self._prepare(f"if {adds} and (c_{number} == 0 or {better}):\n    y{number} = {value}")
        return f"y{number}", f"n{number} > 0"


def _better(function: str, value: str, best: str) -> str:
    sign = "<" if function == "min" else ">"
    return f"({value} {sign} {best} or ({best} != {best} and {value} == {value}))"


def _shift_to_current(node: Expr) -> Expr:
    if isinstance(node, FieldRef) and node.variable == ROW:
        return replace(node, variable=_HERE)
    return node


def _reads_row_only(expr: Expr) -> bool:
    """Whether an expression reads only the row to be mapped."""
    leaves = [n for n in iterate_nodes(expr) if isinstance(n, FieldRef | Aggregate)]
    return bool(leaves) and all(isinstance(n, FieldRef) for n in leaves)


def _strings_as_features(expr: Expr) -> Expr:
    """Turns strings that are compared with other rows into features, as strings have codes."""

    def to_feature(side: Expr) -> Expr:
        if isinstance(side, Literal) and isinstance(side.value, str):
            return Aggregate("last", _CONSTANT, replace(side, span=None))
        return side

    def replace_strings(node: Expr) -> Expr:
        match node:
            case Binary(operator=operator, left=left, right=right) if operator in COMPARISONS and not _reads_row_only(
                node
            ):
                return replace(node, left=to_feature(left), right=to_feature(right))
            case _:
                return node

    return rewrite_expr(expr, replace_strings)
