"""Who comes near to another, and who strays from a convoy.

A report of one is compared with the report of the other just before it: no further report of
either lies between. So every report is part of one pair at the most, and of two pairs one is
earlier. (Unless two report at the same time, and the second one alone again no later than
`together`: then one change may be told twice.) Close is nearer than the distance, apart is further
than that and the margin together; what lies between says nothing. A change is one between two
pairs that say something, with none between them that does, and what it leads to has to last.

The events of a pair are of two objects, so `select = once` cannot count by object here, and what
came before the change cannot be asked to last as well: a single wrong position can make two
objects part and meet again.
"""

from dataclasses import dataclass, replace

from ensue.service.templates.asking import (
    DWELL,
    MARGIN,
    OBJECT,
    QUIET,
    REACH,
    TOGETHER,
    WITHIN,
    apart,
)
from ensue.service.templates.numbers import number_text
from ensue.service.templates.objects import Objects
from ensue.service.templates.reading import Given
from ensue.service.templates.template import Filled, Template
from ensue.service.templates.wording import laid_out, lasting

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
        apart("They are near if they are less than this apart."),
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
        apart("A follower is less than this away from the leader."),
        *_COMPANY,
    ),
)


@dataclass(frozen=True, slots=True)
class _Two:
    """The two sides of a pair, and what their variables are called."""

    objects: Objects
    others: Objects
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
        """The two reports of a pair; all pairs are of the same two as the first one."""
        first, second = self.variables(number)
        mine, theirs = self.objects.first, self.other
        if number > 1:
            begun = self.variables(1)
            mine, theirs = self.objects.same(begun[0]), self.others.same(begun[1])
        return [f"{first} = ({mine})", f"{second} = ({theirs})"]

    def between(self, number: int) -> str:
        """A further report of either."""
        first, second = self.variables(number)
        return f"({self.objects.same(first)}) || ({self.others.same(second)})"


class _Text:
    """Conditions and definitions, pair by pair."""

    def __init__(self, given: Given, two: _Two) -> None:
        self.two = two
        self.together = given.length("together")
        self.conditions: list[str] = []
        self.definitions: list[str] = []
        self.pairs = 0

    def pair(self, name: str, *how: str) -> str:
        """Defines a pair so far apart, and gives the variable of its second report."""
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


def _company(given: Given, two: _Two, *, parts: bool) -> _Text:
    """Apart, then close, or the other way round if it `parts`."""
    distance, dwell = given.distance("distance"), given.length("dwell")
    far, reach = distance + given.distance("margin"), given.distance("reach")
    close, away = [f"<; {number_text(distance)}"], [f">; {number_text(far)}"]
    if reach:
        away.append(f"<; {number_text(reach)}")
    before, after = (close, away) if parts else (away, close)
    text = _Text(given, two)
    since, until = text.pair("before", *before), text.pair("after", *after)
    text.pair("sooner", *after)
    between = "$sooner;"
    if two.each:  # all matches are told, so nothing else may begin them either
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


def near(given: Given) -> Filled:
    """OPSL for NEAR."""
    objects, others = given.objects("object"), given.objects("other")
    if not objects.values:  # near is mutual: whoever is named stands first
        objects, others = others, objects
    if objects.single or set(objects.values) != set(others.values):
        two = _sides(given, objects, others, ("object", "other"))
        whom, title = f"{_other(two)} and {objects.one}", f"near {objects.words}: {others.words}"
    else:
        another = objects.key.another("$object1;")
        other = f"{objects.first}, {another}" if objects.values else another
        two = _Two(objects, objects, other, ("object", "other"))
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
        f"Tells when {whom} come nearer to each other than {given.metres(distance)}: they were "
        f"{apart_by} apart, then are near{lasting(given.length('dwell'))}. A report is compared "
        "with the one of the other object just before it."
    )
    select = "all" if two.each else None
    return laid_out(given, title, says, text.conditions, text.definitions, select=select)


def strays(given: Given) -> Filled:
    """OPSL for STRAYS."""
    leader, followers = given.objects("leader"), given.objects("followers")
    if not leader.single:
        raise given.wrong("leader", "a convoy has one leader", hint="name a single object")
    two = _sides(given, leader, followers, ("leader", "follower"))
    text = _company(given, two, parts=True)
    distance = given.distance("distance")
    says = (
        f"Tells when {_other(two)} strays from {leader.words}: was nearer than "
        f"{given.metres(distance)}, then is more than "
        f"{given.metres(distance + given.distance('margin'))} away"
        f"{lasting(given.length('dwell'))}. A report is compared with the one of the leader just "
        "before it."
    )
    title = f"strays from {leader.words}: {followers.words}"
    return laid_out(given, title, says, text.conditions, text.definitions)


def _sides(given: Given, objects: Objects, others: Objects, names: tuple[str, str]) -> _Two:
    """Some objects against others, none of which is one of the former."""
    shared = tuple(value for value in objects.values if value in others.values)
    if shared:
        raise given.wrong(
            "other" if names[1] == "other" else "followers",
            f"{Objects(objects.key, shared).words} cannot be on both sides",
            hint="name each object on one side",
        )
    other = others.first if others.values else objects.key.none_of(objects.values)
    return _Two(objects, others, other, names)


def _other(two: _Two) -> str:
    return two.others.one if two.others.values else "any other"
