"""Which addresses dyserve connects to: an allow-list of networks, checked on the address that is really used (ours).

A host name is resolved once, by `PolicyResolver` inside the connector, and the addresses it returned are the ones that
are connected: a name that changes its answer between check and use gains nothing.
"""

from __future__ import annotations

import asyncio
import socket
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

import httpx
from aiohttp.abc import AbstractResolver, ResolveResult

from fleet.serving.errors import AddressRefused

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LOOPBACK: tuple[Network, ...] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
# Cloud metadata services answer on link-local addresses and on these.
_METADATA: tuple[Network, ...] = (IPv6Network("fd00:ec2::254/128"), IPv4Network("100.100.100.200/32"))
_NAT64 = IPv6Network("64:ff9b::/96")
_REMEDY = "add its network to the allow-list of networks if it is meant to be reached"


def parse_networks(text: str) -> tuple[Network, ...]:
    """Networks in CIDR form, separated by commas or blanks. Raises ValueError that names the bad one."""
    networks: list[Network] = []
    for item in text.replace(",", " ").split():
        try:
            networks.append(ip_network(item))
        except ValueError as error:
            raise ValueError(f"bad network {item!r} in the allow-list: {error}; write e.g. 10.0.0.0/8") from error
    return tuple(networks)


def embedded_ipv4(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for (mapped, 6to4, Teredo, NAT64), else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    if inner is None and address in _NAT64:
        inner = IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


def always_refused(address: Address) -> str | None:
    """Why an address is refused whatever the allow-list says, or None."""
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if address.is_unspecified:
        return "unspecified"
    if any(address in network for network in _METADATA):
        return "a cloud metadata service"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPolicy:
    """The networks that may be connected. The default is this machine alone."""

    networks: tuple[Network, ...] = LOOPBACK

    def check_address(self, text: str) -> Address:
        """The address, when it may be connected. Raises AddressRefused that names the remedy."""
        try:
            outer = ip_address(text)
        except ValueError as error:
            raise AddressRefused(f"{text!r} is not an IP address") from error
        for address in {outer, embedded_ipv4(outer)}:
            reason = always_refused(address)
            if reason is not None:
                raise AddressRefused(f"{text} is {reason}: such addresses are always refused")
        if not any(embedded_ipv4(outer) in network for network in self.networks):
            raise AddressRefused(f"{text} lies in no allowed network: {_REMEDY}")
        return outer

    def check_url(self, url: str) -> str:
        """The URL, when its form is acceptable and its host, if it is an address, may be connected.

        A host name passes here and is checked when it is resolved. Raises AddressRefused.
        """
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
            _ = httpx.URL(url).host
        except (ValueError, httpx.InvalidURL) as error:
            raise AddressRefused(f"{url!r} is not a URL: {error}") from error
        if parts.scheme not in ("http", "https"):
            raise AddressRefused(f"{url!r}: only http:// and https:// addresses are used")
        if not host:
            raise AddressRefused(f"{url!r} names no host: write http://host:port")
        if not host.isascii():
            # The client maps other characters to ASCII only after this check: an ideographic full stop to a dot.
            raise AddressRefused(f"{url!r}: write the host in ASCII (a name in its xn-- form)")
        if parts.username is not None or parts.password is not None:
            raise AddressRefused(f"the address of {host} carries a password: give the key by environment variable")
        if _is_literal(host):
            self.check_address(host)
        return url


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class PolicyResolver(AbstractResolver):
    """A connector's resolver that returns only addresses the policy allows, and refuses a name that has none."""

    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
        except UnicodeError as error:
            raise AddressRefused(f"{host[:80]!r} is no host name: a label is empty or too long") from error
        allowed: list[ResolveResult] = []
        refusal: AddressRefused | None = None
        for kind, _, proto, _, sockaddr in found:
            try:
                self._policy.check_address(str(sockaddr[0]))
            except AddressRefused as error:
                refusal = error
                continue
            allowed.append(
                ResolveResult(
                    hostname=host,
                    host=str(sockaddr[0]),
                    port=port,
                    family=kind,
                    proto=proto,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
            )
        if not allowed:
            raise refusal or AddressRefused(f"{host} has no address")
        return allowed

    async def close(self) -> None:
        """Nothing to close: names are resolved by the event loop."""
