"""Who has strayed from a convoy: near its leader, and then too far away.

This is subscription (3) of a paper on space-time events (docs/papers.md). As printed, it finds
more than it should: nothing says that the vehicle that was near and the one that is far away
are the same. One predicate mends that. The reports come one by one, as from a socket. They are
generated, and who strays is planted in them, so the answer can be checked.
"""

import sys

import pyarrow as pa

import ensue
from samples.convoys import Convoys, convoys

# $e1; is a follower close to its leader, $e2; one that is far, at most 90 seconds later. A
# variable is one event, or one pair of events, wherever it stands. `|(a)(b)` means at the same
# time; no two vehicles report at the same microsecond, so `concurrent` says what is the same.
AS_PRINTED = """
    =|($e1;; 90 seconds)($e2;),
    $e1; = (|($A;)($B;) && DIST($A;; <; 500)($B;)),
    $e2; = (|($C;)($D;) && DIST($C;; >; 500)($D;)),
    $A; = E-A, $B; = E-B, $C; = E-A, $D; = E-B,
    E-A = (ARITH:convoy = {convoy}, STRING:role = 'follower'),
    E-B = (ARITH:convoy = {convoy}, STRING:role = 'leader')
    WITH concurrent = 5 seconds
"""
# The same, but $C; is the vehicle that $A; is.
SAME_VEHICLE = AS_PRINTED.replace("$C; = E-A", "$C; = (ARITH:convoy = {convoy}, ARITH:id = $A;.id)")


def main() -> None:
    morning = convoys(convoys=10, minutes=30)
    print(f"{morning.reports.num_rows:,} reports of {morning.convoys} convoys")
    printed = strayed(ensue.match(morning.reports, subscriptions(AS_PRINTED, morning)))
    found = ensue.match(morning.reports, subscriptions(SAME_VEHICLE, morning))
    for row in strayed(found).slice(0, 5).to_pylist():
        print(f"  {row['end']:%H:%M:%S}  {row['subscription']}: vehicle {row['id']} has strayed")
    extra = printed.num_rows - found.num_rows
    print(f"as printed   {printed.num_rows}, {extra} of them of two vehicles")
    right = [
        check("on a table", strayed(found), morning.strayed),
        check("one by one", strayed(one_by_one(morning)), morning.strayed),
    ]
    if not all(right):
        sys.exit(1)


def subscriptions(text: str, morning: Convoys) -> ensue.Subscriptions:
    """One for every convoy."""
    fleet = ensue.Subscriptions(time="ts", location=("x", "y"))
    fleet.add_all((f"convoy-{n}", text.format(convoy=n)) for n in range(morning.convoys))
    return fleet


def one_by_one(morning: Convoys) -> pa.Table:
    """What a listener hears while the reports come in."""
    live = ensue.live(subscriptions(SAME_VEHICLE, morning), schema=morning.reports.schema)
    told = [live.feed(report) for report in morning.reports.to_pylist()]
    return pa.concat_tables([*told, live.finish()])


def strayed(found: pa.Table) -> pa.Table:
    """The matches, with the vehicle that was far away at their end: the last member."""
    vehicles = [members[-1]["id"] for members in found["members"].to_pylist()]
    return found.append_column("id", pa.array(vehicles, pa.int64()))


def check(how: str, found: pa.Table, planted: pa.Table) -> bool:
    ours, theirs = (
        [tuple(row.values()) for row in table.select(planted.column_names).to_pylist()] for table in (found, planted)
    )
    missed, false = len(set(theirs) - set(ours)), len(ours) - len(set(ours) & set(theirs))
    print(f"{how:12} {len(ours)} found, {len(theirs)} planted: {missed} missed, {false} false")
    return missed == false == 0


if __name__ == "__main__":
    main()
