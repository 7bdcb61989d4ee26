"""Flink patterns, written in Ensue's language part by part.

>>> print(translated('begin("a", "A").next("b", "B").oneOrMore().greedy().followedByAny("c", "C")'))
A a THEN (B b THEN NEXT)++ THEN ANY C c
"""

from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.flink_cep.notation import Call, Tree, calls

WORDS = {"next": "THEN", "followedBy": "THEN NEXT", "followedByAny": "THEN ANY"}
NEGATIONS = ("notNext", "notFollowedBy")


class Untranslatable(Exception):
    """Ensue has no words for this part of the pattern."""


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
    step_window: int | None = None
    loop_window: int | None = None


def translated(pattern: str) -> str:
    """The query that says in Ensue what `pattern` says in Flink."""
    chain = calls(pattern)
    parts = _parts(chain)
    typed = all(_type(part) is not None for part in _leaves(parts))
    text = _sequence(parts, typed)
    conditions = [each for part in _leaves(parts) for each in _conditions(part, typed)]
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
    return [
        leaf for part in parts for leaf in (_leaves(part.group) if part.group is not None else [part])
    ]


def _type(part: Part) -> str | None:
    """The type that the conditions of a part ask for, if they ask for one."""
    for condition in part.conditions:
        match condition:
            case ["==", ["field", "type"], str(name)]:
                return name
    return None


def _sequence(parts: list[Part], typed: bool) -> str:
    text = ""
    for part in parts:
        shown = _shown(part, typed)
        if part.step == "notFollowedBy":
            text += f" -> !{shown}"
        elif part.step == "notNext":
            raise Untranslatable("a negation of the very next event")
        else:
            text += f" {WORDS[part.step]} {shown}" if text else shown
    return text


def _shown(part: Part, typed: bool) -> str:
    if part.group is not None:
        inside = _sequence(part.group, typed)
    else:
        inside = f"{_type(part) if typed else 'E'} {part.name}"
    if part.until is not None:
        raise Untranslatable("until")
    if part.step_window is not None:
        raise Untranslatable("a window between two steps")
    if part.loop_window is not None:
        raise Untranslatable("a window between the events of a loop")
    if not part.repeated:
        if not part.optional:
            return f"({inside})" if part.group is not None else inside
        return f"({inside})?" if part.group is not None else inside.replace(" ", "? ", 1)
    star = part.optional and part.least == 1
    times = _times(0 if star else part.least, part.most)
    # a greedy loop of a fixed number of times has nothing to choose
    shown = f"({inside} {part.inner}){times}" + "+" * (part.greedy and part.least != part.most)
    return f"({shown})?" if part.optional and not star else shown


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


def _conditions(part: Part, typed: bool) -> list[str]:
    """The conditions of a part but for its type, which the pattern names."""
    rest = [each for each in part.conditions if not (typed and _asks_type(each))]
    return [_text(each, part) for each in rest]


def _asks_type(condition: Tree) -> bool:
    match condition:
        case ["==", ["field", "type"], str()]:
            return True
    return False


def _text(tree: Tree, part: Part) -> str:
    own = f"{part.name}[i]" if part.repeated else part.name
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
            return f"{name}[i-1].{column}" if name == part.name else f"{name}.{column}"
        case ["+", ["sum", name, column], ["field", own_column]] if (
            name == part.name and column == own_column
        ):
            return f"sum({name}[..i].{column})"
        case [str(sign), left, right] if not sign[0].isalpha():
            sign = {"==": "="}.get(sign, sign)
            return f"{_text(left, part)} {sign} {_text(right, part)}"
        case int() | float():
            return str(tree)
    raise Untranslatable(f"a condition like {tree}")


def _all(conditions: list[Tree]) -> Tree:
    return conditions[0] if len(conditions) == 1 else ["and", *conditions]


def _window(chain: list[Call]) -> str:
    """Flink's window is open at its end, ours is not; times are whole numbers."""
    lengths = [
        call["numbers"][0] for call in chain if call["call"] == "within" and "kind" not in call
    ]
    return f" WITHIN {min(lengths) - 1}" if lengths else ""


def _after_match(skip: dict[str, Any] | None) -> str:
    if skip is None or skip["kind"] == "noSkip":
        return ""
    raise Untranslatable("after match in order of start")
