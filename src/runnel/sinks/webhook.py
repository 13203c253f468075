"""Webhooks: messages posted to an endpoint and signed according to Standard Webhooks
(https://www.standardwebhooks.com).

In: a delivery. Out: one POST request with JSON, sent by the HTTP client. The header `webhook-id` is the key of the
message, the same in every attempt. `webhook-signature` contains one signature per key of the subscription. Any 2xx
response accepts the message. Redirects are never followed, because they would send a signed message to another
recipient.
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
"""The `type` in the body of a message."""

CONFIRMATION = "runnel.confirmation"
"""The `type` in the body of a challenge."""

_MAX_QUOTED = 1024
_MAX_RESPONSE = 4 << 10
"""Maximum number of bytes of a response that are read. The response to a challenge may not be longer."""
_MAX_FEED_NAME = 80
_HINT = "give the URL of an endpoint, such as 'https://muse.example/hooks/runnel'"


class WebhookSink(ConfirmingSink):
    """An endpoint that accepts signed JSON in POST requests."""

    kind = "webhook"
    is_signed = True
    takes_content = True

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        """Return the canonical URL of the endpoint. The HTTP client checks the address at each attempt."""
        if target is None or not target.strip():
            raise InputError("this output requires a target", hint=_HINT)
        return canonical_url(target.strip())

    def host(self, target: str) -> str:
        """Return the endpoint's host and port."""
        return urlsplit(target).netloc

    def recipient(self, target: str) -> str:
        """Return the endpoint's host and port: an attacker can vary path and query without cost."""
        return self.host(target)

    def refuser(self, target: str) -> str:
        """Return the endpoint's URL: other URLs of its host may belong to other people."""
        return target

    def domain(self, target: str) -> str:
        """Return the endpoint's host."""
        return host_of(target)

    def messages_per_hour(self, settings: Settings) -> int:
        """Return the limit for webhooks."""
        return settings.owner_webhooks_per_hour

    def connect(self, settings: Settings, client: HttpClient) -> WebhookRoute:
        """Open a route to all endpoints through the HTTP client."""
        return WebhookRoute(client, seconds=settings.send_seconds)


class WebhookRoute(Route):
    """Posts messages. The HTTP client keeps the connections."""

    def __init__(self, client: HttpClient, *, seconds: float, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._seconds = seconds
        self._clock = clock

    async def deliver(self, delivery: Delivery) -> str:
        """Post a message. A 2xx response accepts it; anything else raises DeliveryError."""
        if delivery.content is None and not delivery.items:
            return "nothing to send: the output of the stylesheet has no entries"
        body = webhook_body(delivery)
        headers = webhook_headers(delivery, body, self._clock())
        return self._check_response(await self._post(delivery.subscription, body, headers))

    async def confirm(self, request: ConfirmationRequest) -> bool:
        """Post a challenge, which the endpoint must repeat in its response."""
        body = confirmation_body(request)
        headers = webhook_headers(request, body, self._clock())
        response = await self._post(request.subscription, body, headers, whole=True)
        self._check_response(response, is_quoted=False)
        if challenge_in(response.body) != request.challenge:
            raise DeliveryError(
                f"the endpoint responded {_status(response.status)} without the challenge",
                hint='respond with the JSON {"challenge": "…"}, where … is data.challenge of the request',
            )
        return True

    async def _post(
        self, subscription: Subscription, body: bytes, headers: Mapping[str, str], *, whole: bool = False
    ) -> HttpResponse:
        """Post to the target. With `whole`, the body of the response is required and must be short."""
        target = _checked_target(subscription)
        try:
            return await self._client.post(
                target, body, headers=headers, seconds=self._seconds, max_bytes=_MAX_RESPONSE, whole=whole
            )
        except RefusedAddressError as error:
            # A host name may resolve to another address later; an IP address in the target is permanent.
            raise DeliveryError(str(error), permanent=_is_literal(target)) from error
        except UnreachableError as error:
            raise DeliveryError(str(error)) from error

    def _check_response(self, response: HttpResponse, *, is_quoted: bool = True) -> str:
        """Return the outcome, or raise DeliveryError. A response to a challenge is not quoted, since it may repeat
        it.
        """
        if 200 <= response.status < 300:
            return f"the endpoint accepted the message with {_status(response.status)}"
        quoted = _quote(response.body) if is_quoted else ""
        message = f"the endpoint responded {_status(response.status)}" + (f": {quoted}" if quoted else "")
        match response.status:
            case 410:
                hint = "the endpoint is gone; resume the subscription when it is back"
                raise DeliveryError(message, hint=hint, permanent=True, gone=True)
            case 413:
                hint = "the message is too large; shorten the subscription's period, or apply a stylesheet"
                raise DeliveryError(message, hint=hint)
            case status if 300 <= status < 400:
                raise DeliveryError(message, hint="redirects are not followed; subscribe with the final URL")
            case 429 | 503:
                wait = retry_after(response.headers.get("Retry-After"), self._clock())
                raise DeliveryError(message, retry_after=wait)
            case _:
                raise DeliveryError(message)


def webhook_body(delivery: Delivery) -> bytes:
    """Return the JSON to post: the items as in a file of JSON lines, or the output of the stylesheet."""
    data: dict[str, Any] = {"feed": delivery.feed_name, "subscription": delivery.subscription.id}
    if delivery.content is not None:
        data["content"] = _content(delivery.content)
    else:
        data["items"] = [item_json(item) for item in delivery.items]
    document = {"type": TYPE, "timestamp": delivery.sent.isoformat(), "data": data}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def confirmation_body(request: ConfirmationRequest) -> bytes:
    """Return the JSON of a challenge. It is inside `data`, so an endpoint that echoes requests confirms nothing."""
    data = {
        "challenge": request.challenge,
        "feed": request.feed_name[:_MAX_FEED_NAME],
        "owner": request.owner_name,
        "subscription": request.subscription.id,
        "expires": request.expires.isoformat(),
    }
    document = {"type": CONFIRMATION, "timestamp": request.sent.isoformat(), "data": data}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def challenge_in(body: bytes) -> str | None:
    """Return the challenge in a response, or None.

    >>> challenge_in(b'{"challenge": "ABCD"}'), challenge_in(b'{"data": {"challenge": "ABCD"}}')
    ('ABCD', None)
    """
    try:
        response = json.loads(body)
    except (ValueError, RecursionError):
        return None
    challenge = response.get("challenge") if isinstance(response, dict) else None
    return challenge if isinstance(challenge, str) else None


def webhook_headers(delivery: Delivery | ConfirmationRequest, body: bytes, seconds: float) -> dict[str, str]:
    """Return the headers of an attempt at `seconds` since 1970.

    Without a signing key, recipients could not distinguish messages from forged ones, so nothing is sent.
    """
    if not delivery.signing_keys:
        raise DeliveryError(
            "this subscription has no usable signing key",
            hint=f"rotate key of subscription {delivery.subscription.id};",
        )
    # Use the time of the attempt: receivers refuse old timestamps, so that messages cannot be replayed.
    moment = datetime.fromtimestamp(int(seconds), UTC)
    text = body.decode("utf-8")
    signatures = [Webhook(key).sign(delivery.key, moment, text) for key in delivery.signing_keys]
    return {
        "Content-Type": "application/json",
        "webhook-id": delivery.key,
        "webhook-timestamp": str(int(seconds)),
        "webhook-signature": " ".join(signatures),
    }


def _checked_target(subscription: Subscription) -> str:
    """Return the target after checking it with the current rules, which may be stricter than when it was declared."""
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


def _quote(body: bytes) -> str:
    """Return the beginning of a response in one line, without control characters."""
    text = body[:_MAX_QUOTED].decode("utf-8", "replace")
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())
