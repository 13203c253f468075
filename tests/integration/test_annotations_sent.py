"""Annotations that are sent: a real mail server and endpoint get them, also in a retry after the window expired."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

from aiohttp import web
from tests.integration.in_process import InProcess
from tests.integration.test_annotations_delivered import EXAMPLE, PHOTO, SHOWN, publish_news
from tests.integration.test_whole_pipeline import WebServer
from tests.unit.sinks.mail.smtp_server import Post, serving

import runnel
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.testing import FakeClock


class Endpoint(WebServer):
    """An endpoint that is unavailable at first. It keeps the bodies as they came."""

    def __init__(self) -> None:
        self.is_available = False
        self.bodies: list[bytes] = []
        super().__init__()

    async def _hook(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        return web.Response(status=204 if self.is_available else 503)


def test_retried_mail_and_webhook_have_the_same_annotations(tmp_path: Path, clock: FakeClock) -> None:
    endpoint, post = Endpoint(), Post(data_answer="451 later")
    with (
        serving(post) as port,
        runnel.connect(
            tmp_path / "workspace",
            clock=clock,
            smtp_host="127.0.0.1",
            smtp_port=port,
            smtp_security="none",
            mail_from="Runnel <runnel@muse.example>",
            allowed_addresses=("127.0.0.0/8",),
            retry_seconds=(864_000,),
        ) as engine,
    ):
        (engine.workspace.folder / "sheets").mkdir(exist_ok=True)
        shutil.copy(EXAMPLE / "IncludePhotos.xsl", engine.workspace.folder / "sheets")
        engine.execute(
            SHOWN + "subscribe to Shown output mail 'plain@muse.example';"
            "subscribe to Shown apply 'IncludePhotos.xsl' output mail 'sheet@muse.example';"
            f"subscribe to Shown output webhook 'http://127.0.0.1:{endpoint.port}/hook';"
        )
        run = InProcess(engine)
        engine.publish("Photos", [PHOTO])
        publish_news(engine)
        assert run.run() == 0
        post.data_answer, endpoint.is_available = "250 OK taken", True
        clock.advance(timedelta(days=11))
        engine.publish("Photos", [{"id": "p2", "title": "Later", "band": "Muse"}])
        run.match()
        run_maintenance(engine.workspace, run.epoch, at_least=2)
        run.restart_delivery()
        assert run.deliver() == 3
        run.close()
    endpoint.close()

    first, second = map(json.loads, endpoint.bodies)
    assert items_of(first) == items_of(second)
    [item] = items_of(second)
    assert [photo["id"] for photo in item["annotations"]["photos"]["items"]] == ["p1"]
    mails = {str(mail["To"]): [part.get_content() for part in mail.iter_parts()] for mail in post.mails()}
    for text, html in mails.values():
        assert text.count("Muse on stage") == 1
        assert "https://photos.example/1" in text
        assert html.count('<a href="https://photos.example/1"') == 1
    assert set(mails) == {"plain@muse.example", "sheet@muse.example"}


def items_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = body["data"]["items"]
    return items
