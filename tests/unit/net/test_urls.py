"""URLs: one form for each, nothing odd in any."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from runnel.errors import InputError, RefusedAddressError
from runnel.net.http_client import check_url
from runnel.net.urls import MAX_URL, canonical_url, same_origin, shown_url


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("http://muse.example", "http://muse.example/"),
        ("HTTPS://Muse.EXAMPLE:443/Rss?A=b#c", "https://muse.example/Rss?A=b"),
        ("http://muse.example.:8080/a", "http://muse.example:8080/a"),
        ("http://bücher.example/ä?q=ü", "http://xn--bcher-kva.example/%C3%A4?q=%C3%BC"),
        ("http://muse.example/?a=%2B+1&b=%26", "http://muse.example/?a=%2B+1&b=%26"),
        ("http://muse.example/a%2Fb/../c", "http://muse.example/c"),
        ("http://muse.example/?next=http://me@other.example/", "http://muse.example/?next=http://me@other.example/"),
        ("http://0x9.9.2313/", "http://9.9.9.9/"),
        ("http://[2620:FE:0::fe]:8080/", "http://[2620:fe::fe]:8080/"),
    ],
)
def test_urls_become_canonical(url: str, canonical: str) -> None:
    assert canonical_url(url) == canonical
    assert canonical_url(canonical) == canonical


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://muse.example/", "begin with http"),
        ("file:///etc/passwd", "begin with http"),
        ("javascript:alert(1)", "begin with http"),
        ("muse.example", "begin with http"),
        ("//muse.example/", "begin with http"),
        ("http:///rss", "begin with http"),
        ("http:/muse.example", "begin with http"),
        ("", "begin with http"),
        ("http://me@muse.example/", "name or password"),
        ("http://me:secret@muse.example/", "name or password"),
        ("http://:secret@muse.example/", "name or password"),
        ("http://muse.example/\r\nHost: other", "control characters"),
        ("http://muse.example/a b", "contains spaces"),
        ("http://muse.example\\@other.example/", "backslashes"),
        ("http://muse.example/\x00", "control characters"),
        ("http://muse.example/\ud800", "control characters"),
        ("http://muse%2eexample/", "is not a host name"),
        ("http://muse..example/", "is not a host name"),
        ("http://-muse.example/", "is not a host name"),
        (f"http://{'a' * 64}.example/", "not a valid URL|name"),
        ("http://[::1%25lo]/", "is not a host name"),
        ("http://muse.example:99999/", "not a valid URL"),
        ("http://256.1.1.1/", "not a valid URL"),
        ("http://[::1/", "not a valid URL"),
        ("http://muse.example/" + "a" * MAX_URL, "characters"),
    ],
)
def test_invalid_urls_are_refused(url: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        check_url(url)
    assert "secret" not in str(caught.value)
    assert len(str(caught.value)) < 600


LOCAL = ["127.0.0.1", "127.1", "0x7f.1", "0x7f000001", "2130706433", "0177.0.0.1", "017700000001", "127.0.0.1."]
LOCAL += [
    "１２７.0.0.1",
    "127。0。0。1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "0",
    "0.0.0.0",
]
LOCAL += ["[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "169.254.169.254", "[fd00:ec2::254]", "10.0.0.1", "[fe80::1]"]


@pytest.mark.parametrize("host", LOCAL)
def test_literal_addresses_are_checked_without_dns(host: str) -> None:
    with pytest.raises(RefusedAddressError, match="allowed_addresses"):
        check_url(f"http://{host}:8080/")


def test_allowed_literal_addresses_are_accepted() -> None:
    assert check_url("http://0x7f.1:8080", allowed=["127.0.0.0/8"]) == "http://127.0.0.1:8080/"


@pytest.mark.parametrize("port", [0, 1, 22, 25, 53, 110, 444, 587, 1023, 3306, 5432, 6379, 6667, 9200, 11211, 27017])
def test_ports_of_other_services_are_refused(port: int) -> None:
    with pytest.raises(RefusedAddressError, match=f"port {port} "):
        check_url(f"http://muse.example:{port}/")


@pytest.mark.parametrize("port", [80, 443, 1024, 3000, 8000, 8080, 8443, 49152, 65535])
def test_other_ports_are_allowed(port: int) -> None:
    assert check_url(f"http://muse.example:{port}/rss").endswith("/rss")


@given(
    st.one_of(
        st.text(max_size=60),
        st.builds("{}://{}{}".format, st.sampled_from(["http", "https"]), st.text(max_size=30), st.text(max_size=30)),
        st.from_regex(r"https?://[a-z0-9.@:\\\[\]/%#?-]{1,30}", fullmatch=True),
    )
)
@settings(deadline=None, max_examples=400)
def test_any_text_is_refused_or_parsed_equally_by_all_libraries(url: str) -> None:
    try:
        canonical = canonical_url(url)
    except InputError:
        return
    assert canonical_url(canonical) == canonical
    ours, theirs = URL(canonical), urlsplit(canonical)
    assert (ours.scheme, ours.raw_host, ours.explicit_port) == (theirs.scheme, theirs.hostname, theirs.port)
    assert theirs.username is None
    assert theirs.password is None
    assert "@" not in theirs.netloc
    assert canonical.isascii()


def test_shown_url_is_short_and_has_no_secrets() -> None:
    assert shown_url("https://me:pw@muse.example/rss?token=pw#pw") == "https://muse.example/rss?…"
    assert shown_url("https://a@b@muse.example/") == "https://muse.example/"
    assert "\x1b" not in shown_url("http://muse.example/\x1b[2J")
    assert len(shown_url("http://muse.example/" + "a" * 5000 + "?" + "b" * 5000)) < 250


def test_same_origin_compares_scheme_host_and_port() -> None:
    assert same_origin("http://a.example/x", "http://a.example/y?z")
    for other in ("https://a.example/x", "http://a.example:8080/x", "http://b.example/x"):
        assert not same_origin("http://a.example/x", other)
