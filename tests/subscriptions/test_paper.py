"""Every table and run of the paper: the meaning, tables, and live matching."""

from typing import Any

import pyarrow as pa
import pytest
from tests.support.paper_subscriptions import BORDERS, LOGISTICS, REGIONS, VARIABLES, Case

import ensue
from ensue.parser.opsl.opsl_parser import parse_subscription
from ensue.reference.conditions import Event
from ensue.reference.subscription_matches import ReferenceStream, find_subscription_matches

CASES = [pytest.param(case, id=f"{case.text[:30]} {k}") for k, case in
         enumerate([*BORDERS, *VARIABLES])]  # fmt: skip
EVENTS = pa.schema(
    {"ts": pa.int64(), "kind": pa.string(), "number": pa.int64(), "x": pa.float64(),
     "y": pa.float64()}
)  # fmt: skip


def fleet(**texts: str) -> "ensue.Subscriptions":
    found = ensue.Subscriptions(time="ts", location=("x", "y"), regions=REGIONS)
    for name, text in texts.items():
        found.add(name, text)
    return found


def named(found: pa.Table) -> list[str]:
    return sorted(" ".join(sorted(f"{m['kind']}{m['number']}" for m in row["members"])) for row in found.to_pylist())


@pytest.mark.parametrize("case", CASES)
def test_the_meaning(case: Case) -> None:
    rows = case.events
    events = [
        Event(n, "", row["ts"], row["ts"], row)  # type: ignore[arg-type]
        for n, row in enumerate(rows)
    ]
    corners: dict[int, Any] = {n: ((row["x"], row["y"]),) for n, row in enumerate(rows) if row["x"] is not None}
    found = find_subscription_matches(parse_subscription(case.opsl, REGIONS), ReferenceStream(events, corners))
    names = [f"{row['kind']}{row['number']}" for row in rows]
    assert sorted(" ".join(sorted(names[p] for p in m.members)) for m in found) == sorted(case.matches)


@pytest.mark.parametrize("case", CASES)
def test_tables(case: Case) -> None:
    found = ensue.match(pa.Table.from_pylist(case.events, EVENTS), fleet(s=case.opsl))
    assert named(found) == sorted(case.matches)


@pytest.mark.parametrize("case", CASES)
def test_live(case: Case) -> None:
    live = ensue.live(fleet(s=case.opsl), schema=EVENTS)
    found = [live.feed(event) for event in case.events]
    assert named(pa.concat_tables([*found, live.finish()])) == sorted(case.matches)


@pytest.mark.parametrize(("text", "events", "times"), LOGISTICS)
def test_planted_truth(text: str, events: list[dict[str, Any]], times: list[Any]) -> None:
    found = ensue.match(pa.Table.from_pylist(events), fleet(s=text)).to_pylist()
    assert [tuple(m["ts"] for m in row["members"]) for row in found] == times
    assert all(row["subscription"] == "s" and row["location"] for row in found)


def test_an_absence_fires_when_time_has_passed_without_a_further_event() -> None:
    live = ensue.live(fleet(s="!(A;2)B, A = (STRING:kind = 'a'), B = (STRING:kind = 'b')"),
                      schema=EVENTS)  # fmt: skip
    assert live.feed({"ts": 1, "kind": "a", "number": 1}).num_rows == 0
    assert live.advance(3).num_rows == 0  # an event of 3 may still come
    (row,) = live.advance(4).to_pylist()
    assert (row["start"], row["end"]) == (1, 3)
    assert live.finish().num_rows == 0
