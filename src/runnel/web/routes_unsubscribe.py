"""Unsubscribing by a link in a mail: a page that asks (GET), and the act itself (POST, RFC 8058 one-click).

Mail programs and scanners follow links, so a GET changes nothing.
"""

from __future__ import annotations

from html import escape

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from starlette.concurrency import run_in_threadpool

from runnel.engine.declare.unsubscribe_links import end_by_link, feed_of_link
from runnel.engine.workspace import Workspace
from runnel.web.request_body import BodyTooLargeError, read_body

_BODY_LIMIT = 4 << 10

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1.05rem/1.5 system-ui, sans-serif; max-width: 32rem; margin: 18vh auto 0; padding: 0 1.2rem }}
h1 {{ font-size: 1.4rem }}
button {{ font: inherit; padding: .5rem 1.1rem; border: 1px solid; border-radius: .4rem; cursor: pointer }}
</style></head><body><h1>{title}</h1>{body}</body></html>
"""


def add_unsubscribe_routes(app: FastAPI, root: Workspace) -> None:
    """`/unsubscribe/{token}`."""

    @app.get("/unsubscribe/{token}")
    def ask(token: str) -> Response:
        feed = feed_of_link(root, token)
        if feed is None:
            return _unknown()
        return _page(
            f"Stop messages about {feed}?",
            '<p>Nothing has changed yet.</p><form method="post"><button>Stop them</button></form>',
        )

    @app.post("/unsubscribe/{token}")
    async def act(token: str, request: Request) -> Response:
        try:
            await read_body(request, _BODY_LIMIT)  # `List-Unsubscribe=One-Click`, or the form's nothing
        except BodyTooLargeError:
            return _page("That was too much", "<p>The request has a longer body than it needs.</p>", 413)
        feed = await run_in_threadpool(end_by_link, root, token)
        if feed is None:
            return _unknown()
        return _page("Done", f"<p>No more messages about {escape(feed)} are sent to you.</p>")


def _unknown() -> Response:
    return _page(
        "This link is not in use",
        "<p>The subscription it belonged to has ended, or the link was not copied whole.</p>",
        404,
    )


def _page(title: str, body: str, status: int = 200) -> HTMLResponse:
    return HTMLResponse(_PAGE.format(title=escape(title), body=body), status_code=status)
