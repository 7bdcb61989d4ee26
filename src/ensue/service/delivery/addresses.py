"""Which addresses webhooks may reach: public ones, unless the configuration allows others.

A name is looked up here, all answers are checked, and the connection goes to an address that
passed. So a name that points elsewhere a moment later gets nowhere.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from urllib.parse import urlsplit

from ensue.errors import ServiceError
from ensue.service.delivery.contract import Undelivered

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

SCHEMES = {"http": 80, "https": 443}
PORTS = frozenset({80, 443, 8080, 8443})

# The registries of special addresses, and what clouds answer their own machines with.
_SPECIAL: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(network), what)
    for network, what in (
        ("0.0.0.0/8", "an address of this network"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "a shared address of a provider"),
        ("127.0.0.0/8", "a loopback address"),
        ("168.63.129.16/32", "an address of a cloud's own service"),
        ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "a reserved address"),
        ("192.0.2.0/24", "an address for documentation"),
        ("192.88.99.0/24", "a reserved address"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "an address for benchmarks"),
        ("198.51.100.0/24", "an address for documentation"),
        ("203.0.113.0/24", "an address for documentation"),
        ("224.0.0.0/4", "a multicast address"),
        ("240.0.0.0/4", "a reserved address"),
        ("::/128", "no address"),
        ("::1/128", "a loopback address"),
        ("::ffff:0:0/96", "an IPv4 address written as IPv6"),
        ("64:ff9b:1::/48", "a private address"),
        ("2001::/23", "a reserved address"),
        ("2001:db8::/32", "an address for documentation"),
        ("3fff::/20", "an address for documentation"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a private address"),
        ("ff00::/8", "a multicast address"),
    )
)
_GLOBAL = IPv6Network("2000::/3")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)  # third word of an address that holds an IPv4 address


class RefusedError(ServiceError):
    """An address that webhooks may not reach."""


class RefusedDelivery(Undelivered):
    """A note that was not sent, because its address may not be reached."""


def concern(address: Address) -> str | None:
    """Why an address is not a public one, or nothing.

    >>> concern(ip_address("8.8.8.8"))
    >>> concern(ip_address("169.254.169.254"))
    'a link-local address'
    >>> concern(ip_address("64:ff9b::10.0.0.1"))
    'a private address (10.0.0.1) within an IPv6 address'
    """
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "an address of one link"
    special = next((what for network, what in _SPECIAL if address in network), None)
    if special is not None:
        return special
    if isinstance(address, IPv4Address):
        return None
    inner = _within(address)
    if inner is not None and (what := concern(inner)):
        return f"{what} ({inner}) within an IPv6 address"
    if address in _GLOBAL or address in _NAT64:
        return None
    return "a reserved address"


def _within(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a gateway would take out of an IPv6 address."""
    number = int(address)
    if address in _SIX_TO_FOUR:
        return IPv4Address((number >> 80) & 0xFFFFFFFF)
    if address in _NAT64 or (number >> 32) & 0xFFFFFFFF in _ISATAP:
        return IPv4Address(number & 0xFFFFFFFF)
    return None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a URL points, taken apart once: nothing else reads the text again."""

    scheme: str
    host: str  # as it is looked up; an IPv6 address without brackets
    port: int
    path: str  # with the query

    @property
    def origin(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        usual = SCHEMES[self.scheme] == self.port
        return f"{self.scheme}://{shown}" + ("" if usual else f":{self.port}")

    @property
    def authority(self) -> str:
        """What the header `Host` says."""
        return self.origin.partition("://")[2]


def place_of(url: str) -> Place:
    """Takes a URL apart, and refuses what no webhook needs.

    >>> place_of("https://example.org/hook?key=7")
    Place(scheme='https', host='example.org', port=443, path='/hook?key=7')
    """
    if any(c <= " " or c == "\x7f" or c == "\\" for c in url):
        raise RefusedError("the URL has spaces, backslashes or characters that cannot be seen")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError as error:
        raise RefusedError(f"the URL cannot be read: {error}") from None
    if parts.scheme not in SCHEMES:
        raise RefusedError(
            f"the URL begins with '{parts.scheme}:'\n  hint: webhooks are sent to http and https"
        )
    if "@" in parts.netloc:
        raise RefusedError(
            "the URL contains a user name or password\n"
            "  hint: leave it out; the receiver identifies the sender by the signature"
        )
    if not host:
        raise RefusedError("the URL names no host\n  hint: https://example.org/path")
    try:
        known = host if ":" in host else host.rstrip(".").encode("idna").decode().lower()
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        path.encode("ascii")
    except UnicodeError:
        raise RefusedError(
            "the URL has a host or a path that cannot be sent unchanged\n"
            "  hint: percent-encode letters outside ASCII"
        ) from None
    if not known:
        raise RefusedError("the URL names no host\n  hint: https://example.org/path")
    return Place(parts.scheme, known, SCHEMES[parts.scheme] if port is None else port, path)


class Lookup:
    """Looks names up in threads of its own, so that slow names hold up other names only."""

    def __init__(self, threads: int = 8) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ensue-names")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _looked_up, host, port)

    def close(self) -> None:
        """Waits for nobody: a name that is being looked up may take a while."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _looked_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Guard:
    """Decides where webhooks may go: public addresses at usual ports, and what is allowed."""

    def __init__(
        self,
        allow: Iterable[str] = (),
        *,
        ports: Iterable[int] = PORTS,
        resolve: Resolve | None = None,
    ) -> None:
        self._ports = frozenset(ports)
        self._networks: list[Network] = []
        self._hosts: set[str] = set()
        for entry in allow:
            self._allow(entry)
        self._resolve: Resolve = Lookup() if resolve is None else resolve

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """The addresses of a host, all checked; RefusedError if one may not be reached.

        One bad answer is enough to refuse: a name that mixes public and private addresses
        is made to get past a check.
        """
        try:
            found = await self._resolve(host, port)
            known = [ip_address(one) for one in found]
        except (OSError, UnicodeError, ValueError) as error:
            raise OSError(f"the name {host} is not known: {error}") from None
        if not known:
            raise OSError(f"the name {host} has no address")
        if host not in self._hosts:
            for one in known:
                self._check(host, port, one)
        return tuple(map(str, known))

    def close(self) -> None:
        """Ends the look-ups."""
        if isinstance(self._resolve, Lookup):
            self._resolve.close()

    def _check(self, host: str, port: int, address: Address) -> None:
        if any(address in network for network in self._networks):
            return
        said = host if host == str(address) else f"{host} ({address})"
        what = concern(address)
        if what is not None:
            raise RefusedError(
                f"{said} is {what}, and webhooks go to public addresses\n"
                "  hint: the operator of the service can allow it, see `allow` in the "
                "configuration"
            )
        if port not in self._ports:
            usual = ", ".join(map(str, sorted(self._ports)))
            raise RefusedError(
                f"port {port} of {said} is not a web server port ({usual})\n"
                "  hint: use one of those, or have the host allowed: `allow` in the configuration"
            )

    def _allow(self, entry: str) -> None:
        try:
            self._networks.append(ip_network(entry))
        except ValueError:
            if "/" in entry or ":" in entry or not entry.strip():
                raise ServiceError(
                    f"allow {entry!r}: neither a network nor a host\n"
                    "  hint: write 10.1.0.0/16, fd00::/8 or hooks.example.org"
                ) from None
            self._hosts.add(entry.strip().rstrip(".").lower())
