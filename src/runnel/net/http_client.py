"""The door itself: HTTP for others, to public addresses only and within limits.

In: URLs that nobody vouches for. Out: an Answer, or Unreachable (RefusedAddress where the address is the reason) with
a place and words for the person who named the URL. Every socket is checked where it connects, on every hop: what a
name server said before, or says next, does not matter.
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
"""Longest that finding a name, connecting and agreeing on encryption may take together."""

IDLE_SECONDS = 15.0
"""Longest wait for the next byte."""

COURTESY_SECONDS = 2.0
COURTESY_BYTES = 64 << 10
"""How long and how much is read of an answer whose status says all that matters."""

MAX_HEADER = 16 << 10
MAX_HEADERS = 128

_PERMANENT = frozenset({301, 308})
_REDIRECTS = _PERMANENT | {302, 303, 307}
_LISTS = frozenset({"link", "cache-control", "vary"})
_PASSED_ON = frozenset(
    {"accept", "accept-language", "a-im", "cache-control", "if-none-match", "if-modified-since", "user-agent"}
)
"""Headers that follow a redirect to another origin. Any other may be a secret meant for the first."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What a server said. `headers` ignore case; `url` is where the answer came from in the end.

    `moved` is the address to use from now on, where permanent redirects (301, 308) from the start led there.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    moved: str | None = None


@dataclass(slots=True)
class _Hop:
    """One connection being made: for which host, and why addresses of it were refused."""

    host: str
    refusals: list[str] = field(default_factory=list)
    attempts: int = 0


@dataclass(slots=True)
class _Budget:
    """Seconds that an exchange with all its hops may take, and those that are left."""

    seconds: float
    left: float


_hop: ContextVar[_Hop] = ContextVar("hop")


class _RefusedSocketError(OSError):
    """An address that must not be connected to; the next address of the host is tried."""


class HttpClient:
    """An async context manager; one per runner. Connections are kept and shared, cookies and logins are not.

    `allowed` names what may be reached although private. Waiting for a turn (`concurrency` in all,
    `host_concurrency` for one host, 0 for no limit) does not count as time of the exchange. A `resolver` of one's own
    changes nothing about what may be reached.
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
        self._turns = ConcurrencyLimits(concurrency, host_concurrency)
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
        """Fetch a URL, following up to MAX_REDIRECTS redirects; every hop is checked.

        A body larger than `max_bytes` is an error, unless the status is one: then it is cut.
        """
        target = urls.check_url(url, self._exceptions)
        limit = self._max_bytes if max_bytes is None else max_bytes
        budget = self._budget(seconds)
        passed = dict(headers or {})
        visited = [target]
        moved: str | None = None
        permanent = True
        while True:
            answer = await self._exchange("GET", target, passed, budget, limit)
            if answer.status not in _REDIRECTS:
                return replace(answer, moved=moved)
            following = self._following(answer, visited)
            permanent = permanent and answer.status in _PERMANENT
            moved = following if permanent else moved
            if not urls.same_origin(target, following):
                passed = {name: value for name, value in passed.items() if name.lower() in _PASSED_ON}
            visited.append(following)
            target = following

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
        """Post a body. A redirect is an answer like others: a message goes where it was addressed, or nowhere.

        Once the status has come the message is taken or refused, so trouble with the rest of the answer only cuts
        its body short. With `whole` the body of a 2xx answer is what was asked for, and is read as `get` reads it.
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
        """One request and its answer; only the time that these take is taken from the budget."""
        if self._session is None:
            raise RuntimeError("HttpClient must be used with `async with`")
        hop = _Hop(urls.host_of(url))
        place = urls.shown_url(url)
        async with self._turns.turn(hop.host):
            started = time.monotonic()
            under_way = _hop.set(hop)
            try:
                async with (
                    asyncio.timeout(max(budget.left, 0)),
                    self._session.request(
                        method, URL(url, encoded=True), headers=headers, data=body, allow_redirects=False
                    ) as response,
                ):
                    return await _answer(response, url, limit, place, whole=whole or method == "GET")
            except FAILURES as error:
                if hop.refusals and len(hop.refusals) == hop.attempts:
                    raise urls.refused(f"{hop.host} resolves to an address that {hop.refusals[0]}", place) from error
                raise explain_failure(error, place, CONNECT_SECONDS, IDLE_SECONDS, budget.seconds) from error
            finally:
                _hop.reset(under_way)
                budget.left -= time.monotonic() - started

    def _socket(self, found: tuple[Any, ...]) -> socket.socket:
        """A socket for an address that is about to be connected to: the one check that nothing gets around."""
        family, kind, protocol, _, (host, *_) = found
        hop = _hop.get()
        hop.attempts += 1
        address = ip_address(str(host).partition("%")[0])
        reason = self._exceptions.refusal(address, hop.host)
        if reason is not None:
            hop.refusals.append(reason)
            raise _RefusedSocketError(f"an address that {reason}")
        return socket.socket(family, kind, protocol)

    def _following(self, answer: HttpResponse, visited: Sequence[str]) -> str:
        """Where a redirect leads, checked like the first address."""
        place = urls.shown_url(visited[-1])
        location = answer.headers.get("Location", "").strip()
        if not location:
            raise UnreachableError(f"the server responded {answer.status} without a Location header", place=place)
        try:
            following = urls.check_url(str(URL(visited[-1]).join(URL(location))), self._exceptions)
        except InputError as error:
            kind = type(error) if isinstance(error, UnreachableError) else UnreachableError
            raise kind(f"it redirects to {error.place}: {error.message}", place=place, hint=error.hint) from error
        except ValueError as error:
            raise UnreachableError("it redirects to an invalid URL", place=place) from error
        if visited[-1].startswith("https:") and following.startswith("http:"):
            raise UnreachableError(
                f"it redirects from https to {urls.shown_url(following)}, which is not encrypted",
                place=place,
                hint="use that URL directly if you trust it",
            )
        if following in visited:
            raise UnreachableError("it redirects in a loop", place=place)
        if len(visited) > MAX_REDIRECTS:
            raise UnreachableError(f"it redirects more than {MAX_REDIRECTS} times", place=place)
        return following


async def _answer(response: ClientResponse, url: str, limit: int, place: str, *, whole: bool) -> HttpResponse:
    if response.method == "GET" and response.status in _REDIRECTS:
        body = b""
    elif whole and 200 <= response.status < 300:
        body = await read_body(response, limit, place)
    else:
        body = await _beginning(response, min(limit, COURTESY_BYTES))
    if not response.content.at_eof():
        response.close()
    return HttpResponse(response.status, _headers(response), body, url)


async def _beginning(response: ClientResponse, limit: int) -> bytes:
    try:
        async with asyncio.timeout(COURTESY_SECONDS):
            return await read_beginning(response, limit)
    except FAILURES:
        return b""


def _headers(response: ClientResponse) -> Mapping[str, str]:
    """The headers with one value each: lists are joined, of others the first counts.

    Lone surrogates stand for bytes that are not UTF-8; they fit in no database, so they are replaced.
    """
    kept: CIMultiDict[str] = CIMultiDict()
    for name in response.headers:
        if name not in kept:
            values = response.headers.getall(name)
            value = ", ".join(values) if name.lower() in _LISTS else values[0]
            kept[name] = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return CIMultiDictProxy(kept)


def check_url(url: str, allowed: Sequence[str] = ()) -> str:
    """The canonical URL, or InputError (RefusedAddress): for when somebody registers or subscribes.

    Where `allowed` is not at hand, `urls.canonical_url` checks the form only; the door checks the rest.

    >>> check_url("HTTPS://Muse.example/rss"), check_url("http://10.1.2.3", allowed=["10.1.0.0/16"])
    ('https://muse.example/rss', 'http://10.1.2.3/')
    """
    return urls.check_url(url, AllowedAddresses.of(allowed))


def http_client_of(settings: Settings, *, concurrency: int | None = None, host_concurrency: int = 0) -> HttpClient:
    """A door with the limits of the settings; without `concurrency`, as many at once as messages may be under way."""
    return HttpClient(
        allowed=settings.allowed_addresses,
        user_agent=settings.user_agent,
        max_bytes=settings.max_document_bytes,
        seconds=settings.http_seconds,
        concurrency=settings.send_concurrency if concurrency is None else concurrency,
        host_concurrency=host_concurrency,
    )
