"""Read response bodies in bounded memory.

In: a response whose headers have been received. Out: its body, decompressed in steps, so that a small body that
expands to gigabytes stops at the limit, or an UnreachableError.
"""

from __future__ import annotations

import zlib
from typing import Protocol

from aiohttp import ClientResponse

from runnel.errors import UnreachableError

STEP = 16 << 10
"""Number of bytes that are decompressed at a time."""

MAX_MEMBERS = 1000
"""Maximum number of members of a gzip body. A body of many empty members would cost time without reaching the size
limit.
"""

_GZIP = 0x1F
OFFERED = "gzip, deflate"
"""The encodings that requests accept. Others are refused."""


async def read_body(response: ClientResponse, limit: int, place: str) -> bytes:
    """Read the whole body. Raise UnreachableError if its compressed or decompressed size exceeds the limit."""
    if response.content_length is not None and response.content_length > limit:
        raise too_large(limit, place)
    body = bytearray()
    received = 0
    decoder = decoder_for(_encoding_of(response), place)
    async for chunk in response.content.iter_any():
        received += len(chunk)
        if received > limit:
            raise too_large(limit, place)
        for start in range(0, len(chunk), STEP):
            try:
                decoder.feed(chunk[start : start + STEP], body, limit + 1)
            except zlib.error as error:
                raise UnreachableError("the compressed body of the response is damaged", place=place) from error
            if len(body) > limit:
                raise too_large(limit, place)
    if received and not decoder.done():
        raise UnreachableError("the response was cut off", place=place, hint="its compressed body is incomplete")
    return bytes(body)


async def read_beginning(response: ClientResponse, limit: int) -> bytes:
    """Read at most `limit` bytes of a body that is only informative.

    It is not decompressed; a compressed body is returned as empty.
    """
    if _encoding_of(response).strip().lower() not in ("", "identity"):
        return b""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk[: limit - len(body)]
        if len(body) >= limit:
            break
    return bytes(body)


def _encoding_of(response: ClientResponse) -> str:
    """Return the values of all `Content-Encoding` headers as one list. Several headers are equivalent to one list."""
    return ", ".join(response.headers.getall("Content-Encoding", ()))


def too_large(limit: int, place: str) -> UnreachableError:
    """Return the error for a response that exceeds the limit."""
    return UnreachableError(
        f"the response is larger than {limit} bytes", place=place, hint="request less data at a time"
    )


class Decoder(Protocol):
    """Decodes a body in chunks."""

    def feed(self, data: bytes, into: bytearray, limit: int) -> None:
        """Decode a chunk and append it to `into`, up to `limit` bytes in total."""

    def done(self) -> bool:
        """Return whether the body is complete."""


class _Plain:
    def feed(self, data: bytes, into: bytearray, limit: int) -> None:
        into += data

    def done(self) -> bool:
        return True


class _Inflating:
    """Decodes gzip with several members, and deflate with or without a zlib header, as servers send both."""

    def __init__(self, place: str, *, gzip: bool) -> None:
        self._place = place
        self._gzip = gzip
        self._members = 0
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 16) if gzip else None

    def feed(self, data: bytes, into: bytearray, limit: int) -> None:
        stream = self._stream or zlib.decompressobj(_deflate_window(data))
        self._stream = stream
        while data and len(into) < limit:
            if stream.eof:
                if not self._gzip or data[0] != _GZIP:
                    self._gzip = False  # The rest is padding, which is common and harmless.
                    return
                stream = self._stream = self._next_member()
            into += stream.decompress(data, limit - len(into))
            data = stream.unused_data if stream.eof else stream.unconsumed_tail

    def _next_member(self) -> zlib._Decompress:
        self._members += 1
        if self._members >= MAX_MEMBERS:
            raise UnreachableError(
                f"the gzip body of the response has more than {MAX_MEMBERS} members", place=self._place
            )
        return zlib.decompressobj(zlib.MAX_WBITS | 16)

    def done(self) -> bool:
        return self._stream is not None and self._stream.eof


def _deflate_window(data: bytes) -> int:
    wrapped = data[0] & 0x0F == 8 and (len(data) < 2 or (data[0] << 8 | data[1]) % 31 == 0)
    return zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS


def decoder_for(encoding: str, place: str) -> Decoder:
    """Return the decoder of a Content-Encoding. Raise UnreachableError if requests do not accept it.

    >>> body = bytearray()
    >>> decoder_for("deflate", "http://muse.example/").feed(zlib.compress(b"Muse"), body, 100)
    >>> bytes(body)
    b'Muse'
    """
    match encoding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip":
            return _Inflating(place, gzip=True)
        case "deflate":
            return _Inflating(place, gzip=False)
        case other:
            raise UnreachableError(
                f"the response has the unsupported encoding {other[:40]!r}",
                place=place,
                hint=f"the request accepted only {OFFERED}",
            )
