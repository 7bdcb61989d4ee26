"""Common parts of the compact kernels: the event loop, and events as nodes of lists."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from types import MappingProxyType

from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.kernel_text import CURRENT_EVENT, KernelFunction, write_event_loop, write_function, write_kernel
from ensue.codegen.names import TOPS
from ensue.codegen.state_layout import SourceWriter, StateColumns
from ensue.planner.physical_plan import CompactPlan, CompactStep
from ensue.printing.expression_printer import format_name

LINKS = ("previous", "next")  # and all that begin with next_ or last_
TIME_STATE = ("A", "AF", "tops", "counts", "K", "KF")  # parameters of `settle_all` after the time


@dataclass(slots=True)
class EventNodes:
    """Events in the order of their partition, in one table for all partitions."""

    frame: KernelContext
    number: dict[str, int]  # columns of the table of tops
    columns: StateColumns = field(init=False)
    called: dict[str, str] = field(default_factory=dict)  # descriptive names in the source

    def __post_init__(self) -> None:
        self.columns = StateColumns("A", "AF", self.frame.names)
        # fixed columns: kernels/arena.py reads them
        for name in ("previous", "next", "row", "key", "mask"):
            self.columns.at(name, "")
        self.columns.at("end", "", real=self.frame.real_time)
        if self.frame.by_events:
            self.columns.at("index", "")

    def is_link(self, name: str) -> bool:
        return name in LINKS or name.startswith(("next_", "last_"))

    def get(self, name: str, node: str) -> str:
        real = name == "end" and self.frame.real_time
        return self.columns.at(name, node, real=real, name=self.called.get(name, ""))

    def top(self, name: str) -> str:
        label = self.called.get(name, name.upper())
        number = self.frame.names.number(f"TOP_{label}", self.number[name], TOPS)
        return f"tops[k, {number}]"

    def write_window_test(self, node: str) -> str:
        """Whether a node is outside the window that ends at the current event."""
        if self.frame.by_events:
            return f"idx - {self.get('index', node)} > {self.frame.window_text}"
        return f"t - {self.get('end', node)} > {self.frame.window_text}"

    def push(self, out: SourceWriter) -> None:
        """Stores the current event as node `n`; the caller sets its links."""
        out(
            "n = atop",
            "atop += 1",
            f"{self.get('row', 'n')} = row",
            f"{self.get('key', 'n')} = k",
            f"{self.get('mask', 'n')} = roles",
            f"{self.get('end', 'n')} = t",
        )
        if self.frame.by_events:
            out(f"{self.get('index', 'n')} = idx")


class CompactWriter:
    """The parts of a kernel that do not depend on the output."""

    title = ""
    functions: Mapping[str, str] = MappingProxyType({})  # that the kernel may call
    output: tuple[str, ...] = ()
    growing: tuple[str, ...] = ("O",)
    spare = "1"  # free rows in the output that an event needs
    tops: tuple[str, ...] = ()

    def __init__(self, frame: KernelContext, compact: CompactPlan) -> None:
        self.frame = frame
        self.compact = compact
        self.nodes = EventNodes(frame, {name: n for n, name in enumerate(self.tops)})
        kept = set(compact.kept)
        self.states = compact.kept
        self.inner = [s for s in compact.steps if s.target in kept]
        self.final = [s for s in compact.steps if s.target in compact.accepting]
        self.windowed = frame.window is not None

    def bit(self, step: CompactStep) -> int:
        return 1 << self.frame.bit(step.variable, first=step.first)

    def bits(self, steps: list[CompactStep]) -> int:
        return reduce(or_, map(self.bit, steps), 0)

    def role(self, step: CompactStep) -> str:
        """The name of the role of a step."""
        return self.frame.role(step.variable, first=step.first)

    def list_roles(self, steps: Iterable[CompactStep]) -> list[str]:
        return [self.role(step) for step in steps]

    def list_incoming(self, state: int) -> list[CompactStep]:
        return [s for s in self.inner if s.target == state]

    def list_outgoing(self, state: int) -> list[CompactStep]:
        return [s for s in self.inner if s.source == state]

    def resets(self, state: int) -> list[str]:
        """The roles whose events discard the partial matches of a state."""
        return [self.frame.role(v) for v, ended in self.compact.resets if ended == state]

    def write_role_test(self, roles: Iterable[str], mask: str = "roles") -> str:
        """The test that an event matches one of some roles."""
        return f"{mask} & {self.frame.any_role(roles)}"

    def write_step_test(self, steps: list[CompactStep], step: CompactStep) -> str:
        """The test that an event that takes one of some steps takes this one."""
        return "True" if len(steps) == 1 else self.write_role_test([self.role(step)])

    @property
    def held(self) -> list[str]:
        """The roles of events that move or discard partial matches."""
        ended = [role for state in self.states for role in self.resets(state)]
        return [*self.list_roles(self.inner), *ended]

    @property
    def beginnings(self) -> int:
        return self.bits(self.list_outgoing(0))

    @property
    def state(self) -> tuple[str, ...]:
        return TIME_STATE

    @property
    def by_key(self) -> tuple[int, int]:
        return 0, 0

    @property
    def row_columns_by_key(self) -> tuple[int, int, int] | None:
        """The columns of `K` with rows of the stream, and their offset."""
        return None

    def write(self) -> str:
        for _ in range(2):  # twice: the first pass collects the columns
            body = self.frame.restart(depth=2)
            if self.final:
                body.note("", *self._describe("completes matches", self.final))
                with body.block(f"if {self.write_role_test(self.list_roles(self.final))}:"):
                    self.complete(body)
            if held := self.held:
                body.note("", *self._describe("moves partial matches", self.inner))
                with body.block(f"if {self.write_role_test(held)}:"):
                    self.keep(body)
        registers = {"atop": "INSTANCE_TOP", "otop": "OUT_TOP"}
        if "N" in self.state:
            registers["ntop"] = "NODE_TOP"
        step = write_event_loop(
            body,
            self.frame,
            [*self.state, *self.frame.tally.tables],
            registers=registers,
            needs=lambda _: (
                ("atop + 1 > A.shape[0]", "NEEDS_INSTANCES"),
                ("otop > MOST_WAITING", "NEEDS_DRAIN"),
                (f"otop + {self.spare} > O.shape[0]", "NEEDS_OUTPUT"),
            ),
            begin=self.begin,
            at_hand=CURRENT_EVENT[:2],  # events are points
            returned=self.growing,
        )
        return write_kernel(self.frame, self.title, [self.settle(), step], own=self.functions)

    def _describe(self, effect: str, steps: list[CompactStep]) -> Iterator[str]:
        """A comment on the effect of events."""
        yield f"an event that {effect}:"
        for step in steps:
            kleene = self.frame.plan.role(step.variable).kleene is not None
            first = ", the first" if kleene and step.first else ""
            end = " (a match)" if step.target in self.compact.accepting else ""
            name = format_name(step.variable)
            yield f"  {name}{first}: from state {step.source} to {step.target}{end}"
        if steps is self.inner:
            for variable, state in self.compact.resets:
                yield f"  !{format_name(variable)}: discards the partial matches of state {state}"

    def begin(self, out: SourceWriter) -> None:
        """Writes the code before the event loop."""

    def complete(self, out: SourceWriter) -> None:
        """Writes the completion of matches by the current event."""
        raise NotImplementedError

    def keep(self, out: SourceWriter) -> None:
        """Writes how the current event begins, moves or discards partial matches."""
        raise NotImplementedError

    def emit(self, out: SourceWriter, first: str, count: str) -> None:
        """Writes the number of matches that the event completes, and the row of the first one."""
        for column, value in zip(self.output, (first, "row", count), strict=True):
            name = "OUT_" + column.removeprefix("row_").strip("_ ").upper()
            number = self.frame.names.number(name, self.output.index(column), "columns of O")
            out(f"O[otop, {number}] = {value}")
        out("otop += 1")

    def settle(self) -> KernelFunction:
        """Writes `settle_all(now, *TIME_STATE)`, which drops state out of reach from `now` on."""
        out = self.frame.source(depth=1)
        if self.windowed:
            with out.block("for k in range(tops.shape[0]):"):
                out("idx = counts[k]" if self.frame.by_events else "t = now")
                self.write_expiry(out)
        out("return 0")
        return write_function(self.frame, "settle_all", ("now", *TIME_STATE), out)

    def write_expiry(self, out: SourceWriter) -> None:
        """Writes the expiry of partition `k`, at time `t` or after `idx` events."""
        raise NotImplementedError
