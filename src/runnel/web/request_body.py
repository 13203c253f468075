"""Read request bodies of limited size. A larger body is refused without reading the rest."""

from __future__ import annotations

import asyncio

from fastapi import Request

_SECONDS = 30.0
"""Time limit for receiving a body."""


class BodyTooLargeError(Exception):
    """A request body that exceeds the limit."""


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body of a request.

    Raise BodyTooLargeError as soon as it exceeds `limit` bytes, and TimeoutError if it arrives too slowly.
    """
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise BodyTooLargeError
    body = bytearray()
    async with asyncio.timeout(_SECONDS):
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise BodyTooLargeError
    return bytes(body)
