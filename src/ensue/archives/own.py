"""What an archive that Ensue wrote says of itself, in the configuration of its Delta table."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ensue.errors import EventError

CONFIGURATION = "ensue.archive"  # the entry of the table's configuration
DAY, BUCKET, ORDER = "__day", "__bucket", "__order"
HIDDEN = (DAY, BUCKET, ORDER)
_FORM = 1


@dataclass(frozen=True, slots=True)
class Own:
    """How the events of an archive of Ensue's are laid out."""

    time: tuple[str, str]
    type: str | None
    key: tuple[str, ...]
    order: tuple[str, ...]
    buckets: int
    day: float | None = None  # how long a part is, where times are numbers; 0: all of it

    def text(self) -> str:
        """As the table's configuration keeps it.

        >>> own = Own(("t", "t"), None, ("id",), (), 16)
        >>> Own.read({CONFIGURATION: own.text()}) == own
        True
        """
        return json.dumps({"form": _FORM, **asdict(self)}, sort_keys=True)

    @staticmethod
    def read(configuration: Mapping[str, str | None]) -> "Own | None":
        """What the configuration says; None: the table is not one of Ensue's."""
        text = configuration.get(CONFIGURATION)
        if text is None:
            return None
        known = json.loads(text)
        if known.pop("form", None) != _FORM:
            raise EventError(
                "the archive was written by another release of Ensue, in a form that this one "
                "does not know\n  hint: install the newer release"
            )
        start, end = known.pop("time")
        key, order = tuple(known.pop("key")), tuple(known.pop("order"))
        return Own(time=(start, end), key=key, order=order, **known)

    def named_time(self) -> str | tuple[str, str]:
        """The time columns as a call names them."""
        return self.time[0] if self.time[0] == self.time[1] else self.time
