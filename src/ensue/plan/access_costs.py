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
    event=0.03,
    used=0.05,
    match=0.5,
    call=850.0,
    join=500.0,
    instance=0.3,
    pair=1.0,
    admit=0.027,
    memory=Reading(
        access=200.0, file=0.0, row=0.037, picked=0.15, listed=0.006, event=0.0, piece=1.0
    ),
    stored=Reading(
        access=3_800.0, file=800.0, row=0.008, picked=0.008, listed=0.0, event=0.35, piece=7.0
    ),
)
