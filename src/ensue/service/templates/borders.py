"""Who enters a region, leaves it, or stays in it.

Inside is in the region or on its border, outside is further away than the margin; what lies
between says nothing. Either counts only if the other is not reported for the dwell time after it,
and a change is one from a report that counts to another that does. So jitter on the border, a
single wrong position, a turn in the yard are no news, and of entering and leaving each follows the
other.
"""

from ensue.service.templates.asking import (
    DWELL,
    LONGER_THAN,
    MARGIN,
    OBJECT,
    QUIET,
    REACH,
    REGION,
    WITHIN,
)
from ensue.service.templates.lengths import Length
from ensue.service.templates.numbers import number_text
from ensue.service.templates.objects import Objects
from ensue.service.templates.reading import Given, Place
from ensue.service.templates.template import Filled, Template
from ensue.service.templates.wording import laid_out, lasting

_NOT_SEEN_BEFORE = (
    "An object is only reported if it was seen on the other side before, for the dwell time and "
    "no longer ago than 'within'. Silence does not end a state: only a report does."
)
ENTERS = Template(
    "enters",
    "Enters a region",
    "An object was outside a region and is now inside. It is reported once it has been inside "
    f"for the dwell time, and again only after it has left. {_NOT_SEEN_BEFORE}",
    (REGION, OBJECT, MARGIN, DWELL, WITHIN, REACH, QUIET),
)
LEAVES = Template(
    "leaves",
    "Leaves a region",
    "An object was inside a region and is now beyond the wider border. It is reported once it "
    "has been outside for the dwell time, and again only after it has come back. "
    f"{_NOT_SEEN_BEFORE}",
    (REGION, OBJECT, MARGIN, DWELL, WITHIN, REACH, QUIET),
)
STAYS = Template(
    "stays",
    "Stays longer than",
    "An object has entered a region and stays for longer than a time. If it is outside for less "
    "than the dwell time, it has not left. It is reported once per stay, when the time and the "
    f"dwell time have passed. {_NOT_SEEN_BEFORE}",
    (REGION, LONGER_THAN, OBJECT, MARGIN, DWELL, WITHIN, REACH, QUIET),
)


class _Border:
    """The words of a text about one region."""

    def __init__(self, given: Given) -> None:
        place = given.place("region")
        assert place is not None
        self.given = given
        self.place: Place = place
        self.who: Objects = given.objects("object")
        self.margin = given.distance("margin")
        self.reach = given.distance("reach")  # 0: any
        self.dwell: Length = given.length("dwell")
        self.within: Length = given.length("within")
        if 0 < self.reach <= self.margin:
            raise given.wrong(
                "reach",
                f"{given.metres(self.reach)} is not beyond the margin of "
                f"{given.metres(self.margin)}: nothing would be outside",
                hint="leave it out, or make it longer",
            )
        if self.within.amount <= self.dwell.amount:
            raise given.wrong(
                "within",
                f"{self.within} is not longer than 'dwell', {self.dwell}: nothing would be found",
                hint="both states last for 'dwell', and the second one begins within 'within'",
            )

    def inside(self, predicates: str) -> str:
        return f"@({self.place.name})({predicates})"

    def outside(self, predicates: str) -> str:
        name = self.place.name
        found = f"DIST({name}; >; {number_text(self.margin)})({predicates})"
        return f"DIST({name}; <; {number_text(self.reach)})({found})" if self.reach else found

    @property
    def away(self) -> str:
        """Where outside is, in words."""
        found = f"outside {self.place.words}"
        if self.margin:
            found = f"more than {self.given.metres(self.margin)} from {self.place.words}"
        return f"{found} and less than {self.given.metres(self.reach)}" if self.reach else found

    def entering(self) -> list[str]:
        """Outside, then inside; both last."""
        found = [f"=|($outside;; {self.within})($inside;)"]
        if self.dwell:
            back, gone = self.who.same("$outside;"), self.who.same("$inside;")
            found.append(f"!($outside;; {self.dwell})({self.inside(back)})")
            found.append(f"!($inside;; {self.dwell})({self.outside(gone)})")
        return found

    def entered(self) -> list[str]:
        return [
            f"$outside; = {self.outside(self.who.first)}",
            f"$inside; = {self.inside(self.who.same('$outside;'))}",
        ]


def enters(given: Given) -> Filled:
    """OPSL for ENTERS."""
    border = _Border(given)
    says = (
        f"Tells when {border.who.one} enters {border.place.words}: was {border.away}"
        f"{lasting(border.dwell)}, then inside{lasting(border.dwell)}, at most {border.within} "
        "later."
    )
    title = f"enters {border.place.words}: {border.who.words}"
    return laid_out(given, title, says, border.entering(), border.entered(), border.place, "once")


def leaves(given: Given) -> Filled:
    """OPSL for LEAVES."""
    border = _Border(given)
    who = border.who
    conditions = [f"=|($inside;; {border.within})($outside;)"]
    if border.dwell:
        gone, back = who.same("$inside;"), who.same("$outside;")
        conditions.append(f"!($inside;; {border.dwell})({border.outside(gone)})")
        conditions.append(f"!($outside;; {border.dwell})({border.inside(back)})")
    definitions = [
        f"$inside; = {border.inside(who.first)}",
        f"$outside; = {border.outside(who.same('$inside;'))}",
    ]
    says = (
        f"Tells when {who.one} leaves {border.place.words}: was inside{lasting(border.dwell)}, "
        f"then {border.away}{lasting(border.dwell)}, at most {border.within} later."
    )
    title = f"leaves {border.place.words}: {who.words}"
    return laid_out(given, title, says, conditions, definitions, border.place, "once")


def stays(given: Given) -> Filled:
    """OPSL for STAYS."""
    border = _Border(given)
    who, longer_than = border.who, given.length("longer_than")
    conditions, definitions = border.entering(), border.entered()
    gone = border.outside(who.same("$inside;"))
    if border.dwell:
        # who leaves when the time is nearly over is known to have left only a dwell time later
        conditions.append(f"!($inside;; {longer_than + border.dwell})($left;)")
        back = border.inside(who.same("$gone;"))
        definitions.append(f"$left; = !($gone;; {border.dwell})({back})")
        definitions.append(f"$gone; = {gone}")
    else:
        conditions.append(f"!($inside;; {longer_than})({gone})")
    says = (
        f"Tells when {who.one} stays in {border.place.words} for longer than {longer_than}: has "
        f"entered it, and since then was never {border.away}{lasting(border.dwell)}."
    )
    title = f"longer than {longer_than} in {border.place.words}: {who.words}"
    return laid_out(given, title, says, conditions, definitions, border.place, "once")
