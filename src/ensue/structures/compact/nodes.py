"""What the compact kernels share: the loop over events, and events kept as nodes of lists."""

from dataclasses import dataclass, field

from ensue.plan.physical import Compact, Step
from ensue.source.event_loop import AT_HAND, event_loop
from ensue.source.kernel_inputs import (
    INSTANCE_TOP,
    MOST_WAITING,
    NEEDS_DRAIN,
    NEEDS_INSTANCES,
    NEEDS_OUTPUT,
    NODE_TOP,
    OUT_TOP,
    PRELUDE,
    Frame,
)
from ensue.source.table_columns import Columns, Source

LINKS = ("previous", "next")  # and all that begin with next_ or last_
TIME_STATE = ["A", "AF", "tops", "counts", "K", "KF"]  # what `settle_all` takes after the time


@dataclass(slots=True)
class Nodes:
    """Events in the order of their partition, in one table for all partitions."""

    frame: Frame
    number: dict[str, int]  # what the table of tops says of a partition
    columns: Columns = field(default_factory=lambda: Columns("A", "AF"))

    def __post_init__(self) -> None:
        # fixed places: kernels/arena.py reads them
        for name in ("previous", "next", "row", "key", "mask"):
            self.columns.at(name, "")
        self.columns.at("end", "", real=self.frame.real_time)
        if self.frame.by_events:
            self.columns.at("index", "")

    def is_link(self, name: str) -> bool:
        return name in LINKS or name.startswith(("next_", "last_"))

    def get(self, name: str, node: str) -> str:
        return self.columns.at(name, node, real=name == "end" and self.frame.real_time)

    def top(self, name: str) -> str:
        return f"tops[k, {self.number[name]}]"

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
            f"{self.get('mask', 'n')} = m",
            f"{self.get('end', 'n')} = t",
        )
        if self.frame.by_events:
            out(f"{self.get('index', 'n')} = idx")


class CompactText:
    """The parts of a kernel that do not depend on the answer."""

    title = ""
    functions = ""  # that the kernel calls
    output: tuple[str, ...] = ()
    growing: tuple[str, ...] = ("O",)
    spare = 1  # free places in the output that an event needs before it is looked at
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

    # ------------------------------------------------------------------------ bits

    def bit(self, step: Step) -> int:
        return 1 << self.frame.bit(step.variable, first=step.first)

    def bits(self, steps: list[Step]) -> int:
        found = 0
        for step in steps:
            found |= self.bit(step)
        return found

    def into(self, state: int) -> list[Step]:
        return [s for s in self.inner if s.target == state]

    def out_of(self, state: int) -> list[Step]:
        return [s for s in self.inner if s.source == state]

    def resets(self, state: int) -> int:
        """The roles whose events end what waits in a state."""
        found = 0
        for variable, ended in self.compact.resets:
            if ended == state:
                found |= 1 << self.frame.bit(variable)
        return found

    @property
    def held(self) -> int:
        """The roles of events that take partial matches somewhere, or end them."""
        found = self.bits(self.inner)
        for state in self.states:
            found |= self.resets(state)
        return found

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
        body = Source(depth=2)
        for body in (Source(depth=2), Source(depth=2)):  # twice: the first finds the columns
            if self.final:
                with body.block(f"if m & {self.bits(self.final)}:"):
                    self.complete(body)
            if self.held:
                with body.block(f"if m & {self.held}:"):
                    self.keep(body)
        head = Source()
        head(*PRELUDE.format(title=self.title).splitlines(), *self.functions.splitlines(), "")
        self.settle(head)
        registers = {"atop": INSTANCE_TOP, "otop": OUT_TOP}
        if "N" in self.state:
            registers["ntop"] = NODE_TOP
        step = event_loop(
            head,
            body,
            self.frame,
            [*self.state, *self.frame.tally.tables],
            registers=registers,
            needs=lambda _: (
                ("atop + 1 > A.shape[0]", NEEDS_INSTANCES),
                (f"otop > {MOST_WAITING}", NEEDS_DRAIN),
                (f"otop + {self.spare} > O.shape[0]", NEEDS_OUTPUT),
            ),
            begin=self.begin,
            at_hand=AT_HAND[:2],  # events are points
            returned=self.growing,
        )
        return step.text()

    def begin(self, out: Source) -> None:
        """What comes before the loop over events."""

    def complete(self, out: Source) -> None:
        """The event at hand completes matches."""
        raise NotImplementedError

    def keep(self, out: Source) -> None:
        """The event at hand takes partial matches further, begins or ends them."""
        raise NotImplementedError

    def settle(self, out: Source) -> None:
        """Writes `settle_all(now, *TIME_STATE)`: forgets what no event from `now` on can reach."""
        out(f"def settle_all(now, {', '.join(TIME_STATE)}):")
        with out:
            if self.windowed:
                with out.block("for k in range(tops.shape[0]):"):
                    out("idx = counts[k]" if self.frame.by_events else "t = now")
                    self.settled(out)
            out("return 0")

    def settled(self, out: Source) -> None:
        """Forgets what partition `k` cannot use any more, at time `t` or after `idx` events."""
        raise NotImplementedError
