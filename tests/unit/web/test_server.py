"""What a runner answers over HTTP, asked by real requests to a real server."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from runnel.catalog.access.workspace_secrets import UNSUBSCRIBE, unsubscribe_token, workspace_secret
from runnel.engine import Engine, connect
from runnel.engine.run.health import Health
from runnel.errors import BacklogError, WorkspaceError
from runnel.sources.acquire import Acquisition
from runnel.web import server
from runnel.web.metrics import METRICS
from runnel.web.server import Server


@dataclass
class Run:
    """A run that is as the test says."""

    now: Health = field(default_factory=lambda: Health(True, True, counts={"items accepted": 7}))

    def health(self) -> Health:
        return self.now


@dataclass
class Asked:
    """Hubs that asked for one callback, `known`."""

    taken: list[bytes] = field(default_factory=list)

    def verify(self, callback: str, params: Mapping[str, str]) -> str | None:
        return params.get("hub.challenge") if callback == "known" else None

    def expects(self, callback: str) -> bool:
        return callback == "known"

    def receive(self, callback: str, headers: Mapping[str, str], body: bytes) -> Acquisition | None:
        if callback != "known":
            return None
        if body == b"too many":
            raise BacklogError("too many items wait for matching")
        self.taken.append(body)
        return Acquisition(accepted=1)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: str


@dataclass
class World:
    engine: Engine
    run: Run
    hubs: Asked
    address: str

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=20)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            values = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, values, response.read().decode())
        finally:
            connection.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with connect(tmp_path / "root", max_document_bytes=1000) as engine:
        engine.execute("register feed Wire; create feed Rock from Wire; subscribe to Rock output log;")
        run, hubs = Run(), Asked()
        made = Server(engine.workspace, hubs, "127.0.0.1:0")
        made.start(run)
        try:
            yield World(engine, run, hubs, made.address)
        finally:
            made.close()


def test_health_is_200_or_503_with_reasons(world: World) -> None:
    assert (world.ask("/healthz").status, world.ask("/readyz").status) == (200, 200)
    world.run.now = Health(True, False, ("1000001 items wait for matching",))
    answer = world.ask("/readyz")
    assert (world.ask("/healthz").status, answer.status) == (200, 503)
    assert json.loads(answer.body)["reasons"] == ["1000001 items wait for matching"]
    world.run.now = Health(False, False, ("runnel-deliver has not turned for 120 seconds",))
    assert world.ask("/healthz").status == 503


def test_metrics_agree_with_the_catalog(world: World) -> None:
    world.engine.publish("Wire", [{"id": "1"}, {"id": "2"}])
    answer = world.ask("/metrics")
    values = dict(line.rsplit(" ", 1) for line in answer.body.splitlines() if not line.startswith("#"))
    assert (values["runnel_items_accepted"], values["runnel_items_lag"]) == ("2.0", "2.0")
    assert values['runnel_run_total{what="items accepted"}'] == "7.0"
    assert float(values["runnel_plan_queries"]) == 1
    described = {line.split()[2] for line in answer.body.splitlines() if line.startswith("# HELP")}
    missing = {figure.name for figure in METRICS} - described - {"runnel_run", "runnel_batch_seconds"}
    assert not missing
    assert len({figure.name for figure in METRICS}) == len(METRICS)


def test_unsubscribe_link_requires_a_post_request(world: World) -> None:
    with world.engine.workspace.catalog.write() as connection:
        token = unsubscribe_token(workspace_secret(connection, UNSUBSCRIBE), 1)
    page = world.ask(f"/unsubscribe/{token}")
    assert page.status == 200
    assert "Stop messages about Rock?" in page.body
    assert world.engine.status().subscriptions == 1, "a link that is only followed changes nothing"
    done = world.ask(f"/unsubscribe/{token}", "POST", b"List-Unsubscribe=One-Click")
    assert done.status == 200
    assert world.engine.status().subscriptions == 0
    assert world.engine.status().plan_queries == 0, "what nobody wants is matched no more"
    assert world.ask(f"/unsubscribe/{token}", "POST").status == 404


@pytest.mark.parametrize(
    "token", ["1", "1.", "1.AAAA", "999999999999999999999.x", "%00", "..%2f..%2fetc", "a" * 9000]
)
def test_invalid_unsubscribe_tokens_end_no_subscription(world: World, token: str) -> None:
    with world.engine.workspace.catalog.write() as connection:
        workspace_secret(connection, UNSUBSCRIBE)
    assert world.ask(f"/unsubscribe/{token}", "POST").status in (400, 404)
    assert world.engine.status().subscriptions == 1


def test_websub_requests_are_accepted_only_for_known_callbacks(world: World) -> None:
    verified = world.ask("/websub/known?hub.mode=subscribe&hub.challenge=%3Cb%3Ex")
    assert (verified.status, verified.body) == (200, "<b>x")
    assert verified.headers["content-type"].startswith("text/plain")
    assert world.ask("/websub/other?hub.challenge=x").status == 404
    assert world.ask("/websub/known", "POST", b"<rss/>").status == 202
    assert world.ask("/websub/other", "POST", b"<rss/>").status == 404
    assert world.ask("/websub/known", "POST", b"x" * 1001).status == 413
    assert world.hubs.taken == [b"<rss/>"]


def test_temporary_refusal_returns_503_with_retry_after(world: World) -> None:
    answer = world.ask("/websub/known", "POST", b"too many")
    assert (answer.status, answer.headers["retry-after"]) == (503, "60")


def test_chunked_body_over_the_limit_is_refused(world: World) -> None:
    host, port = urlsplit(world.address).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(b"POST /websub/known HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        line.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n0\r\n\r\n")
        assert b" 413 " in line.recv(4096).split(b"\r\n")[0]
    assert world.hubs.taken == []


def test_idle_connections_are_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_HEAD_SECONDS", 0.2)
    place = urlsplit(world.address)
    with socket.create_connection((str(place.hostname), place.port or 0), timeout=20) as silent:
        silent.sendall(b"GET /healthz HTTP/1.1\r\nHost")
        assert silent.recv(100) == b"", "ended from the other side"
    assert world.ask("/healthz").status == 200


def test_an_unknown_callback_is_refused_before_its_body_is_read(world: World) -> None:
    place = urlsplit(world.address)
    with socket.create_connection((str(place.hostname), place.port or 0), timeout=20) as line:
        line.sendall(b"POST /websub/nobody HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n")
        assert b" 404 " in line.recv(4096).split(b"\r\n")[0]


def test_responses_have_security_headers_and_reveal_no_internals(world: World) -> None:
    for path in ("/healthz", "/nowhere", "/metrics", "/docs", "/openapi.json", "/unsubscribe/x"):
        answer = world.ask(path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers
        assert "Traceback" not in answer.body
    assert [world.ask(path).status for path in ("/docs", "/openapi.json", "/redoc")] == [404, 404, 404]


def test_internal_error_response_contains_no_details(world: World) -> None:
    def fail() -> Health:
        raise ValueError("postgresql://runnel:s3cret@db")

    world.run.health = fail  # type: ignore[method-assign]
    answer = world.ask("/healthz")
    assert answer.status == 500
    assert "s3cret" not in answer.body


def test_port_in_use_raises_an_error_on_start(world: World) -> None:
    with pytest.raises(WorkspaceError, match="cannot listen"):
        Server(world.engine.workspace, world.hubs, urlsplit(world.address).netloc).start(world.run)


@pytest.mark.parametrize("listen", ["8080", ":8080", "localhost:", "localhost:http", "localhost:70000", "x:٣"])
def test_listen_setting_without_a_port_is_refused(world: World, listen: str) -> None:
    with pytest.raises(WorkspaceError, match="listen"):
        Server(world.engine.workspace, world.hubs, listen)
