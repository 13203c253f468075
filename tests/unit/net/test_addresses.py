"""Which addresses may be reached, in every spelling."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runnel.errors import InputError
from runnel.net.addresses import AllowedAddresses, literal_address, refusal

REFUSED = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.9.9.9"),
    *("169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.1.1", "198.18.0.1"),
    *("198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1"),
    *("255.255.255.255", "168.63.129.16", "192.88.99.1"),
    *("::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:9.9.9.9", "::ffff:0:9.9.9.9", "64:ff9b::7f00:1"),
    *("64:ff9b::909:909", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:ffff::1", "2001:2::1", "2001:10::1"),
    *("2001:db8::1", "2002:7f00:1::", "2002:909:909::1", "3fff::1", "fc00::1", "fd00:ec2::254", "fe80::1"),
    *("fec0::1", "ff02::1", "5f00::1", "4000::1", "e000::1"),
]
REACHED = ["9.9.9.9", "1.1.1.1", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "198.17.255.255"]
REACHED += ["198.20.0.1", "223.255.255.255", "2606:4700::1111", "2620:fe::fe", "2a00:1450::1", "2400:cb00::1"]


@pytest.mark.parametrize("address", REFUSED)
def test_private_addresses_are_refused(address: str) -> None:
    assert refusal(ip_address(address))


@pytest.mark.parametrize("address", REACHED)
def test_public_addresses_are_allowed(address: str) -> None:
    assert refusal(ip_address(address)) is None


@given(st.ip_addresses())
@settings(deadline=None, max_examples=300)
def test_addresses_that_python_calls_special_are_refused(address: IPv4Address | IPv6Address) -> None:
    if not address.is_global or address.is_multicast or address.is_reserved:
        assert refusal(address)


@given(st.ip_addresses(v=4))
@settings(deadline=None, max_examples=100)
def test_ipv6_addresses_that_contain_ipv4_addresses_are_refused(address: IPv4Address) -> None:
    number = int(address)
    prefixes = ("::ffff:0:0", "::", "::ffff:0:0:0", "64:ff9b::", "64:ff9b:1::")
    for dressed in [IPv6Address(int(IPv6Address(prefix)) | number) for prefix in prefixes]:
        assert refusal(dressed)
    assert refusal(IPv6Address(int(IPv6Address("2002::")) | number << 80))
    assert refusal(IPv6Address(int(IPv6Address("2001::")) | (number ^ 0xFFFFFFFF)))


def _spelling(number: int, base: int) -> str:
    return {8: f"0{number:o}", 10: str(number), 16: f"0x{number:X}"}[base]


@given(
    st.ip_addresses(v=4),
    st.integers(1, 4),
    st.lists(st.sampled_from([8, 10, 16]), min_size=4, max_size=4),
    st.booleans(),
)
@example(IPv4Address("127.0.0.1"), 2, [16, 10, 10, 10], False)
@settings(deadline=None, max_examples=200)
def test_all_spellings_of_an_address_are_recognized(
    address: IPv4Address, parts: int, bases: list[int], dot: bool
) -> None:
    octets = list(address.packed)
    numbers = [*octets[: parts - 1], int.from_bytes(bytes(octets[parts - 1 :]), "big")]
    host = ".".join(_spelling(number, base) for number, base in zip(numbers, bases, strict=False))
    assert literal_address(host + "." * dot) == address


@pytest.mark.parametrize("host", ["256.1.1.1", "1.2.3.4.5", "muse.0x", "a.1", "0x", "4294967296", "1..2", "08.1.1.1"])
def test_host_that_ends_in_a_number_but_is_no_address_is_refused(host: str) -> None:
    try:
        results = literal_address(host)
    except ValueError:
        return
    assert results is not None
    assert refusal(results)


@pytest.mark.parametrize(
    "host", ["muse.example", "1password.example", "x1", "127.0.0.1.example", "0x7f.example", "_a.b"]
)
def test_names_are_not_addresses(host: str) -> None:
    assert literal_address(host) is None


def test_allowed_entries_are_networks_addresses_and_hosts() -> None:
    exceptions = AllowedAddresses.of(["10.1.0.0/16", "192.168.1.7", "fd00::/8", "[::1]", "Intranet.Example."])
    reached = {"10.1.2.3": True, "10.2.0.1": False, "192.168.1.7": True, "192.168.1.8": False, "fd12::1": True}
    reached |= {"::1": True, "::ffff:10.1.2.3": False, "9.9.9.9": True, "127.0.0.1": False}
    for address, expected in reached.items():
        assert (exceptions.refusal(ip_address(address), "other.example") is None) is expected, address
    assert exceptions.refusal(ip_address("127.0.0.1"), "intranet.example") is None


@pytest.mark.parametrize(
    "entry", ["10.1.0.0/33", "10.1.2.3/16", "http://a.example", "a.example:80", "", "a b", "0x7f.1", "*"]
)
def test_invalid_allowed_entry_raises_an_error_with_a_hint(entry: str) -> None:
    with pytest.raises(InputError, match="allowed_addresses") as caught:
        AllowedAddresses.of([entry])
    assert caught.value.hint
