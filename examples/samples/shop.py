"""A day of a shop's RFID readings, with thefts planted in it.

Antennas on the shelves read every item about each 45 minutes, those at the counters, the fitting
rooms and the exit when an item passes. Between the thefts there is what makes a shop: items that
customers misplace, try on, have priced and put back, pay and carry out, bring back; an exit that
reads a tag two or three times; clothes bought long ago that their owners wear; and goods that
staff carry out of the shop window at night, 12 hours and more after a shelf has seen them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

THEFT = """\
EVENT Theft AS SEQ(SHELF x, !COUNTER y, EXIT z)
WHERE [tag]
WITHIN 12 hours
AFTER MATCH SKIP PAST LAST EVENT
RETURN z.tag AS tag, x.reader_id AS shelf, x.ts AS seen, z.reader_id AS exit, z.ts AS gone"""

_DAY = np.datetime64("2026-03-14T00:00:00", "us")  # a Saturday
_MINUTE, _HOUR = 60.0, 3600.0
_OPEN, _CLOSE, _NIGHT = 9 * _HOUR, 21 * _HOUR, 21.5 * _HOUR
_PERIOD = 45 * _MINUTE  # between two readings of an item by its shelf
_READINGS_PER_ITEM = 16.8  # on average; turns a number of events into one of items
_KINDS = ("SHELF", "COUNTER", "EXIT", "FITTING_ROOM")
_SHELF, _COUNTER, _EXIT, _FITTING = range(4)
_ANTENNAS = (120, 6, 2, 8)

Seconds = NDArray[np.float64]  # since midnight
Items = NDArray[np.int32]


class Shop(NamedTuple):
    """The readings of a day, and the thefts among them."""

    readings: pa.Table  # ts, reader, tag, reader_id, rssi; in the order of ts
    thefts: pa.Table  # tag, gone: the first reading at the exit; in the order of gone


@dataclass(frozen=True, slots=True)
class _Readings:
    item: Items
    time: Seconds
    kind: NDArray[np.int8]
    antenna: NDArray[np.int16]


def shop(events: int = 1_000_000, seed: int = 7) -> Shop:
    """About `events` readings of a day, and every theft in them (one item in 200 is stolen).

    >>> day = shop(2_000)
    >>> day.readings.column_names
    ['ts', 'reader', 'tag', 'reader_id', 'rssi']
    >>> day.thefts.column_names
    ['tag', 'gone']
    """
    items = max(50, round(events / _READINGS_PER_ITEM))
    day = _Day(np.random.default_rng(seed), items)
    stolen, gone = day.live()
    return Shop(day.table(), _thefts(stolen, gone))


class _Day:
    """The shop's day, told fate by fate; what the antennas read on the way is noted down."""

    def __init__(self, random: np.random.Generator, items: int) -> None:
        self.random = random
        self.items = items
        self.home = random.integers(0, _ANTENNAS[_SHELF], items, dtype=np.int16)
        self.noted: list[_Readings] = []

    def live(self) -> tuple[Items, Seconds]:
        """Every item meets its fate; returns the stolen ones and when they went."""
        shares = {
            "stolen": 0.005, "bought": 0.38, "brought back": 0.01, "priced": 0.02,
            "carried out": 0.003, "worn": 0.01,
        }  # fmt: skip
        order = self.random.permutation(self.items).astype(np.int32)
        bounds = np.cumsum([max(2, round(share * self.items)) for share in shares.values()])
        *fates, stay = np.split(order, bounds)
        stolen, bought, brought_back, priced, carried_out, worn = fates
        self.on_shelf(stay, self.stock_take(stay), self.until(stay, _NIGHT))
        self.be_bought(bought)
        self.be_brought_back(brought_back)
        self.on_shelf(priced, self.be_priced(priced), self.until(priced, _NIGHT))
        self.be_carried_out(carried_out)
        self.be_worn(worn)
        return stolen, self.be_stolen(stolen)

    # ---- fates

    def be_stolen(self, items: Items) -> Seconds:
        """Off the shelf and out, some by way of a fitting room, some priced before."""
        priced = items[: len(items) // 10]
        on_shelf = np.concatenate([self.be_priced(priced), self.stock_take(items[len(priced) :])])
        taken = self.between(np.maximum(on_shelf + _HOUR, _OPEN), 20.5 * _HOUR)
        self.on_shelf(items, on_shelf, taken)
        gone = self.after(self.try_on(items, taken, share=0.3), 2, 20)
        self.pass_exit(items, gone)
        return gone

    def be_bought(self, items: Items) -> None:
        taken = self.between(self.until(items, _OPEN), 19.5 * _HOUR)
        self.on_shelf(items, self.stock_take(items), taken)
        paid = self.after(self.try_on(items, taken, share=0.25), 3, 25)
        self.pay(items, paid)
        gone = self.after(paid, 0.5, 10)
        self.pass_exit(items, gone)
        # Some buyers look in again, bag in hand: two more readings at the exit, still no theft.
        again = slice(len(items) // 30)
        back = self.after(gone[again], 5, 30)
        self.pass_exit(items[again], back)
        self.pass_exit(items[again], self.after(back, 5, 30))

    def be_brought_back(self, items: Items) -> None:
        taken = self.between(self.until(items, _OPEN), 14 * _HOUR)
        self.on_shelf(items, self.stock_take(items), taken)
        paid = self.after(taken, 3, 25)
        self.pay(items, paid)
        gone = self.after(paid, 0.5, 10)
        self.pass_exit(items, gone)
        back = self.after(gone, 60, 180)
        self.pass_exit(items, back)
        refunded = self.after(back, 2, 15)
        self.pay(items, refunded)
        self.on_shelf(items, self.after(refunded, 10, 60), self.until(items, _NIGHT))

    def be_priced(self, items: Items) -> Seconds:
        """Carried to a counter to ask the price, and put back; returns when."""
        taken = self.between(self.until(items, _OPEN), 18 * _HOUR)
        self.on_shelf(items, self.stock_take(items), taken)
        asked = self.after(taken, 3, 25)
        self.pay(items, asked)
        return self.after(asked, 2, 20)

    def be_carried_out(self, items: Items) -> None:
        """From the stock-taking into the shop window, and out by staff 12 hours later."""
        counted = self.between(self.until(items, 7 * _HOUR), 7.5 * _HOUR)
        self.note(items, counted, _SHELF, self.home[items])
        self.pass_exit(items, self.between(counted + 12 * _HOUR + _MINUTE, _CLOSE))

    def be_worn(self, items: Items) -> None:
        come = self.between(self.until(items, _OPEN), 20 * _HOUR)
        self.pass_exit(items, come)
        self.pass_exit(items, self.after(come, 5, 50))

    # ---- what the antennas read

    def on_shelf(self, items: Items, start: Seconds, end: Seconds) -> None:
        """A reading at the start and one about every 45 minutes; some move to another shelf."""
        slack = 2 * _MINUTE
        readings = 1 + np.floor(np.maximum(end - start - slack, 0) / _PERIOD).astype(np.int64)
        nth = np.arange(readings.sum()) - np.repeat(np.cumsum(readings) - readings, readings)
        which = np.repeat(np.arange(len(items)), readings)
        late = np.where(nth > 0, self.random.uniform(0, slack, len(nth)), 0)
        time = start[which] + nth * _PERIOD + late
        moved = np.where(self.random.random(len(items)) < 0.15, self.between(start, end), np.inf)
        elsewhere = self.random.integers(0, _ANTENNAS[_SHELF], len(items), dtype=np.int16)
        shelf = np.where(time < moved[which], self.home[items][which], elsewhere[which])
        self.note(items[which], time, _SHELF, shelf)

    def try_on(self, items: Items, taken: Seconds, share: float) -> Seconds:
        """Some go to a fitting room first; returns since when each is in a customer's hands."""
        tries = self.random.random(len(items)) < share
        tried = self.after(taken, 2, 12)
        self.pass_by(items[tries], tried[tries], _FITTING, most=2, apart=120.0)
        return np.where(tries, tried + 4 * _MINUTE, taken)

    def pay(self, items: Items, time: Seconds) -> None:
        self.pass_by(items, time, _COUNTER, most=2, apart=3.0)

    def pass_exit(self, items: Items, time: Seconds) -> None:
        self.pass_by(items, time, _EXIT, most=3, apart=2.0)

    def pass_by(self, items: Items, time: Seconds, kind: int, most: int, apart: float) -> None:
        """From 1 to `most` readings by one antenna, up to `apart` seconds after each other."""
        antenna = self.random.integers(0, _ANTENNAS[kind], len(items), dtype=np.int16)
        readings = self.random.integers(1, most + 1, len(items))
        for nth in range(most):
            read = readings > nth
            self.note(items[read], time[read], kind, antenna[read])
            time = time + self.random.uniform(0.2, 1.0, len(items)) * apart

    def note(self, items: Items, time: Seconds, kind: int, antenna: NDArray[np.int16]) -> None:
        self.noted.append(_Readings(items, time, np.full(len(items), kind, np.int8), antenna))

    # ---- times

    def stock_take(self, items: Items) -> Seconds:
        return self.between(self.until(items, 7 * _HOUR), 8 * _HOUR)

    def until(self, items: Items, time: float) -> Seconds:
        return np.full(len(items), time)

    def between(self, start: Seconds, end: Seconds | float) -> Seconds:
        return self.random.uniform(start, end)

    def after(self, time: Seconds, least: float, most: float) -> Seconds:
        """From `least` to `most` minutes later."""
        return time + self.random.uniform(least, most, len(time)) * _MINUTE

    # ---- the tables

    def table(self) -> pa.Table:
        time = np.concatenate([r.time for r in self.noted])
        order = np.argsort(time, kind="stable")
        kind = np.concatenate([r.kind for r in self.noted])[order]
        antenna = np.concatenate([r.antenna for r in self.noted])[order]
        item = np.concatenate([r.item for r in self.noted])[order]
        firsts = np.cumsum((0, *_ANTENNAS[:-1]))
        antennas = [
            f"{name.lower().replace('_', '-')}-{n + 1}"
            for name, count in zip(_KINDS, _ANTENNAS, strict=True)
            for n in range(count)
        ]
        rssi = np.round(self.random.normal(-55, 6, len(order)), 1)
        return pa.table(
            {
                "ts": _timestamps(time[order]),
                "reader": pa.array(_KINDS).take(pa.array(kind)),
                "tag": _tags(item),
                "reader_id": pa.array(antennas).take(pa.array(firsts[kind] + antenna)),
                "rssi": rssi,
            }
        )


def _thefts(items: Items, gone: Seconds) -> pa.Table:
    order = np.argsort(gone, kind="stable")
    return pa.table({"tag": _tags(items[order]), "gone": _timestamps(gone[order])})


def _timestamps(time: Seconds) -> pa.Array:
    return pa.array(_DAY + (time * 1e6).astype("m8[us]"), pa.timestamp("us", "UTC"))


def _tags(items: Items) -> pa.Array:
    every = int(items.max(initial=0)) + 1
    return pa.array([f"item-{n:06d}" for n in range(every)], pa.string()).take(pa.array(items))
