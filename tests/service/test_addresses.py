"""Where webhooks may go."""

import asyncio
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.errors import ServiceError
from ensue.service.delivery.addresses import AddressGuard, AddressRefusedError, explain_non_public, parse_webhook_url

BAD = {
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "0.0.0.0": "this network",
    "10.1.2.3": "private",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.168.1.1": "private",
    "169.254.169.254": "link-local",
    "100.64.0.1": "shared",
    "100.127.255.255": "shared",
    "168.63.129.16": "cloud",
    "192.0.0.192": "reserved",
    "192.0.2.1": "documentation",
    "198.18.0.1": "benchmarks",
    "198.51.100.1": "documentation",
    "203.0.113.1": "documentation",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "::": "the unspecified address",
    "::1": "loopback",
    "::127.0.0.1": "reserved",
    "::ffff:127.0.0.1": "written as IPv6",
    "::ffff:8.8.8.8": "written as IPv6",
    "64:ff9b::10.0.0.1": "private",
    "64:ff9b::169.254.169.254": "link-local",
    "64:ff9b:1::1": "private",
    "2002:7f00:1::": "loopback",
    "2002:c0a8:101::1": "private",
    "2001:0:1:2::3": "reserved",
    "2001:db8::1": "documentation",
    "3fff::1": "documentation",
    "2a00:1450::200:5efe:10.0.0.1": "private",
    "2a00:1450::5efe:127.0.0.1": "loopback",
    "fc00::1": "private",
    "fd00:ec2::254": "private",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link",
    "fec0::1": "private",
    "ff02::1": "multicast",
    "4000::1": "reserved",
}
GOOD = (
    "8.8.8.8",
    "1.1.1.1",
    "172.32.0.1",
    "100.128.0.1",
    "11.0.0.1",
    "2a00:1450:4001:800::200e",
    "2606:4700::1111",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
)


@pytest.mark.parametrize("text", BAD)
def test_an_address_that_is_not_public_is_told(text: str) -> None:
    assert BAD[text] in (explain_non_public(ip_address(text)) or "")


@pytest.mark.parametrize("text", GOOD)
def test_a_public_address_is_fine(text: str) -> None:
    assert explain_non_public(ip_address(text)) is None


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_what_python_knows_as_not_global_is_never_fine(address: IPv4Address) -> None:
    if not address.is_global or address.is_multicast:
        assert explain_non_public(address)


@given(st.integers(0, 2**128 - 1).map(IPv6Address))
def test_the_same_for_longer_addresses(address: IPv6Address) -> None:
    if not address.is_global or address.is_multicast or address.is_reserved:
        assert explain_non_public(address)


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_an_address_within_an_address_is_judged_as_the_one_within(inner: IPv4Address) -> None:
    wrapped = [IPv6Address((0x2002 << 112) | (int(inner) << 80) | 1), IPv6Address((0x64FF9B << 96) | int(inner))]
    for outer in wrapped:
        assert bool(explain_non_public(outer)) == bool(explain_non_public(inner))


# ------------------------------------------------------------------------------- texts


def test_a_url_is_taken_apart() -> None:
    place = parse_webhook_url("HTTPS://Example.ORG.:8443/a%20b?c=d#e")
    assert (place.scheme, place.host, place.port) == ("https", "example.org", 8443)
    assert place.path == "/a%20b?c=d"
    assert place.origin == "https://example.org:8443"
    assert parse_webhook_url("http://[2606:4700::1111]").origin == "http://[2606:4700::1111]"
    assert parse_webhook_url("https://bücher.example").host == "xn--bcher-kva.example"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://example.org/", "begins with 'ftp:'"),
        ("file:///etc/passwd", "begins with 'file:'"),
        ("gopher://example.org", "begins with 'gopher:'"),
        ("example.org/hook", "begins with"),
        ("//example.org/hook", "begins with"),
        ("https://me:word@example.org/", "name or password"),
        ("https://me@example.org/", "name or password"),
        ("https://@example.org/", "name or password"),
        ("https:///path", "no host"),
        ("https://", "no host"),
        ("https://./", "no host"),
        ("https://example.org:99999/", "cannot be read"),
        ("https://[::1/", "cannot be read"),
        ("https://example.org/a b", "spaces"),
        ("https://example.org/\r\nx: y", "spaces"),
        ("https://example.org\\@127.0.0.1/", "backslashes"),
        ("https://example.org/\N{SNOWMAN}", "percent"),
        (f"https://{'a' * 70}.org/", "cannot be encoded"),
    ],
)
def test_a_url_that_no_webhook_needs_is_refused(url: str, said: str) -> None:
    with pytest.raises(AddressRefusedError, match=said) as error:
        parse_webhook_url(url)
    assert "word" not in str(error.value).replace("password", "")


# ------------------------------------------------------------------------------- names


class Names:
    """Names and what they mean, which a test can change."""

    def __init__(self, **known: Sequence[str]) -> None:
        self.known: dict[str, Sequence[str]] = dict(known)

    async def __call__(self, host: str, _: int) -> Sequence[str]:
        if host not in self.known:
            raise OSError("Name or service not known")
        return self.known[host]


def _found(guard: AddressGuard, host: str, port: int = 443) -> tuple[str, ...]:
    return asyncio.run(guard.addresses(host, port))


def test_a_public_name_gives_its_addresses() -> None:
    guard = AddressGuard(resolve=Names(good=["8.8.8.8", "2606:4700::1111"]))
    assert _found(guard, "good") == ("8.8.8.8", "2606:4700::1111")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_one_private_answer_among_public_ones_is_enough_to_refuse(at: int) -> None:
    answers = ["8.8.8.8", "1.1.1.1"]
    answers.insert(at, "10.0.0.5")
    with pytest.raises(AddressRefusedError, match=r"mixed \(10.0.0.5\) is a private address"):
        _found(AddressGuard(resolve=Names(mixed=answers)), "mixed")


def test_a_name_that_nobody_knows_is_an_error_of_the_network() -> None:
    with pytest.raises(OSError, match="the host nobody cannot be resolved"):
        _found(AddressGuard(resolve=Names()), "nobody")
    with pytest.raises(OSError, match="has no address"):
        _found(AddressGuard(resolve=Names(empty=[])), "empty")


def test_odd_ports_are_refused_unless_allowed() -> None:
    names = Names(good=["8.8.8.8"])
    with pytest.raises(AddressRefusedError, match="port 6379 of good"):
        _found(AddressGuard(resolve=names), "good", 6379)
    assert _found(AddressGuard(resolve=names), "good", 8443)
    assert _found(AddressGuard(resolve=names, ports=[6379]), "good", 6379)
    assert _found(AddressGuard(["good"], resolve=names), "good", 6379)
    assert _found(AddressGuard(["8.8.8.0/24"], resolve=names), "good", 6379)


def test_an_allowed_network_lets_its_addresses_pass_and_no_others() -> None:
    names = Names(inner=["10.1.0.7"], both=["10.1.0.7", "10.2.0.7"], six=["fd00::7"])
    guard = AddressGuard(["10.1.0.0/16", "fd00::/8"], resolve=names)
    assert _found(guard, "inner") == ("10.1.0.7",)
    assert _found(guard, "six") == ("fd00::7",)
    with pytest.raises(AddressRefusedError, match=r"10\.2\.0\.7"):
        _found(guard, "both")


def test_an_allowed_host_may_be_anywhere() -> None:
    names = Names(**{"hooks.inner": ["10.1.0.7"], "other.inner": ["10.1.0.7"]})
    guard = AddressGuard(["Hooks.Inner."], resolve=names)
    assert _found(guard, "hooks.inner") == ("10.1.0.7",)
    with pytest.raises(AddressRefusedError, match="allow"):
        _found(guard, "other.inner")


@pytest.mark.parametrize("entry", ["10.0.0.0/33", "10.0.0.1/8", "host:8080", "", "a/b"])
def test_what_is_neither_a_network_nor_a_host_cannot_be_allowed(entry: str) -> None:
    with pytest.raises(ServiceError, match="neither a network nor a host"):
        AddressGuard([entry])


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "localhost", "::1"])
def test_every_way_to_write_this_machine_is_refused(host: str) -> None:
    guard = AddressGuard()
    try:
        with pytest.raises(AddressRefusedError, match="loopback"):
            _found(guard, host)
    finally:
        guard.close()
