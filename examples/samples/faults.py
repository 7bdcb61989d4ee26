"""An evening of a data centre: readings of its hosts, with attacks that bring services down.

Each host reports its resources and its network every ten seconds, to two tables with columns of
their own. An attack shows as floods of packets on some hosts of a service; when the service
cannot stand it, some host of it has no memory left and answers nobody, again and again until the
attack is over. Beside that there is what looks alike: floods that a service stands, a single burst
of packets, services that fail long after a flood or for reasons of their own, busy processors.
"""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

_EVENING = datetime(2026, 3, 2, 18, tzinfo=UTC)
_PERIOD = 10.0  # seconds between two readings of a host
_STORY = 40 * 60.0  # of a service; what happens in it is over well before
_STORIES = ("attacked", "stands it", "burst", "own fault", "long after", "busy")


class Faults(NamedTuple):
    """The readings of an evening, and the services that attacks brought down."""

    resources: pa.Table  # ts, host, service, cpu, memory
    network: pa.Table  # ts, host, service, packets, connections
    floods: frozenset[tuple[str, datetime]]  # host, its third flooded reading in a row
    failures: frozenset[tuple[str, datetime]]  # host, the reading in which nobody is connected
    downs: frozenset[tuple[str, datetime]]  # service, its first failure after a flood

    @property
    def tables(self) -> dict[str, pa.Table]:
        """The readings by their types."""
        return {"Resource": self.resources, "Network": self.network}


def faults(services: int = 6, hosts: int = 4, stories: int = 4, seed: int = 7) -> Faults:
    """Some services of some hosts each; each service has its stories, one after the other.

    >>> evening = faults(services=6, stories=1)
    >>> evening.network.column_names
    ['ts', 'host', 'service', 'packets', 'connections']
    >>> len(evening.downs)
    1
    """
    evening = _Evening(Random(seed))
    for number in range(services):
        service = f"service-{number + 1}"
        named = [f"{service}-host-{n + 1}" for n in range(hosts)]
        for chapter in range(stories):
            told = _STORIES[(number + chapter) % len(_STORIES)]
            evening.tell(told, service, named, chapter * _STORY)
        evening.report(service, named, stories * _STORY)
    return Faults(
        _table(evening.resources),
        _table(evening.network),
        frozenset(evening.floods),
        frozenset(evening.failures),
        frozenset(evening.downs),
    )


class _Evening:
    """What happens to the hosts, by the number of the reading; the rest of the time is quiet."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.fate: dict[tuple[str, int], str] = {}
        self.resources: list[dict[str, Any]] = []
        self.network: list[dict[str, Any]] = []
        self.floods: set[tuple[str, datetime]] = set()
        self.failures: set[tuple[str, datetime]] = set()
        self.downs: set[tuple[str, datetime]] = set()

    def tell(self, story: str, service: str, hosts: list[str], at: float) -> None:
        first = round(at / _PERIOD) + self.random.randint(3, 9)
        gateway, backend, other = self.random.sample(hosts, 3)
        match story:
            case "attacked":
                self.flood(gateway, first, times=8)
                self.flood(other, first + 2, times=2)
                downs = [self.fail(backend, first + 16 + 2 * n) for n in range(5)]
                downs += [self.fail(other, first + 12 + 3 * n) for n in range(3)]
                self.downs.add((service, min(downs)))  # the others repeat it
            case "stands it":
                self.flood(gateway, first, times=5)
            case "burst":
                for host in (gateway, other):
                    self.fate[host, first] = self.fate[host, first + 5] = "flooded"
                self.fail(backend, first + 10)
            case "own fault":
                for repeated in range(3):
                    self.fail(backend, first + 3 * repeated)
                self.flood(gateway, first + 30, times=1)
            case "long after":
                self.flood(gateway, first, times=2)
                self.fail(backend, first + 100)  # more than a quarter of an hour
            case _:
                for n in range(20):
                    self.fate[backend, first + n] = "busy"

    def flood(self, host: str, reading: int, times: int) -> None:
        """Each time three flooded readings in a row."""
        for n in range(3 * times):
            self.fate[host, reading + n] = "flooded"
        for n in range(times):
            self.floods.add((host, _at(reading + 3 * n + 2, _network_offset(host))))

    def fail(self, host: str, reading: int) -> datetime:
        self.fate[host, reading] = "failing"
        fallen = _at(reading, _network_offset(host))
        self.failures.add((host, fallen))
        return fallen

    def report(self, service: str, hosts: list[str], until: float) -> None:
        for host in hosts:
            for reading in range(round(until / _PERIOD)):
                fate = self.fate.get((host, reading), "quiet")
                cpu, memory = self.load(fate)
                packets, connections = self.traffic(fate)
                common = {"host": host, "service": service}
                self.resources.append(
                    {"ts": _at(reading, _network_offset(host) - 2), **common} | {"cpu": cpu, "memory": memory}
                )
                self.network.append(
                    {"ts": _at(reading, _network_offset(host)), **common}
                    | {"packets": packets, "connections": connections}
                )

    def load(self, fate: str) -> tuple[float, float]:
        """Processor and memory in percent."""
        match fate:
            case "failing":
                return round(self.random.uniform(96, 100), 1), round(self.random.uniform(92, 99), 1)
            case "busy":
                return round(self.random.uniform(96, 100), 1), round(self.random.uniform(40, 80), 1)
            case _:
                return round(self.random.uniform(5, 80), 1), round(self.random.uniform(30, 85), 1)

    def traffic(self, fate: str) -> tuple[int, int]:
        match fate:
            case "failing":
                return self.random.randint(0, 2_000), 0
            case "flooded":
                return self.random.randint(60_000, 200_000), self.random.randint(5_000, 20_000)
            case _:
                return self.random.randint(500, 40_000), self.random.randint(10, 900)


def _network_offset(host: str) -> float:
    """When in its ten seconds a host reports: each at a moment of its own."""
    return 3.0 + sum(host.encode()) % 7


def _at(reading: int, offset: float) -> datetime:
    return _EVENING + timedelta(milliseconds=round((reading * _PERIOD + offset) * 1000))


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(sorted(rows, key=lambda row: (row["ts"], row["host"])))
