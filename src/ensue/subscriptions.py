"""A set of subscriptions: where, when and what, very many of them over one stream."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ensue.algebra.alternatives import alternatives
from ensue.algebra.event_test import EventTest, tells_events_apart
from ensue.algebra.subscription import Placed, Region, Subscription, parts_of
from ensue.brief_errors import brief_calls
from ensue.errors import EventError, QueryError, SubscriptionWarning, did_you_mean
from ensue.languages.builder import PatternBuilder
from ensue.own_frames import outside
from ensue.rendering import highlighted, in_a_frame

if TYPE_CHECKING:
    from ensue.workload.subscriptions.catalogue.change import Change
    from ensue.workload.subscriptions.catalogue.log import Log
    from ensue.workload.subscriptions.catalogue.memory import MemoryLog
    from ensue.workload.subscriptions.subscribed import Subscribed

SPACES = ("plane", "earth")
MOST_CHECKED = 10_000
_SHOWN = 20  # subscriptions, in a notebook


@brief_calls
class Subscriptions:
    """Subscriptions over one stream of events, matched together.

    `time`, `type`, `order` and `location` are as in `ensue.match`; `space="earth"` means that
    places are longitudes and latitudes in degrees, and distances metres. With a `folder` the set
    is kept there: running streams and other processes see its changes.

    >>> fleet = Subscriptions(time="ts", location=("x", "y"))
    >>> fleet.add(
    ...     "left",
    ...     "=|(@(Depot)(A); 25)(DIST(Depot; >; 20)(A)), A = (ARITH:id = 17)",
    ...     regions={"Depot": "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"},
    ... )
    1
    >>> list(fleet)
    ['left']
    """

    def __init__(
        self,
        *,
        time: str | tuple[str, str],
        type: str | None = None,
        order: Sequence[str] | str = (),
        location: str | tuple[str, str] | None = None,
        space: str = "plane",
        regions: Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        if space not in SPACES:
            hint = did_you_mean(str(space), SPACES)
            raise EventError(f"space={space!r} is no space\n  hint: {hint}")
        self.time = time
        self.type = type
        self.order = (order,) if isinstance(order, str) else tuple(order)
        self.location = (
            location if location is None or isinstance(location, str) else tuple(location)
        )
        self.space = space
        self._regions = _texts(regions)
        self._checked: set[str] = set()  # texts of regions that are some
        self._log = _log(folder, self._settings())

    @classmethod
    def over(cls, log: "MemoryLog", **columns: Any) -> "Subscriptions":
        """A set whose changes are stored elsewhere."""
        found = cls(**columns)
        found._log = log
        return found

    def _settings(self) -> dict[str, Any]:
        return {
            "time": self.time, "type": self.type, "order": list(self.order),
            "location": self.location, "space": self.space,
        }  # fmt: skip

    # ---------------------------------------------------------------------------- changes

    def add(
        self,
        name: str,
        text: str | PatternBuilder,
        *,
        regions: Mapping[str, Any] | None = None,
        language: str | None = None,
    ) -> int:
        """Adds a subscription, and returns the version of the set that contains it.

        `text` is in OPSL or in the pattern language, recognised or given by `language` ("opsl" or
        "patterns"). `regions` are those that it names, in addition to those of the set: WKT,
        "CIRCLE (x y, r)", a list of corners, or a Shapely geometry.
        """
        from ensue.workload.subscriptions.catalogue.change import Change

        return self._log.append([self.change_of(Change.add, name, text, regions, language)])

    def add_all(
        self,
        texts: Mapping[str, str | PatternBuilder] | Iterable[tuple[str, str | PatternBuilder]],
        *,
        regions: Mapping[str, Any] | None = None,
        language: str | None = None,
    ) -> int:
        """Adds many by name, as one version: all of them or none."""
        from ensue.workload.subscriptions.catalogue.change import Change

        pairs = texts.items() if isinstance(texts, Mapping) else texts
        given = self._given(regions)
        return self._log.append(
            self.change_of(Change.add, name, text, given, language) for name, text in pairs
        )

    def replace(
        self,
        name: str,
        text: str | PatternBuilder,
        *,
        regions: Mapping[str, Any] | None = None,
        language: str | None = None,
    ) -> int:
        """Replaces the text of a subscription and discards what it has seen so far."""
        from ensue.workload.subscriptions.catalogue.change import Change

        return self._log.append([self.change_of(Change.replace, name, text, regions, language)])

    def cancel(self, *names: str) -> int:
        """Removes subscriptions. They are silent from the next events on."""
        from ensue.workload.subscriptions.catalogue.change import Change

        return self._log.append([Change.cancel(name) for name in names])

    def change_of(
        self,
        make: Any,
        name: str,
        text: str | PatternBuilder,
        regions: Mapping[str, Any] | None = None,
        language: str | None = None,
        said: list[str] | None = None,
    ) -> "Change":
        """What adding (`Change.add`) or replacing a subscription would change; a dry run.

        Warnings go to `said`, if that is given.
        """
        if not isinstance(name, str) or not name:  # type: ignore[redundant-expr]
            raise QueryError(f"a subscription has a name, and {name!r} is none")
        if isinstance(text, PatternBuilder):
            text, language = text.text, "patterns"
        given = self._given(regions)
        if language != "opsl" and _is_pattern(text, language):
            self._read_pattern(name, text)
            pattern: Change = make(name, text, language="patterns")
            return pattern
        subscription = self._read(name, text, given, said)
        names = sorted({region.name for region in _regions_of(subscription) if region.name})
        used = {region: given[region] for region in names if region in given}
        change: Change = make(name, text, language=language, regions=used)
        return change

    def _given(self, regions: Mapping[str, Any] | None) -> dict[str, str]:
        return self._regions | _texts(regions)

    def _read_pattern(self, name: str, text: str) -> None:
        from ensue.languages.subscribed_queries import subscribed_query

        try:
            subscribed_query(text)
        except QueryError as error:
            error.problem = f"subscription '{name}': {error.problem}"
            raise

    def _read(
        self, name: str, text: str, regions: Mapping[str, str], said: list[str] | None
    ) -> Subscription:
        from ensue.languages import opsl

        try:
            found = opsl.parse(text, regions)
            ways = alternatives(found)
            for region in _regions_of(found):
                self._check(region)
        except QueryError as error:
            error.problem = f"subscription '{name}': {error.problem}"
            raise error.at(None, text) from None
        for part in (part for way in ways for part in way.parts):
            if isinstance(part, EventTest) and not tells_events_apart(part, self.type):
                warning = (
                    f"subscription '{name}' has an atom that most events pass: every one of them "
                    "is matched for it; hint: say more of the event, an id or a region"
                )
                if said is None:
                    warnings.warn(warning, SubscriptionWarning, stacklevel=outside())
                else:
                    said.append(warning)
                break
        return found

    def _check(self, region: Region) -> None:
        """QueryError if a text describes no region."""
        from ensue.columns.region_shapes import made

        if region.text not in self._checked:
            made(region, self.space)
            if len(self._checked) < MOST_CHECKED:
                self._checked.add(region.text)

    # ---------------------------------------------------------------------------- what there is

    @property
    def version(self) -> int:
        """The version of the set: it grows with every change."""
        return self._log.latest()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[str]:
        for _, change in self._log.alive():
            yield change.name

    def __contains__(self, name: object) -> bool:
        return any(name == one for one in self)

    def __getitem__(self, name: str) -> str:
        """The text of a subscription."""
        texts = {change.name: change.text for _, change in self._log.alive()}
        if name not in texts:
            raise KeyError(name)
        return texts[name] or ""

    def subscribed(self) -> "Subscribed":
        """The set as it is now, and its log."""
        from ensue.workload.subscriptions.subscribed import Subscribed

        return Subscribed(self._log, self.version)

    def _repr_html_(self) -> str:
        texts = [(c.name, c.text or "") for _, c in self._log.alive()]
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{in_a_frame(highlighted(text))}</td></tr>"
            for name, text in texts[:_SHOWN]
        )
        more = f"<p>… and {len(texts) - _SHOWN:,} more</p>" if len(texts) > _SHOWN else ""
        return f"<p>{escape(repr(self))}</p><table>{rows}</table>{more}"

    def __repr__(self) -> str:
        return f"<ensue.Subscriptions: {len(self)} subscriptions, version {self.version}>"


def _log(folder: str | Path | None, settings: Mapping[str, Any]) -> "Log | MemoryLog":
    from ensue.workload.subscriptions.catalogue.log import Log
    from ensue.workload.subscriptions.catalogue.memory import MemoryLog

    if folder is None:
        return MemoryLog()
    log = Log(folder)
    log.settle(settings)
    return log


def _is_pattern(text: str, language: str | None) -> bool:
    from ensue.languages.table import PATTERNS, language_named, language_of

    read = language_of(text) if language is None else language_named(language)
    return read is PATTERNS


def _texts(regions: Mapping[str, Any] | None) -> dict[str, str]:
    """Regions in one spelling each."""
    if not regions:
        return {}
    from ensue.columns.regions import region_text

    return {name: region_text(value) for name, value in regions.items()}


def _regions_of(subscription: Subscription) -> list[Region]:
    found = []
    left = [subscription.root, *subscription.variables.values()]
    while left:
        part = left.pop()
        left += parts_of(part)
        if isinstance(part, Placed) and isinstance(part.place, Region):
            found.append(part.place)
    return found
