"""Webhooks against a real endpoint on loopback: what is posted, how it is signed, what each answer means."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from tests.services import refusing_port

from runnel.catalog.access.signing_keys import key_text
from runnel.errors import DeliveryError, InputError
from runnel.model.item import Item
from runnel.model.subscription import Subscription
from runnel.net.http_client import HttpClient
from runnel.settings import Settings
from runnel.sinks.contract import Content, DeliveredItem, Delivery
from runnel.sinks.webhook import WebhookRoute, WebhookSink, webhook_body, webhook_headers

Make = Callable[..., Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SINK = WebhookSink()
OLD, NEW = b"o" * 32, b"n" * 32
MOMENT = datetime(2026, 11, 14, tzinfo=UTC)
ITEM = Item("News", "a", {"title": ("é🎸\n",), "n": (1.5, True), "published": (MOMENT,)}, 2, 7, MOMENT)


@dataclass
class Endpoint:
    """What an endpoint was sent."""

    handler: Handler
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.read())
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        return await self.handler(request)


def answering(status: int, text: str = "", **headers: str) -> Handler:
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text, headers=named)

    return answer


def post(handler: Handler, delivery: Delivery, times: int = 1, **options: Any) -> tuple[Endpoint, list[Any]]:
    """Deliver to an endpoint of ours, so many times; gives what it got and what each attempt led to."""
    endpoint = Endpoint(handler)

    async def run() -> list[Any]:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/hook", endpoint.take)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        target = SINK.validate_target(f"http://127.0.0.1:{port}/hook?token=secret", Path())
        allowed = options.pop("allowed", ("127.0.0.1",))
        addressed = replace(delivery, subscription=replace(delivery.subscription, target=target))
        door = HttpClient(allowed=allowed, user_agent="Runnel/test", max_bytes=1 << 20, seconds=30)
        try:
            async with door:
                route = SINK.connect(Settings.load(Path("/nowhere"), send_seconds=options.pop("seconds", 10)), door)
                outcomes = await asyncio.gather(
                    *(route.deliver(addressed) for _ in range(times)), return_exceptions=True
                )
                await route.close()
                return list(outcomes)
        finally:
            await runner.cleanup()

    return endpoint, asyncio.run(run())


@pytest.fixture
def signed(make_delivery: Make) -> Callable[..., Delivery]:
    def make(*items: Item, keys: tuple[bytes, ...] = (NEW,)) -> Delivery:
        made: Delivery = make_delivery(None, *(items or (ITEM,)), key="1f-2-3")
        return replace(made, signing_keys=keys)

    return make


def failed(handler: Handler, delivery: Delivery, **options: Any) -> DeliveryError:
    _, (outcome,) = post(handler, delivery, **options)
    assert isinstance(outcome, DeliveryError)
    return outcome


# --- what is sent ------------------------------------------------------------------------------------------------


def test_a_message_is_posted_as_json_and_its_signature_verifies(signed: Make) -> None:
    endpoint, outcomes = post(answering(204), signed())
    assert outcomes == ["the endpoint accepted the message with 204 No Content"]
    verified = Webhook(key_text(NEW)).verify(endpoint.bodies[0], endpoint.headers[0])
    assert verified == {
        "type": "feed.items",
        "timestamp": "2026-11-15T09:30:00+00:00",
        "data": {
            "feed": "RockConcerts",
            "subscription": 1,
            "items": [
                {
                    "feed": "News",
                    "id": "a",
                    "version": 2,
                    "sequence": 7,
                    "accepted": "2026-11-14T00:00:00+00:00",
                    "attributes": {
                        "title": ["é🎸\n"],
                        "n": [1.5, True],
                        "published": ["2026-11-14T00:00:00+00:00"],
                    },
                }
            ],
        },
    }
    assert endpoint.headers[0]["content-type"] == "application/json"
    assert endpoint.headers[0]["user-agent"] == "Runnel/test"


def test_webhook_id_is_the_message_key_and_timestamp_is_that_of_the_attempt(signed: Make) -> None:
    delivery = signed()
    body = webhook_body(delivery)
    first, second = webhook_headers(delivery, body, 1000.9), webhook_headers(delivery, body, 2000.0)
    assert first["webhook-id"] == second["webhook-id"] == "1f-2-3"
    assert (first["webhook-timestamp"], second["webhook-timestamp"]) == ("1000", "2000")
    assert first["webhook-signature"] != second["webhook-signature"]


def test_all_valid_keys_sign_newest_first_during_rotation(signed: Make) -> None:
    endpoint, _ = post(answering(200), signed(keys=(NEW, OLD)))
    both = endpoint.headers[0]["webhook-signature"].split(" ")
    assert len(both) == 2
    for key in (NEW, OLD):
        assert Webhook(key).verify(endpoint.bodies[0], endpoint.headers[0])
    newest = {**endpoint.headers[0], "webhook-signature": both[0]}
    assert Webhook(NEW).verify(endpoint.bodies[0], newest)
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(endpoint.bodies[0], newest)


@pytest.mark.parametrize("header", ["webhook-id", "webhook-timestamp"])
def test_a_changed_body_or_header_does_not_verify(signed: Make, header: str) -> None:
    delivery = signed()
    body = webhook_body(delivery)
    headers = webhook_headers(delivery, body, time.time())
    assert Webhook(NEW).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(body.replace(b"News", b"Fake"), headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(body, {**headers, header: str(int(time.time()) - 5)})


def test_message_without_a_signing_key_is_not_sent(signed: Make) -> None:
    endpoint, (outcome,) = post(answering(200), signed(keys=()))
    assert isinstance(outcome, DeliveryError)
    assert not outcome.permanent
    assert outcome.hint == "rotate key of subscription 1;"
    assert endpoint.bodies == []


def test_output_of_a_stylesheet_replaces_the_items(signed: Make) -> None:
    content = Content("text/html; charset=utf-8", "<p>Müse</p>".encode())
    endpoint, _ = post(answering(200), replace(signed(), content=content))
    data = json.loads(endpoint.bodies[0])["data"]
    assert data["content"] == {"media_type": "text/html; charset=utf-8", "text": "<p>Müse</p>"}
    assert "items" not in data


def test_empty_output_of_a_stylesheet_is_not_posted(signed: Make) -> None:
    endpoint, outcomes = post(answering(500), replace(signed(), items=()))
    assert outcomes == ["nothing to send: the output of the stylesheet has no entries"]
    assert endpoint.bodies == []


@settings(deadline=None, max_examples=60)
@given(name=st.text(min_size=1), title=st.text(st.characters(), min_size=1), key=st.binary(min_size=1, max_size=64))
def test_signature_of_any_item_verifies(name: str, title: str, key: bytes) -> None:
    item = Item(name, title, {"title": (title,)}, 1, 1, MOMENT)
    subscription = Subscription(1, 2, "webhook", "https://muse.example/", 0, MOMENT)
    delivery = Delivery(
        "k-1", subscription, name, name, [DeliveredItem(item, name)], MOMENT, Path(), signing_keys=(key,)
    )
    body = webhook_body(delivery)
    headers = webhook_headers(delivery, body, time.time())
    assert Webhook(key).verify(body, headers)["type"] == "feed.items"
    assert all(value.isascii() and value.isprintable() for value in headers.values())


# --- what answers mean -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 404, 408, 409, 422, 425, 500, 502])
def test_error_statuses_are_retried(signed: Make, status: int) -> None:
    error = failed(answering(status, "no, \x1b[31mthanks\r\n\0 \u202eyou"), signed())
    assert (error.permanent, error.gone, error.retry_after) == (False, False, None)
    assert str(status) in error.message
    assert error.message.endswith(": no, [31mthanks you")
    assert error.message.isprintable()


def test_status_410_disables_the_subscription(signed: Make) -> None:
    error = failed(answering(410), signed())
    assert error.gone
    assert error.message == "the endpoint responded 410 Gone"


def test_a_redirect_is_a_failure_and_is_not_followed(signed: Make) -> None:
    reached: list[str] = []

    async def redirect(request: web.Request) -> web.StreamResponse:
        reached.append(request.path)
        raise web.HTTPFound("/hook?again")

    error = failed(redirect, signed())
    assert "302 Found" in error.message
    assert "not followed" in str(error.hint)
    assert not error.permanent
    assert reached == ["/hook"]


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_passed_on(signed: Make, status: int) -> None:
    assert failed(answering(status, Retry_After="120"), signed()).retry_after == 120.0
    later = format_datetime(datetime.fromtimestamp(time.time() + 3600, UTC), usegmt=True)
    wait = failed(answering(status, Retry_After=later), signed()).retry_after
    assert wait is not None
    assert 3000 < wait <= 3600
    assert failed(answering(status), signed()).retry_after is None


def test_a_message_that_is_too_large_has_a_hint(signed: Make) -> None:
    assert "period" in str(failed(answering(413), signed()).hint)


def test_request_to_a_hanging_endpoint_times_out(signed: Make) -> None:
    async def hang(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3600)
        return web.Response()

    error = failed(hang, signed(), seconds=0.3)
    assert not error.permanent
    assert isinstance(error.__cause__, Exception)
    assert "token=secret" not in str(error)


def test_endless_body_is_ignored_after_200_and_truncated_after_500(signed: Make) -> None:
    def endless(status: int) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(status=status)
            await response.prepare(request)
            try:
                while True:
                    await response.write(b"x" * 65536)
            except ConnectionError:
                return response

        return answer

    _, (outcome,) = post(endless(200), signed())
    assert outcome == "the endpoint accepted the message with 200 OK"
    error = failed(endless(500), signed())
    assert error.message == f"the endpoint responded 500 Internal Server Error: {'x' * 1024}"


def test_unreachable_endpoint_is_retried(signed: Make) -> None:
    delivery = signed()

    async def run() -> str:
        door = HttpClient(allowed=("127.0.0.1",), user_agent="x", max_bytes=1000, seconds=60)
        with refusing_port() as port:
            target = f"http://127.0.0.1:{port}/hook"
            away = replace(delivery, subscription=replace(delivery.subscription, target=target))
            async with door:
                return await WebhookRoute(door, seconds=60).deliver(away)

    with pytest.raises(DeliveryError) as caught:
        asyncio.run(run())
    assert not caught.value.permanent


def test_private_address_is_refused_permanently_and_private_name_is_retried(signed: Make) -> None:
    error = failed(answering(200), signed(), allowed=())
    assert error.permanent
    assert "allowed_addresses" in str(error)

    named = replace(signed(), subscription=replace(signed().subscription, target="http://localhost:8080/hook"))

    async def run() -> str:
        async with HttpClient(user_agent="x", max_bytes=1000, seconds=5) as door:
            return await WebhookRoute(door, seconds=5).deliver(named)

    with pytest.raises(DeliveryError) as caught:
        asyncio.run(run())
    assert not caught.value.permanent
    assert "the local machine" in str(caught.value)


def test_invalid_stored_target_is_refused_permanently(signed: Make) -> None:
    delivery = signed()
    bad = replace(delivery, subscription=replace(delivery.subscription, target="ftp://muse.example/"))

    async def run() -> str:
        async with HttpClient(user_agent="x", max_bytes=1000, seconds=5) as door:
            return await WebhookRoute(door, seconds=5).deliver(bad)

    with pytest.raises(DeliveryError) as caught:
        asyncio.run(run())
    assert caught.value.permanent


def test_messages_are_sent_concurrently(signed: Make) -> None:
    arrived = asyncio.Event()
    waiting = 0

    async def together(request: web.Request) -> web.StreamResponse:
        nonlocal waiting
        waiting += 1
        if waiting == 20:
            arrived.set()
        await arrived.wait()
        return web.Response()

    endpoint, outcomes = post(together, signed(), times=20)
    assert outcomes == ["the endpoint accepted the message with 200 OK"] * 20
    assert len(endpoint.bodies) == 20


# --- the small parts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "canonical"),
    [
        ("https://Muse.Example/hook", "https://muse.example/hook"),
        (" http://muse.example:8080/hook?a=1#x ", "http://muse.example:8080/hook?a=1"),
        ("https://10.1.2.3/hook", "https://10.1.2.3/hook"),
    ],
)
def test_webhook_targets_become_canonical(target: str, canonical: str) -> None:
    assert SINK.validate_target(target, Path()) == canonical
    assert SINK.host(canonical) in canonical


@pytest.mark.parametrize(
    "target",
    [None, "", "  ", "muse.example", "ftp://muse.example/", "https://me:word@muse.example/", "https:///path",
     "https://muse.example/\r\nX: y", "javascript:alert(1)", "https://muse.example:22/", "https://" + "a" * 3000],
)  # fmt: skip
def test_invalid_webhook_targets_are_refused(target: str | None) -> None:
    with pytest.raises(InputError):
        SINK.validate_target(target, Path())
