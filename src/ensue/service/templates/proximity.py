"""Templates for objects that get close to each other, and for strays from a convoy.

A report of one object is compared with the last earlier report of the other, with no report of
either in between. So every report is part of at most one pair, and pairs are ordered. (If two
objects report at the same time, and the second one again within `together`, one change can be
reported twice.) Close is nearer than the distance, apart is further than distance plus margin;
positions in between are ignored. A change is from one such pair to the next, and the new state has
to last.

The events of a pair belong to two objects, so `select = once` cannot count by object here, and the
state before the change cannot be required to last: a single wrong position can make two objects
part and meet again.
"""

from dataclasses import dataclass, replace

from ensue.service.templates.object_filter import ObjectSelection
from ensue.service.templates.parameters import (
    DWELL,
    MARGIN,
    OBJECT,
    QUIET,
    REACH,
    TOGETHER,
    WITHIN,
    ParameterValues,
    distance_parameter,
    format_dwell,
    write_template,
)
from ensue.service.templates.template import FilledTemplate, Template, format_number

_COMPANY = (
    replace(MARGIN, says="They are apart only beyond the distance and this together."),
    replace(DWELL, says="The state has to last this long, or it does not count."),
    TOGETHER,
    WITHIN,
    QUIET,
)
_PAIRS = (
    "Each report of one object is compared with the latest earlier report of the other, so both "
    "have to report often enough, and an object that moves is a little further on by then. A "
    "single wrong position far away counts as parting: a quiet period helps."
)
NEAR = Template(
    "near",
    "Near each other",
    "Two objects were apart and are now closer than a distance. It is reported for every "
    "two of them, once they have been near for the dwell time. If the key is text, two of the "
    f"same list are reported twice, once for each: texts of two events have no order. {_PAIRS}",
    (
        replace(OBJECT, default=None, required=True),
        replace(
            OBJECT,
            name="other",
            title="Near whom",
            says="One object, several, or all others. If both lists are the same: every two of "
            "them.",
        ),
        distance_parameter("They are near if they are less than this apart."),
        *_COMPANY,
        replace(
            REACH,
            says="Objects further away than this are ignored. Without it every two objects are "
            "watched all the time, which is too expensive for many: use more than the distance "
            "by which they can get closer between two reports.",
        ),
    ),
)
STRAYS = Template(
    "strays",
    "Strays from a convoy",
    "An object was near the leader of a convoy and is now too far away. It is reported once it "
    "has "
    f"been away for the dwell time, and again only after it was near. {_PAIRS}",
    (
        replace(
            OBJECT,
            name="leader",
            title="Leader",
            says="The leader: a single object.",
            default=None,
            required=True,
        ),
        replace(
            OBJECT,
            name="followers",
            title="Followers",
            says="The objects that follow. All: every object that was near the leader.",
            default=None,
            required=True,
        ),
        distance_parameter("A follower is less than this away from the leader."),
        *_COMPANY,
    ),
)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The two sides of a pair, and the names of their variables."""

    objects: ObjectSelection
    others: ObjectSelection
    other: str  # predicates of the second side in the first pair
    names: tuple[str, str]

    @property
    def each(self) -> bool:
        """Whether there are several objects on the first side."""
        return not self.objects.single

    def variables(self, number: int) -> tuple[str, str]:
        first, second = self.names
        return f"${first}{number};", f"${second}{number};"

    def defined(self, number: int) -> list[str]:
        """Defines the two reports of a pair; all pairs are of the same objects as the first."""
        first, second = self.variables(number)
        left, right = self.objects.first, self.other
        if number > 1:
            begun = self.variables(1)
            left, right = self.objects.same(begun[0]), self.others.same(begun[1])
        return [f"{first} = ({left})", f"{second} = ({right})"]

    def between(self, number: int) -> str:
        """A further report of either object."""
        first, second = self.variables(number)
        return f"({self.objects.same(first)}) || ({self.others.same(second)})"


class _Text:
    """Conditions and definitions, built pair by pair."""

    def __init__(self, given: ParameterValues, two: _Pair) -> None:
        self.two = two
        self.together = given.length("together")
        self.conditions: list[str] = []
        self.definitions: list[str] = []
        self.pairs = 0

    def pair(self, name: str, *how: str) -> str:
        """Defines a pair with these distances and returns the variable of its second report."""
        self.pairs += 1
        first, second = self.two.variables(self.pairs)
        away = " && ".join(f"DIST({first}; {distance})({second})" for distance in how)
        self.definitions.append(
            f"${name}; = {away}\n"
            f"        && (=|({first}; {self.together})({second})\n"
            f"            && !({first};{second})({self.two.between(self.pairs)})\n"
            f"            || |({first})({second}))"
        )
        self.definitions += self.two.defined(self.pairs)
        return second


def _company(given: ParameterValues, two: _Pair, *, parts: bool) -> _Text:
    """Builds "apart, then close", or the reverse if `parts`."""
    distance, dwell = given.distance("distance"), given.length("dwell")
    far, reach = distance + given.distance("margin"), given.distance("reach")
    close, away = [f"<; {format_number(distance)}"], [f">; {format_number(far)}"]
    if reach:
        away.append(f"<; {format_number(reach)}")
    before, after = (close, away) if parts else (away, close)
    text = _Text(given, two)
    since, until = text.pair("before", *before), text.pair("after", *after)
    text.pair("sooner", *after)
    between = "$sooner;"
    if two.each:  # all matches are reported, so no other pair may begin them
        text.pair("later", *before)
        between = "$sooner; || $later;"
    text.conditions = [
        f"=|($before;; {given.length('within')})($after;)",
        f"!({since};{until})({between})",
    ]
    if dwell:
        text.pair("again", *before)
        text.conditions.append(f"!({until}; {dwell})($again;)")
    return text


def write_near(given: ParameterValues) -> FilledTemplate:
    """OPSL for NEAR."""
    objects, others = given.objects("object"), given.objects("other")
    if not objects.values:  # near is symmetric: named objects come first
        objects, others = others, objects
    if objects.single or set(objects.values) != set(others.values):
        two = _sides(given, objects, others, ("object", "other"))
        whom, title = f"{_other(two)} and {objects.one}", f"near {objects.words}: {others.words}"
    else:
        another = objects.key.another("$object1;")
        other = f"{objects.first}, {another}" if objects.values else another
        two = _Pair(objects, objects, other, ("object", "other"))
        whom = f"two of {objects.words}" if objects.values else "any two objects"
        title = f"near each other: {objects.words}"
    text = _company(given, two, parts=False)
    distance, reach = given.distance("distance"), given.distance("reach")
    far = distance + given.distance("margin")
    if 0 < reach <= far:
        raise given.wrong(
            "reach",
            f"{given.metres(reach)} is not beyond {given.metres(far)}, where two are apart",
            hint="leave it out, or make it longer",
        )
    apart_by = f"more than {given.metres(far)}"
    apart_by += f" and less than {given.metres(reach)}" if reach else ""
    says = (
        f"Reports when {whom} come nearer to each other than {given.metres(distance)}: they were "
        f"{apart_by} apart, then are near{format_dwell(given.length('dwell'))}. A report is compared "
        "with the one of the other object just before it."
    )
    select = "all" if two.each else None
    return write_template(given, title, says, text.conditions, text.definitions, select=select)


def write_strays(given: ParameterValues) -> FilledTemplate:
    """OPSL for STRAYS."""
    leader, followers = given.objects("leader"), given.objects("followers")
    if not leader.single:
        raise given.wrong("leader", "a convoy has one leader", hint="name a single object")
    two = _sides(given, leader, followers, ("leader", "follower"))
    text = _company(given, two, parts=True)
    distance = given.distance("distance")
    says = (
        f"Reports when {_other(two)} strays from {leader.words}: was nearer than "
        f"{given.metres(distance)}, then is more than "
        f"{given.metres(distance + given.distance('margin'))} away"
        f"{format_dwell(given.length('dwell'))}. A report is compared with the one of the leader just "
        "before it."
    )
    title = f"strays from {leader.words}: {followers.words}"
    return write_template(given, title, says, text.conditions, text.definitions)


def _sides(
    given: ParameterValues,
    objects: ObjectSelection,
    others: ObjectSelection,
    names: tuple[str, str],
) -> _Pair:
    """Pairs some objects with others; the two sets must be disjoint."""
    shared = tuple(value for value in objects.values if value in others.values)
    if shared:
        raise given.wrong(
            "other" if names[1] == "other" else "followers",
            f"{ObjectSelection(objects.key, shared).words} cannot be on both sides",
            hint="name each object on one side",
        )
    other = others.first if others.values else objects.key.none_of(objects.values)
    return _Pair(objects, others, other, names)


def _other(two: _Pair) -> str:
    return two.others.one if two.others.values else "any other"
