"""Canonical URLs, for requests, comparison, storage and display.

In: a URL from a user or a server. Out: its canonical form, or InputError. Nothing is looked up in DNS.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address

from yarl import URL

from runnel.errors import InputError, RefusedAddressError
from runnel.net.addresses import AllowedAddresses, literal_address

MAX_URL = 2048
"""Maximum length of a URL in characters. Servers refuse longer ones."""

FIRST_FREE_PORT = 1024
WEB_PORTS = frozenset({80, 443})
"""The only allowed ports below FIRST_FREE_PORT. Other services there may misinterpret HTTP."""

SERVICE_PORTS = frozenset(
    {1433, 1521, 2049, 2375, 2376, 2379, 2380, 3128, 3306, 3389, 3659, 4045, 5060, 5061, 5432, 5672, 5900, 5984, 6000}
    | {6379, 6443, 6566, 6665, 6666, 6667, 6668, 6669, 6697, 9042, 9092, 9200, 9300, 10080, 10250, 11211, 27017}
)
"""Ports of databases, caches, queues, chat and similar services. An HTTP request to them is an attack or a mistake.
"""

_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\x9f\\\u2028\u2029\ud800-\udfff]")
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]{0,62})(?:\.[a-z0-9_][a-z0-9_-]{0,62})*\Z")


def canonical_url(url: str) -> str:
    """Return the canonical form of a URL.

    It has a lower-case scheme and host, no default port, no fragment, and IP addresses in standard notation.

    >>> canonical_url("HTTP://Muse.Example:80/rss#top"), canonical_url("http://0x9.9.2313")
    ('http://muse.example/rss', 'http://9.9.9.9/')
    """
    place = shown_url(url)
    if len(url) > MAX_URL:
        raise InputError(f"the URL is longer than {MAX_URL} characters", place=place)
    if _FORBIDDEN.search(url):
        raise InputError(
            "the URL contains spaces, backslashes or control characters", place=place, hint="write a space as %20"
        )
    try:
        parsed = URL(url)
        port = parsed.port
        host = (parsed.raw_host or "").lower().removesuffix(".")
        address = literal_address(host) if host else None
    except ValueError as error:
        raise InputError("this is not a valid URL", place=place, hint="write https://host/path") from error
    if parsed.scheme not in ("http", "https") or not host:
        raise InputError("the URL must begin with http:// or https:// and a host name", place=place)
    if parsed.raw_user is not None or parsed.raw_password is not None or "@" in parsed.raw_authority:
        raise InputError("the URL contains a user name or password", place=place, hint="remove the part before @")
    bracketed = "[" in parsed.raw_authority
    if bracketed != isinstance(address, IPv6Address) or (address is None and not _HOST.match(host)) or "%" in host:
        raise InputError(f"{host[:80]!r} is not a host name", place=place)
    refuse_port(port, place)
    plain = f"[{address}]" if bracketed else str(address or host)
    behind = "" if parsed.is_default_port() else f":{port}"
    query = f"?{parsed.raw_query_string}" if parsed.raw_query_string else ""
    return f"{parsed.scheme}://{plain}{behind}{parsed.raw_path or '/'}{query}"


def check_url(url: str, exceptions: AllowedAddresses) -> str:
    """Return the canonical URL. Raise RefusedAddressError if its host is an address that is not allowed.

    >>> check_url("https://muse.example/rss", AllowedAddresses())
    'https://muse.example/rss'
    """
    canonical = canonical_url(url)
    host = URL(canonical).raw_host or ""
    address = literal_address(host)
    reason = None if address is None else exceptions.refusal(address, host)
    if reason is not None:
        raise refused(f"{address} {reason}", shown_url(canonical))
    return canonical


def refused(message: str, place: str) -> RefusedAddressError:
    """Return the error for an address that is not allowed."""
    return RefusedAddressError(
        message, place=place, hint="if this is intended, ask the admin to add it to the setting allowed_addresses"
    )


def refuse_port(port: int | None, place: str) -> None:
    """Refuse the ports of services other than web servers.

    >>> refuse_port(8080, "http://muse.example:8080/")
    """
    if port is None or port in WEB_PORTS or (port >= FIRST_FREE_PORT and port not in SERVICE_PORTS):
        return
    raise RefusedAddressError(
        f"port {port} is used by services other than web servers",
        place=place,
        hint="use port 80, port 443, or a port from 1024 on that no other service uses",
    )


def shown_url(url: str) -> str:
    """Shorten a URL for errors and logs, and remove parts that are often secret.

    >>> shown_url("https://me:secret@muse.example/rss?token=secret#top")
    'https://muse.example/rss?…'
    """
    text = "".join(character if character.isprintable() else "�" for character in url[:MAX_URL])
    text = re.sub(r"^([^/?#]*//)[^/?#]*@", r"\1", text.partition("#")[0])
    base, query, _ = text.partition("?")
    return (base if len(base) <= 200 else base[:199] + "…") + ("?…" if query else "")


def same_origin(first: str, second: str) -> bool:
    """Return whether two canonical URLs have the same scheme, host and port.

    >>> same_origin("https://muse.example/a", "https://muse.example/b"), same_origin("http://a/", "https://a/")
    (True, False)
    """
    return URL(first).origin() == URL(second).origin()


def host_of(url: str) -> str:
    """Return the host of a canonical URL, without port and brackets.

    >>> host_of("https://muse.example:8443/rss"), host_of("http://[2620:fe::fe]/")
    ('muse.example', '2620:fe::fe')
    """
    host = URL(url).raw_host or ""
    address = literal_address(host)
    return str(address) if isinstance(address, IPv6Address) else host
