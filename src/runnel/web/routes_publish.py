"""Publishing into open feeds: anyone may send items, without a token and within limits.

In: a JSON object, a list of objects, or JSON lines. Out: the number of accepted items, or a JSON error. A request is
accepted as a whole or not at all. Feeds are closed unless their statement contains `open`, and a closed feed gives
the same response as a feed that does not exist.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from runnel.engine.actors import ADMIN_ACTOR
from runnel.engine.publish import Publisher, find_open_feed
from runnel.engine.workspace import Workspace
from runnel.errors import (
    BacklogError,
    CatalogUnavailableError,
    InputError,
    InvalidItemError,
    NotFoundError,
    QuotaExceededError,
    ReadOnlyError,
    StorageFullError,
)
from runnel.sources.acquire import Acquirer
from runnel.web.rate_limits import RateLimiter, client_key
from runnel.web.request_body import BodyTooLargeError, read_body

_MAX_CONCURRENT_BODIES = 8
"""Maximum number of bodies that are read at the same time."""


def add_publish_routes(app: FastAPI, workspace: Workspace) -> None:
    """Add the routes `/feeds/{name}/items` for open feeds of the admin and `/owners/{owner}/feeds/{name}/items`."""
    settings = workspace.settings
    acquirer = Acquirer(workspace.catalog, workspace.storage, workspace.items, workspace.folder, settings)
    publisher = Publisher(workspace, acquirer, ADMIN_ACTOR)
    # Two limiters, so that very many client addresses cannot evict the limits of feeds.
    clients, feeds = RateLimiter(), RateLimiter()
    reading = asyncio.Semaphore(_MAX_CONCURRENT_BODIES)

    async def publish(owner: str | None, name: str, request: Request) -> Response:
        client = client_key(
            request.client.host if request.client else "",
            # A proxy may add its own header after those of the client, so join all of them.
            ",".join(request.headers.getlist("x-forwarded-for")),
            settings.trusted_proxies,
        )
        by_client = settings.open_client_items_per_minute
        # Every request counts as at least one item, even if it is refused.
        if wait := clients.take(client, 1, by_client):
            return _too_many(wait, by_client, "this address may publish")
        feed = await run_in_threadpool(find_open_feed, workspace, owner, name)
        by_feed = feed.open_items or settings.open_items_per_minute
        async with reading:
            items = read_items(await read_body(request, settings.open_body_bytes), min(by_client, by_feed))
        if wait := clients.take(client, len(items) - 1, by_client):
            return _too_many(wait, by_client, "this address may publish")
        if wait := feeds.take(feed.id, len(items), by_feed):
            return _too_many(wait, by_feed, "this feed takes")
        accepted = await run_in_threadpool(publisher.publish_open, owner, name, items)
        return JSONResponse({"accepted": accepted.accepted, "known": accepted.unchanged}, status_code=202)

    async def answer(owner: str | None, name: str, request: Request) -> Response:
        try:
            return await publish(owner, name, request)
        except BodyTooLargeError:
            return _error(
                413, f"a request may have at most {settings.open_body_bytes:,} bytes", "send fewer items at a time"
            )
        except TimeoutError:
            return _error(408, "the request body took too long to arrive", "send it again")
        except NotFoundError as error:
            return _error(404, error.message, error.hint)
        except QuotaExceededError:
            return _error(403, "the quota of this feed is used up", "ask the admin of this server to raise the quota")
        except (BacklogError, CatalogUnavailableError, ReadOnlyError, StorageFullError):
            return _error(503, "items cannot be accepted now", "try again later", {"Retry-After": "60"})
        except InputError as error:
            return _error(400, str(error) if error.place else error.message, error.hint)

    @app.post("/feeds/{name}/items")
    async def publish_to_admin(name: str, request: Request) -> Response:
        return await answer(None, name, request)

    @app.post("/owners/{owner}/feeds/{name}/items")
    async def publish_to_owner(owner: str, name: str, request: Request) -> Response:
        return await answer(owner, name, request)


def read_items(body: bytes, limit: int = sys.maxsize) -> list[dict[str, Any]]:
    """Parse the items of a body: an object, a list of objects, or one object per line, at most `limit`.

    >>> read_items(b'{"id": "1"}'), read_items(b'[{"id": "1"}]'), len(read_items(b'{"id": "1"}\\n{"id": "2"}\\n'))
    ([{'id': '1'}], [{'id': '1'}], 2)
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidItemError(f"byte {error.start + 1} is not UTF-8", hint="send JSON in UTF-8") from None
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
        items = document if isinstance(document, list) else [document]
        positions = [f"item {number}" for number in range(1, len(items) + 1)]
    except (ValueError, RecursionError):
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        _refuse_more(len(lines), limit)  # Check the number before parsing the lines.
        items = [_read_line(number, line) for number, line in lines]
        positions = [f"line {number}" for number, _ in lines]
    if not items:
        raise InvalidItemError("the request has no items", hint=_HINT)
    _refuse_more(len(items), limit)
    for position, item in zip(positions, items, strict=True):
        if not isinstance(item, dict):
            raise InvalidItemError("an item must be a JSON object", place=position, hint=_HINT)
    return items


def _refuse_more(count: int, limit: int) -> None:
    if count > limit:
        raise InputError(
            f"a request may have at most {limit:,} items, this one has {count:,}", hint="send fewer at a time"
        )


_HINT = 'send {"id": "1", "title": "…"}, a list of such objects, or one on each line'


def _read_line(number: int, line: str) -> Any:
    try:
        return json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it is nested too deeply, or not JSON"
        raise InvalidItemError(f"this is not JSON: {reason}", place=f"line {number}", hint=_HINT) from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _too_many(wait: float, per_minute: int, subject: str) -> Response:
    seconds = max(1, math.ceil(wait))
    return _error(
        429,
        f"{subject} {per_minute:,} items per minute",
        f"try again in {seconds} seconds",
        {"Retry-After": str(seconds)},
    )


def _error(status: int, message: str, hint: str | None = None, headers: dict[str, str] | None = None) -> Response:
    body = {"error": message} if hint is None else {"error": message, "hint": hint}
    return JSONResponse(body, status_code=status, headers=headers)
