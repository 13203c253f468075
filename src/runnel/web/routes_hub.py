"""WebSub callbacks: hubs verify subscriptions (GET) and push new content (POST)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool

from runnel.sources.acquire import Acquisition
from runnel.web.request_body import BodyTooLargeError, read_body

_MAX_CONCURRENT_BODIES = 8
"""Maximum number of bodies that are read at the same time. Each may be as large as a document."""


class Hubs(Protocol):
    """The subscriber that requested pushes from hubs and receives them."""

    def expects(self, callback: str) -> bool:
        """Return whether the callback is known."""

    def verify(self, callback: str, params: Mapping[str, str]) -> str | None:
        """Return the challenge to send back, or None if the subscription was not requested."""

    def receive(self, callback: str, headers: Mapping[str, str], body: bytes) -> Acquisition | None:
        """Accept a push. Return None if it was not requested."""


def add_hub_routes(app: FastAPI, hubs: Hubs, limit: int) -> None:
    """Add the route `/websub/{callback}`. An unknown callback gives 404, so that the hub ends the subscription."""
    reading = asyncio.Semaphore(_MAX_CONCURRENT_BODIES)

    @app.get("/websub/{callback}")
    async def verify(callback: str, request: Request) -> Response:
        parameters = {name: value for name, value in request.query_params.items() if name.startswith("hub.")}
        challenge = await run_in_threadpool(hubs.verify, callback, parameters)
        if challenge is None:
            return PlainTextResponse("no such subscription\n", status_code=404)
        return PlainTextResponse(challenge)

    @app.post("/websub/{callback}")
    async def receive(callback: str, request: Request) -> Response:
        if not await run_in_threadpool(hubs.expects, callback):
            # Check the callback before reading the body, so that strangers cannot send bodies.
            return Response(status_code=404)
        try:
            async with reading:
                body = await read_body(request, limit)
        except BodyTooLargeError:
            return PlainTextResponse("the document is too large\n", status_code=413)
        headers = {name.lower(): value for name, value in request.headers.items()}
        outcome = await run_in_threadpool(hubs.receive, callback, headers, body)
        # WebSub §8: respond with success even if the signature is wrong, so that it cannot be probed.
        return Response(status_code=404 if outcome is None else 202)
