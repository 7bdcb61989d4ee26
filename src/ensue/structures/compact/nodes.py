"""What the compact kernels share: the loop over events, and events kept as nodes of lists."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ensue.algebra.text import show_name
from ensue.plan.physical import Compact, Step
from ensue.source.event_loop import AT_HAND, event_loop
from ensue.source.kernel_inputs import Frame
from ensue.source.kernel_text import Function, function, kernel_text
from ensue.source.names import TOPS
from ensue.source.table_columns import Columns, Source

LINKS = ("previous", "next")  # and all that begin with next_ or last_
TIME_STATE = ["A", "AF", "tops", "counts", "K", "KF"]  # what `settle_all` takes after the time


@dataclass(slots=True)
class Nodes:
    """Events in the order of their partition, in one table for all partitions."""

    frame: Frame
    number: dict[str, int]  # what the table of tops says of a partition
    columns: Columns = field(init=False)
    called: dict[str, str] = field(default_factory=dict)  # names in the source that tell more

    def __post_init__(self) -> None:
        self.columns = Columns("A", "AF", self.frame.names)
        # fixed places: kernels/arena.py reads them
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
        told = self.called.get(name, name.upper())
        number = self.frame.names.number(
            f"TOP_{told}",
            self.number[name],
            TOPS,
        )
        return f"tops[k, {number}]"

    def too_far(self, node: str) -> str:
        """Whether a node is outside the window that ends at the event at hand."""
        if self.frame.by_events:
            return f"idx - {self.get('index', node)} > {self.frame.window_text}"
        return f"t - {self.get('end', node)} > {self.frame.window_text}"

    def push(self, out: Source) -> None:
        """Keeps the event at hand as node `n`; its links are the caller's affair."""
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


class CompactText:
    """The parts of a kernel that do not depend on the answer."""

    title = ""
    functions: Mapping[str, str] = MappingProxyType({})  # that the kernel may call
    output: tuple[str, ...] = ()
    growing: tuple[str, ...] = ("O",)
    spare = "1"  # free places in the output that an event needs before it is looked at
    tops: tuple[str, ...] = ()

    def __init__(self, frame: Frame, compact: Compact) -> None:
        self.frame = frame
        self.compact = compact
        self.nodes = Nodes(frame, {name: n for n, name in enumerate(self.tops)})
        kept = set(compact.kept)
        self.states = compact.kept
        self.inner = [s for s in compact.steps if s.target in kept]
        self.final = [s for s in compact.steps if s.target in compact.accepting]
        self.windowed = frame.window is not None

    # ------------------------------------------------------------------------ roles

    def bit(self, step: Step) -> int:
        return 1 << self.frame.bit(step.variable, first=step.first)

    def bits(self, steps: list[Step]) -> int:
        found = 0
        for step in steps:
            found |= self.bit(step)
        return found

    def role(self, step: Step) -> str:
        """The role that a step takes, by name."""
        return self.frame.role(step.variable, first=step.first)

    def roles_of(self, steps: Iterable[Step]) -> list[str]:
        return [self.role(step) for step in steps]

    def into(self, state: int) -> list[Step]:
        return [s for s in self.inner if s.target == state]

    def out_of(self, state: int) -> list[Step]:
        return [s for s in self.inner if s.source == state]

    def resets(self, state: int) -> list[str]:
        """The roles whose events end what waits in a state."""
        return [self.frame.role(v) for v, ended in self.compact.resets if ended == state]

    def played(self, roles: Iterable[str], mask: str = "roles") -> str:
        """When an event can play one of some roles."""
        return f"{mask} & {self.frame.any_role(roles)}"

    def taken(self, steps: list[Step], step: Step) -> str:
        """When an event that takes one of some steps takes this one."""
        return "True" if len(steps) == 1 else self.played([self.role(step)])

    @property
    def held(self) -> list[str]:
        """The roles of events that take partial matches somewhere, or end them."""
        ended = [role for state in self.states for role in self.resets(state)]
        return [*self.roles_of(self.inner), *ended]

    @property
    def beginnings(self) -> int:
        return self.bits(self.out_of(0))

    # ------------------------------------------------------------------------ text

    @property
    def state(self) -> tuple[str, ...]:
        return ("A", "AF", "tops", "counts", "K", "KF")

    @property
    def by_key(self) -> tuple[int, int]:
        return 0, 0

    @property
    def rows_by_key(self) -> tuple[int, int, int] | None:
        """The columns of `K` that hold rows of the stream, and what to add to them."""
        return None

    def written(self) -> str:
        for _ in range(2):  # twice: the first finds the columns
            body = self.frame.again(depth=2)
            if self.final:
                body.note("", *self._told("completes matches", self.final))
                with body.block(f"if {self.played(self.roles_of(self.final))}:"):
                    self.complete(body)
            if held := self.held:
                body.note("", *self._told("takes partial matches further", self.inner))
                with body.block(f"if {self.played(held)}:"):
                    self.keep(body)
        registers = {"atop": "INSTANCE_TOP", "otop": "OUT_TOP"}
        if "N" in self.state:
            registers["ntop"] = "NODE_TOP"
        step = event_loop(
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
            at_hand=AT_HAND[:2],  # events are points
            returned=self.growing,
        )
        return kernel_text(self.frame, self.title, [self.settle(), step], own=self.functions)

    def _told(self, what: str, steps: list[Step]) -> Iterator[str]:
        """What events do, in words."""
        yield f"an event that {what}:"
        for step in steps:
            kleene = self.frame.plan.role(step.variable).kleene is not None
            first = ", the first" if kleene and step.first else ""
            end = " (a match)" if step.target in self.compact.accepting else ""
            name = show_name(step.variable)
            yield f"  {name}{first}: from state {step.source} to {step.target}{end}"
        if steps is self.inner:
            for variable, state in self.compact.resets:
                yield f"  !{show_name(variable)}: ends what waits in state {state}"

    def begin(self, out: Source) -> None:
        """What comes before the loop over events."""

    def complete(self, out: Source) -> None:
        """The event at hand completes matches."""
        raise NotImplementedError

    def keep(self, out: Source) -> None:
        """The event at hand takes partial matches further, begins or ends them."""
        raise NotImplementedError

    def emit(self, out: Source, first: str, count: str) -> None:
        """Writes how many matches the event completes, and where the first of them begins."""
        for column, value in zip(self.output, (first, "row", count), strict=True):
            name = "OUT_" + column.removeprefix("row_").strip("_ ").upper()
            number = self.frame.names.number(name, self.output.index(column), "columns of O")
            out(f"O[otop, {number}] = {value}")
        out("otop += 1")

    def settle(self) -> Function:
        """Writes `settle_all(now, *TIME_STATE)`: forgets what no event from `now` on can reach."""
        out = self.frame.source(depth=1)
        if self.windowed:
            with out.block("for k in range(tops.shape[0]):"):
                out("idx = counts[k]" if self.frame.by_events else "t = now")
                self.settled(out)
        out("return 0")
        return function(self.frame, "settle_all", ("now", *TIME_STATE), out)

    def settled(self, out: Source) -> None:
        """Forgets what partition `k` cannot use any more, at time `t` or after `idx` events."""
        raise NotImplementedError
