"""Bodies of requests, bounded: whoever sends more than is wanted is told so and read no further."""

from __future__ import annotations

import asyncio

from fastapi import Request

_SECONDS = 30.0
"""How long a body may take to come."""


class BodyTooLargeError(Exception):
    """A body with more bytes than are taken."""


async def read_body(request: Request, limit: int) -> bytes:
    """The body of a request; raises TooLarge as soon as it has more than `limit` bytes,
    and TimeoutError where it comes too slowly.
    """
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise BodyTooLargeError
    body = bytearray()
    async with asyncio.timeout(_SECONDS):
        async for piece in request.stream():
            body += piece
            if len(body) > limit:
                raise BodyTooLargeError
    return bytes(body)
