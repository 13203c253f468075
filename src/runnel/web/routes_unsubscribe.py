"""Unsubscribe links in mails: a page that asks (GET), and the action itself (POST, RFC 8058 one-click).

Mail programs and scanners follow links, so a GET changes nothing.
"""

from __future__ import annotations

from html import escape

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from runnel.engine.unsubscribe_links import end_by_link, feed_of_link
from runnel.engine.workspace import Workspace
from runnel.web.answer_page import answer_page
from runnel.web.request_body import BodyTooLargeError, read_body

_BODY_LIMIT = 4 << 10


def add_unsubscribe_routes(app: FastAPI, workspace: Workspace) -> None:
    """Add the route `/unsubscribe/{token}`."""

    @app.get("/unsubscribe/{token}")
    def ask(token: str) -> Response:
        feed = feed_of_link(workspace, token)
        if feed is None:
            return _unknown()
        return answer_page(
            f"Stop messages about {feed}?",
            '<p>Nothing has changed yet.</p><form method="post"><button>Stop them</button></form>',
        )

    @app.post("/unsubscribe/{token}")
    async def act(token: str, request: Request) -> Response:
        try:
            await read_body(request, _BODY_LIMIT)  # `List-Unsubscribe=One-Click`, or the empty form
        except BodyTooLargeError:
            return answer_page("The request is too large", "<p>The body of the request is too long.</p>", 413)
        feed = await run_in_threadpool(end_by_link, workspace, token)
        if feed is None:
            return _unknown()
        return answer_page("Done", f"<p>No more messages about {escape(feed)} are sent to you.</p>")


def _unknown() -> Response:
    return answer_page(
        "This link is not valid",
        "<p>The subscription has ended, or the link is incomplete.</p>",
        404,
    )
