"""IP networks. In: networks of conditions, and texts of items. Out: canonical networks, and whether they match.

An IPv4-mapped IPv6 address such as `::ffff:10.0.0.1` counts as the IPv4 address, in items and in conditions.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_MAX_LENGTH = 64
_MAPPED = IPv6Network("::ffff:0:0/96")


def canonical_network(text: str) -> str:
    """Return a network in canonical form. A single address is a network, too. Raise ValueError for other texts.

    >>> canonical_network("10.0.0.0/8"), canonical_network("2001:DB8::1"), canonical_network("::ffff:10.0.0.0/104")
    ('10.0.0.0/8', '2001:db8::1/128', '10.0.0.0/8')
    """
    network = ip_network(text.strip()[:_MAX_LENGTH])
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        first = int(network.network_address) & 0xFFFF_FFFF
        return str(IPv4Network((first, network.prefixlen - 96)))
    return str(network)


def enclosing_network(text: str) -> str | None:
    """Return the network that contains an address with a prefix length, or None if the text is not one.

    >>> enclosing_network("10.1.2.3/8"), enclosing_network("ten")
    ('10.0.0.0/8', None)
    """
    try:
        return str(ip_network(text.strip()[:_MAX_LENGTH], strict=False))
    except ValueError:
        return None


def address_in(text: str) -> Address | None:
    """Return the IP address in a text, or None if it is not one. The zone of an address (`fe80::1%eth0`) is ignored.

    >>> address_in(" ::ffff:10.0.0.1 "), address_in("10.0.0.1:80") is None
    (IPv4Address('10.0.0.1'), True)
    """
    text = text.strip()
    if not 2 <= len(text) <= _MAX_LENGTH:
        return None
    try:
        address = ip_address(text.partition("%")[0] if ":" in text else text)
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def in_networks(text: str, networks: tuple[str, ...]) -> bool:
    """Return whether a text is an address in one of the networks.

    >>> in_networks("10.1.2.3", ("10.0.0.0/8", "2001:db8::/32")), in_networks("11.1.2.3", ("10.0.0.0/8",))
    (True, False)
    """
    address = address_in(text)
    return address is not None and any(address in network for network in _networks(networks))


@lru_cache(maxsize=4096)
def _networks(networks: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(map(ip_network, networks))
