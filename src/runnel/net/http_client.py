"""The HTTP client: requests to public addresses only, with limits on time, size and redirects.

In: URLs from untrusted sources. Out: an HttpResponse, or an UnreachableError (RefusedAddressError if the address is
not allowed) with a message for the user who gave the URL. Every socket is checked when it connects, on every hop, so
DNS answers that change between check and connection cannot bypass the rules.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any, Self

from aiohttp import ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from aiohttp.abc import AbstractResolver
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from runnel.errors import InputError, UnreachableError
from runnel.net import urls
from runnel.net.addresses import AllowedAddresses
from runnel.net.concurrency import ConcurrencyLimits
from runnel.net.exchange_failures import FAILURES, explain_failure
from runnel.net.host_names import HostResolver
from runnel.net.response_body import OFFERED, read_beginning, read_body
from runnel.settings import Settings

MAX_REDIRECTS = 5
CONNECT_SECONDS = 10.0
"""Time limit for the DNS lookup, the connection and the TLS handshake together."""

IDLE_SECONDS = 15.0
"""Time limit for the next byte."""

COURTESY_SECONDS = 2.0
COURTESY_BYTES = 64 << 10
"""Limits on the time and size of reading a response body that is not needed."""

MAX_HEADER = 16 << 10
MAX_HEADERS = 128

_PERMANENT = frozenset({301, 308})
_REDIRECTS = _PERMANENT | {302, 303, 307}
_LIST_HEADERS = frozenset({"link", "cache-control", "vary"})
_FORWARDED_HEADERS = frozenset(
    {"accept", "accept-language", "a-im", "cache-control", "if-none-match", "if-modified-since", "user-agent"}
)
"""Headers that are sent again after a redirect to another origin. Others may contain secrets for the first origin."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response. `headers` ignore case, and `url` is the final URL after all redirects.

    `moved` is the URL to use in future: the last one that was reached by permanent redirects (301, 308) only.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    moved: str | None = None


@dataclass(slots=True)
class _Hop:
    """A connection attempt to a host, with the reasons for which addresses of the host were refused."""

    host: str
    refusals: list[str] = field(default_factory=list)
    attempts: int = 0


@dataclass(slots=True)
class _Budget:
    """The time limit of a request with all its redirects, and the remaining seconds."""

    seconds: float
    left: float


_hop: ContextVar[_Hop] = ContextVar("hop")


class _RefusedSocketError(OSError):
    """The address is not allowed. aiohttp then tries the next address of the host."""


class HttpClient:
    """An async context manager, one per runner. Connections are pooled; cookies and logins are not kept.

    `allowed` lists private addresses to which the client may connect. At most `concurrency` requests run at the same
    time, and `host_concurrency` per host (0: no limit). Waiting for one of these slots does not count as time of the
    request. The address rules also apply to the results of a custom `resolver`.
    """

    def __init__(
        self,
        *,
        allowed: Sequence[str] = (),
        user_agent: str,
        max_bytes: int,
        seconds: float,
        concurrency: int = 100,
        host_concurrency: int = 0,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self._exceptions = AllowedAddresses.of(allowed)
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": OFFERED}
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._limits = ConcurrencyLimits(concurrency, host_concurrency)
        self._resolver = resolver
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._names = self._resolver or HostResolver()
        connector = TCPConnector(limit=0, resolver=self._names, socket_factory=self._socket, ttl_dns_cache=60)
        self._session = ClientSession(
            connector=connector,
            headers=self._headers,
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(
                total=None, connect=CONNECT_SECONDS, sock_connect=CONNECT_SECONDS, sock_read=IDLE_SECONDS
            ),
            auto_decompress=False,
            trust_env=False,
            max_line_size=MAX_HEADER,
            max_field_size=MAX_HEADER,
            max_headers=MAX_HEADERS,
        )
        return self

    async def __aexit__(self, *reason: object) -> None:
        if self._session is not None:
            await self._session.close()
            await self._names.close()
            self._session = None

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        max_bytes: int | None = None,
        seconds: float | None = None,
    ) -> HttpResponse:
        """Fetch a URL and follow up to MAX_REDIRECTS redirects, checking every hop.

        A body larger than `max_bytes` is an error, or is truncated if the status is not 2xx.
        """
        target = urls.check_url(url, self._exceptions)
        limit = self._max_bytes if max_bytes is None else max_bytes
        budget = self._budget(seconds)
        passed = dict(headers or {})
        visited = [target]
        moved: str | None = None
        permanent = True
        while True:
            response = await self._exchange("GET", target, passed, budget, limit)
            if response.status not in _REDIRECTS:
                return replace(response, moved=moved)
            next_url = self._next_url(response, visited)
            permanent = permanent and response.status in _PERMANENT
            moved = next_url if permanent else moved
            if not urls.same_origin(target, next_url):
                passed = {name: value for name, value in passed.items() if name.lower() in _FORWARDED_HEADERS}
            visited.append(next_url)
            target = next_url

    async def post(
        self,
        url: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        seconds: float | None = None,
        max_bytes: int = COURTESY_BYTES,
        whole: bool = False,
    ) -> HttpResponse:
        """Post a body. Redirects are returned, not followed, because a message must not go to another recipient.

        The status alone decides whether the message was accepted, so errors after it only truncate the body. With
        `whole`, the body of a 2xx response is required and is read as by `get`.
        """
        target = urls.check_url(url, self._exceptions)
        return await self._exchange("POST", target, headers, self._budget(seconds), max_bytes, body, whole=whole)

    def _budget(self, seconds: float | None) -> _Budget:
        total = self._seconds if seconds is None else seconds
        return _Budget(total, total)

    async def _exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        budget: _Budget,
        limit: int,
        body: bytes | None = None,
        *,
        whole: bool = False,
    ) -> HttpResponse:
        """Send a request and read its response. Waiting for a free slot is not charged to the budget."""
        if self._session is None:
            raise RuntimeError("HttpClient must be used with `async with`")
        hop = _Hop(urls.host_of(url))
        place = urls.shown_url(url)
        async with self._limits.turn(hop.host):
            started = time.monotonic()
            hop_token = _hop.set(hop)
            try:
                async with (
                    asyncio.timeout(max(budget.left, 0)),
                    self._session.request(
                        method, URL(url, encoded=True), headers=headers, data=body, allow_redirects=False
                    ) as response,
                ):
                    return await _read_response(response, url, limit, place, whole=whole or method == "GET")
            except FAILURES as error:
                if hop.refusals and len(hop.refusals) == hop.attempts:
                    raise urls.refused(f"{hop.host} resolves to an address that {hop.refusals[0]}", place) from error
                raise explain_failure(error, place, CONNECT_SECONDS, IDLE_SECONDS, budget.seconds) from error
            finally:
                _hop.reset(hop_token)
                budget.left -= time.monotonic() - started

    def _socket(self, address_info: tuple[Any, ...]) -> socket.socket:
        """Create the socket for a connection, or refuse the address. Every connection goes through this check."""
        family, kind, protocol, _, (host, *_) = address_info
        hop = _hop.get()
        hop.attempts += 1
        address = ip_address(str(host).partition("%")[0])
        reason = self._exceptions.refusal(address, hop.host)
        if reason is not None:
            hop.refusals.append(reason)
            raise _RefusedSocketError(f"an address that {reason}")
        return socket.socket(family, kind, protocol)

    def _next_url(self, response: HttpResponse, visited: Sequence[str]) -> str:
        """Return the target URL of a redirect, checked like the first URL."""
        place = urls.shown_url(visited[-1])
        location = response.headers.get("Location", "").strip()
        if not location:
            raise UnreachableError(f"the server responded {response.status} without a Location header", place=place)
        try:
            next_url = urls.check_url(str(URL(visited[-1]).join(URL(location))), self._exceptions)
        except InputError as error:
            kind = type(error) if isinstance(error, UnreachableError) else UnreachableError
            raise kind(f"it redirects to {error.place}: {error.message}", place=place, hint=error.hint) from error
        except ValueError as error:
            raise UnreachableError("it redirects to an invalid URL", place=place) from error
        if visited[-1].startswith("https:") and next_url.startswith("http:"):
            raise UnreachableError(
                f"it redirects from https to {urls.shown_url(next_url)}, which is not encrypted",
                place=place,
                hint="use that URL directly if you trust it",
            )
        if next_url in visited:
            raise UnreachableError("it redirects in a loop", place=place)
        if len(visited) > MAX_REDIRECTS:
            raise UnreachableError(f"it redirects more than {MAX_REDIRECTS} times", place=place)
        return next_url


async def _read_response(response: ClientResponse, url: str, limit: int, place: str, *, whole: bool) -> HttpResponse:
    if response.method == "GET" and response.status in _REDIRECTS:
        body = b""
    elif whole and 200 <= response.status < 300:
        body = await read_body(response, limit, place)
    else:
        body = await _read_beginning(response, min(limit, COURTESY_BYTES))
    if not response.content.at_eof():
        response.close()
    return HttpResponse(response.status, _headers(response), body, url)


async def _read_beginning(response: ClientResponse, limit: int) -> bytes:
    try:
        async with asyncio.timeout(COURTESY_SECONDS):
            return await read_beginning(response, limit)
    except FAILURES:
        return b""


def _headers(response: ClientResponse) -> Mapping[str, str]:
    """Return the headers with one value each: join lists, and otherwise keep the first value.

    Lone surrogates represent bytes that are not UTF-8. They are replaced, because databases cannot store them.
    """
    headers: CIMultiDict[str] = CIMultiDict()
    for name in response.headers:
        if name not in headers:
            values = response.headers.getall(name)
            value = ", ".join(values) if name.lower() in _LIST_HEADERS else values[0]
            headers[name] = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return CIMultiDictProxy(headers)


def check_url(url: str, allowed: Sequence[str] = ()) -> str:
    """Return the canonical URL, or raise InputError or RefusedAddressError.

    Call it when a feed is registered or a subscription is made. Without `allowed`, use `urls.canonical_url`, which
    checks only the form; the client checks the address later.

    >>> check_url("HTTPS://Muse.example/rss"), check_url("http://10.1.2.3", allowed=["10.1.0.0/16"])
    ('https://muse.example/rss', 'http://10.1.2.3/')
    """
    return urls.check_url(url, AllowedAddresses.of(allowed))


def http_client_of(settings: Settings, *, concurrency: int | None = None, host_concurrency: int = 0) -> HttpClient:
    """Create a client with the limits of the settings. The default of `concurrency` is `send_concurrency`."""
    return HttpClient(
        allowed=settings.allowed_addresses,
        user_agent=settings.user_agent,
        max_bytes=settings.max_document_bytes,
        seconds=settings.http_seconds,
        concurrency=settings.send_concurrency if concurrency is None else concurrency,
        host_concurrency=host_concurrency,
    )
