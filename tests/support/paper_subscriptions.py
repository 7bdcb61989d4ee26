"""The tables and runs of the paper on space and subscriptions, as streams and their matches.

An event is `kind` and `number` (a1 is kind "a", number 1), at a time, maybe at a place. A match is
written as the events it is made of.
"""

from dataclasses import dataclass, field

DEPOT = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"
TARGET = "POLYGON ((100 0, 110 0, 110 10, 100 10, 100 0))"
NAMES = ", ".join(f"{kind.upper()} = (STRING:kind = '{kind}')" for kind in "abcde")


@dataclass(frozen=True)
class Case:
    """A subscription over a stream: `stream` is "1: a1 b0, 2: b1", in the order of arrival."""

    text: str  # capitals are defined as kinds
    stream: str
    matches: tuple[str, ...]  # "a1 b1"; "" for one without members
    places: dict[str, tuple[float, float]] = field(default_factory=dict)
    options: str = "WITH select = all"

    @property
    def opsl(self) -> str:
        names = [f"{k.upper()} = (STRING:kind = '{k}')" for k in "abcde" if _uses(self.text, k.upper())]
        return f"{', '.join([self.text, *names])} {self.options}".strip()

    @property
    def events(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for part in self.stream.split(","):
            time, names = part.split(":")
            for name in names.split():
                x, y = self.places.get(name, (None, None))
                found.append({"ts": int(time), "kind": name[0], "number": int(name[1:]), "x": x, "y": y})
        return found


def _uses(text: str, name: str) -> bool:
    import re

    return re.search(rf"(?<![\w$-]){name}(?![\w-])", text) is not None


# Section 4: borders, point events.
BORDERS = [
    Case("=|(A;2)B", "1: a1 b0, 2: b1, 3: b2, 4: b3", ("a1 b1", "a1 b2")),
    Case("|=(A;2)B", "1: a1, 2: b1, 3: b2, 4: b3", ("a1 b3",)),
    Case("!(A;2)B", "1: a1, 3: b1, 4: a2, 7: b2", ("a2",)),
    Case("!(A;2)B", "1: a1 b1, 9: x1", ("a1",)),
    Case("=|(A;B)C", "1: a1 c0, 2: c1, 3: b1 c2, 4: c3", ("a1 b1 c1", "a1 b1 c2")),
    Case("|=(A;B)C", "1: a1, 2: c1, 3: b1 c2, 4: c3", ("a1 b1 c3",)),
    Case("!(A;B)C", "1: a1, 2: c1, 3: a2, 4: b1", ("a2 b1",)),
    Case("=|(10;5)A", "10: a1, 11: a2, 15: a3, 16: a4", ("a2", "a3")),
    Case("|=(10;5)A", "15: a3, 16: a4", ("a4",)),
    Case("!(10;5)A", "10: a1, 16: a2", ("",)),
    Case("!(10;5)A", "15: a1", ()),
    Case("|(A)B", "1: a1 b1, 2: b2", ("a1 b1",)),
]

_X_AND_Y = "$x; = A&&B, $y; = D&&E"
_LAST = {
    "a1": (18, 6), "b1": (9, 6), "d1": (3, 13), "e1": (16, 14),
    "a2": (8, 1), "b2": (19, 20), "d2": (16, 4), "e2": (7, 10),
}  # fmt: skip
_NOT = {
    "a1": (0, 0), "b1": (0, 10), "d1": (20, 5), "e1": (20, 200), "d2": (-1, 5), "e2": (1, 5),
}  # fmt: skip

# Sections 8 and 9: variables, and what the paper's invalidation is for.
VARIABLES = [
    Case(
        f"|($x;)$y; && OVLP($x;)$y;, {_X_AND_Y}",
        "1: a1 b1 d1 e1",
        ("a1 b1 d1 e1",),
        {"a1": (0, 0), "b1": (0, 10), "d1": (-1, 5), "e1": (1, 5)},
    ),
    Case(f"|($x;)$y; && OVLP($x;)$y;, {_X_AND_Y}", "1: a1 b1 d1 e1, 2: d2 e2", (), _NOT),
    Case(f"|($x;)$y; && OVLP($x;)$y;, {_X_AND_Y}", "1: a1 b1, 2: d1 e1, 3: a2 b2 d2 e2", ("a2 b2 d2 e2",), _LAST),
    Case(
        f"|($x;)$y; || OVLP($x;)$y;, {_X_AND_Y}",
        "1: a1 b1, 2: d1 e1, 3: a2 b2 d2 e2",
        # d1 e1 are not concurrent with anything, and stay for the branch that does not ask for it
        ("a2 b2 d1 e1", "a2 b2 d2 e2", "a2 b2 d1 e2", "a2 b2 d2 e1"),
        _LAST,
        "WITH select = all, within = 1",
    ),
]


def truck(*at: tuple[int, float]) -> list[dict[str, object]]:
    """Truck 7 at y = 5, by time."""
    return [{"ts": t, "id": 7, "type": "truck", "x": float(x), "y": 5.0} for t, x in at]


# Section 10: planted truth.
ROUTE = truck((0, 5), (10, 10), (20, 30), (30, 60), (40, 80), (50, 100), (60, 105))
LEFT = "=|(@(Region1)(A); 25)(DIST(Region1; >; 20)(A)), A = (ARITH:id = 7, STRING:type = 'truck')"
ARRIVED = "=|(DIST(Region2; >; 20)(A); 25)(@(Region2)(A)), A = (ARITH:id = 7, STRING:type = 'truck')"
CONVOY = """=|($e1;;100)($e2;;),
    $e1; = (|($A;)($B;) && DIST($A;;<;50)($B;)),
    $e2; = (|($C;)($D;) && DIST($C;;>;50)($D;)),
    $A; = E-A, $B; = E-B, $C; = E-A, $D; = E-B, E-A = (ARITH:id = 7), E-B = (ARITH:id = 1)
    WITH concurrent = {0}"""
LEADER = [(0, 0), (60, 500), (120, 1000), (180, 1500)]
FOLLOWER = [(1, 10), (61, 480), (121, 700), (181, 1490)]
PAIR = sorted(
    [
        {"ts": t, "id": n, "type": "truck", "x": float(x), "y": 0.0}
        for n, route in ((1, LEADER), (7, FOLLOWER))
        for t, x in route
    ],
    key=lambda event: event["ts"],
)
REGIONS = {"Region1": DEPOT, "Region2": TARGET}
LOGISTICS = [  # text, events, times of the matches' members
    (LEFT, ROUTE, [(10, 30)]),
    (ARRIVED, ROUTE, [(30, 50)]),
    (CONVOY.format(0), PAIR, []),
    (CONVOY.format(1), PAIR, [(60, 61, 120, 121)]),
]
