"""Writes the search for negated events through their stored instances, newest first."""

from collections.abc import Callable, Iterator

from ensue.codegen.expressions import Feature, ValueAccess, ValueText
from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.names import TOPS
from ensue.codegen.state_layout import SourceWriter, StateColumns, store_value, write_value
from ensue.ir.expression import Aggregate, Expr
from ensue.ir.traversal import iterate_atoms
from ensue.planner.features import EventRef
from ensue.planner.physical_plan import NegationCheck, Role
from ensue.printing.expression_printer import format_condition, format_name


class InstanceStore:
    """Events stored by partition and variable in linked stacks, the newest on top.

    An instance of a nested pattern is a match of its plan: it is stored at its last event, with
    its first row, its earliest start, and the values that conditions read of its events.
    """

    def __init__(self, frame: KernelContext, variables: tuple[str, ...]) -> None:
        self.frame = frame
        self.columns = StateColumns("A", "AF", frame.names)
        self.complexes = {r.variable: NestedMatches(frame, r, n) for n, r in enumerate(frame.complexes)}
        self.number = {v: n for n, v in enumerate((*variables, *self.complexes))}
        self.kept: dict[str, set[Feature]] = {v: set() for v in variables}
        for name in ("previous", "rip", "row", "key"):  # fixed columns: kernels/arena.py reads them
            self.columns.at(name, "")
        for name in ("start", "end"):
            self.columns.at(name, "", real=frame.real_time)
        if frame.counts:
            self.columns.at("index", "")
        if self.complexes:
            self.columns.at("first_row", "")

    def get(self, name: str, node: str) -> str:
        real = name in ("start", "end") and self.frame.real_time
        return self.columns.at(name, node, real=real)

    def feature(self, variable: str, feature: Feature, node: str) -> ValueText:
        self.kept[variable].add(feature)
        key, name = f"f{feature.number}", f"FIELD_{self.frame.name_feature(feature)}"
        return write_value(self.columns, key, node, feature, name, self.frame.nullable)

    def inner_feature(self, variable: str, inner: str, feature: Feature, node: str) -> ValueText:
        """A value that a condition reads of one event of a nested pattern."""
        inside = self.complexes[variable]
        inside.kept.add((inner, feature))
        key = inside.name(inner, feature)
        name = f"INNER_{self.frame.names.variable(inner)}_{self.frame.name_feature(feature)}"
        return write_value(self.columns, key, node, feature, name, self.frame.nullable)

    def top(self, variable: str) -> str:
        return f"tops[k, {self.stack(variable)}]"

    def stack(self, variable: str) -> str:
        """The name of a variable's stack."""
        names, number = self.frame.names, self.number[variable]
        return names.number(f"TOP_{names.variable(variable)}", number, TOPS, names.describe(variable))

    def push(self, out: SourceWriter, variable: str, rip: str = "-1") -> None:
        """Stores the current event for a variable; the caller has made room."""
        out.note("a new instance on top of its stack")
        self._link(out, variable, rip, start="s")
        for feature in sorted(self.kept[variable], key=lambda f: f.number):
            store_value(out, self.feature(variable, feature, "n"), self.frame.read(feature))
        out(f"{self.top(variable)} = n")

    def push_nested(self, out: SourceWriter) -> None:
        """Stores the nested matches that the current event completes; the caller has made room."""
        for variable, inside in self.complexes.items():
            out.note(f"matches of {format_name(variable)} that end here are stored")
            each = f"for x in range({inside.at}[i], {inside.at}[i + 1]):"
            with out.block(f"if {self.frame.test(variable)}:"), out.block(each):
                self._link(out, variable, "-1", start=f"{inside.start}[x]")
                out(f"{self.get('first_row', 'n')} = {inside.first}[x]")
                for inner, feature in inside.features():
                    array = inside.name(inner, feature)
                    value = self.inner_feature(variable, inner, feature, "n")
                    store_value(out, value, (f"{array}[x]", f"{array}_ok[x]"))
                out(f"{self.top(variable)} = n")

    def count_pushed(self, single: int) -> str:
        """The maximum number of instances that the current event adds, besides `single` ones."""
        more = [f"{c.at}[i + 1] - {c.at}[i]" for c in self.complexes.values()]
        return " + ".join([str(single), *more])

    def _link(self, out: SourceWriter, variable: str, rip: str, start: str) -> None:
        out(
            "n = atop",
            "atop += 1",
            f"{self.get('previous', 'n')} = {self.top(variable)}",
            f"{self.get('rip', 'n')} = {rip}",
            f"{self.get('row', 'n')} = row",
            f"{self.get('key', 'n')} = k",
            f"{self.get('start', 'n')} = {start}",
            f"{self.get('end', 'n')} = t",
        )
        if self.frame.counts:
            out(f"{self.get('index', 'n')} = idx")

    def parameters(self) -> list[tuple[str, str]]:
        """The arrays of nested matches that a kernel reads, and their types."""
        return [pair for inside in self.complexes.values() for pair in inside.parameters()]


class NestedMatches:
    """The arrays of a nested pattern's matches, by the event they end at."""

    def __init__(self, frame: KernelContext, role: Role, number: int) -> None:
        assert role.inner is not None
        self.frame = frame
        self.variables = frozenset(a.variable for a in iterate_atoms(role.inner.query.pattern))
        self.kept: set[tuple[str, Feature]] = set()
        self.prefix = f"x{number}"
        self.at, self.first, self.start = (f"{self.prefix}_{n}" for n in ("at", "first", "start"))

    def features(self) -> list[tuple[str, Feature]]:
        return sorted(self.kept, key=lambda pair: (pair[0], pair[1].number))

    def name(self, inner: str, feature: Feature) -> str:
        """The column and the array of a feature of one of its events."""
        place = sorted(self.variables).index(inner)
        return f"{self.prefix}_{place}_f{feature.number}"

    def parameters(self) -> list[tuple[str, str]]:
        arrays = [(self.at, "whole"), (self.first, "whole"), (self.start, "time")]
        for inner, feature in self.features():
            name = self.name(inner, feature)
            arrays.append((name, "whole" if feature.integral else "real"))
            if self.frame.nullable:
                arrays.append((f"{name}_ok", "truth"))
        return arrays


class NegatedAccess:
    """Access for conditions on a negated event and the events of a match."""

    def __init__(self, instances: InstanceStore, variable: str, others: ValueAccess) -> None:
        self.instances = instances
        self.variable = variable
        self.others = others

    def feature(self, place: EventRef, feature: Feature) -> ValueText:
        inside = self.instances.complexes.get(self.variable)
        if inside is not None and place[0] in inside.variables:
            return self.instances.inner_feature(self.variable, place[0], feature, "x")
        if place[0] == self.variable:
            return self.instances.feature(self.variable, feature, "x")
        return self.others.feature(place, feature)

    def aggregate(self, aggregate: Aggregate, feature: Feature | None) -> ValueText:
        return self.others.aggregate(aggregate, feature)


def write_search(
    out: SourceWriter,
    instances: InstanceStore,
    absence: NegationCheck,
    access: ValueAccess,
    *,
    after_row: list[str],
    after_end: list[str],
    before_row: list[str],
    before_start: list[str],
    first: str,
    last: str,
    found: str,
    missing: Callable[[Expr], list[str]] = lambda _: [],
    newest: str | None = None,
    own: Callable[[str], list[str]] = lambda _: [],
) -> None:
    """Writes a search for a forbidden event; `found` is the statement for an occurrence.

    The texts are the rows and times of the events around it; `first` and `last` are the match's
    start and end (or the partition's count there, if windows count events). `missing` lists when a
    condition reads an element that the match does not have: it then does not apply. `newest`: only
    instances of this row count. `own` writes the check whether a row belongs to the match, and
    returns the tests that it does not.
    """
    frame = instances.frame
    window = None if frame.window is None else frame.window_text
    absent = NegatedAccess(instances, absence.variable, access)
    conditions = []
    for condition in absence.conditions:
        tests = [*missing(condition), frame.writer.condition(condition, absent)]
        conditions.append(f"({' or '.join(tests)})" if len(tests) > 1 else tests[0])
    out.note(*_describe(absence))
    several = absence.variable in instances.complexes
    out(f"x = {instances.top(absence.variable)}")
    with out.block("while x >= 0:"):
        row, start, end = (instances.get(n, "x") for n in ("row", "start", "end"))
        if newest is not None:
            with out.block(f"if {row} < {newest}:"):
                out("break")
        for other in after_row:
            with out.block(f"if {row} <= {other}:"):
                out("break")
        if not after_row and window is not None:
            # older ones are even further away; the start of an interval is tested below
            edge = instances.get("index", "x") if frame.by_events else end
            with out.block(f"if {last} - {edge} > {window}:"):
                out("break")
        tests = [f"{row} < {other}" for other in before_row]
        if several:  # all its events, from the first one
            tests += [f"{instances.get('first_row', 'x')} > {other}" for other in after_row]
        if frame.intervals:
            tests += [f"{start} >= {other}" for other in after_end]
            tests += [f"{end} <= {other}" for other in before_start]
        far_back = not after_row and window is not None and not frame.by_events
        if far_back and (frame.intervals or several):
            tests.append(f"{last} - {start} <= {window}")
        if not before_row and window is not None:
            far = instances.get("index", "x") if frame.by_events else end
            tests.append(f"{far} - {first} <= {window}")
        tests += conditions
        tests = [test for test in (*tests, *own(row)) if test != "True"]
        with out.when(*tests):
            out(found, "break")
        if tests:
            out(f"x = {instances.get('previous', 'x')}")


def _describe(absence: NegationCheck) -> Iterator[str]:
    """A comment for the search."""
    after, before = (", ".join(map(format_name, v)) for v in (absence.after, absence.before))
    place = " and ".join([*([f"after {after}"] if after else []), *([f"before {before}"] if before else [])])
    yield f"search for an event {format_name(absence.variable)} {place}"
    yield from (f"  with {format_condition(c)}" for c in absence.conditions)
