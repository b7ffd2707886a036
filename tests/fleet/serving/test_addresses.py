"""Only allowed addresses are connected, and the one that was checked is the one that is used."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Any

import pytest

from fleet.serving.addresses import AddressPolicy, PolicyResolver, parse_networks
from fleet.serving.errors import AddressRefused

ANY = AddressPolicy(networks=parse_networks("0.0.0.0/0, ::/0"))
PRIVATE = AddressPolicy(networks=parse_networks("10.0.0.0/8 192.168.7.0/24"))


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "http://[::1]:8000/", "https://127.9.9.9", "http://localhost"]
)
def test_this_machine_is_allowed_by_default(url: str) -> None:
    assert AddressPolicy().check_url(url) == url


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("http://10.0.0.1:8000", "allow-list"),
        ("ftp://127.0.0.1", "http://"),
        ("127.0.0.1:8000", "http://"),
        ("http://", "names no host"),
        ("http://[::1", "not a URL"),
        ("http://127.0.0.1:99999", "not a URL"),
        ("http://user:secret@127.0.0.1", "environment variable"),
        ("http://169\u3002254\u3002169\u3002254:8000", "ASCII"),
        ("http://\uff11\uff16\uff19.254.169.254", "ASCII|not a URL"),
        ("http://xn--a:8000", "not a URL"),
        ("http://127.0.0.1/\ud800", "not a URL"),
    ],
)
def test_other_urls_are_refused_with_the_remedy(url: str, remedy: str) -> None:
    with pytest.raises(AddressRefused, match=remedy) as caught:
        AddressPolicy().check_url(url)
    assert "secret" not in str(caught.value)
    assert caught.value.retryable is False


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "fe80::1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "224.0.0.1",
        "0.0.0.0",  # noqa: S104  refused here, not bound
        "::",
    ],
)
def test_link_local_and_its_kin_are_refused_even_when_everything_is_allowed(address: str) -> None:
    with pytest.raises(AddressRefused, match="always refused"):
        ANY.check_address(address)


def test_an_embedded_ipv4_address_counts_as_what_it_is() -> None:
    assert PRIVATE.check_address("::ffff:10.1.2.3") == ip_address("::ffff:10.1.2.3")
    with pytest.raises(AddressRefused, match="no allowed network"):
        PRIVATE.check_address("::ffff:11.1.2.3")


def test_networks_are_parsed_or_named() -> None:
    assert [str(item) for item in parse_networks("10.0.0.0/8,::1")] == ["10.0.0.0/8", "::1/128"]
    with pytest.raises(ValueError, match=r"10.0.0.1/8"):
        parse_networks("10.0.0.1/8")
    with pytest.raises(AddressRefused, match="not an IP address"):
        PRIVATE.check_address("router")


class _Names:
    """A resolver's answers, name by name."""

    def __init__(self, **names: list[str]) -> None:
        self._names = names

    async def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self._names[host]]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _Names(mixed=["10.0.0.7", "169.254.169.254", "8.8.8.8"], outside=["8.8.8.8"], nowhere=[])
    monkeypatch.setattr("fleet.serving.addresses.asyncio.get_running_loop", lambda: found)


@pytest.mark.usefixtures("names")
async def test_a_name_resolves_to_its_allowed_addresses_only() -> None:
    found = await PolicyResolver(PRIVATE).resolve("mixed", 80)
    assert [item["host"] for item in found] == ["10.0.0.7"]
    assert found[0]["flags"] & socket.AI_NUMERICHOST


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("host", ["outside", "nowhere"])
async def test_a_name_without_an_allowed_address_is_refused(host: str) -> None:
    with pytest.raises(AddressRefused):
        await PolicyResolver(PRIVATE).resolve(host, 80)


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
async def test_what_is_no_host_name_is_refused(host: str) -> None:
    with pytest.raises(AddressRefused, match="no host name"):
        await PolicyResolver(ANY).resolve(host, 80)
