"""Flink patterns, written in Ensue's language part by part.

>>> print(translated('begin("a", "A").next("b", "B").oneOrMore().greedy().followedByAny("c", "C")'))
A a THEN (B b THEN NEXT)++ THEN ANY C c
"""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from benchmarks.peers.flink_cep.notation import Call, Tree, calls

WORDS = {"next": "THEN", "followedBy": "THEN NEXT", "followedByAny": "THEN ANY"}
NEGATIONS = ("notNext", "notFollowedBy")


class NoWordsError(Exception):
    """There are no words for this part of the pattern."""


@dataclass
class Part:
    """One step of a Flink pattern, with all that the calls behind it said of it."""

    step: str
    name: str = ""
    group: "list[Part] | None" = None
    conditions: list[Tree] = field(default_factory=list)
    until: Tree = None
    least: int = 1
    most: int | None = 1
    repeated: bool = False
    inner: str = "THEN NEXT"
    optional: bool = False
    greedy: bool = False
    barred: bool = False  # no event that fits it lies between it and the next part
    listed: bool = False  # it binds several events, by itself or by a group around it
    lists: frozenset[str] = frozenset()  # all parts that do
    step_window: int | None = None
    loop_window: int | None = None


def translated(pattern: str) -> str:
    """The query that says in Ensue what `pattern` says in Flink."""
    chain = calls(pattern)
    parts = _parts(chain)
    typed = all(_type(part) is not None for part in _leaves(parts))
    if parts[-1].greedy:
        parts[-1].greedy = False  # in Flink it changes nothing at the end of a pattern
    for part, behind in pairwise(parts):
        # ours lets such events pass where a consecutive loop is over, Flink's does not
        over = part.greedy and part.inner == "THEN" and part.group is None
        part.barred = over and behind.step in ("followedBy", "followedByAny")
    text = _sequence(parts, typed)
    conditions = [each for part in _leaves(parts) for each in _conditions(part, parts, typed)]
    if conditions:
        text += " WHERE " + " and ".join(conditions)
    return text + _window(chain) + _after_match(chain[0].get("skip"))


def is_typed(pattern: str) -> bool:
    """Whether every part of `pattern` is of one type, so that types are those of Ensue.

    >>> is_typed('begin("a", "A").next("b").where("x > 3")')
    False
    """
    return all(_type(part) is not None for part in _leaves(_parts(calls(pattern))))


def _parts(chain: list[Call]) -> list[Part]:
    parts: list[Part] = []
    for call in chain:
        method = call["call"]
        if "name" in call or "group" in call:
            group = _parts(call["group"]) if "group" in call else None
            parts.append(Part(method, call.get("name", ""), group))
        else:
            _describe(parts[-1], method, call)
    for part in parts:
        part.listed = part.repeated
        for leaf in _leaves(part.group or []):
            leaf.listed = leaf.listed or part.repeated
    return parts


def _describe(part: Part, method: str, call: Call) -> None:
    """Takes note of what a call says of the step before it."""
    numbers: list[int] = call.get("numbers", [])
    part.loop_window = part.loop_window or call.get("window")
    match method:
        case "where":
            part.conditions.append(call["condition"])
        case "or":
            part.conditions = [["or", _all(part.conditions), call["condition"]]]
        case "until":
            part.until = call["condition"]
        case "oneOrMore":
            part.repeated, part.least, part.most = True, 1, None
        case "timesOrMore":
            part.repeated, part.least, part.most = True, numbers[0], None
        case "times":
            part.repeated, part.least, part.most = True, numbers[0], numbers[-1]
            if part.least == 0:
                part.least, part.optional = 1, True
        case "consecutive":
            part.inner = "THEN"
        case "allowCombinations":
            part.inner = "THEN ANY"
        case "optional":
            part.optional = True
        case "greedy":
            part.greedy = True
        case "within":
            if call.get("kind") == "PREVIOUS_AND_CURRENT":
                part.step_window = numbers[0]


def _leaves(parts: list[Part]) -> list[Part]:
    return [leaf for part in parts for leaf in (_leaves(part.group) if part.group is not None else [part])]


def _type(part: Part) -> str | None:
    """The type that the conditions of a part ask for, if they ask for one."""
    for condition in part.conditions:
        match condition:
            case ["==", ["field", "type"], str(name)]:
                return name
    return None


def _sequence(parts: list[Part], typed: bool) -> str:
    text = ""
    for number, part in enumerate(parts):
        before = parts[number - 1] if number else None
        behind = parts[number + 1] if number + 1 < len(parts) else None
        shown = _shown(part, behind, typed)
        if part.step == "notFollowedBy":
            text += f" -> !{shown}"
            if part.step_window is not None and before is not None:
                text += f" FROM {before.name}.end TO {before.name}.end + {part.step_window - 1}"
        elif part.step == "notNext":
            text += f" THEN !{shown}"
        else:
            text += f" {WORDS[part.step]}{_pause(part)} {shown}" if text else shown
        if part.barred:
            text += f" -> !{_type(part) if typed else 'E'} more_{part.name}"
    return text


def _shown(part: Part, behind: Part | None, typed: bool) -> str:
    if part.group is not None:
        inside = _sequence(part.group, typed)
    else:
        inside = f"{_type(part) if typed else 'E'} {part.name}"
    if not part.repeated:
        if not part.optional:
            return f"({inside})" if part.group is not None else inside
        return f"({inside})?" if part.group is not None else inside.replace(" ", "? ", 1)
    star = part.optional and part.least == 1
    times = _times(0 if star else part.least, part.most)
    # a greedy loop of a fixed number of times has nothing to choose
    shown = f"({inside} {part.inner}){times}" + "+" * (part.greedy and part.least != part.most)
    shown += _until(part, typed) or _until_forbidden(part, behind, typed)
    return f"({shown})?" if part.optional and not star else shown


def _pause(part: Part) -> str:
    """How long ago the event before may be.

    A window of a loop holds in Flink for the way into it (of two times), another has no effect.
    """
    length = part.loop_window if part.repeated else part.step_window
    return "" if length is None else f" WITHIN {length - 1}"


def _until(part: Part, typed: bool) -> str:
    """What ends a loop: an event of another type, or one of its own with a condition."""
    if part.until is None:
        return ""
    if not typed:
        return f" UNTIL E until_{_first(part)}"
    match part.until:
        case ["==", ["field", "type"], str(type_)]:
            return f" UNTIL {type_} until_{_first(part)}"
    return f" UNTIL {_text(part.until, replace(part, listed=False))}"


def _until_forbidden(part: Part, behind: Part | None, typed: bool) -> str:
    """In Flink, what must not follow a loop must not come from its first event on."""
    forbidden = behind is not None and behind.step == "notFollowedBy" and part.group is None
    if not forbidden or behind is None:
        return ""
    if not typed or len(behind.conditions) > 1:
        raise NoWordsError("a negation with conditions behind a loop")
    return f" UNTIL {_type(behind)} until_{part.name}"


def _first(part: Part) -> str:
    return _first(part.group[0]) if part.group is not None else part.name


def _times(least: int, most: int | None) -> str:
    match least, most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case _, None:
            return f"{{{least},}}"
        case _ if least == most:
            return f"{{{least}}}"
    return f"{{{least},{most}}}"


def _conditions(part: Part, parts: list[Part], typed: bool) -> list[str]:
    """The conditions of a part but for its type, which the pattern names."""
    part = replace(part, lists=frozenset(leaf.name for leaf in _leaves(parts) if leaf.listed))
    rest = [each for each in part.conditions if not (typed and _asks_type(each))]
    stops = [] if typed or part.until is None else [part.until]
    ending = Part("until", f"until_{part.name}")
    more = Part("notFollowedBy", f"more_{part.name}")
    return [
        *(_text(each, part) for each in rest),
        *(_text(each, ending) for each in stops),
        *(_text(each, more) for each in rest if part.barred),
    ]


def _asks_type(condition: Tree) -> bool:
    match condition:
        case ["==", ["field", "type"], str()]:
            return True
    return False


def _text(tree: Tree, part: Part) -> str:
    own = f"{part.name}[i]" if part.listed else part.name
    match tree:
        case str():
            return f"'{tree}'"
        case ["field", name]:
            return f"{own}.{name}"
        case ["in", value, *choices]:
            return f"{_text(value, part)} IN ({', '.join(_text(c, part) for c in choices)})"
        case ["or", ["==", ["count", name], 0], other] if name == part.name:
            return _text(other, part)  # b[i-1] says it: the first event has none before it
        case ["and" | "or" as word, *several]:
            return "(" + f" {word} ".join(_text(each, part) for each in several) + ")"
        case ["not", inner]:
            return f"not ({_text(inner, part)})"
        case ["last", name, column]:
            if name == part.name:
                return f"{name}[i-1].{column}"
            return f"{name}[{name}.LEN].{column}" if name in part.lists else f"{name}.{column}"
        case ["+", ["sum", name, column], ["field", own_column]] if (
            name == part.name and column == own_column and part.listed
        ):
            return f"sum({name}[..i].{column})"
        case ["sum", name, column]:
            return f"sum({name}.{column})"
        case [str(sign), left, right] if not sign[0].isalpha():
            sign = {"==": "="}.get(sign, sign)
            return f"{_text(left, part)} {sign} {_text(right, part)}"
        case int() | float():
            return str(tree)
    raise NoWordsError(f"a condition like {tree}")


def _all(conditions: list[Tree]) -> Tree:
    return conditions[0] if len(conditions) == 1 else ["and", *conditions]


def _window(chain: list[Call]) -> str:
    """Flink's window is open at its end, ours is not; times are whole numbers."""
    lengths = [call["numbers"][0] for call in chain if call["call"] == "within" and "kind" not in call]
    return f" WITHIN {min(lengths) - 1}" if lengths else ""


def _after_match(skip: dict[str, Any] | None) -> str:
    if skip is None or skip["kind"] == "noSkip":
        return ""
    targets = {
        "skipToNext": "TO NEXT EVENT",
        "skipPastLastEvent": "PAST LAST EVENT",
        "skipToFirst": f"TO FIRST {skip.get('name')}",
        "skipToLast": f"TO LAST {skip.get('name')}",
    }
    return f" AFTER MATCH SKIP {targets[skip['kind']]} IN ORDER OF START"
