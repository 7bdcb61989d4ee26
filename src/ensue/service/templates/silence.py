"""Who has not been seen for a while."""

from dataclasses import replace

from ensue.service.templates.asking import LONGER_THAN, MARGIN, OBJECT, QUIET, REGION
from ensue.service.templates.numbers import number_text
from ensue.service.templates.reading import Given
from ensue.service.templates.template import Filled, Template
from ensue.service.templates.wording import laid_out

NOT_SEEN = Template(
    "not_seen",
    "Not seen for",
    "An object has sent no report for longer than a time. It is reported once per silence, when "
    "the time has passed: a silence lasts by definition, so there is no dwell time. An object "
    "that "
    "was never seen is not reported. If silence is normal somewhere, name a region for it.",
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


def not_seen(given: Given) -> Filled:
    """OPSL for NOT_SEEN."""
    who, longer_than = given.objects("object"), given.length("longer_than")
    yard, margin = given.place("unless_in"), given.distance("margin")
    last, but = f"({who.first})", ""
    if yard is not None:
        last = f"DIST({yard.name}; >; {number_text(margin)}){last}"
        but = f" The last report was outside {yard.words}"
        but += f", more than {given.metres(margin)} away." if margin else "."
    says = f"Tells when {who.one} has sent no report for longer than {longer_than}.{but}"
    title = f"not seen for {longer_than}: {who.words}"
    conditions = [f"!($last;; {longer_than})({who.same('$last;')})"]
    return laid_out(given, title, says, conditions, [f"$last; = {last}"], yard)
