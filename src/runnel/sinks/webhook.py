"""Webhooks: messages posted to an endpoint, signed by Standard Webhooks (https://www.standardwebhooks.com).

In: a delivery. Out: one POST of JSON through the guarded door. The header `webhook-id` is the key of the message, the
same however often it is tried; `webhook-signature` has one signature for each of the subscription's keys. Any 2xx
answer settles the message; redirects are never followed, since they would lead a signed message elsewhere.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from standardwebhooks.webhooks import Webhook

from runnel.errors import DeliveryError, InputError, RefusedAddressError, UnreachableError
from runnel.model.subscription import Subscription
from runnel.net.retry_after import retry_after
from runnel.net.urls import canonical_url, host_of
from runnel.settings import Settings
from runnel.sinks.contract import ConfirmationRequest, ConfirmingSink, Content, Delivery, Route
from runnel.sinks.files.lines_file import item_json

if TYPE_CHECKING:
    from runnel.net.http_client import HttpClient, HttpResponse

TYPE = "feed.items"
"""What the body's `type` says."""

CONFIRMATION = "runnel.confirmation"
"""What it says in a challenge."""

_SHOWN = 1024
_ANSWER = 4 << 10
"""The most bytes that are read of an answer; one to a challenge may not be longer."""
_LONGEST_FEED = 80
_HINT = "give the URL of an endpoint, such as 'https://muse.example/hooks/runnel'"


class WebhookSink(ConfirmingSink):
    """An endpoint that takes signed JSON by POST."""

    kind = "webhook"
    is_signed = True
    takes_content = True

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        """The canonical address of the endpoint; whether it may be reached the door decides, at each attempt."""
        if target is None or not target.strip():
            raise InputError("this output requires a target", hint=_HINT)
        return canonical_url(target.strip())

    def host(self, target: str) -> str:
        """The endpoint's host and port."""
        return urlsplit(target).netloc

    def recipient(self, target: str) -> str:
        """The endpoint's host and port: paths and queries of a host cost an attacker nothing."""
        return self.host(target)

    def refuser(self, target: str) -> str:
        """The endpoint alone: others at its host may be somebody else's."""
        return target

    def domain(self, target: str) -> str:
        """The endpoint's host."""
        return host_of(target)

    def messages_per_hour(self, settings: Settings) -> int:
        """The limit for webhooks."""
        return settings.owner_webhooks_per_hour

    def connect(self, settings: Settings, client: HttpClient) -> WebhookRoute:
        """A route to all endpoints, through the HTTP client."""
        return WebhookRoute(client, seconds=settings.send_seconds)


class WebhookRoute(Route):
    """Posts messages. The HTTP client keeps the connections."""

    def __init__(self, client: HttpClient, *, seconds: float, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._seconds = seconds
        self._clock = clock

    async def deliver(self, delivery: Delivery) -> str:
        """Post a message; 2xx is taken, anything else is DeliveryFailed."""
        if delivery.content is None and not delivery.items:
            return "nothing to send: the output of the stylesheet has no entries"
        body = webhook_body(delivery)
        headers = webhook_headers(delivery, body, self._clock())
        return self._judge(await self._post(delivery.subscription, body, headers))

    async def confirm(self, request: ConfirmationRequest) -> bool:
        """Post a challenge, which the endpoint has to repeat in its answer."""
        body = confirmation_body(request)
        headers = webhook_headers(request, body, self._clock())
        answer = await self._post(request.subscription, body, headers, whole=True)
        self._judge(answer, is_quoted=False)
        if answered_challenge(answer.body) != request.challenge:
            raise DeliveryError(
                f"the endpoint responded {_status(answer.status)} without the challenge",
                hint='the response must be the JSON {"challenge": "…"} with data.challenge of the request',
            )
        return True

    async def _post(
        self, subscription: Subscription, body: bytes, headers: Mapping[str, str], *, whole: bool = False
    ) -> HttpResponse:
        """Post to the target. The body of the answer matters, and must be short, where the `whole` of it is read."""
        target = _usable(subscription)
        try:
            return await self._client.post(
                target, body, headers=headers, seconds=self._seconds, max_bytes=_ANSWER, whole=whole
            )
        except RefusedAddressError as error:
            # A name may lead elsewhere tomorrow; an address that stands in the target stays what it is.
            raise DeliveryError(str(error), permanent=_is_literal(target)) from error
        except UnreachableError as error:
            raise DeliveryError(str(error)) from error

    def _judge(self, answer: HttpResponse, *, is_quoted: bool = True) -> str:
        """What an answer means for the message. An answer to a challenge is not quoted, since it may repeat it."""
        if 200 <= answer.status < 300:
            return f"the endpoint accepted the message with {_status(answer.status)}"
        said = _said(answer.body) if is_quoted else ""
        message = f"the endpoint responded {_status(answer.status)}" + (f": {said}" if said else "")
        match answer.status:
            case 410:
                hint = "the endpoint is gone; resume the subscription when it is back"
                raise DeliveryError(message, hint=hint, permanent=True, gone=True)
            case 413:
                hint = "the message is too large; shorten the subscription's period, or apply a stylesheet"
                raise DeliveryError(message, hint=hint)
            case status if 300 <= status < 400:
                raise DeliveryError(message, hint="redirects are not followed; subscribe with the final URL")
            case 429 | 503:
                wait = retry_after(answer.headers.get("Retry-After"), self._clock())
                raise DeliveryError(message, retry_after=wait)
            case _:
                raise DeliveryError(message)


def webhook_body(delivery: Delivery) -> bytes:
    """The JSON that is posted: the items as in a file of JSON lines, or what the stylesheet made of them."""
    data: dict[str, Any] = {"feed": delivery.feed_name, "subscription": delivery.subscription.id}
    if delivery.content is not None:
        data["content"] = _content(delivery.content)
    else:
        data["items"] = [item_json(one) for one in delivery.items]
    document = {"type": TYPE, "timestamp": delivery.sent.isoformat(), "data": data}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def confirmation_body(request: ConfirmationRequest) -> bytes:
    """The JSON of a challenge. It is inside of `data`, so an endpoint that repeats requests confirms nothing."""
    data = {
        "challenge": request.challenge,
        "feed": request.feed_name[:_LONGEST_FEED],
        "owner": request.owner_name,
        "subscription": request.subscription.id,
        "expires": request.expires.isoformat(),
    }
    document = {"type": CONFIRMATION, "timestamp": request.sent.isoformat(), "data": data}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def answered_challenge(body: bytes) -> str | None:
    """The challenge that an answer repeats.

    >>> answered_challenge(b'{"challenge": "ABCD"}'), answered_challenge(b'{"data": {"challenge": "ABCD"}}')
    ('ABCD', None)
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    found = answer.get("challenge") if isinstance(answer, dict) else None
    return found if isinstance(found, str) else None


def webhook_headers(delivery: Delivery | ConfirmationRequest, body: bytes, seconds: float) -> dict[str, str]:
    """The headers of an attempt at a time (seconds since 1970).

    A subscription without keys cannot have its messages told from forged ones, so nothing is sent for it.
    """
    if not delivery.signing_keys:
        raise DeliveryError(
            "this subscription has no usable signing key",
            hint=f"rotate key of subscription {delivery.subscription.id};",
        )
    # The timestamp is that of the attempt: receivers refuse old ones, so that nobody can replay a message.
    moment = datetime.fromtimestamp(int(seconds), UTC)
    text = body.decode("utf-8")
    signatures = [Webhook(key).sign(delivery.key, moment, text) for key in delivery.signing_keys]
    return {
        "Content-Type": "application/json",
        "webhook-id": delivery.key,
        "webhook-timestamp": str(int(seconds)),
        "webhook-signature": " ".join(signatures),
    }


def _usable(subscription: Subscription) -> str:
    """The target, held against today's rules: those of yesterday may have been looser."""
    target = subscription.target or ""
    try:
        return canonical_url(target)
    except InputError as error:
        raise DeliveryError(f"the target is not valid: {error}", permanent=True) from error


def _is_literal(target: str) -> bool:
    try:
        ip_address(urlsplit(target).hostname or "")
    except ValueError:
        return False
    return True


def _content(content: Content) -> Mapping[str, str]:
    return {"media_type": content.media_type, "text": content.data.decode("utf-8", "replace")}


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _said(body: bytes) -> str:
    """The beginning of an answer, on one line and without what a terminal would act on."""
    text = body[:_SHOWN].decode("utf-8", "replace")
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())
