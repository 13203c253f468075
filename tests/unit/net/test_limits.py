"""Servers that send too much, too slowly, or nonsense."""

from __future__ import annotations

import asyncio
import gzip
import socket
import tracemalloc
import zlib
from itertools import pairwise

import pytest
from aiohttp.abc import ResolveResult
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.net.servers import ScriptedNames, Talk, door, saying, talking

from runnel.errors import UnreachableError
from runnel.net.http_client import MAX_HEADER, MAX_HEADERS, HttpResponse
from runnel.net.response_body import MAX_MEMBERS, decoder_for

OK = b"HTTP/1.1 200 OK\r\n"
MEBIBYTE = 1 << 20


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", *lines, "")).encode()


async def fetched(talk: Talk, *, seconds: float = 20.0, max_bytes: int = MEBIBYTE) -> HttpResponse:
    async with talking(talk) as port, door(seconds=seconds, max_bytes=max_bytes) as out:
        return await out.get(f"http://127.0.0.1:{port}/feed?token=secret")


def failure(talk: Talk, *, seconds: float = 20.0, max_bytes: int = MEBIBYTE) -> str:
    with pytest.raises(UnreachableError) as caught:
        asyncio.run(fetched(talk, seconds=seconds, max_bytes=max_bytes))
    assert caught.value.place is not None
    assert caught.value.place.endswith("/feed?…")
    assert "secret" not in str(caught.value)
    return caught.value.message


async def _for_ever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"a" * 65536)
        await writer.drain()


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(0.05)


def test_body_with_too_large_content_length_is_not_read() -> None:
    assert "larger than 1048576 bytes" in failure(saying(head("Content-Length: 1048577"), then=_for_ever))


def test_endless_body_stops_at_the_limit() -> None:
    assert "larger than 1048576 bytes" in failure(saying(head("Connection: close"), then=_for_ever))


def test_body_at_the_limit_is_accepted() -> None:
    body = asyncio.run(fetched(saying(head("Content-Length: 1000"), b"a" * 1000), max_bytes=1000)).body
    assert len(body) == 1000


def test_slow_body_ends_at_the_total_timeout() -> None:
    message = failure(saying(head("Connection: close"), then=_drip), seconds=0.5)
    assert message == "the request took more than 0.5 seconds"


def test_slow_headers_end_at_the_total_timeout() -> None:
    assert "took more than" in failure(saying(OK + b"X: ", then=_drip), seconds=0.5)


def test_silent_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.net.http_client.IDLE_SECONDS", 0.3)
    for value in (b"", OK, head("Content-Length: 9") + b"abc"):
        assert failure(saying(value, pause=60)) == "the server sent nothing for 0.3 seconds"


def test_total_timeout_includes_redirects() -> None:
    async def slowly_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = int((await reader.readuntil(b"\r\n\r\n")).split()[1].lstrip(b"/") or b"0")
        await asyncio.sleep(0.4)
        writer.write(head(f"Location: /{number + 1}", "Content-Length: 0", status="302 Found"))

    async def scenario() -> None:
        async with talking(slowly_on) as port, door(seconds=1.0) as out:
            await out.get(f"http://127.0.0.1:{port}/0")

    with pytest.raises(UnreachableError, match="took more than 1 seconds"):
        asyncio.run(scenario())


@pytest.mark.parametrize(
    "said",
    [
        head(f"X: {'a' * (MAX_HEADER + 1)}"),
        head(*(f"X-{n}: a" for n in range(MAX_HEADERS + 10))),
        f"HTTP/1.1 200 {'a' * (MAX_HEADER + 1)}\r\n\r\n".encode(),
        head("a" * (MAX_HEADER + 1) + ": b"),
    ],
    ids=["long", "many", "reason", "name"],
)
def test_too_large_headers_are_refused(said: bytes) -> None:
    assert failure(saying(said)) == "the headers of the response are too large"


def test_endless_headers_are_refused() -> None:
    async def headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"X: a\r\n" * 1000)
            await writer.drain()

    assert failure(saying(OK, then=headers)) == "the headers of the response are too large"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"", "closed the connection"),
        (b"220 mail.example ESMTP\r\n", "not valid HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "not valid HTTP"),
        (head("Content-Length: -1"), "not valid HTTP"),
        (head("Content-Length: 5", "Content-Length: 6"), "not valid HTTP"),
        (head("Content-Length: 9") + b"abc", "cut off"),
        (head("Transfer-Encoding: chunked") + b"5\r\nabc", "cut off"),
        (head("Transfer-Encoding: chunked") + b"zz\r\n", "not valid HTTP"),
        (head("Content-Encoding: br", "Content-Length: 3") + b"abc", "unsupported encoding 'br'"),
        (head("Content-Encoding: gzip, gzip", "Content-Length: 3") + b"abc", "unsupported encoding"),
        (
            head("Content-Encoding: gzip", "Content-Encoding: gzip", "Content-Length: 3") + b"abc",
            "unsupported encoding 'gzip, gzip'",
        ),
        (
            head("Content-Encoding: gzip", "content-encoding: br", "Content-Length: 3") + b"abc",
            "unsupported encoding 'gzip, br'",
        ),
        (
            head("Content-Encoding: identity", "Content-Encoding: gzip", "Content-Length: 3") + b"abc",
            "unsupported encoding",
        ),
        (head("Content-Encoding: gzip", "Content-Length: 3") + b"abc", "damaged"),
    ],
)
def test_malformed_responses_are_refused(said: bytes, words: str) -> None:
    assert words in failure(saying(said))


def test_truncated_gzip_body_is_refused() -> None:
    packed = gzip.compress(b"Muse " * 1000)[:-9]
    messages = head("Content-Encoding: gzip", f"Content-Length: {len(packed)}") + packed
    assert failure(saying(messages)) == "the response was cut off"


def test_body_compressed_twice_is_refused() -> None:
    packed = gzip.compress(gzip.compress(b"Muse " * 1000))
    messages = head("Content-Encoding: gzip", "Content-Encoding: gzip", f"Content-Length: {len(packed)}") + packed
    assert failure(saying(messages)) == "the response has the unsupported encoding 'gzip, gzip'"


@pytest.mark.parametrize(
    "packed", [gzip.compress(b"Muse" * 99), zlib.compress(b"Muse" * 99)], ids=["gzip", "deflate"]
)
def test_compressed_bodies_are_decompressed(packed: bytes) -> None:
    name = "gzip" if packed[0] == 0x1F else "deflate"
    messages = head(f"Content-Encoding: {name}", f"Content-Length: {len(packed)}") + packed
    assert asyncio.run(fetched(saying(messages))).body == b"Muse" * 99


def bomb(gigabytes: int) -> bytes:
    """gzip of zeros, about a thousandth of what it grows to: a block that ends in a full flush can be repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(bytes(MEBIBYTE)) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + block * (gigabytes << 10)


def test_decompression_bomb_stops_at_the_limit() -> None:
    packed = bomb(1)
    assert MEBIBYTE < len(packed) < 2 * MEBIBYTE
    messages = head("Content-Encoding: gzip", f"Content-Length: {len(packed)}") + packed
    tracemalloc.start()
    try:
        message = failure(saying(messages), max_bytes=4 * MEBIBYTE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "larger than 4194304 bytes" in message
    assert peak < 24 * MEBIBYTE


def test_gzip_body_of_empty_members_is_refused() -> None:
    packed = gzip.compress(b"") * (MAX_MEMBERS + 1)
    messages = head("Content-Encoding: gzip", f"Content-Length: {len(packed)}") + packed
    assert f"more than {MAX_MEMBERS} members" in failure(saying(messages))


def test_only_the_beginning_of_an_error_page_is_read() -> None:
    answer = asyncio.run(fetched(saying(head("Connection: close", status="500 Oops"), then=_for_ever)))
    assert answer.status == 500
    assert 0 < len(answer.body) <= 65536


def test_refused_connection_is_reported() -> None:
    async def scenario() -> None:
        async with talking(saying()) as port:
            pass
        async with door() as out:
            await out.get(f"http://127.0.0.1:{port}/")

    with pytest.raises(UnreachableError, match="the connection failed: connection refused"):
        asyncio.run(scenario())


@pytest.mark.parametrize(
    ("number", "words"), [(socket.EAI_NONAME, "host name does not exist"), (socket.EAI_AGAIN, "DNS lookup")]
)
def test_unknown_host_is_reported(number: int, words: str) -> None:
    class Nameless(ScriptedNames):
        async def resolve(self, *asked: object, **more: object) -> list[ResolveResult]:
            raise socket.gaierror(number, "system words")

    async def scenario() -> None:
        async with door(resolver=Nameless({})) as out:
            await out.get("http://no-such-host.invalid/")

    with pytest.raises(UnreachableError, match=words):
        asyncio.run(scenario())


def _pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@given(
    parts=st.lists(st.binary(max_size=2000), min_size=1, max_size=5),
    cuts=st.lists(st.integers(0, 1 << 16), max_size=8),
    padding=st.sampled_from([b"", b"\0" * 20, b"\r\n", b"<!-- -->"]),
)
@settings(deadline=None, max_examples=150)
def test_decompression_does_not_depend_on_chunk_boundaries(
    parts: list[bytes], cuts: list[int], padding: bytes
) -> None:
    whole = b"".join(parts)
    members = b"".join(gzip.compress(part) for part in parts)
    packed = {"gzip": members + padding, "deflate": zlib.compress(whole) + padding, "": whole}
    for encoding, data in packed.items():
        decoder, body = decoder_for(encoding, "here"), bytearray()
        for piece in _pieces(data, cuts):
            decoder.feed(piece, body, 1 << 20)
        assert (bytes(body), decoder.done()) == (whole, bool(data) or not encoding)


@given(st.binary(min_size=1, max_size=2000))
@settings(deadline=None, max_examples=50)
def test_raw_deflate_is_decompressed(whole: bytes) -> None:
    decoder, body = decoder_for("deflate", "here"), bytearray()
    decoder.feed(_raw_deflate(whole), body, 1 << 20)
    assert (bytes(body), decoder.done()) == (whole, True)
