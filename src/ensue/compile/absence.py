"""Looking for negated events: a search through the instances kept for them, newest first."""

from collections.abc import Callable

from ensue.algebra.predicate import Aggregate, Expr
from ensue.compile.expressions import Access, Feature, Text
from ensue.compile.frame import Frame
from ensue.compile.layout import Columns, Source, ok_of, value_of
from ensue.plan.features import Place
from ensue.plan.physical import Absence


class Instances:
    """Events kept by partition and variable in linked stacks, the newest on top."""

    def __init__(self, frame: Frame, variables: tuple[str, ...]) -> None:
        self.frame = frame
        self.columns = Columns("A", "AF")
        self.number = {v: n for n, v in enumerate(variables)}
        self.kept: dict[str, set[Feature]] = {v: set() for v in variables}
        for name in ("previous", "rip", "row", "key"):  # fixed places: kernels/arena.py reads them
            self.columns.at(name, "")
        for name in ("start", "end"):
            self.columns.at(name, "", real=frame.real_time)
        if frame.counts:
            self.columns.at("index", "")

    def get(self, name: str, node: str) -> str:
        real = name in ("start", "end") and self.frame.real_time
        return self.columns.at(name, node, real=real)

    def feature(self, variable: str, feature: Feature, node: str) -> Text:
        self.kept[variable].add(feature)
        name = f"f{feature.number}"
        return (
            value_of(self.columns, name, node, feature),
            ok_of(self.columns, name, node, self.frame.nullable),
        )

    def top(self, variable: str) -> str:
        return f"tops[k, {self.number[variable]}]"

    def push(self, out: Source, variable: str, rip: str = "-1") -> None:
        """Keeps the event at hand for a variable. Room has been made."""
        out(
            "n = atop",
            "atop += 1",
            f"{self.get('previous', 'n')} = {self.top(variable)}",
            f"{self.get('rip', 'n')} = {rip}",
            f"{self.get('row', 'n')} = row",
            f"{self.get('key', 'n')} = k",
            f"{self.get('start', 'n')} = s",
            f"{self.get('end', 'n')} = t",
        )
        if self.frame.counts:
            out(f"{self.get('index', 'n')} = idx")
        for feature in sorted(self.kept[variable], key=lambda f: f.number):
            value, ok = self.feature(variable, feature, "n")
            out(f"{value} = {self.frame.value(feature)}")
            if ok is not None:
                out(f"{ok.removesuffix(' != 0')} = {self.frame.ok(feature)}")
        out(f"{self.top(variable)} = n")


class AbsentAccess:
    """Conditions on a negated event and the events of a match."""

    def __init__(self, instances: Instances, variable: str, others: Access) -> None:
        self.instances = instances
        self.variable = variable
        self.others = others

    def feature(self, place: Place, feature: Feature) -> Text:
        if place[0] == self.variable:
            return self.instances.feature(self.variable, feature, "x")
        return self.others.feature(place, feature)

    def aggregate(self, aggregate: Aggregate, feature: Feature | None) -> Text:
        return self.others.aggregate(aggregate, feature)


def search(
    out: Source,
    instances: Instances,
    absence: Absence,
    access: Access,
    *,
    after_row: list[str],
    after_end: list[str],
    before_row: list[str],
    before_start: list[str],
    first: str,
    last: str,
    found: Callable[[], None],
    missing: Callable[[Expr], list[str]] = lambda _: [],
) -> None:
    """Writes a search for an event that a negation forbids; `found` writes what then happens.

    The texts give the rows and times of the events around it; `first` and `last` are the
    match's start and end (or the partition's count there, when windows count events). `missing`
    says when a condition speaks of an element that the match does not have: it does not apply.
    """
    frame = instances.frame
    window = None if frame.window is None else frame.window_text
    absent = AbsentAccess(instances, absence.variable, access)
    conditions = [
        f"({' or '.join([*missing(c), frame.writer.condition(c, absent)])})"
        for c in absence.conditions
    ]
    out(f"x = {instances.top(absence.variable)}")
    with out.block("while x >= 0:"):
        row, start, end = (instances.get(n, "x") for n in ("row", "start", "end"))
        for other in after_row:
            with out.block(f"if {row} <= {other}:"):
                out("break")
        if not after_row and window is not None:
            # older ones are further away still; an interval's start is tested below
            edge = instances.get("index", "x") if frame.by_events else end
            with out.block(f"if {last} - {edge} > {window}:"):
                out("break")
        tests = [f"{row} < {other}" for other in before_row]
        if frame.intervals:
            tests += [f"{start} >= {other}" for other in after_end]
            tests += [f"{end} <= {other}" for other in before_start]
            if not after_row and window is not None and not frame.by_events:
                tests.append(f"{last} - {start} <= {window}")
        if not before_row and window is not None:
            far = f"{instances.get('index', 'x')}" if frame.by_events else end
            tests.append(f"{far} - {first} <= {window}")
        tests += conditions
        with out.block(f"if {' and '.join(tests) or 'True'}:"):
            found()
            out("break")
        out(f"x = {instances.get('previous', 'x')}")
