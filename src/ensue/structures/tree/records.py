"""What a join tree keeps: events, chains of Kleene events and joined results, in one arena.

Each list of a partition (a node's results, or a negated variable's events) has its own layout, on
columns that all lists share by sort.
"""

from ensue.schema import Kind
from ensue.source.absence import Instances
from ensue.source.event_loop import stop_if
from ensue.source.expressions import Feature, Text
from ensue.source.kernel_inputs import Frame
from ensue.source.names import TOPS
from ensue.source.table_columns import Source

# Sorts of columns: rows, links to entries, features, times, and what operators say of results.
ROW, LINK, WHOLE, TEXT, REAL = "row", "link", "whole", "text", "real"
TIME, SAID, SAID_REAL = "time", "said", "said_real"
GROWING = ("O", "A", "AF")  # tables that a kernel replaces by larger ones, if it does so itself
NONE = (ROW, LINK)  # sorts in which -1 stands for nothing


class Records(Instances):
    """Entries of lists, the newest first. `previous` leads to the next older one of the list.

    `row` is the last event of an entry, `first` its first one; `start` and `end` are the earliest
    start and the latest end. `rip` is the newest entry that an operator above may join from the
    left: what was complete when the entry's first event came. `back` leads from a chain of Kleene
    events to the chain without its last event.
    """

    def __init__(
        self,
        frame: Frame,
        lists: tuple[str, ...],
        *,
        chains: bool,
        limits: dict[str, float] | None = None,
        grows: bool = False,
        labels: dict[str, str] | None = None,
        meanings: dict[str, str] | None = None,
    ) -> None:
        # what nodes' lists are called in names, and for a reader; others are negated variables'
        self.labels, self.meanings = labels or {}, meanings or {}
        super().__init__(frame, lists)
        self.grows = grows  # the kernel makes room itself
        # how long entries of a list may wait from their start, where that is less than the window
        self.limits = {self.number[name]: limit for name, limit in (limits or {}).items()}
        self.slots: dict[str, dict[tuple[str, str], tuple[str, str]]] = {n: {} for n in lists}
        self.most: dict[str, int] = {}  # columns of a sort
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
        """How much is kept: it grows until every condition finds what it needs."""
        return sum(map(len, self.slots.values()))

    def slot(self, list: str, what: tuple[str, str], sort: str, node: str) -> str:
        """The text for something an entry of a list keeps."""
        slots = self.slots[list]
        if what not in slots:
            number = sum(s == sort for _, s in slots.values())
            slots[what] = (f"{sort}{number}", sort)
            self.most[sort] = max(self.most.get(sort, 0), number + 1)
            if sort == TEXT:
                self.columns.texts.add(f"{sort}{number}")
        real = sort in (REAL, SAID_REAL) or (sort == TIME and self.frame.real_time)
        here = self._called(list, what)
        return self.columns.at(slots[what][0], node, real=real, here=here)

    def _called(self, list: str, what: tuple[str, str]) -> str:
        """The name of something that an entry of a list keeps: lists share the columns."""
        (owner, said), names = what, self.frame.names
        if said.startswith("@"):  # what an operator says of its result
            said = names.variable(said[1:])
        elif said[1:].isdigit():  # a feature
            said = self.frame.called(self.frame.features.all()[int(said[1:])])
        else:
            said = said.upper()
        alone = owner == list or self.labels.get(list) == f"_{owner}"
        whose = [names.variable(owner)] if owner and not alone else []
        return "_".join([self._label(list), *whose, said])

    def _label(self, list: str) -> str:
        """A node's list, or a negated variable's."""
        if list in self.labels:
            return f"AT{self.labels[list]}"
        return f"OF_{self.frame.names.variable(list)}"

    def stack(self, variable: str) -> str:
        """The name of a list."""
        label = self._label(variable).removeprefix("OF_").removeprefix("AT_")
        meaning = self.meanings.get(variable, "")
        return self.frame.names.number(f"TOP_{label}", self.number[variable], TOPS, meaning)

    def settle(self) -> None:
        """Gives what is kept its places by name, whatever order it was asked for in."""
        for slots in self.slots.values():
            number: dict[str, int] = {}
            for what in sorted(slots):
                sort = slots[what][1]
                slots[what] = (f"{sort}{number.get(sort, 0)}", sort)
                number[sort] = number.get(sort, 0) + 1

    def kept_row(self, list: str, variable: str, node: str) -> str:
        return self.slot(list, (variable, "row"), ROW, node)

    def kept_chain(self, list: str, variable: str, node: str) -> str:
        return self.slot(list, (variable, "chain"), LINK, node)

    def kept_time(self, list: str, owner: str, which: str, node: str) -> str:
        """When a variable's event starts or ends, or a result of an operator."""
        return self.slot(list, (owner, which), TIME, node)

    def kept_feature(self, list: str, variable: str, feature: Feature, node: str) -> Text:
        """A feature of a variable's event, kept in an entry."""
        sort = WHOLE if feature.integral else REAL
        if feature.kind is Kind.STRING:
            sort = TEXT
        what = (variable, f"f{feature.number}")
        value = self.slot(list, what, sort, node)
        if not self.frame.nullable:
            return value, None
        key, here = f"{self.slots[list][what][0]}_ok", f"{self._called(list, what)}_OK"
        return value, f"{self.columns.at(key, node, here=here)} != 0"

    def feature(self, variable: str, feature: Feature, node: str) -> Text:
        """Of an event that is an entry of its own variable's list."""
        self.kept[variable].add(feature)
        return self.kept_feature(variable, variable, feature, node)

    @property
    def links(self) -> list[int]:
        """The columns, beside `previous`, that lead to other entries."""
        names = ["rip", *(["back"] if self.chains else [])]
        names += [f"{LINK}{number}" for number in range(self.most.get(LINK, 0))]
        return [self.columns.wholes[name] for name in names]

    @property
    def rows(self) -> list[int]:
        """The columns that hold rows of events; -1 where an entry has none."""
        names = ["row", *(f"{ROW}{number}" for number in range(self.most.get(ROW, 0)))]
        return [self.columns.wholes[name] for name in names]

    # -------------------------------------------------------------------------- writing

    def add(self, out: Source, list: str, node: str, values: dict[str, str]) -> None:
        """Puts an entry in front of its list. `values`: first, start, index, rip, back, count."""
        if self.grows:
            with out.block("if atop == A.shape[0]:"):
                stop_if(out, "atop >= meta[MOST_NODES]", GROWING)
                out("A = grown(A)", "AF = grown(AF)")
        out(f"{node} = atop")
        given = {
            "previous": self.top(list),
            "rip": values.get("rip", "-1"),
            "row": "row",
            "key": "k",
            "first": values["first"],
            "start": values["start"],
            "end": "t",
        }
        if self.chains:
            given |= {"back": values.get("back", "-1"), "count": values.get("count", "0")}
        if self.frame.counts:
            given |= {"index": values["index"], "last_index": "idx"}
        if self.limits:
            given["list"] = self.stack(list)
        for name, text in given.items():
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

    def put(self, out: Source, place: Text, value: Text) -> None:
        """Writes a value, and whether there is one, to its place in an entry."""
        out(f"{place[0]} = {value[0]}")
        if place[1] is not None:
            out(f"{place[1].removesuffix(' != 0')} = {value[1] or 'True'}")

    def push(self, out: Source, variable: str, rip: str = "-1") -> None:
        """Keeps the event at hand for a negated variable."""
        self.add(out, variable, "n", {"first": "row", "start": "s", "index": "idx", "rip": rip})
        for feature in sorted(self.kept[variable], key=lambda f: f.number):
            self.put(
                out,
                self.kept_feature(variable, variable, feature, "n"),
                (self.frame.value(feature), self.frame.ok(feature)),
            )
