"""IP networks. In: networks as people write them, and texts that may be addresses. Out: canonical networks; truth.

An IPv4 address written as IPv6 (`::ffff:10.0.0.1`) is that IPv4 address, in items and in conditions.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_LONGEST = 64
_MAPPED = IPv6Network("::ffff:0:0/96")


def canonical_network(text: str) -> str:
    """A network in one form; ValueError with its reason where there is none. An address is a network of its own.

    >>> canonical_network("10.0.0.0/8"), canonical_network("2001:DB8::1"), canonical_network("::ffff:10.0.0.0/104")
    ('10.0.0.0/8', '2001:db8::1/128', '10.0.0.0/8')
    """
    network = ip_network(text.strip()[:_LONGEST])
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        first = int(network.network_address) & 0xFFFF_FFFF
        return str(IPv4Network((first, network.prefixlen - 96)))
    return str(network)


def enclosing_network(text: str) -> str | None:
    """The network that somebody meant who wrote an address with the length of a prefix, or None.

    >>> enclosing_network("10.1.2.3/8"), enclosing_network("ten")
    ('10.0.0.0/8', None)
    """
    try:
        return str(ip_network(text.strip()[:_LONGEST], strict=False))
    except ValueError:
        return None


def address_in(text: str) -> Address | None:
    """The address that a text is, or None. The zone of an address (`fe80::1%eth0`) is not looked at.

    >>> address_in(" ::ffff:10.0.0.1 "), address_in("10.0.0.1:80") is None
    (IPv4Address('10.0.0.1'), True)
    """
    text = text.strip()
    if not 2 <= len(text) <= _LONGEST:
        return None
    try:
        address = ip_address(text.partition("%")[0] if ":" in text else text)
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def in_networks(text: str, networks: tuple[str, ...]) -> bool:
    """Whether a text is an address of one of the networks.

    >>> in_networks("10.1.2.3", ("10.0.0.0/8", "2001:db8::/32")), in_networks("11.1.2.3", ("10.0.0.0/8",))
    (True, False)
    """
    address = address_in(text)
    return address is not None and any(address in network for network in _networks(networks))


@lru_cache(maxsize=4096)
def _networks(networks: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(map(ip_network, networks))
