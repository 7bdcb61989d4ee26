"""What reading an archive and joining with it takes, in microseconds of a processor.

Measured by `python -m benchmarks.access_costs`, which prints this table for its machine. Plans
compare ways with each other, so only the ratios of these figures matter.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """What a read takes."""

    access: float  # C_access: whatever is asked for
    file: float  # C_file: each file that is opened
    row: float  # C_row: each row that is looked at
    picked: float  # the same where objects are asked for
    listed: float  # each row of such an object, of whatever time
    event: float  # each event that is found
    keyed: float  # and where objects are asked for
    piece: float  # each object that is asked for


@dataclass(frozen=True, slots=True)
class Costs:
    """What else is done for live and archived matches."""

    comparison: float  # the unit of the estimates of C_L and C_A
    event: float  # an event through the scan of a matcher
    used: float  # and if it is of a type that the pattern names
    match: float  # a match as a row of a table
    call: float  # C_call: a matcher for what was read
    join: float  # live matches joined with archived ones, however few
    instance: float  # each archived match that a join looks at
    pair: float  # C_pair: each row of the result
    admit: float  # asking whether the object of an event has a past
    memory: Reading
    stored: Reading


COSTS = Costs(
    comparison=0.005,
    event=0.034,
    used=0.045,
    match=0.2,
    call=800.0,
    join=500.0,
    instance=0.33,
    pair=0.85,
    admit=0.022,
    memory=Reading(
        access=280.0, file=0.0, row=0.012, picked=0.12, listed=0.003, event=0.048, keyed=0.0,
        piece=0.0,
    ),
    stored=Reading(
        access=3_900.0, file=300.0, row=0.01, picked=0.012, listed=0.0, event=0.35, keyed=0.13,
        piece=2.7,
    ),
)  # fmt: skip
