"""What may stand beside what in a query and its call: one example of each pair, which is only planned."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pyarrow as pa

import ensue
from ensue.runtime.query_spec import open_archives
from support.key_groups import workload_of

EVENTS = pa.table({"t": pa.array([], pa.int64()), "type": pa.array([], pa.string()), "x": pa.array([], pa.int64()),
                   "k": pa.array([], pa.int64())})  # fmt: skip
COLUMNS = {"time": "t", "type": "type"}
PATTERN = "SEQ(A a, B b)"
CLAUSE = "MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.x AS v PATTERN (A B{1,2}) DEFINE B AS B.x > A.x)"

# What it is called, which place it takes in a query or call, and what stands there; `b` is an event of each pattern.
PARTS = {
    "`AND`": ("pattern", "AND(A a, B b)"),
    "`OR`": ("pattern", "OR(A a, B b)"),
    "`A+ a[]`": ("pattern", "SEQ(A+ a[], B b)"),
    "a greedy loop at the end": ("pattern", "SEQ(B b, A++ a[])"),
    "`(A a, C c)+`": ("pattern", "SEQ((A a, C c)+, B b)"),
    "`A? a`": ("pattern", "SEQ(A? a, B b)"),
    "`THEN NEXT`": ("pattern", "A a THEN NEXT B b"),
    "`!C c`": ("pattern", "SEQ(A a, !C c, B b)"),
    "`!C c` at the end": ("pattern", "SEQ(A a, B b, !C c)"),
    "`!C c FROM ... TO ...`": ("pattern", "SEQ(A a, B b, !C c FROM b.end TO b.end + 2)"),
    "`[k]`": ("where", " WHERE [k]"),
    "`USING next`": ("using", " USING next"),
    "`USING strict`": ("using", " USING strict"),
    "no `WITHIN`": ("within", " "),
    "`WITHIN n EVENTS`": ("within", " WITHIN 5 EVENTS"),
    "`AFTER MATCH`": ("after", " AFTER MATCH SKIP PAST LAST EVENT"),
    "`AFTER MATCH ... IN ORDER OF START`": ("after", " AFTER MATCH SKIP PAST LAST EVENT IN ORDER OF START"),
    "`JOIN ARCHIVE`": ("side", "live"),
    "the pattern of an archive": ("side", "archived"),
    "`RETURN`": ("return", " RETURN b.x AS v"),
    "`COUNT(*)`": ("return", " RETURN COUNT(*) AS n"),
    "`EXISTS`": ("return", " RETURN EXISTS"),
    "`ALL EVENTS`": ("return", " RETURN ALL EVENTS"),
    "`GROUP BY`": ("return", " RETURN b.x AS v, COUNT(*) AS n GROUP BY v"),
    "`TOTAL`": ("return", " RETURN TOTAL COUNT(*) AS n"),
    "`HAVING`": ("having", " HAVING b.x > 1"),
    "`ORDER BY`": ("order", " ORDER BY end DESC"),
    "`FETCH FIRST`": ("limit", " FETCH FIRST 2 ROWS ONLY"),
    "`LIMIT`": ("limit", " LIMIT 2"),
    "`CHOOSE LATEST`": ("choose", " CHOOSE LATEST"),
    "`CHOOSE ONCE`": ("choose", " CHOOSE ONCE"),
    "definitions": ("layer", "over"),
    "a definition": ("layer", "inside"),
    "`MATCH_RECOGNIZE`": ("clause", CLAUSE),
    "`emit_timeouts=True`": ("timeouts", {"emit_timeouts": True}),
    "`trace=True`": ("trace", {"trace": True}),
    "`flat=True`": ("flat", {"flat": True}),
    "`ids=False`": ("ids", {"ids": False}),
    "a live matcher": ("runner", "live"),
    "a stream": ("runner", "tasks"),
}  # fmt: skip
# what a MATCH_RECOGNIZE clause can stand beside: it has no clauses of a pattern
OF_CALLS = {"timeouts", "trace", "flat", "ids", "runner"}


@dataclass(frozen=True)
class Example:
    """A query and a call with some parts; the other places have what is usual."""

    parts: dict[str, Any]

    @property
    def text(self) -> str:
        if "clause" in self.parts:
            return self.parts["clause"]
        of_events = "".join(self.parts.get(place, usual) for place, usual in (
            ("pattern", PATTERN), ("using", ""), ("where", ""), ("within", " WITHIN 5"), ("after", "")))  # fmt: skip
        rest = "".join(self.parts.get(place, "") for place in ("having", "return", "order", "limit", "choose"))
        rest = rest.replace("BY end", "BY n") if " AS n" in rest else rest
        match self.parts.get("side"):
            case "live":
                text = f"{of_events} JOIN ARCHIVE old SEQ(A o) RANGE 9 BEFORE START{rest}"
            case "archived":
                text = f"SEQ(A l) WITHIN 5 JOIN ARCHIVE old {of_events} RANGE 9 BEFORE START{rest}"
            case _:
                text = of_events + rest
        match self.parts.get("layer"):
            case "over":
                return "EVENT P AS SEQ(B m) WITHIN 5 RETURN m.x AS x, m.k AS k; " + text.replace("B b", "P b")
            case "inside":
                return f"EVENT D AS {text}; SEQ(D d, C c) WITHIN 9"
            case _:
                return text

    def plan(self) -> None:
        """Plans the call, on the runner that it has."""
        output = {k: v for p in self.parts.values() if isinstance(p, dict) for k, v in p.items()}
        archives = {"old": ensue.archive(EVENTS, key="k", **COLUMNS)} if "side" in self.parts else None
        columns = {} if "clause" in self.parts else COLUMNS
        options = {"options": ensue.OutputOptions(**output), "archives": archives} | columns
        match self.parts.get("runner"):
            case None:
                ensue.match(EVENTS, self.text, **options)
            case "live":
                ensue.live(self.text, schema=EVENTS.schema, **options)
            case _:
                job = workload_of(self.text, EVENTS.schema, "t", "type", **output,
                                  archive_set=open_archives(archives, streaming=True))  # fmt: skip
                _ = job.chains

    @property
    def refused(self) -> str | None:
        """Why it cannot be planned; None: it can."""
        try:
            self.plan()
        except ensue.QueryError as error:
            return str(error).splitlines()[0]
        return None


def iterate_pairs() -> Iterator[tuple[str, str, Example]]:
    """Each two parts that take different places."""
    for one, other in combinations(PARTS, 2):
        places = {PARTS[one][0]: PARTS[one][1], PARTS[other][0]: PARTS[other][1]}
        if len(places) < 2 or ("clause" in places and not places.keys() - {"clause"} <= OF_CALLS):
            continue
        yield one, other, Example(places)
