"""Parameters that several templates ask for."""

from ensue.service.templates.reading import EVERYBODY
from ensue.service.templates.template import Kind, Parameter

_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0

REGION = Parameter(
    "region",
    "Region",
    Kind.REGION,
    "The name of a region, or its shape as WKT. Its border belongs to it.",
    required=True,
)
OBJECT = Parameter(
    "object",
    "Who",
    Kind.OBJECT,
    "One object, several, or all of them.",
    default=EVERYBODY,
)
MARGIN = Parameter(
    "margin",
    "Wider border",
    Kind.DISTANCE,
    "Whoever is outside by no more than this counts neither as inside nor as outside.",
    default=50.0,
    least=0.0,
)
REACH = Parameter(
    "reach",
    "Looks no further than",
    Kind.DISTANCE,
    "Reports from further away than this are passed over. Without it every report of the stream "
    "is looked at, which many subscriptions cannot afford. Take more than anybody gets from one "
    "report to the next.",
)
DWELL = Parameter(
    "dwell",
    "Has to last",
    Kind.LENGTH,
    "Before and after the change it has to stay as it is for so long, or it counts for nothing.",
    default="2 minutes",
    least=0.0,
    most=_DAY,
)
WITHIN = Parameter(
    "within",
    "Within",
    Kind.LENGTH,
    "The report before the change and the one after it are at most so far apart.",
    default="30 minutes",
    most=7 * _DAY,
)
LONGER_THAN = Parameter(
    "longer_than",
    "Longer than",
    Kind.LENGTH,
    "It is told when so much time has passed, without a further report.",
    required=True,
    most=30 * _DAY,
)
TOGETHER = Parameter(
    "together",
    "At the same time",
    Kind.LENGTH,
    "A report is compared with the one of the other object just before it, if that is no older "
    "than this. Objects that report once a minute need a minute.",
    default="1 minute",
    most=_HOUR,
)
QUIET = Parameter(
    "quiet",
    "Quiet period",
    Kind.LENGTH,
    "After a notification about an object there is none about it for so long.",
    least=0.0,
    most=30 * _DAY,
)


def apart(says: str) -> Parameter:
    """A distance between objects; it has to be given."""
    return Parameter("distance", "Distance", Kind.DISTANCE, says, required=True)
