"""The ways to find the archived matches that live ones ask for. All find the same."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ensue.columns.rows import no_rows
from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.errors import LimitError
from ensue.plan.limits import size_text
from ensue.results.pairing import times_of
from ensue.workload.correlations.past import Past
from ensue.workload.correlations.pieces import Asked
from ensue.workload.correlations.sides import PreparedSide

KEPT_BYTES = 64 << 20  # of archived matches that are kept for later live ones


@dataclass(frozen=True)
class Lookup:
    """A pattern over an archive, and what has to be read to find its matches in a range."""

    archive: str
    prepared: PreparedSide
    field: str | None  # the field of the key by which it is read; None: all objects together
    types: frozenset[str] | None
    before: float  # how far before a range it has to be read; infinity: from the beginning
    behind: float  # how far behind
    window: float | None  # how long its matches are at most, if that is known

    @property
    def schema(self) -> pa.Schema:
        return self.prepared.side.schema

    def matches(self, events: pa.Table) -> pa.Table:
        """The matches in events that are in order."""
        return self.prepared.matches(events)


class Access(Protocol):
    """Finds archived matches."""

    lookup: Lookup
    total: int  # archived matches that it has found so far

    def begin(self, first: float) -> None:
        """The first event of the stream is known: no live match starts before it.

        Times are in the unit of the past.
        """

    def feed(self, events: pa.Table) -> None:
        """The next events of the past."""

    def advance(self, now: float) -> None:
        """No event that ends before `now` comes any more."""

    def forget(self, now: float) -> None:
        """Drops what no live match to come can ask for."""

    def instances(self, asked: Asked) -> pa.Table:
        """Archived matches, among them all that lie in what is asked for."""

    @property
    def kept(self) -> int:
        """How many archived matches it keeps."""

    @property
    def nbytes(self) -> int: ...
    def save(self) -> bytes: ...
    def restore(self, data: bytes) -> None: ...


class Grouped:
    """Reads the archive for all that is asked for at a time, and keeps nothing (SLLAA)."""

    kept = 0
    nbytes = 0

    def __init__(self, lookup: Lookup, past: Past) -> None:
        self.lookup, self.past = lookup, past
        self.total = 0

    def begin(self, first: float) -> None:
        pass

    def feed(self, events: pa.Table) -> None:
        pass

    def advance(self, now: float) -> None:
        pass

    def forget(self, now: float) -> None:
        pass

    def instances(self, asked: Asked) -> pa.Table:
        wider = asked.wider(self.lookup.before, self.lookup.behind)
        events = self.past.read(wider, self.lookup.field, self.lookup.types)
        found = self.lookup.matches(events)
        self.total += found.num_rows
        return found

    def save(self) -> bytes:
        return b""

    def restore(self, data: bytes) -> None:
        pass


class _Kept(NamedTuple):
    """The archived matches of one object in a stretch of time."""

    since: float
    until: float
    matches: pa.Table


class Lazy(Grouped):
    """Reads the archive for each live match, and keeps what it finds for later ones (LLAA)."""

    def __init__(self, lookup: Lookup, past: Past) -> None:
        super().__init__(lookup, past)
        self._kept: OrderedDict[object, _Kept] = OrderedDict()
        self._bytes = 0
        memory = lookup.prepared.limits.memory
        self._most = KEPT_BYTES if memory is None else min(KEPT_BYTES, memory / 4)

    @property
    def kept(self) -> int:  # type: ignore[override]
        return sum(one.matches.num_rows for one in self._kept.values())

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        return self._bytes

    def instances(self, asked: Asked) -> pa.Table:
        found = [self._of_one(asked.at(np.array([k]))) for k in range(len(asked))]
        return pa.concat_tables([no_rows(self.lookup.schema), *found])

    def _of_one(self, asked: Asked) -> pa.Table:
        if not len(asked.merged()):
            return no_rows(self.lookup.schema)
        since, until = asked.since[0].item(), asked.until[0].item()
        key = None if asked.keys is None else asked.keys[0].as_py()
        known = self._kept.pop(key, None)
        if known is not None:
            self._bytes -= _size(known.matches)
            known = self._longer(known, asked, since, until)
        if known is None:
            known = _Kept(since, until, self._inside(super().instances(asked), since, until))
        self._kept[key] = known
        self._bytes += _size(known.matches)
        while self._bytes > self._most and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= _size(dropped.matches)
        return known.matches

    def _longer(self, known: _Kept, asked: Asked, since: float, until: float) -> _Kept | None:
        """What is kept of an object, up to what is asked for; None: it has to be read anew."""
        if since < known.since:
            return None
        if until <= known.until:
            return known
        if self.lookup.window is None or since > known.until:
            return None
        # what ends behind the known stretch starts no earlier than a window before its end
        missing = known.until - self.lookup.window
        rest = super().instances(Asked(asked.keys, np.array([missing]), asked.until))
        behind = times_of(rest, "end", self.past.unit) > known.until
        found = pa.concat_tables([known.matches, rest.filter(pa.array(behind))])
        return _Kept(since, until, self._inside(found, since, until))

    def _inside(self, found: pa.Table, since: float, until: float) -> pa.Table:
        """The matches in a stretch of time: what was read beyond it decides no others."""
        inside = times_of(found, "start", self.past.unit) >= since
        inside &= times_of(found, "end", self.past.unit) <= until
        return found.filter(pa.array(inside)).combine_chunks()


class Eager:
    """Finds all archived matches as soon as they are complete, and keeps them (ALAA)."""

    def __init__(self, lookup: Lookup, past: Past, far: float, keeps: float | None) -> None:
        self.lookup, self.past = lookup, past
        self.far = far  # how far back ranges go
        self.keeps = keeps  # how far back a live match may still ask; None: for ever
        self.matcher = lookup.prepared.ranked_matcher()
        self.found: list[pa.Table] = []
        self.total = 0
        self.begun = False
        self._dropped: float | None = None

    def begin(self, first: float) -> None:
        """Reads the archive, from where ranges may begin."""
        if self.begun:
            return
        self.begun = True
        since = first - self.far - self.lookup.before
        kind = np.dtype(type(first)).kind
        if kind != "f":
            bounds = np.iinfo(np.int64)
            since = bounds.min if since == -math.inf else max(int(since), bounds.min)
        everything = Asked(None, np.array([since]), _open_end(since))
        events = self.past.read(everything, None, self.lookup.types)
        if events.num_rows:
            self._add(self.matcher.feed(events))
        if not self.past.own:
            self._add(self.matcher.finish())

    def begin_again(self, *, floats: bool) -> None:
        """Goes on for another access, which kept nothing: all of the past is read."""
        far, self.far = self.far, math.inf
        self.begin(0.0 if floats else 0)
        self.far = far

    def feed(self, events: pa.Table) -> None:
        self._add(self.matcher.feed(events))

    def advance(self, now: float) -> None:
        if self.past.own:
            self._add(self.matcher.advance(self.past.archives_time(now)))

    def finish(self) -> None:
        """No event comes any more."""
        if self.past.own and self.begun:
            self._add(self.matcher.finish())

    def _add(self, found: pa.Table) -> None:
        if not found.num_rows:
            return
        self.found.append(found)
        self.total += found.num_rows
        limits = self.lookup.prepared.limits
        if limits.memory is not None and self.nbytes > limits.memory:
            raise LimitError(
                f"the {self.kept:,} archived matches that access='eager' keeps take "
                f"{size_text(self.nbytes)}, more than memory={size_text(limits.memory)}\n"
                "  hint: access='grouped' reads the archive instead; a shorter RANGE keeps fewer"
            )

    def share(self, far: float, keeps: float | None) -> None:
        """Another join looks for the same."""
        self.far = max(self.far, far)
        self.keeps = None if self.keeps is None or keeps is None else max(self.keeps, keeps)

    def forget(self, now: float) -> None:
        if self.keeps is None or not self.found:
            return
        oldest = now - self.keeps
        if self._dropped is not None and oldest - self._dropped < self.far / 16:
            return
        self._dropped = oldest
        whole = self._whole()
        kept = times_of(whole, "start", self.past.unit) >= oldest
        if not kept.all():
            self.found = [whole.filter(pa.array(kept)).combine_chunks()]

    def _whole(self) -> pa.Table:
        if len(self.found) > 1:
            self.found = [pa.concat_tables(self.found).combine_chunks()]
        return self.found[0] if self.found else no_rows(self.lookup.prepared.ranked)

    def instances(self, asked: Asked) -> pa.Table:  # noqa: ARG002
        return self._whole()

    @property
    def kept(self) -> int:
        return sum(table.num_rows for table in self.found)

    @property
    def nbytes(self) -> int:
        return sum(_size(table) for table in self.found) + self.matcher.state_bytes

    def save(self) -> bytes:
        blobs = {"found": to_bytes(self._whole()), "matcher": self.matcher.save()}
        return packed({"begun": self.begun}, {}, blobs)

    def restore(self, data: bytes) -> None:
        if not data:
            return  # saved where the archive was read as needed: everything is found again
        header, _, blobs = unpacked(data)
        self.begun = bool(header["begun"])
        found = from_bytes(blobs["found"]).cast(self.lookup.prepared.ranked)
        self.found = [found] if found.num_rows else []
        self.matcher.restore(blobs["matcher"])


def _open_end(since: Any) -> Any:
    if isinstance(since, float):
        return np.array([np.inf])
    return np.array([np.iinfo(np.int64).max])


def _size(table: pa.Table) -> int:
    return int(table.nbytes)
