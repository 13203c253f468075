"""The addresses to which Runnel may connect: deny rules, and the exceptions in the settings.

In: addresses from a URL or of a socket that is about to connect. Out: None, or the reason for the refusal. Python's
`is_global` is not sufficient: it is true for 64:ff9b::, 2002::, fec0:: and 224.0.0.1.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from runnel.errors import InputError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# The IANA registries of special-purpose addresses, and other addresses to which owners must have no access.
_DENIED: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(network), reason)
    for network, reason in (
        ("0.0.0.0/8", "names no host"),
        ("10.0.0.0/8", "is private"),
        ("100.64.0.0/10", "is internal to a provider's network"),
        ("127.0.0.0/8", "is the local machine"),
        ("168.63.129.16/32", "is an internal service of a cloud provider"),
        ("169.254.0.0/16", "is link-local, where cloud providers serve credentials"),
        ("172.16.0.0/12", "is private"),
        ("192.0.0.0/24", "is reserved for protocols"),
        ("192.0.2.0/24", "is for documentation only"),
        ("192.88.99.0/24", "is a relay to other networks"),
        ("192.168.0.0/16", "is private"),
        ("198.18.0.0/15", "is for benchmarks only"),
        ("198.51.100.0/24", "is for documentation only"),
        ("203.0.113.0/24", "is for documentation only"),
        ("224.0.0.0/4", "is for multicast"),
        ("255.255.255.255/32", "is for broadcast"),
        ("240.0.0.0/4", "is reserved"),
        ("::/128", "names no host"),
        ("::1/128", "is the local machine"),
        ("::ffff:0:0/96", "contains an IPv4 address"),
        ("::ffff:0:0:0/96", "contains an IPv4 address"),
        ("::/96", "contains an IPv4 address"),
        ("64:ff9b::/96", "contains an IPv4 address"),
        ("64:ff9b:1::/48", "contains an IPv4 address"),
        ("100::/64", "leads nowhere"),
        ("2001::/32", "is a tunnel address that contains an IPv4 address"),
        ("2001::/23", "is reserved for protocols"),
        ("2001:db8::/32", "is for documentation only"),
        ("2002::/16", "contains an IPv4 address"),
        ("3fff::/20", "is for documentation only"),
        ("fc00::/7", "is private"),
        ("fe80::/10", "is link-local"),
        ("fec0::/10", "is private"),
        ("ff00::/8", "is for multicast"),
    )
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""The only IPv6 range from which public addresses are assigned."""

_NUMBER = re.compile(r"(?:0[xX][0-9a-fA-F]*|[0-9]+)\Z")


def refusal(address: Address) -> str | None:
    """Return why Runnel must not connect to an address, as the end of a sentence, or None for a public address.

    >>> refusal(ip_address("10.1.2.3"))
    'is private'
    >>> refusal(ip_address("9.9.9.9")) is None
    True
    """
    for network, reason in _DENIED:
        if address in network:
            return reason
    if isinstance(address, IPv6Address) and (address not in _GLOBAL_UNICAST or address.scope_id):
        return "is not a public address"
    return None


def literal_address(host: str) -> Address | None:
    """Return the IP address that a host denotes in any spelling, or None for a host name.

    As in browsers, a host whose last part is a number must be an address. Raise ValueError if it is not a valid one.

    >>> literal_address("0x7f.1"), literal_address("2130706433"), literal_address("muse.example")
    (IPv4Address('127.0.0.1'), IPv4Address('127.0.0.1'), None)
    """
    bare = host.removeprefix("[").removesuffix("]")
    if ":" in bare:
        return ip_address(bare)
    bare = bare.removesuffix(".")
    if not _NUMBER.match(bare.rpartition(".")[2]):
        return None
    try:
        return IPv4Address(socket.inet_aton(bare))
    except OSError as error:
        raise ValueError(f"{host} is neither a host name nor an IP address") from error


@dataclass(frozen=True, slots=True)
class AllowedAddresses:
    """Exceptions to the deny rules: networks for all hosts, and host names for the addresses of these hosts."""

    networks: tuple[Network, ...] = ()
    hosts: frozenset[str] = frozenset()

    @staticmethod
    def of(entries: Iterable[str]) -> AllowedAddresses:
        """Parse the entries of the setting `allowed_addresses`.

        >>> AllowedAddresses.of(["10.1.0.0/16", "Intranet.example"]).hosts
        frozenset({'intranet.example'})
        """
        networks: list[Network] = []
        hosts: set[str] = set()
        for entry in entries:
            try:
                networks.append(ip_network(entry.strip().removeprefix("[").removesuffix("]")))
            except ValueError as error:
                hosts.add(_host_name(entry, error))
        return AllowedAddresses(tuple(networks), frozenset(hosts))

    def refusal(self, address: Address, host: str) -> str | None:
        """Return why Runnel must not connect to an address of a host, or None if it may."""
        if host in self.hosts or any(address in network for network in self.networks):
            return None
        return refusal(address)


def _host_name(entry: str, error: ValueError) -> str:
    name = entry.strip().lower().removesuffix(".")
    if re.fullmatch(r"[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?", name) is None or _NUMBER.match(
        name.rpartition(".")[2]
    ):
        raise InputError(
            f"{entry!r} is not a network, address or host name: {error}",
            place="allowed_addresses",
            hint="write 10.1.0.0/16, 10.1.2.3 or intranet.example, without scheme or port",
        ) from error
    return name
