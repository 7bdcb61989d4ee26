"""Events that last: a door open while a machine runs hot, then a stop.

`time=("from", "to")` names the columns of an event's start and end. `AND` asks for both events in
any order, and the conditions on their times ask that they overlap; `SEQ` then means that the stop
begins when both are over.
"""

import pyarrow as pa

import ensue

STOPPED = """
    SEQ(AND(Hot h, DoorOpen d), Stop s)
    WHERE [machine] and h.start < d.end and d.start < h.end
    WITHIN 60
    RETURN s.machine AS machine, greatest(h.start, d.start) AS both_from,
           least(h.end, d.end) AS both_to, s.start AS stopped
"""

STATES = [
    # machine, state, from, to (minutes)
    ("press", "Hot", 10, 25),
    ("press", "DoorOpen", 20, 22),
    ("press", "Stop", 26, 40),
    ("drill", "DoorOpen", 5, 8),
    ("drill", "Hot", 12, 30),  # the door was closed again
    ("drill", "Stop", 35, 50),
    ("lathe", "DoorOpen", 15, 45),
    ("lathe", "Hot", 30, 50),
    ("lathe", "Stop", 48, 60),  # stopped while it was hot
]


def main() -> None:
    names = ("machine", "state", "from", "to")
    states = pa.table([list(column) for column in zip(*STATES, strict=True)], names=names)
    for match in ensue.match(states, STOPPED, time=("from", "to"), type="state").to_pylist():
        print(
            f"{match['machine']}: hot with an open door from {match['both_from']} "
            f"to {match['both_to']}, stopped at {match['stopped']}"
        )


if __name__ == "__main__":
    main()
