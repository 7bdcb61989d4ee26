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

from collections.abc import Iterable
from dataclasses import replace

from ensue.service.templates.parameters import (
    DISTANCE,
    DWELL,
    MARGIN,
    OBJECT,
    QUIET,
    REACH,
    TOGETHER,
    WITHIN,
    ParameterValues,
    format_dwell,
    write_template,
)
from ensue.service.templates.template import FilledTemplate, ObjectSelection, Template, format_number

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
            says="One object, several, or all others. If both lists are the same: every two of them.",
        ),
        replace(DISTANCE, says="They are near if they are less than this apart."),
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
            OBJECT, name="leader", title="Leader", says="The leader: a single object.", default=None, required=True
        ),
        replace(
            OBJECT,
            name="followers",
            title="Followers",
            says="The objects that follow. All: every object that was near the leader.",
            default=None,
            required=True,
        ),
        replace(DISTANCE, says="A follower is less than this away from the leader."),
        *_COMPANY,
    ),
)


class _Pairs:
    """Defines pairs of reports, all of the same two objects as the first pair."""

    def __init__(
        self,
        args: ParameterValues,
        objects: ObjectSelection,
        others: ObjectSelection,
        other: str,  # predicates of the second side in the first pair
        names: tuple[str, str],
    ) -> None:
        self.args, self.objects, self.others = args, objects, others
        self.definitions: list[str] = []
        self._other = other
        self._names = names
        self._count = 0

    def _variables(self, number: int) -> list[str]:
        return [f"${name}{number};" for name in self._names]

    def add(self, name: str, distances: Iterable[str]) -> str:
        """Defines a pair with these distances and returns the variable of its second report."""
        self._count += 1
        first, second = self._variables(self._count)
        left, right = self.objects.first, self._other
        if self._count > 1:
            same = self._variables(1)
            left, right = self.objects.write_same_object(same[0]), self.others.write_same_object(same[1])
        away = " && ".join(f"DIST({first}; {distance})({second})" for distance in distances)
        between = f"({self.objects.write_same_object(first)}) || ({self.others.write_same_object(second)})"
        pair = (
            f"${name}; = {away}\n"
            f"        && (=|({first}; {self.args.length('together')})({second})\n"
            f"            && !({first};{second})({between})\n"
            f"            || |({first})({second}))"
        )
        self.definitions += [pair, f"{first} = ({left})", f"{second} = ({right})"]
        return second

    def change(self, *, parts: bool) -> list[str]:
        """Returns the conditions of "apart, then close", or the reverse if `parts`."""
        args = self.args
        distance, dwell = args.distance("distance"), args.length("dwell")
        far, reach = distance + args.distance("margin"), args.distance("reach")
        close, away = [f"<; {format_number(distance)}"], [f">; {format_number(far)}"]
        if reach:
            away.append(f"<; {format_number(reach)}")
        before, after = (close, away) if parts else (away, close)
        since, until = self.add("before", before), self.add("after", after)
        self.add("sooner", after)
        between = "$sooner;"
        if not self.objects.single:  # all matches are reported, so no other pair may begin them
            self.add("later", before)
            between = "$sooner; || $later;"
        conditions = [f"=|($before;; {args.length('within')})($after;)", f"!({since};{until})({between})"]
        if dwell:
            self.add("again", before)
            conditions.append(f"!({until}; {dwell})($again;)")
        return conditions


def write_near(args: ParameterValues) -> FilledTemplate:
    objects, others = args.objects("object"), args.objects("other")
    if not objects.values:  # near is symmetric: named objects come first
        objects, others = others, objects
    if objects.single or set(objects.values) != set(others.values):
        pairs = _sides(args, objects, others, ("object", "other"))
        whom, title = (f"{_other(others)} and {objects.one}", f"near {objects.words}: {others.words}")
    else:
        another = objects.write_different_object("$object1;")
        other = f"{objects.first}, {another}" if objects.values else another
        pairs = _Pairs(args, objects, objects, other, ("object", "other"))
        whom = f"two of {objects.words}" if objects.values else "any two objects"
        title = f"near each other: {objects.words}"
    distance, reach = args.distance("distance"), args.distance("reach")
    far = distance + args.distance("margin")
    if 0 < reach <= far:
        raise args.build_error(
            "reach",
            f"{args.metres(reach)} is not beyond {args.metres(far)}, where two are apart",
            hint="leave it out, or make it longer",
        )
    apart_by = f"more than {args.metres(far)}"
    apart_by += f" and less than {args.metres(reach)}" if reach else ""
    says = (
        f"Reports when {whom} come nearer to each other than {args.metres(distance)}: they were "
        f"{apart_by} apart, then are near{format_dwell(args.length('dwell'))}. A report is compared "
        "with the one of the other object just before it."
    )
    select = None if objects.single else "all"
    conditions = pairs.change(parts=False)
    return write_template(args, title, says, conditions, pairs.definitions, select=select)


def write_strays(args: ParameterValues) -> FilledTemplate:
    leader, followers = args.objects("leader"), args.objects("followers")
    if not leader.single:
        raise args.build_error("leader", "a convoy has one leader", hint="name a single object")
    pairs = _sides(args, leader, followers, ("leader", "follower"))
    distance = args.distance("distance")
    says = (
        f"Reports when {_other(followers)} strays from {leader.words}: was nearer than "
        f"{args.metres(distance)}, then is more than "
        f"{args.metres(distance + args.distance('margin'))} away"
        f"{format_dwell(args.length('dwell'))}. A report is compared with the one of the leader just "
        "before it."
    )
    title = f"strays from {leader.words}: {followers.words}"
    return write_template(args, title, says, pairs.change(parts=True), pairs.definitions)


def _sides(args: ParameterValues, objects: ObjectSelection, others: ObjectSelection, names: tuple[str, str]) -> _Pairs:
    """Pairs some objects with others; the two sets must be disjoint."""
    shared = tuple(value for value in objects.values if value in others.values)
    if shared:
        raise args.build_error(
            "other" if names[1] == "other" else "followers",
            f"{ObjectSelection(objects.stream, shared).words} cannot be on both sides",
            hint="name each object on one side",
        )
    other = others.first if others.values else objects.write_exclusion()
    return _Pairs(args, objects, others, other, names)


def _other(others: ObjectSelection) -> str:
    return others.one if others.values else "any other"


PROXIMITY = ((NEAR, write_near), (STRAYS, write_strays))
