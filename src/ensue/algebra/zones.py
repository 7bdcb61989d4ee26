"""Time zones by their names, as `zoneinfo` knows them."""

import re
from datetime import UTC, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from ensue.errors import did_you_mean

_OFFSET = re.compile(r"([+-])([01][0-9]|2[0-3]):?([0-5][0-9])")
_UTC = ("utc", "etc/utc", "z", "gmt", "etc/gmt", "zulu", "etc/zulu", "+00:00", "-00:00")


@lru_cache(maxsize=256)
def zone_named(name: str) -> tzinfo | None:
    """The zone of a name, or of an offset such as +05:30; None: there is none.

    >>> zone_named("+05:30"), zone_named("Europe/Nowhere")
    (datetime.timezone(datetime.timedelta(seconds=19800)), None)
    """
    if is_utc(name):
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        length = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(-length if offset[1] == "-" else length)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def is_utc(name: str) -> bool:
    """Whether clocks of a zone show UTC.

    >>> is_utc("Etc/UTC"), is_utc("Europe/London")
    (True, False)
    """
    return name.lower() in _UTC


def hint_for(name: str) -> str:
    """What to write instead of a name that no zone has."""
    known = sorted(available_timezones())
    if not known:
        return "this machine has no time zone data: pip install tzdata"
    spelled = {one.lower(): one for one in known}
    if name.lower() in spelled:
        return f"did you mean '{spelled[name.lower()]}'?"
    last = {one.rpartition("/")[2].lower(): one for one in known if "/" in one}
    if name.lower().replace(" ", "_") in last:
        return f"did you mean '{last[name.lower().replace(' ', '_')]}'?"
    near = did_you_mean(name, known) or ""
    if near.startswith("did you mean"):
        return near
    return "zones are named like 'Europe/Zurich', 'America/New_York', 'UTC' or '+05:30'"
