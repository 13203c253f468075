"""Confirmation links in mails: a page that asks (GET), and the action itself (POST).

Mail programs and scanners follow links, so a GET changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from runnel.engine.confirmation_links import (
    LinkedRequest,
    confirm_by_link,
    refuse_by_link,
    request_of_link,
)
from runnel.engine.workspace import Workspace
from runnel.model.consent import ConsentState
from runnel.web.answer_page import answer_page
from runnel.web.request_body import BodyTooLargeError, read_body

_BODY_LIMIT = 4 << 10


def add_confirm_routes(app: FastAPI, workspace: Workspace) -> None:
    """Add the routes `/confirm/{token}` and `/confirm/{token}/refuse`."""

    @app.get("/confirm/{token}")
    def ask(token: str) -> Response:
        linked = request_of_link(workspace, token)
        if linked is None:
            return _unknown()
        if not linked.is_open:
            return _settled(linked)
        return answer_page(
            f"Let {linked.owner} send messages to {linked.target}?",
            '<p>Nothing has changed yet.</p><form method="post"><button>Agree</button></form>'
            "<p>If you do not know what this is about, close this page, or block all messages to this address:</p>"
            f'<form method="post" action="{escape(token)}/refuse"><button>Send me nothing</button></form>',
        )

    @app.get("/confirm/{token}/refuse")
    def ask_to_refuse(token: str) -> Response:
        linked = request_of_link(workspace, token)
        if linked is None:
            return _unknown()
        if linked.state is ConsentState.REFUSED:
            return _settled(linked)
        return answer_page(
            f"Send nothing to {linked.target} again?",
            "<p>Nothing has changed yet. The button stops all messages from this server to you.</p>"
            '<form method="post"><button>Send me nothing</button></form>',
        )

    @app.post("/confirm/{token}")
    async def confirm(token: str, request: Request) -> Response:
        return await _act(confirm_by_link, workspace, token, request)

    @app.post("/confirm/{token}/refuse")
    async def refuse(token: str, request: Request) -> Response:
        return await _act(refuse_by_link, workspace, token, request)


async def _act(
    act: Callable[[Workspace, str], LinkedRequest | None], workspace: Workspace, token: str, request: Request
) -> Response:
    try:
        await read_body(request, _BODY_LIMIT)
    except BodyTooLargeError:
        return answer_page("The request is too large", "<p>The body of the request is too long.</p>", 413)
    linked = await run_in_threadpool(act, workspace, token)
    return _unknown() if linked is None else _settled(linked)


def _settled(linked: LinkedRequest) -> Response:
    target, owner = escape(linked.target), escape(linked.owner)
    match linked.state:
        case ConsentState.CONFIRMED:
            return answer_page(
                "Confirmed", f"<p>{owner} can now send messages to {target}. Each has a link to unsubscribe.</p>"
            )
        case ConsentState.REFUSED:
            return answer_page("Refused", f"<p>Nothing is sent to {target}.</p>")
        case ConsentState.PENDING:
            return answer_page("This request has expired", "<p>The request was not confirmed in time.</p>", 410)


def _unknown() -> Response:
    return answer_page("This link is not valid", "<p>The request has ended, or the link is incomplete.</p>", 404)
