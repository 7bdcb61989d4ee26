"""`trace=True` on plain queries: the same matches, and the events that each is made of."""

from random import Random

import pyarrow as pa
import pytest

import ensue
from support.queries import random_query, random_repeats
from support.seeds import some
from support.streams import random_events, random_nature


@pytest.mark.parametrize("seed", some(15, 400))
def test_members_are_added_and_nothing_else_changes(seed, monkeypatch):
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)
    random = Random(seed)
    nature = random_nature(random)
    text = random.choice((random_query, random_repeats))(random, nature)
    events = random_events(random, 12, nature)
    given = {"time": nature.columns, "type": "type"}
    try:
        plain = ensue.match(events, text, **given)
    except ensue.QueryError as error:
        with pytest.raises(ensue.QueryError) as raised:
            ensue.match(events, text, **given, options=ensue.OutputOptions(trace=True))
        assert str(raised.value) == str(error)  # noqa: PT017
        return
    traced = ensue.match(events, text, **given, options=ensue.OutputOptions(trace=True))
    assert traced.column_names == [*plain.column_names, "members"], text
    assert by_id(traced.drop_columns(["members"])) == by_id(plain), text
    columns = set(plain.column_names)
    for row in traced.to_pylist():
        for variable, bound in row["members"].items():
            if variable in columns:
                assert repr(row[variable]) == repr(bound), text


def by_id(table: pa.Table) -> list[str]:
    """Rows in an order of their own, NaN equal to itself."""
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.spark
def test_a_dataframe_gives_the_same_members(spark):
    events = pa.table({"t": range(9), "type": list("ABCABCABB"), "k": [0, 0, 0, 1, 1, 1, 0, 0, 1], "x": range(9)})
    query = "SEQ(A a, B+ b[]) WHERE [k] WITHIN 9 RETURN a.x AS first, count(b[]) AS n"
    given = {"time": "t", "type": "type", "options": ensue.OutputOptions(trace=True)}
    here = ensue.match(events, query, **given)
    there = ensue.match(spark.createDataFrame(events), query, **given)
    assert by_id(there.toArrow()) == by_id(here)
    assert str(ensue.trace(there.orderBy("match_id").first(), query)).startswith("match")
