"""The operator `http`: call a model or program that is available as an HTTP service.

Calls are sent in chunks, several at once within the operator's concurrency; `service_messages` defines the format.
Temporary failures (status 408, 425, 429 or 5xx, or no connection) are retried within the time limit, with growing,
randomized pauses or after the time of Retry-After. Redirects are not followed. All requests use the HTTP client with
SSRF protection. A secret comes from a file or from the runner's environment, never from a statement.
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
from runnel.matching.operators.builtin.configuration import WORK_SHARE, Configuration
from runnel.matching.operators.builtin.service_messages import encode_call, one_line, read_answers, request_body
from runnel.matching.operators.plugins.contract import Answer, FailedCall, OperatorCall, OperatorContext
from runnel.model.operator import Parameter
from runnel.net import http_client
from runnel.net.background_loop import BackgroundLoop
from runnel.net.retry_after import retry_after

if TYPE_CHECKING:
    from runnel.net.http_client import HttpClient
    from runnel.net.http_client import HttpResponse as Response

MAX_REQUEST_BYTES = 8 << 20
"""Maximum size of the calls in one request."""

FIRST_PAUSE = 0.1
MAX_PAUSE = 10.0
"""Seconds before the first retry, and the longest pause before a retry. Pauses double."""

VARIABLE_PREFIX = "RUNNEL_OPERATOR_"
"""The prefix of environment variables that a registration may name. It must not read other variables."""

_OPTIONS = ("url", "name", "header", "scheme", "secret_file", "secret_variable", "most", "bytes")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_RESERVED_HEADERS = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection"})
_BAD_REQUEST_STATUSES = frozenset({400, 413, 422})
"""The service rejects the content of a request. Each half of its calls is sent separately."""

_TEMPORARY_STATUSES = frozenset({408, 425, 429})


class Service:
    """Calls a service over HTTP: `mobPattern(?people)` from 'http' with (url 'https://vision.example/mobs')."""

    parameters: tuple[Parameter, ...] = ()
    cost = timedelta(milliseconds=50)
    pure = True
    batch = 64

    def __init__(self, context: OperatorContext) -> None:
        configuration = Configuration("http", context, _OPTIONS)
        try:
            self._url = http_client.check_url(configuration.text("url"), context.allowed_addresses)
        except InputError as error:
            raise configuration.error(error.message, key="url", hint=error.hint) from error
        self._name = configuration.text("name", context.name)
        secret_header = _read_secret_header(configuration)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", **secret_header}
        self._max_calls = configuration.integer("most", 64, minimum=1, maximum=10_000)
        self._max_bytes = configuration.integer("bytes", 4 << 20, minimum=1024, maximum=64 << 20)
        self._time_limit = context.time_limit
        self._concurrency = max(1, context.concurrency)
        self._background = BackgroundLoop("operator-http")
        self._client: HttpClient | None = None
        self._context = context

    def answer(self, calls: Sequence[OperatorCall]) -> Sequence[Answer]:
        """Return the service's answer to every call."""
        return self._background.run(self._send_batch(calls)) if calls else []

    def close(self) -> None:
        """Close the connections."""
        if self._background.started:
            self._background.run(self._close_client())
            self._background.close()

    async def _send_batch(self, calls: Sequence[OperatorCall]) -> list[Answer]:
        deadline = time.monotonic() + WORK_SHARE * self._time_limit
        client = await self._open_client()
        encoded = [encode_call(call) for call in calls]
        chunks = split_into_chunks([len(body) for body in encoded], self._max_calls, self._concurrency)
        answers = await asyncio.gather(*(self._send_chunk(client, encoded[chunk], deadline) for chunk in chunks))
        return [answer for chunk_answers in answers for answer in chunk_answers]

    async def _send_chunk(self, client: HttpClient, calls: Sequence[bytes], deadline: float) -> list[Answer]:
        """Return the answers to the calls of a chunk.

        If the service rejects the content of a request, send each half separately, so that only the bad call fails.
        """
        if sum(map(len, calls)) > MAX_REQUEST_BYTES:
            return [FailedCall(f"the item is larger than {MAX_REQUEST_BYTES} bytes", passing=False)] * len(calls)
        outcome = await self._post_with_retries(client, request_body(self._name, calls), deadline)
        if isinstance(outcome, FailedCall):
            return [outcome] * len(calls)
        if outcome.status in _BAD_REQUEST_STATUSES and len(calls) > 1:
            half = len(calls) // 2
            first = await self._send_chunk(client, calls[:half], deadline)
            return [*first, *await self._send_chunk(client, calls[half:], deadline)]
        if not 200 <= outcome.status < 300:
            return [_error_answer(outcome)] * len(calls)
        try:
            return read_answers(outcome.body, len(calls))
        except ValueError as error:
            return [FailedCall(f"the service returned an invalid response: {error}")] * len(calls)

    async def _post_with_retries(self, client: HttpClient, body: bytes, deadline: float) -> Response | FailedCall:
        """Send a request until its response is not a temporary failure. Return FailedCall if that takes too long."""
        backoff = FIRST_PAUSE
        failure = FailedCall(f"the service did not respond within {self._time_limit:g} seconds")
        while True:
            requested_pause: float | None = None
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    response = await client.post(
                        self._url, body, headers=self._headers, max_bytes=self._max_bytes, whole=True
                    )
                if response.status not in _TEMPORARY_STATUSES and response.status < 500:
                    return response
                failure = _error_answer(response)
                requested_pause = retry_after(response.headers.get("Retry-After"), time.time())
            except RefusedAddressError as error:
                return FailedCall(error.message)
            except UnreachableError as error:
                failure = FailedCall(f"cannot connect to the service: {error.message}")
            except TimeoutError:
                return failure  # if there was an earlier attempt, its failure is more specific than the timeout
            random_pause = backoff * random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries, no cryptography
            pause = random_pause if requested_pause is None else requested_pause
            if time.monotonic() + pause >= deadline:
                return failure
            await asyncio.sleep(pause)
            backoff = min(2 * backoff, MAX_PAUSE)

    async def _open_client(self) -> HttpClient:
        if self._client is None:
            self._client = http_client.HttpClient(
                allowed=self._context.allowed_addresses,
                user_agent=self._context.user_agent,
                max_bytes=self._max_bytes,
                seconds=self._time_limit,
                concurrency=self._concurrency,
            )
            await self._client.__aenter__()
        return self._client

    async def _close_client(self) -> None:
        if self._client is not None:
            await self._client.__aexit__()
            self._client = None


def split_into_chunks(sizes: Sequence[int], max_calls: int, concurrency: int) -> list[slice]:
    """Split calls with these sizes into chunks of at most `max_calls` calls and MAX_REQUEST_BYTES bytes.

    There are at least `concurrency` chunks if there are enough calls. A single call may exceed the size.

    >>> split_into_chunks([10] * 10, 4, 2), split_into_chunks([10] * 10, 64, 2)
    ([slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)], [slice(0, 5, None), slice(5, 10, None)])
    """
    max_length = min(max_calls, math.ceil(len(sizes) / concurrency))
    chunks: list[slice] = []
    start, chunk_size = 0, 0
    for position, size in enumerate(sizes):
        if position > start and (position - start >= max_length or chunk_size + size > MAX_REQUEST_BYTES):
            chunks.append(slice(start, position))
            start, chunk_size = position, 0
        chunk_size += size
    return [*chunks, slice(start, len(sizes))]


def _error_answer(response: Response) -> FailedCall:
    excerpt = one_line(response.body.decode("utf-8", "replace"))
    reason = f"the service responded with status {response.status}" + (f": {excerpt}" if excerpt else "")
    if 300 <= response.status < 400:
        reason = (
            f"the service responded with status {response.status}; redirects are not followed, register the final URL"
        )
    return FailedCall(reason, passing=response.status not in _BAD_REQUEST_STATUSES)


def _read_secret_header(configuration: Configuration) -> dict[str, str]:
    """Return the header with the secret from a file in `private` or from the environment, or an empty mapping."""
    header, scheme = configuration.text("header", "Authorization"), configuration.text("scheme", "")
    if not _HEADER.fullmatch(header) or header.lower() in _RESERVED_HEADERS:
        raise configuration.error(f"{header[:80]!r} is not a valid or allowed header for a secret", key="header")
    if configuration.has("secret_file") and configuration.has("secret_variable"):
        raise configuration.error("secret_file and secret_variable exclude each other", key="secret_file")
    if configuration.has("secret_file"):
        secret = configuration.secret("secret_file")
    elif configuration.has("secret_variable"):
        secret = _read_environment_secret(configuration)
    else:
        return {}
    if not scheme and header.lower() == "authorization":
        scheme = "Bearer"
    return {header: f"{scheme} {secret}".strip()}


def _read_environment_secret(configuration: Configuration) -> str:
    name = configuration.text("secret_variable")
    if not name.startswith(VARIABLE_PREFIX):
        raise configuration.error(
            f"operators may not read the environment variable {name[:80]!r}",
            key="secret_variable",
            hint=f"use a variable whose name begins with {VARIABLE_PREFIX}",
        )
    secret = os.environ.get(name, "").strip()
    if not secret or not secret.isascii() or not secret.isprintable():
        raise configuration.error(
            f"the environment variable {name[:80]!r} must contain printable ASCII characters", key="secret_variable"
        )
    return secret
