"""Templates for entering, leaving and staying in a region, and for silent objects.

Inside is in the region or on its border, outside is further away than the margin; positions in
between are ignored. A state counts only if the other one is not reported for the dwell time, and a
change is from one such state to the other. So jitter at the border, a single wrong position or a
turn in the yard are not reported, and entering and leaving alternate.
"""

from dataclasses import replace

from ensue.service.templates.parameters import (
    DWELL,
    LONGER_THAN,
    MARGIN,
    OBJECT,
    QUIET,
    REACH,
    REGION,
    WITHIN,
    ParameterValues,
    TemplateRegion,
    format_dwell,
    write_template,
)
from ensue.service.templates.template import FilledTemplate, Template, format_number

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
    """Conditions and descriptions for one region."""

    def __init__(self, args: ParameterValues) -> None:
        self.args = args
        self.place: TemplateRegion = args.values["region"]
        self.who = args.objects("object")
        self.margin = args.distance("margin")
        self.reach = args.distance("reach")  # 0: any
        self.dwell = args.length("dwell")
        self.within = args.length("within")
        if 0 < self.reach <= self.margin:
            raise args.build_error(
                "reach",
                f"{args.metres(self.reach)} is not beyond the margin of "
                f"{args.metres(self.margin)}: nothing would be outside",
                hint="leave it out, or make it longer",
            )
        if self.within.amount <= self.dwell.amount:
            raise args.build_error(
                "within",
                f"{self.within} is not longer than 'dwell', {self.dwell}: nothing would be found",
                hint="both states last for 'dwell', and the second one begins within 'within'",
            )

    def inside(self, predicates: str) -> str:
        return f"@({self.place.name})({predicates})"

    def outside(self, predicates: str) -> str:
        name = self.place.name
        text = f"DIST({name}; >; {format_number(self.margin)})({predicates})"
        return f"DIST({name}; <; {format_number(self.reach)})({text})" if self.reach else text

    @property
    def away(self) -> str:
        """Describes where outside is."""
        text = f"outside {self.place.words}"
        if self.margin:
            text = f"more than {self.args.metres(self.margin)} from {self.place.words}"
        return f"{text} and less than {self.args.metres(self.reach)}" if self.reach else text

    def change(self, before: str, after: str) -> tuple[list[str], list[str]]:
        """Conditions and definitions for being inside and then outside, or the reverse; both
        states must last."""
        where = {"inside": self.inside, "outside": self.outside}
        first, second = f"${before};", f"${after};"
        conditions = [f"=|({first}; {self.within})({second})"]
        if self.dwell:
            for variable, other in ((first, after), (second, before)):
                other_side = where[other](self.who.write_same_object(variable))
                conditions.append(f"!({variable}; {self.dwell})({other_side})")
        definitions = [
            f"{first} = {where[before](self.who.first)}",
            f"{second} = {where[after](self.who.write_same_object(first))}",
        ]
        return conditions, definitions


def write_enters(args: ParameterValues) -> FilledTemplate:
    border = _Border(args)
    says = (
        f"Reports when {border.who.one} enters {border.place.words}: was {border.away}"
        f"{format_dwell(border.dwell)}, then inside{format_dwell(border.dwell)}, at most {border.within} "
        "later."
    )
    title = f"enters {border.place.words}: {border.who.words}"
    change = border.change("outside", "inside")
    return write_template(args, title, says, *change, border.place, "once")


def write_leaves(args: ParameterValues) -> FilledTemplate:
    border = _Border(args)
    who = border.who
    says = (
        f"Reports when {who.one} leaves {border.place.words}: was inside{format_dwell(border.dwell)}, "
        f"then {border.away}{format_dwell(border.dwell)}, at most {border.within} later."
    )
    title = f"leaves {border.place.words}: {who.words}"
    change = border.change("inside", "outside")
    return write_template(args, title, says, *change, border.place, "once")


def write_stays(args: ParameterValues) -> FilledTemplate:
    border = _Border(args)
    who, longer_than = border.who, args.length("longer_than")
    conditions, definitions = border.change("outside", "inside")
    gone = border.outside(who.write_same_object("$inside;"))
    if border.dwell:
        # leaving just before the time is over is known only a dwell time later
        conditions.append(f"!($inside;; {longer_than + border.dwell})($left;)")
        back = border.inside(who.write_same_object("$gone;"))
        definitions.append(f"$left; = !($gone;; {border.dwell})({back})")
        definitions.append(f"$gone; = {gone}")
    else:
        conditions.append(f"!($inside;; {longer_than})({gone})")
    says = (
        f"Reports when {who.one} stays in {border.place.words} for longer than {longer_than}: has "
        f"entered it, and since then was never {border.away}{format_dwell(border.dwell)}."
    )
    title = f"longer than {longer_than} in {border.place.words}: {who.words}"
    return write_template(args, title, says, conditions, definitions, border.place, "once")


NOT_SEEN = Template(
    "not_seen",
    "Not seen for",
    "An object has sent no report for longer than a time. It is reported once per silence, when "
    "the time has passed: a silence lasts by definition, so there is no dwell time. An object "
    "that was never seen is not reported. If silence is normal somewhere, name a region for it.",
    (
        LONGER_THAN,
        OBJECT,
        replace(
            REGION,
            says="Objects may be silent here: a yard where engines are switched off.",
            name="unless_in",
            title="Unless last seen in",
            required=False,
        ),
        replace(MARGIN, says="Objects may also be silent up to this far around that region."),
        QUIET,
    ),
)


def write_not_seen(args: ParameterValues) -> FilledTemplate:
    who, longer_than = args.objects("object"), args.length("longer_than")
    yard, margin = args.place("unless_in"), args.distance("margin")
    last, but = f"({who.first})", ""
    if yard is not None:
        last = f"DIST({yard.name}; >; {format_number(margin)}){last}"
        but = f" The last report was outside {yard.words}"
        but += f", more than {args.metres(margin)} away." if margin else "."
    says = f"Reports when {who.one} has sent no report for longer than {longer_than}.{but}"
    title = f"not seen for {longer_than}: {who.words}"
    conditions = [f"!($last;; {longer_than})({who.write_same_object('$last;')})"]
    return write_template(args, title, says, conditions, [f"$last; = {last}"], yard)


GEOFENCES = ((ENTERS, write_enters), (LEAVES, write_leaves), (STAYS, write_stays), (NOT_SEEN, write_not_seen))
