"""Random Flink patterns with random events, in the notation of the questions.

What Flink does at places where it contradicts its own rules is left out: a bounded greedy loop
that is full, a negation of the next event behind a loop, the ways out of an open repeated group, a
negation before nothing but optional parts, and the choice between matches of one beginning.
"""

from collections.abc import Callable
from random import Random
from typing import Any

MODES = ("next", "followedBy", "followedBy", "followedByAny")
TIMES = ("oneOrMore()", "oneOrMore()", "timesOrMore(2)", "times(2)", "times(1, 2)", "times(2, 3)")
INNER = ("", "", ".consecutive()", ".allowCombinations()")
SKIPS = ("skipToNext()", "skipPastLastEvent()", 'skipToFirst("b")', 'skipToLast("b")')


def random_question(seed: int) -> dict[str, Any]:
    """A pattern with events for it.

    >>> random_question(3)["flink"]
    'begin("a", "A")...
    """
    random = Random(seed)
    write = random.choice((_chain, _chain, _chain, _comparing, _grouped, _skipping))
    kinds = _events(random, write)
    events: str | list[list[Any]] = " ".join(kinds)
    if write is _comparing:
        table = [[ts, kind, random.randrange(10)] for ts, kind in enumerate(kinds, 1)]
        events = [["ts", "type", "v"], *table]
    return {"name": f"random_{seed:03}", "events": events, "flink": write(random)}


def _events(random: Random, write: Callable[[Random], str]) -> list[str]:
    """Events in the order that patterns ask for, some several times, and others between."""
    word = random.choice(("DABABC", "ABABC", "DABC")) if write is _grouped else "ABCD"
    events = [kind for kind in word for _ in range(random.choice((1, 1, 1, 2, 3)))][:8]
    for _ in range(random.randint(0, 2)):
        events.insert(random.randint(0, len(events)), random.choice("ABCXXY"))
    return events


def _chain(random: Random) -> str:
    """Steps of every kind, one behind the other."""
    steps = random.randint(2, 4)
    typed = random.random() < 0.7
    must = random.randrange(steps)  # a step that is not optional
    text, loop, greedy, optional = "", False, False, False
    for number in range(steps):
        last = number == steps - 1
        if number and number <= must and not optional and random.random() < 0.2:
            text += _negation(random, number, typed=typed, loop=loop)
        may = number != must and not greedy
        step, loop, greedy, optional = _step(random, number, typed=typed, may=may, last=last)
        text += step
    if random.random() < 0.15:
        text += f".within({random.randint(3, 8)})"
    return text


def _step(random: Random, number: int, *, typed: bool, may: bool, last: bool) -> tuple[str, bool, bool, bool]:
    """A step, whether it is a loop, a greedy one, an optional one."""
    name, kind = "abcd"[number], "ABCD"[number]
    method = "begin" if number == 0 else random.choice(MODES)
    text = "" if number == 0 else "."
    text += f'{method}("{name}", "{kind}")' if typed else _either(random, method, name, kind)
    loop, greedy = random.random() < 0.45, False
    if loop:
        times, inner = random.choice(TIMES), random.choice(INNER)
        text += f".{times}{inner}"
        endless = times.startswith(("oneOrMore", "timesOrMore"))
        greedy = endless and inner != ".allowCombinations()" and not last and random.random() < 0.3
    optional = may and random.random() < 0.25
    text += ".optional()" * optional + ".greedy()" * greedy
    if loop and endless and not greedy and random.random() < 0.25:
        text += """.until("type == 'X'")"""
    return text, loop, greedy, optional


def _either(random: Random, method: str, name: str, kind: str) -> str:
    """A step whose events may be those of another step, too."""
    kinds = sorted({kind, random.choice("ABCD")})
    several = ", ".join(f"'{each}'" for each in kinds) + ","
    return f'{method}("{name}").where("type in ({several})")'


def _negation(random: Random, number: int, *, typed: bool, loop: bool) -> str:
    if loop:
        return f'.notFollowedBy("n{number}", "X")' if typed else ""
    return f'.{random.choice(("notNext", "notFollowedBy"))}("n{number}", "X")'


def _comparing(random: Random) -> str:
    """Steps with conditions on their own values and on those that are bound before."""
    text = ""
    for number in range(random.randint(2, 3)):
        name, kind = "abc"[number], "ABC"[number]
        method = ".begin" if number == 0 else f".{random.choice(MODES)}"
        text += f'{method}("{name}", "{kind}")'
        loop = random.random() < 0.5
        conditions = [f"v > {random.randrange(4)}", f"v < {random.randint(6, 9)}"]
        if loop:
            conditions += [f"count({name}) == 0 or v > last({name}.v)", f"sum({name}.v) + v < 15"]
        if number:
            before = "abc"[number - 1]
            conditions += [f"v >= last({before}.v)", f"v != last({before}.v)"]
        for condition in random.sample(conditions, random.randint(0, 2)):
            text += f'.where("{condition}")'
        if loop:
            text += f".{random.choice(TIMES)}{random.choice(INNER)}"
    return text.removeprefix(".")


def _grouped(random: Random) -> str:
    """A repeated or optional group, with a step before it or behind it."""
    group = f'begin("a", "A").{random.choice(MODES)}("b", "B")' + random.choice(
        ("", "", ".optional()", ".oneOrMore()", ".times(2).consecutive()")
    )
    first = random.random() < 0.5
    text = f"begin({group})" if first else f'begin("s", "D").{random.choice(MODES)}({group})'
    match random.randrange(4):
        case 0:
            return text + f".times(2){random.choice(INNER)}{_behind(random)}"
        case 1:
            return text + f".oneOrMore().consecutive(){_behind(random)}"
        case 2:
            return text + f".{random.choice(TIMES)}{random.choice(INNER)}"
    return text + ".optional()" * (not first) + _behind(random)


def _behind(random: Random) -> str:
    return f'.{random.choice(MODES)}("c", "C")'


def _skipping(random: Random) -> str:
    """Single steps, each beginning with one match at most, and what is skipped behind a match."""
    kinds = random.choice(("ABC", "ABB", "AAA", "ABA", "AB"))
    text = f'begin("a", "{kinds[0]}", {random.choice(SKIPS)})'
    for name, kind in zip("bc", kinds[1:], strict=False):
        text += f'.{random.choice(MODES[:2])}("{name}", "{kind}")'
    return text + f".within({random.randint(4, 9)})"
