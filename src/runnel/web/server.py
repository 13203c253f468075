"""The HTTP server of a runner: health and metrics, WebSub for hubs, links in mails, open feeds.

In: untrusted requests. Out: small responses with strict headers. It runs next to the runner if the setting `listen`
gives a host and port. It never does work whose duration a request controls.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from runnel.engine.run.health import Health, Watched
from runnel.engine.workspace import Workspace
from runnel.errors import BacklogError, CatalogUnavailableError, StorageFullError, WorkspaceError
from runnel.web.metrics import render_metrics
from runnel.web.routes_confirm import add_confirm_routes
from runnel.web.routes_hub import Hubs, add_hub_routes
from runnel.web.routes_publish import add_publish_routes
from runnel.web.routes_unsubscribe import add_unsubscribe_routes

logger = logging.getLogger("runnel")

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_CLOSE_SECONDS = 5.0
_HEAD_SECONDS = 10.0
"""Time limit for the first request of a new connection."""


def listen_address(text: str) -> tuple[str, int]:
    """Parse `host:port`.

    >>> listen_address("127.0.0.1:8080"), listen_address("[::1]:0")
    (('127.0.0.1', 8080), ('::1', 0))
    """
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise WorkspaceError(
            f"the setting listen must have the form host:port, not {text!r}",
            hint='for example listen = "127.0.0.1:8080"',
        )
    return host.strip("[]"), int(port)


class _FirstRequestTimeout(H11Protocol):
    """Closes a connection whose first request does not arrive. Uvicorn would keep and count it forever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(_HEAD_SECONDS, self._close_idle, transport)

    def _close_idle(self, transport: asyncio.Transport) -> None:
        if self.cycle is None and not transport.is_closing():
            transport.close()


class Server:
    """The HTTP server of one workspace, which runs next to a run."""

    def __init__(self, workspace: Workspace, hubs: Hubs, listen: str | None = None) -> None:
        self._workspace = workspace
        self._hubs = hubs
        self._host, self._port = listen_address(listen or workspace.settings.listen)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The address on which the server listens, after it was started."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    def start(self, run: Watched) -> None:
        """Listen in a background thread. Raise WorkspaceError if the port is not available."""
        bound = self._bind()
        config = uvicorn.Config(
            make_app(self._workspace, self._hubs, run),
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=16 << 10,
            limit_concurrency=1000,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=int(_CLOSE_SECONDS),
            lifespan="off",
            loop="asyncio",
            http=_FirstRequestTimeout,
            ws="none",
            proxy_headers=False,  # the setting trusted_proxies determines whose headers are used
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._serve, args=(self._server, bound), name="runnel-web", daemon=True
        )
        self._thread.start()
        logger.info("listening on %s", self.address)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(_CLOSE_SECONDS + 2)
        self._server = self._thread = None

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((self._host, self._port))
            bound.listen(128)  # from here on, new connections wait instead of being refused
        except OSError as error:
            bound.close()
            raise WorkspaceError(
                f"cannot listen on {self._host}:{self._port}: {error.strerror or error}",
                hint="choose another port in the setting listen",
            ) from error
        self._port = bound.getsockname()[1]
        return bound

    def _serve(self, server: uvicorn.Server, bound: socket.socket) -> None:
        try:
            asyncio.run(server.serve(sockets=[bound]))
        except Exception:
            logger.exception("the HTTP server failed")
        finally:
            bound.close()


def make_app(workspace: Workspace, hubs: Hubs, run: Watched) -> FastAPI:
    """Create the application: routes without documentation pages, and the same headers on every response."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        try:
            response = await call_next(request)
        except (BacklogError, CatalogUnavailableError, StorageFullError) as error:
            logger.warning("a request was refused temporarily: %s", error)
            response = PlainTextResponse(
                "temporarily unavailable; try again later\n", status_code=503, headers={"Retry-After": "60"}
            )
        except ClientDisconnect:
            response = Response(status_code=400)  # the client has disconnected
        except TimeoutError:
            response = PlainTextResponse("the request took too long to arrive\n", status_code=408)
        except Exception:
            # Log only the first part of the path: the rest may be the secret of a link or callback.
            logger.exception("a request to /%s failed", request.url.path[1:].partition("/")[0][:20])
            response = PlainTextResponse("internal error; see the application log\n", status_code=500)
        response.headers.update(_HEADERS)
        return response

    @app.get("/healthz")
    def healthz() -> Response:
        health = run.health()
        return JSONResponse(_health_json(health, health.live), status_code=200 if health.live else 503)

    @app.get("/readyz")
    def readyz() -> Response:
        health = run.health()
        return JSONResponse(_health_json(health, health.ready), status_code=200 if health.ready else 503)

    @app.get("/metrics")
    def metrics() -> Response:
        body, kind = render_metrics(workspace, run)
        return Response(body, media_type=kind)

    add_hub_routes(app, hubs, workspace.settings.max_document_bytes)
    add_unsubscribe_routes(app, workspace)
    add_confirm_routes(app, workspace)
    add_publish_routes(app, workspace)
    return app


def _health_json(health: Health, good: bool) -> dict[str, Any]:
    return {"status": "ok" if good else "failing", "reasons": list(health.reasons)}
