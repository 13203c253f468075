"""WebSub: where hubs verify what we asked for (GET) and push what is new (POST)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool

from runnel.sources.acquire import Acquisition
from runnel.web.request_body import BodyTooLargeError, read_body

_AT_ONCE = 8
"""Bodies that are read at the same time; each may be as large as a document."""


class Hubs(Protocol):
    """Who asked hubs for pushes, and takes them."""

    def expects(self, callback: str) -> bool:
        """Whether a push may come there."""

    def verify(self, callback: str, params: Mapping[str, str]) -> str | None:
        """The challenge to give back, or None where nobody asked for this."""

    def receive(self, callback: str, headers: Mapping[str, str], body: bytes) -> Acquisition | None:
        """Take a push; None where nobody asked for it."""


def add_hub_routes(app: FastAPI, hubs: Hubs, limit: int) -> None:
    """`/websub/{callback}`; an unknown callback is 404, so that a hub forgets it."""
    reading = asyncio.Semaphore(_AT_ONCE)

    @app.get("/websub/{callback}")
    async def verify(callback: str, request: Request) -> Response:
        given = {name: value for name, value in request.query_params.items() if name.startswith("hub.")}
        challenge = await run_in_threadpool(hubs.verify, callback, given)
        if challenge is None:
            return PlainTextResponse("no such subscription\n", status_code=404)
        return PlainTextResponse(challenge)

    @app.post("/websub/{callback}")
    async def receive(callback: str, request: Request) -> Response:
        if not await run_in_threadpool(hubs.expects, callback):
            return Response(status_code=404)  # before the body is read: who knows no callback sends nothing here
        try:
            async with reading:
                body = await read_body(request, limit)
        except BodyTooLargeError:
            return PlainTextResponse("the document is too large\n", status_code=413)
        headers = {name.lower(): value for name, value in request.headers.items()}
        known = await run_in_threadpool(hubs.receive, callback, headers, body)
        # WebSub §8: a wrong signature is still answered with success, so that it cannot be probed.
        return Response(status_code=404 if known is None else 202)
