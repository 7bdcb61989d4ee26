"""Storage of a join tree: events, chains of Kleene events and joined results in one arena.

Each list of a partition (a node's results, or a negated variable's events) has its layout, on
columns that all lists share by type.
"""

from ensue.codegen.absence import InstanceStore
from ensue.codegen.expressions import Feature, ValueText
from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.kernel_text import write_stop_if
from ensue.codegen.names import TOPS
from ensue.codegen.state_layout import SourceWriter, store_value
from ensue.schema import ValueKind

# Column types: rows, links to entries, features, times, and attributes of operator results.
ROW, LINK, WHOLE, TEXT, REAL = "row", "link", "whole", "text", "real"
TIME, SAID_REAL = "time", "said_real"
GROWING = ("O", "A", "AF")  # tables that a kernel may grow
NONE = (ROW, LINK)  # types in which -1 means none


class TreeRecords(InstanceStore):
    """Entries of lists, newest first. `previous` links to the next older entry of the list.

    `row` is the last event of an entry, `first` its first one; `start` and `end` are the earliest
    start and the latest end. `rip` is the newest entry that an operator above may join from the
    left: it was complete when the entry's first event arrived. `back` links a chain of Kleene
    events to the chain without its last event.
    """

    def __init__(
        self,
        frame: KernelContext,
        lists: tuple[str, ...],
        *,
        chains: bool,
        limits: dict[str, float],
        grows: bool,
        labels: dict[str, str],
        meanings: dict[str, str],
    ) -> None:
        # names and comments of nodes' lists; the other lists are those of negated variables
        self.labels, self.meanings = labels, meanings
        super().__init__(frame, lists)
        self.grows = grows  # the kernel grows its tables
        # how long entries of a list wait from their start, if that is less than the window
        self.limits = {self.number[name]: limit for name, limit in limits.items()}
        self.slots: dict[str, dict[tuple[str, str], tuple[str, str]]] = {n: {} for n in lists}
        self.most: dict[str, int] = {}  # number of columns by type
        self.chains = chains
        self.columns.at("first", "")
        if chains:
            self.columns.at("back", "")
            self.columns.at("count", "")
        if frame.counts:
            self.columns.at("last_index", "")
        if self.limits:
            self.columns.at("list", "")

    @property
    def size(self) -> int:
        """The number of stored values: it grows until all conditions are covered."""
        return sum(map(len, self.slots.values()))

    def slot(self, list: str, what: tuple[str, str], sort: str, node: str) -> str:
        """The text for a stored value of an entry of a list."""
        slots = self.slots[list]
        if what not in slots:
            number = sum(s == sort for _, s in slots.values())
            slots[what] = (f"{sort}{number}", sort)
            self.most[sort] = max(self.most.get(sort, 0), number + 1)
            if sort == TEXT:
                self.columns.texts.add(f"{sort}{number}")
        real = sort in (REAL, SAID_REAL) or (sort == TIME and self.frame.real_time)
        here = self._column_name(list, what)
        return self.columns.at(slots[what][0], node, real=real, here=here)

    def _column_name(self, list: str, what: tuple[str, str]) -> str:
        """The name of a stored value: lists share the columns."""
        (owner, value), names = what, self.frame.names
        if value.startswith("@"):  # an attribute of an operator result
            value = names.variable(value[1:])
        elif value[1:].isdigit():  # a feature
            value = self.frame.name_feature(self.frame.features.all()[int(value[1:])])
        else:
            value = value.upper()
        alone = owner == list or self.labels.get(list) == f"_{owner}"
        owners = [names.variable(owner)] if owner and not alone else []
        return "_".join([self._label(list), *owners, value])

    def _label(self, list: str) -> str:
        """The label of a node's or a negated variable's list."""
        if list in self.labels:
            return f"AT{self.labels[list]}"
        return f"OF_{self.frame.names.variable(list)}"

    def stack(self, variable: str) -> str:
        """The name of a list."""
        label = self._label(variable).removeprefix("OF_").removeprefix("AT_")
        meaning = self.meanings.get(variable, "")
        return self.frame.names.number(f"TOP_{label}", self.number[variable], TOPS, meaning)

    def settle(self) -> None:
        """Numbers the stored values by name, independent of the order of requests."""
        for slots in self.slots.values():
            number: dict[str, int] = {}
            for what in sorted(slots):
                sort = slots[what][1]
                slots[what] = (f"{sort}{number.get(sort, 0)}", sort)
                number[sort] = number.get(sort, 0) + 1

    def stored_row(self, list: str, variable: str, node: str) -> str:
        return self.slot(list, (variable, "row"), ROW, node)

    def stored_chain(self, list: str, variable: str, node: str) -> str:
        return self.slot(list, (variable, "chain"), LINK, node)

    def stored_time(self, list: str, owner: str, which: str, node: str) -> str:
        """The start or end of a variable's event, or of an operator result."""
        return self.slot(list, (owner, which), TIME, node)

    def stored_feature(self, list: str, variable: str, feature: Feature, node: str) -> ValueText:
        """A feature of a variable's event, stored in an entry."""
        sort = WHOLE if feature.integral else REAL
        if feature.kind is ValueKind.STRING:
            sort = TEXT
        what = (variable, f"f{feature.number}")
        value = self.slot(list, what, sort, node)
        if not self.frame.nullable:
            return value, None
        key, here = f"{self.slots[list][what][0]}_ok", f"{self._column_name(list, what)}_OK"
        return value, f"{self.columns.at(key, node, here=here)} != 0"

    def feature(self, variable: str, feature: Feature, node: str) -> ValueText:
        """A feature of an event in its variable's list."""
        self.kept[variable].add(feature)
        return self.stored_feature(variable, variable, feature, node)

    @property
    def links(self) -> list[int]:
        """The columns that link to other entries."""
        names = ["previous", "rip", *(["back"] if self.chains else [])]
        names += [f"{LINK}{number}" for number in range(self.most.get(LINK, 0))]
        return [self.columns.wholes[name] for name in names]

    @property
    def rows(self) -> list[int]:
        """The columns with rows of events; -1: none."""
        names = ["row", *(f"{ROW}{number}" for number in range(self.most.get(ROW, 0)))]
        return [self.columns.wholes[name] for name in names]

    def add(self, out: SourceWriter, list: str, node: str, values: dict[str, str]) -> None:
        """Prepends an entry to its list. `values`: first, start, index, rip, back, count."""
        if self.grows:
            with out.block("if atop == A.shape[0]:"):
                write_stop_if(out, "atop >= meta[MOST_NODES]", GROWING)
                out("A = grown(A)", "AF = grown(AF)")
        out(f"{node} = atop")
        columns = {
            "previous": self.top(list),
            "rip": values.get("rip", "-1"),
            "row": "row",
            "key": "k",
            "first": values["first"],
            "start": values["start"],
            "end": "t",
        }
        if self.chains:
            columns |= {"back": values.get("back", "-1"), "count": values.get("count", "0")}
        if self.frame.counts:
            columns |= {"index": values["index"], "last_index": "idx"}
        if self.limits:
            columns["list"] = self.stack(list)
        for name, text in columns.items():
            out(f"{self.get(name, node)} = {text}")
        used = {name for name, _ in self.slots[list].values()}
        for sort in NONE:
            for number in range(self.most.get(sort, 0)):
                if f"{sort}{number}" not in used:
                    out(f"{self.columns.at(f'{sort}{number}', node)} = -1")
        if self.grows:
            out("atop += 1", f"{self.top(list)} = {node}")
            return
        with out.block("if atop < last_entry:"):
            out("atop += 1", f"{self.top(list)} = {node}")
        with out.block("else:"):
            out("short = SHORT_OF_ENTRIES")

    def push(self, out: SourceWriter, variable: str, rip: str = "-1") -> None:
        """Stores the current event for a negated variable."""
        self.add(out, variable, "n", {"first": "row", "start": "s", "index": "idx", "rip": rip})
        for feature in sorted(self.kept[variable], key=lambda f: f.number):
            place = self.stored_feature(variable, variable, feature, "n")
            store_value(out, place, self.frame.read(feature))
