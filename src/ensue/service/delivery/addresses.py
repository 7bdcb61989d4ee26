"""Which addresses webhooks may reach: public ones, unless the configuration allows others.

Host names are resolved here, all addresses are checked, and the connection uses a checked
address. So a later DNS change cannot redirect it.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from ensue.errors import ServiceError
from ensue.service.delivery.sink import DeliveryError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

SCHEMES = {"http": 80, "https": 443}
WEB_PORTS = frozenset({80, 443, 8080, 8443})

# The registries of special addresses, and metadata services of clouds.
_SPECIAL: dict[str, str] = {
    "an address of this network": "0.0.0.0/8",
    "a private address": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 64:ff9b:1::/48 fc00::/7 fec0::/10",
    "a shared address of a provider": "100.64.0.0/10",
    "a loopback address": "127.0.0.0/8 ::1/128",
    "an address of a cloud provider's service": "168.63.129.16/32",
    "a link-local address": "169.254.0.0/16 fe80::/10",
    "a reserved address": "192.0.0.0/24 192.88.99.0/24 240.0.0.0/4 2001::/23",
    "an address for documentation": "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20",
    "an address for benchmarks": "198.18.0.0/15",
    "a multicast address": "224.0.0.0/4 ff00::/8",
    "the unspecified address": "::/128",
    "an IPv4 address written as IPv6": "::ffff:0:0/96",
}
_NETWORKS = {ip_network(text): what for what, texts in _SPECIAL.items() for text in texts.split()}
_GLOBAL = IPv6Network("2000::/3")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)  # third word of an address that contains an IPv4 address


class AddressRefusedError(ServiceError):
    """Webhooks must not reach this address."""


class RefusedDeliveryError(DeliveryError):
    """A notification was not sent because its address is not allowed."""


def explain_non_public(address: Address) -> str | None:
    """Explains why an address is not public; None for a public one."""
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "a link-local address"
    special = next((what for network, what in _NETWORKS.items() if address in network), None)
    if special is not None:
        return special
    if isinstance(address, IPv4Address):
        return None
    inner = _embedded_ipv4(address)
    if inner is not None and (what := explain_non_public(inner)):
        return f"{what} ({inner}) within an IPv6 address"
    if address in _GLOBAL or address in _NAT64:
        return None
    return "a reserved address"


def _embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    """Returns the IPv4 address that a gateway would extract from an IPv6 address."""
    number = int(address)
    if address in _SIX_TO_FOUR:
        return IPv4Address((number >> 80) & 0xFFFFFFFF)
    if address in _NAT64 or (number >> 32) & 0xFFFFFFFF in _ISATAP:
        return IPv4Address(number & 0xFFFFFFFF)
    return None


@dataclass(frozen=True, slots=True)
class WebhookUrl:
    """A parsed webhook URL; nothing else parses the text again."""

    scheme: str
    host: str  # an IPv6 address has no brackets
    port: int
    path: str  # with the query

    @property
    def origin(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        default = SCHEMES[self.scheme] == self.port
        return f"{self.scheme}://{shown}" + ("" if default else f":{self.port}")


def parse_webhook_url(url: str) -> WebhookUrl:
    """Parses a URL, and rejects parts that webhooks do not need."""
    if any(c <= " " or c == "\x7f" or c == "\\" for c in url):
        raise AddressRefusedError("the URL contains spaces, backslashes or control characters")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError as error:
        raise AddressRefusedError(f"the URL cannot be read: {error}") from None
    if parts.scheme not in SCHEMES:
        raise AddressRefusedError(f"the URL begins with '{parts.scheme}:'\n  hint: webhooks need http or https")
    if "@" in parts.netloc:
        raise AddressRefusedError(
            "the URL contains a user name or password\n"
            "  hint: remove it; the receiver identifies the sender by the signature"
        )
    if not host:
        raise AddressRefusedError("the URL has no host\n  hint: https://example.org/path")
    try:
        known = host if ":" in host else host.rstrip(".").encode("idna").decode().lower()
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        path.encode("ascii")
    except UnicodeError:
        raise AddressRefusedError(
            "the URL has a host or path that cannot be encoded\n  hint: percent-encode letters outside ASCII"
        ) from None
    if not known:
        raise AddressRefusedError("the URL has no host\n  hint: https://example.org/path")
    return WebhookUrl(parts.scheme, known, SCHEMES[parts.scheme] if port is None else port, path)


class HostResolver:
    """Resolves host names in its own threads, so that slow ones block only each other."""

    def __init__(self, threads: int = 8) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ensue-names")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _resolve_host, host, port)

    def close(self) -> None:
        """Does not wait for pending lookups, which may take long."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _resolve_host(host: str, port: int) -> list[str]:
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


class AddressGuard:
    """Restricts webhooks to public addresses at common ports, and to allowed hosts."""

    def __init__(
        self, allow: Iterable[str] = (), *, ports: Iterable[int] = WEB_PORTS, resolve: Resolve | None = None
    ) -> None:
        self._ports = frozenset(ports)
        self._networks: list[Network] = []
        self._hosts: set[str] = set()
        for entry in allow:
            self._allow(entry)
        self._resolve: Resolve = HostResolver() if resolve is None else resolve

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """Resolves and checks a host; raises AddressRefusedError if any address is not allowed.

        One forbidden address is enough: host names that mix public and private addresses are made
        to bypass checks.
        """
        try:
            addresses = [ip_address(text) for text in await self._resolve(host, port)]
        except (OSError, UnicodeError, ValueError) as error:
            raise OSError(f"the host {host} cannot be resolved: {error}") from None
        if not addresses:
            raise OSError(f"the host {host} has no address")
        if host not in self._hosts:
            for address in addresses:
                self._check(host, port, address)
        return tuple(map(str, addresses))

    def close(self) -> None:
        if isinstance(self._resolve, HostResolver):
            self._resolve.close()

    def _check(self, host: str, port: int, address: Address) -> None:
        if any(address in network for network in self._networks):
            return
        shown = host if host == str(address) else f"{host} ({address})"
        what = explain_non_public(address)
        if what is not None:
            raise AddressRefusedError(
                f"{shown} is {what}, and webhooks may only reach public addresses\n"
                "  hint: the operator of the service can allow it, see `allow` in the "
                "configuration"
            )
        if port not in self._ports:
            usual = ", ".join(map(str, sorted(self._ports)))
            raise AddressRefusedError(
                f"port {port} of {shown} is not a web server port ({usual})\n"
                "  hint: use one of those, or allow the host with `allow` in the configuration"
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
