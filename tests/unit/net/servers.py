"""Real servers on loopback for the door's tests: from aiohttp, and from plain sockets where they misbehave."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from runnel.net.http_client import HttpClient

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def door(
    *,
    allowed: Sequence[str] = ("127.0.0.1/32",),
    max_bytes: int = 1 << 20,
    seconds: float = 20.0,
    **more: Any,
) -> HttpClient:
    """A door to 127.0.0.1, and by default to nothing else on this machine."""
    return HttpClient(allowed=allowed, user_agent="Runnel/test", max_bytes=max_bytes, seconds=seconds, **more)


@asynccontextmanager
async def serving(handlers: Mapping[str, Handler], host: str = "127.0.0.1") -> AsyncIterator[str]:
    """The base URL of a web server with a handler for each path, whatever the method."""
    application = web.Application()
    for path, handler in handlers.items():
        application.router.add_route("*", path, handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, 0)
        await site.start()
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def talking(talk: Talk, host: str = "127.0.0.1", **more: Any) -> AsyncIterator[int]:
    """The port of a server that says whatever it likes to each connection."""
    under_way: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        under_way.add(task)
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            under_way.discard(task)
            writer.close()

    server = await asyncio.start_server(handle, host, 0, **more)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(under_way):
            task.cancel()


def saying(*parts: bytes, pause: float = 0.0, then: Talk | None = None) -> Talk:
    """Reads a request's head and says some bytes, with pauses between."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        if then is not None:
            await then(reader, writer)

    return talk


@dataclass
class ScriptedNames(AbstractResolver):
    """A name server with scripted answers: for each name one answer after another, then the last one repeatedly."""

    answers: dict[str, list[Sequence[str]]]
    asked: list[str] = field(default_factory=list)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.asked.append(host)
        if host not in self.answers:
            raise OSError(None, "no such name")
        script = self.answers[host]
        answer = script.pop(0) if len(script) > 1 else script[0]
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=0,
            )
            for address in answer
        ]

    async def close(self) -> None:
        pass
