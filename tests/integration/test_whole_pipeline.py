"""The whole pipeline: a web feed as input, and files, mail and a webhook as outputs.

The publisher is hostile: items contain scripts, SVG with scripts, event handlers, javascript: URLs and control
characters. Every output must be sanitized, and every item must arrive once.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from email.policy import SMTP
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.integration.in_process import InProcess
from tests.unit.sinks.mail.smtp_server import serving

from runnel.engine import Engine, connect

FEED = """<?xml version="1.0"?><rss version="2.0"><channel><title>News</title><link>http://127.0.0.1/</link>
<item><guid>a</guid><title>Rock &lt;script&gt;alert(1)&lt;/script&gt; tonight</title>
<link>javascript:alert(2)</link>
<description><![CDATA[<p onclick="alert(3)">A <b>loud</b> night<script>alert(4)</script>
<svg onload="alert(5)"><script>alert(6)</script></svg><img src="x" onerror="alert(7)">
<a href="jav&#x09;ascript:alert(8)">here</a><iframe src="https://evil.example/"></iframe>
<math><mtext><style><img src=x onerror=alert(9)></style></mtext></math></p>]]></description></item>
<item><guid>b</guid><title>Rock
Bcc: victim@mail.example&#x85;&#x2028;X-Injected: yes</title>
<link>https://news.example/b?x=1&amp;y="&gt;&lt;script&gt;</link><description>plain</description></item>
</channel></rss>"""

DANGEROUS = ("<script", "<svg", "<iframe", "onclick=", "onerror=", "onload=", "javascript:", "alert(4)", "alert(6)")


class WebServer:
    """A web server with a feed and a webhook endpoint, in its own thread."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.posted: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.loop = asyncio.new_event_loop()
        self.ready = threading.Event()
        self.port = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self.ready.wait(20)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._begin())
        self.loop.run_forever()

    async def _begin(self) -> None:
        app = web.Application()
        app.router.add_get("/feed", self._feed)
        app.router.add_post("/hook", self._hook)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.ready.set()

    async def _feed(self, request: web.Request) -> web.Response:
        tag = request.headers.get("If-None-Match")
        self.asked.append(tag)
        if tag == '"1"':
            return web.Response(status=304)
        return web.Response(text=FEED, content_type="application/rss+xml", headers={"ETag": '"1"'})

    async def _hook(self, request: web.Request) -> web.Response:
        self.posted.append(({name.lower(): value for name, value in request.headers.items()}, await request.json()))
        return web.Response(status=204)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self.loop).result(20)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(20)
        self.loop.close()


class MailServer:
    """A mail server that stores received mails."""

    def __init__(self) -> None:
        self.mail: list[tuple[list[str], Message]] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        self.mail.append((list(envelope.rcpt_tos), message_from_bytes(envelope.content, policy=SMTP)))
        return "250 taken"


@pytest.fixture
def web_server() -> Iterator[WebServer]:
    made = WebServer()
    yield made
    made.close()


@pytest.fixture
def post() -> Iterator[tuple[MailServer, int]]:
    handler = MailServer()
    with serving(handler) as port:
        yield handler, port


@pytest.fixture
def engine(tmp_path: Path, web_server: WebServer, post: tuple[MailServer, int]) -> Iterator[Engine]:
    with connect(
        tmp_path / "root",
        allowed_addresses=("127.0.0.1/32",),
        smtp_host="127.0.0.1",
        smtp_port=post[1],
        smtp_security="none",
        mail_from="Runnel <runnel@mail.example>",
        public_url="https://runnel.example",
    ) as opened:
        yield opened


def test_hostile_items_are_delivered_once_and_sanitized(
    engine: Engine, web_server: WebServer, post: tuple[MailServer, int]
) -> None:
    outcomes = engine.execute(
        f"register feed 'http://127.0.0.1:{web_server.port}/feed' as News every 10 minutes;"
        "create feed Rock from News where title contains 'rock';"
        "subscribe to Rock output rss 'rock.xml';"
        "subscribe to Rock output atom 'rock.atom';"
        "subscribe to Rock output json 'rock.json';"
        "subscribe to Rock output jsonl 'rock.jsonl';"
        "subscribe to Rock output mail 'reader@mail.example';"
        f"subscribe to Rock output webhook 'http://127.0.0.1:{web_server.port}/hook';"
    )
    assert any("whsec_" in line for line in outcomes[-1].lines), "the key is shown once, here"
    parts = engine._parts()
    (polls,) = (reader for reader in parts.readers if reader.has_period)
    try:
        assert polls.read(once=True).accepted == 2
        run = InProcess(engine)
        run.run()
        run.close()
        assert polls.read(once=True).accepted == 0, "not due yet, so not asked again"
    finally:
        polls.close()
        parts.dispatcher.close()
    assert web_server.asked == [None]
    assert engine.status().messages == {"done": 6}
    _files_are_clean(engine)
    _mail_is_clean(post[0])
    _hook_is_clean(web_server)


def _files_are_clean(engine: Engine) -> None:
    for name in ("rock.xml", "rock.atom", "rock.json", "rock.jsonl"):
        text = (engine.workspace.out / name).read_text("utf-8")
        shown = text.replace("&lt;", "<").replace("\\u003c", "<").lower()
        assert "loud" in shown, name
        words = [word for word in DANGEROUS if word in _without_plain_title(shown)]
        assert not words, (name, words)


def _without_plain_title(text: str) -> str:
    # The first title is plain text that speaks of a script: it may stay, as text.
    return text.replace("<script>alert(1)</script>", "")


def _mail_is_clean(post: MailServer) -> None:
    ((recipients, mail),) = post.mail
    assert recipients == ["reader@mail.example"]
    assert mail["To"] == "reader@mail.example"
    assert mail["Bcc"] is None
    assert mail["X-Injected"] is None
    assert mail["List-Unsubscribe"].startswith("<https://runnel.example/unsubscribe/")
    bodies = {part.get_content_type(): part.get_payload(decode=True) for part in mail.walk()}
    html = bytes(bodies["text/html"] or b"").decode("utf-8").lower()
    assert "loud" in html
    assert [word for word in DANGEROUS if word in html] == []
    assert b"loud" in bytes(bodies["text/plain"] or b"")


def _hook_is_clean(web_server: WebServer) -> None:
    ((headers, body),) = web_server.posted
    assert headers["webhook-id"]
    assert headers["webhook-signature"].startswith("v1,")
    assert len(body["data"]["items"]) == 2
    shown = _without_plain_title(json.dumps(body).lower())
    assert [word for word in DANGEROUS if word in shown] == []
