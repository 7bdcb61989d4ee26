"""What Ensue is asked beside Esper means what its oracle says, on few events.

`python -m pytest benchmarks/peers`; every run of the comparison holds Esper to the same matches.
"""

import pyarrow as pa
import pytest
from benchmarks.peers.esper.queries import PAIRS, Pair
from benchmarks.peers.events import trades

import ensue
from ensue.languages.patterns import parse
from ensue.semantics import Event, matches, value_of

EVENTS = trades(90, symbols=5, seed=4)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: p.name)
def test_ensue_finds_what_its_oracle_finds(pair: Pair) -> None:
    stream = [
        Event(
            position=k,
            type=row["type"] if pair.typed else "Stock",
            start=row["ts"] * 1_000_000,
            end=row["ts"] * 1_000_000,
            values=row,
        )
        for k, row in enumerate(EVENTS.to_pylist())
    ]
    query = parse(pair.ensue)
    ends = [r.expr for r in query.returns if r.name in ("s", "e")]
    expected = [tuple(value_of(e, binding) for e in ends) for binding in matches(query, stream)]
    times = EVENTS.set_column(0, "ts", EVENTS["ts"].cast(pa.timestamp("ms")))
    found = ensue.match(times, pair.ensue, time="ts", type="type" if pair.typed else None)
    given = zip(*(found[name].cast(pa.int64()).to_pylist() for name in ("s", "e")), strict=True)
    assert expected
    assert sorted(given) == sorted(expected)
