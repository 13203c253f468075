"""Services: any model or program that answers over HTTP, asked through the guarded door.

In: asks. Out: its answers (`service_messages`). Asks go in chunks, several at once within the operator's concurrency;
what may pass (429, 5xx, no connection) is tried again within the time limit, with waits that grow and vary. Redirects
are not followed. A secret comes from a file or the environment of the runner, never from a statement.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from runnel.errors import InputError, RefusedAddressError, UnreachableError
from runnel.matching.operators.builtin.configuration import IN_TIME, Configuration
from runnel.matching.operators.builtin.service_messages import encode_ask, read_answers, request_body, shown
from runnel.matching.operators.plugins.contract import Answer, Ask, Failed, OperatorContext
from runnel.model.operator import Parameter
from runnel.net import http_client as outside
from runnel.net.background_loop import BackgroundLoop
from runnel.net.retry_after import retry_after

if TYPE_CHECKING:
    from runnel.net.http_client import HttpClient
    from runnel.net.http_client import HttpResponse as Response

MAX_REQUEST = 8 << 20
"""Bytes of asks that go in one request."""

FIRST_WAIT = 0.1
LONGEST_WAIT = 10.0
"""Seconds before the second attempt, and the most before any; waits double."""

VARIABLES = "RUNNEL_OPERATOR_"
"""How the names of environment variables begin that a registration may name: all others are not its business."""

_SETTINGS = ("url", "name", "header", "scheme", "secret_file", "secret_variable", "most", "bytes")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_OWN_HEADERS = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection"})
_TOO_MUCH = frozenset({400, 413, 422})
"""Answers that say that something is wrong with what was asked: each half is asked by itself."""

_PASSING = frozenset({408, 425, 429})


class Service:
    """Asks a service over HTTP: `mobPattern(?people)` from 'http' with (url 'https://vision.example/mobs')."""

    parameters: tuple[Parameter, ...] = ()
    cost = timedelta(milliseconds=50)
    pure = True
    batch = 64

    def __init__(self, place: OperatorContext) -> None:
        configuration = Configuration("http", place, _SETTINGS)
        try:
            self._url = outside.check_url(configuration.text("url"), place.allowed_addresses)
        except InputError as error:
            raise configuration.refused(error.message, key="url", hint=error.hint) from error
        self._name = configuration.text("name", place.name)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", **_secret(configuration)}
        self._most = configuration.whole("most", 64, least=1, most=10_000)
        self._bytes = configuration.whole("bytes", 4 << 20, least=1024, most=64 << 20)
        self._seconds = place.time_limit
        self._concurrency = max(1, place.concurrency)
        self._background = BackgroundLoop("operator-http")
        self._door: HttpClient | None = None
        self._place = place

    def answer(self, asks: Sequence[Ask]) -> Sequence[Answer]:
        """What the service says of every ask."""
        return self._background.run(self._answers(asks)) if asks else []

    def close(self) -> None:
        """Close the connections."""
        if self._background.started:
            self._background.run(self._leave())
            self._background.close()

    async def _answers(self, asks: Sequence[Ask]) -> list[Answer]:
        deadline = time.monotonic() + IN_TIME * self._seconds
        door = await self._entered()
        bodies = [encode_ask(ask) for ask in asks]
        runs = cut_runs([len(one) for one in bodies], self._most, self._concurrency)
        answered = await asyncio.gather(*(self._chunk(door, bodies[run], deadline) for run in runs))
        return [answer for chunk in answered for answer in chunk]

    async def _chunk(self, door: HttpClient, asks: Sequence[bytes], deadline: float) -> list[Answer]:
        """The answers to some asks; halves are asked where something in them is refused, so that it fails alone."""
        if sum(map(len, asks)) > MAX_REQUEST:
            return [Failed(f"the item has more than {MAX_REQUEST} bytes", passing=False)] * len(asks)
        outcome = await self._settled(door, request_body(self._name, asks), deadline)
        if isinstance(outcome, Failed):
            return [outcome] * len(asks)
        if outcome.status in _TOO_MUCH and len(asks) > 1:
            half = len(asks) // 2
            first = await self._chunk(door, asks[:half], deadline)
            return [*first, *await self._chunk(door, asks[half:], deadline)]
        if not 200 <= outcome.status < 300:
            return [_refusal(outcome)] * len(asks)
        try:
            return read_answers(outcome.body, len(asks))
        except ValueError as error:
            return [Failed(f"the service cannot be understood: {error}")] * len(asks)

    async def _settled(self, door: HttpClient, body: bytes, deadline: float) -> Response | Failed:
        """An answer that trying again will not change, or why there is none within the time."""
        wait = FIRST_WAIT
        reason = Failed(f"the service did not answer within {self._seconds:g} seconds")
        while True:
            asked: float | None = None
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    response = await door.post(
                        self._url, body, headers=self._headers, max_bytes=self._bytes, whole=True
                    )
                if response.status not in _PASSING and response.status < 500:
                    return response
                reason = _refusal(response)
                asked = retry_after(response.headers.get("Retry-After"), time.time())
            except RefusedAddressError as error:
                return Failed(error.message)
            except UnreachableError as error:
                reason = Failed(f"the service cannot be reached: {error.message}")
            except TimeoutError:
                return reason  # That of the last attempt, where there was one: it says more.
            pause = wait * random.uniform(0.5, 1.0) if asked is None else asked  # noqa: S311 - to spread, not to hide
            if time.monotonic() + pause >= deadline:
                return reason
            await asyncio.sleep(pause)
            wait = min(2 * wait, LONGEST_WAIT)

    async def _entered(self) -> HttpClient:
        if self._door is None:
            self._door = outside.HttpClient(
                allowed=self._place.allowed_addresses,
                user_agent=self._place.user_agent,
                max_bytes=self._bytes,
                seconds=self._seconds,
                concurrency=self._concurrency,
            )
            await self._door.__aenter__()
        return self._door

    async def _leave(self) -> None:
        if self._door is not None:
            await self._door.__aexit__()
            self._door = None


def cut_runs(sizes: Sequence[int], most: int, concurrency: int) -> list[slice]:
    """Runs of asks with these sizes: as many as may go at once, none above `most` asks or MAX_REQUEST bytes.

    >>> cut_runs([10] * 10, 4, 2), cut_runs([10] * 10, 64, 2)
    ([slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)], [slice(0, 5, None), slice(5, 10, None)])
    """
    longest = min(most, math.ceil(len(sizes) / concurrency))
    runs: list[slice] = []
    start, held = 0, 0
    for place, size in enumerate(sizes):
        if place > start and (place - start >= longest or held + size > MAX_REQUEST):
            runs.append(slice(start, place))
            start, held = place, 0
        held += size
    return [*runs, slice(start, len(sizes))]


def _refusal(response: Response) -> Failed:
    said = shown(response.body.decode("utf-8", "replace"))
    words = f"the service answered {response.status}" + (f": {said}" if said else "")
    if 300 <= response.status < 400:
        words = f"the service answered {response.status}; redirects are not followed, register the final address"
    return Failed(words, passing=response.status not in _TOO_MUCH)


def _secret(configuration: Configuration) -> dict[str, str]:
    """The header with the secret, from a file below `private` or from the environment."""
    header, scheme = configuration.text("header", "Authorization"), configuration.text("scheme", "")
    if not _HEADER.fullmatch(header) or header.lower() in _OWN_HEADERS:
        raise configuration.refused(f"{header[:80]!r} cannot carry a secret", key="header")
    if configuration.has("secret_file") and configuration.has("secret_variable"):
        raise configuration.refused("there are two secrets", key="secret_file")
    if configuration.has("secret_file"):
        secret = configuration.secret("secret_file")
    elif configuration.has("secret_variable"):
        secret = _from_environment(configuration)
    else:
        return {}
    if not scheme and header.lower() == "authorization":
        scheme = "Bearer"
    return {header: f"{scheme} {secret}".strip()}


def _from_environment(configuration: Configuration) -> str:
    name = configuration.text("secret_variable")
    if not name.startswith(VARIABLES):
        hint = f"variables that operators may use begin with {VARIABLES}"
        raise configuration.refused(f"{name[:80]!r} may not be used", key="secret_variable", hint=hint)
    secret = os.environ.get(name, "").strip()
    if not secret or not secret.isascii() or not secret.isprintable():
        raise configuration.refused(f"{name[:80]!r} has no secret", key="secret_variable", hint="plain ASCII")
    return secret
