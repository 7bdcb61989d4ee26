"""The public class `Subscriptions`: a set of very many subscriptions over one stream."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ensue.brief_tracebacks import shorten_class_tracebacks
from ensue.errors import EventError, QueryError, SubscriptionWarning, did_you_mean
from ensue.ir.subscription import EventTest, Region, SpatialCondition, Subscription, is_selective, iterate_parts
from ensue.notebook_repr import highlight_query, wrap_in_frame
from ensue.parser.builder import PatternBuilder
from ensue.traceback_filter import find_stacklevel

if TYPE_CHECKING:
    from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog, MemoryLog
    from ensue.operators.subscriptions.catalog.change import SubscriptionChange
    from ensue.runtime.query_spec import SubscriptionsSpec

SPACES = ("plane", "earth")
MOST_CHECKED = 10_000
_SHOWN = 20  # subscriptions shown in a notebook


@shorten_class_tracebacks
class Subscriptions:
    """Subscriptions over one stream of events, matched together.

    `time`, `type`, `order` and `location` are as in `ensue.match`; with `space="earth"`
    locations are longitudes and latitudes in degrees, and distances metres. With a `folder` the
    set is stored there: running streams and other processes see its changes.

    >>> subscriptions = Subscriptions(time="ts", location=("x", "y"))
    >>> subscriptions.add(
    ...     "left",
    ...     "=|(@(Depot)(A); 25)(DIST(Depot; >; 20)(A)), A = (ARITH:id = 17)",
    ...     regions={"Depot": "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"},
    ... )
    1
    >>> list(subscriptions)
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
            raise EventError(f"space={space!r} is not known\n  hint: {hint}")
        self.time = time
        self.type = type
        self.order = (order,) if isinstance(order, str) else tuple(order)
        self.location = location if location is None or isinstance(location, str) else tuple(location)
        self.space = space
        self._regions = _texts(regions)
        self._checked: set[str] = set()  # texts of valid regions
        self._log = self._open_log(folder)

    @classmethod
    def over(cls, log: "MemoryLog", **columns: Any) -> "Subscriptions":
        """Creates a set over an existing log."""
        subscriptions = cls(**columns)
        subscriptions._log = log
        return subscriptions

    def _open_log(self, folder: str | Path | None) -> "CatalogLog | MemoryLog":
        from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog, MemoryLog

        if folder is None:
            return MemoryLog()
        log = CatalogLog(folder)
        settings = {n: getattr(self, n) for n in ("time", "type", "location", "space")}
        log.settle(settings | {"order": list(self.order)})
        return log

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
        return self.add_all([(name, text)], regions=regions, language=language)

    def add_all(
        self,
        texts: Mapping[str, str | PatternBuilder] | Iterable[tuple[str, str | PatternBuilder]],
        *,
        regions: Mapping[str, Any] | None = None,
        language: str | None = None,
    ) -> int:
        """Adds many by name, as one version: all of them or none."""
        from ensue.operators.subscriptions.catalog.change import SubscriptionChange

        pairs = texts.items() if isinstance(texts, Mapping) else texts
        all_regions = self._all_regions(regions)
        return self._log.append(
            self.change_of(SubscriptionChange.add, name, text, all_regions, language) for name, text in pairs
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
        from ensue.operators.subscriptions.catalog.change import SubscriptionChange

        return self._log.append([self.change_of(SubscriptionChange.replace, name, text, regions, language)])

    def cancel(self, *names: str) -> int:
        """Removes subscriptions. They match no further events."""
        from ensue.operators.subscriptions.catalog.change import SubscriptionChange

        return self._log.append([SubscriptionChange.cancel(name) for name in names])

    def change_of(
        self,
        make: Any,
        name: str,
        text: str | PatternBuilder,
        regions: Mapping[str, Any] | None = None,
        language: str | None = None,
        said: list[str] | None = None,
    ) -> "SubscriptionChange":
        """Returns the change that adds or replaces a subscription, without applying it.

        `make` is `SubscriptionChange.add` or `SubscriptionChange.replace`.

        Warnings are appended to `said`, if given.
        """
        if not isinstance(name, str) or not name:  # type: ignore[redundant-expr]
            raise QueryError(f"{name!r} is not a name of a subscription")
        if isinstance(text, PatternBuilder):
            text, language = text.text, "patterns"
        all_regions = self._all_regions(regions)
        if language != "opsl" and _is_pattern(text, language):
            from ensue.parser.subscribed_patterns import parse_subscribed_query

            with _name_subscription(name):
                parse_subscribed_query(text)
            pattern: SubscriptionChange = make(name, text, language="patterns")
            return pattern
        subscription = self._read(name, text, all_regions, said)
        names = sorted({region.name for region in _list_regions(subscription) if region.name})
        used = {region: all_regions[region] for region in names if region in all_regions}
        change: SubscriptionChange = make(name, text, language=language, regions=used)
        return change

    def _all_regions(self, regions: Mapping[str, Any] | None) -> dict[str, str]:
        return self._regions | _texts(regions)

    def _read(self, name: str, text: str, regions: Mapping[str, str], said: list[str] | None) -> Subscription:
        from ensue.analyzer.normal_form import build_alternatives
        from ensue.parser.opsl import opsl_parser

        with _name_subscription(name, text):
            subscription = opsl_parser.parse_subscription(text, regions)
            branches = build_alternatives(subscription)
            for region in _list_regions(subscription):
                self._check(region)
        for part in (part for branch in branches for part in branch.parts):
            if isinstance(part, EventTest) and not is_selective(part, self.type):
                warning = (
                    f"subscription '{name}' has an atom that most events pass: every one of them "
                    "is matched for it; hint: add a condition on an id or a region"
                )
                if said is None:
                    warnings.warn(warning, SubscriptionWarning, stacklevel=find_stacklevel())
                else:
                    said.append(warning)
                break
        return subscription

    def _check(self, region: Region) -> None:
        """Raises a QueryError if a text describes no region."""
        from ensue.vector.geo_regions import build_region

        if region.text not in self._checked:
            build_region(region, self.space)
            if len(self._checked) < MOST_CHECKED:
                self._checked.add(region.text)

    # ---------------------------------------------------------------------------- reading

    @property
    def version(self) -> int:
        """The version of the set, which grows with every change."""
        return self._log.latest()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[str]:
        for _, change in self._log.alive():
            yield change.name

    def __contains__(self, name: object) -> bool:
        return any(name == existing for existing in self)

    def __getitem__(self, name: str) -> str:
        """Returns the text of a subscription."""
        texts = {change.name: change.text for _, change in self._log.alive()}
        if name not in texts:
            raise KeyError(name)
        return texts[name] or ""

    def subscribed(self) -> "SubscriptionsSpec":
        """Returns the set at its current version, with its log."""
        from ensue.runtime.query_spec import SubscriptionsSpec

        return SubscriptionsSpec(self._log, self.version)

    def _repr_html_(self) -> str:
        texts = [(c.name, c.text or "") for _, c in self._log.alive()]
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{wrap_in_frame(highlight_query(text))}</td></tr>"
            for name, text in texts[:_SHOWN]
        )
        more = f"<p>… and {len(texts) - _SHOWN:,} more</p>" if len(texts) > _SHOWN else ""
        return f"<p>{escape(repr(self))}</p><table>{rows}</table>{more}"

    def __repr__(self) -> str:
        return f"<ensue.Subscriptions: {len(self)} subscriptions, version {self.version}>"


@contextmanager
def _name_subscription(name: str, text: str | None = None) -> Iterator[None]:
    """Adds the name of a subscription, and its text, to an error."""
    try:
        yield
    except QueryError as error:
        error.problem = f"subscription '{name}': {error.problem}"
        raise error.at(None, text) from None


def _is_pattern(text: str, language: str | None) -> bool:
    from ensue.parser.registry import PATTERNS, detect_language, get_language

    parsed_as = detect_language(text) if language is None else get_language(language)
    return parsed_as is PATTERNS


def _texts(regions: Mapping[str, Any] | None) -> dict[str, str]:
    """Converts regions to WKT."""
    if not regions:
        return {}
    from ensue.vector.geo_regions import normalize_region

    return {name: normalize_region(value) for name, value in regions.items()}


def _list_regions(subscription: Subscription) -> list[Region]:
    parts = iterate_parts(subscription.root, *subscription.variables.values())
    return [p.place for p in parts if isinstance(p, SpatialCondition) and isinstance(p.place, Region)]
