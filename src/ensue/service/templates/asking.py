"""Parameters that several templates ask for."""

from ensue.service.templates.reading import EVERYBODY
from ensue.service.templates.template import Kind, Parameter

_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0

REGION = Parameter(
    "region",
    "Region",
    Kind.REGION,
    "The name of a region, or its shape as WKT. The border counts as inside.",
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
    "An object outside by no more than this counts neither as inside nor as outside.",
    default=50.0,
    least=0.0,
)
REACH = Parameter(
    "reach",
    "Looks no further than",
    Kind.DISTANCE,
    "Reports from further away than this are ignored. Without it every report of the stream is "
    "examined, which is too expensive with many subscriptions. Use more than the distance an "
    "object covers between two reports.",
)
DWELL = Parameter(
    "dwell",
    "Has to last",
    Kind.LENGTH,
    "The state before and after the change has to last this long, or it does not count.",
    default="2 minutes",
    least=0.0,
    most=_DAY,
)
WITHIN = Parameter(
    "within",
    "Within",
    Kind.LENGTH,
    "The report before the change and the one after it are at most this far apart.",
    default="30 minutes",
    most=7 * _DAY,
)
LONGER_THAN = Parameter(
    "longer_than",
    "Longer than",
    Kind.LENGTH,
    "It is reported when this much time has passed, without another report.",
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
    "After a notification about an object there are no more about it for this long.",
    least=0.0,
    most=30 * _DAY,
)


def apart(says: str) -> Parameter:
    """A distance between objects; it has to be given."""
    return Parameter("distance", "Distance", Kind.DISTANCE, says, required=True)
