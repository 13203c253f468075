"""WebSub subscriber: receives new items from hubs, without polling (W3C recommendation, 2018).

In: responses of feeds that name a hub, and requests of hubs to our callback URL. Out: requests to hubs, and pushed
items in the item log. All state is in the catalog, so the poller, which sends requests, and the server that hubs call
can be different processes. A verification is accepted only for a subscription that was requested, and a push only
with a signature made with the secret of that subscription.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from urllib.parse import quote, urlencode, urljoin

from runnel.bounded_cache import BoundedCache
from runnel.catalog.access import owners
from runnel.catalog.declared import feeds
from runnel.catalog.logs.quarantine import DOCUMENT, ITEM
from runnel.catalog.polling import hubs, polls
from runnel.catalog.polling.hubs import HubRow, HubState
from runnel.catalog.store.connection import now
from runnel.errors import BacklogError, InputError, QuotaExceededError, StorageFullError, WorkspaceError, visible
from runnel.model.feed import Feed
from runnel.net.http_client import HttpClient, HttpResponse
from runnel.net.urls import shown_url
from runnel.sources.acquire import Acquirer, Acquisition
from runnel.sources.documents.document_head import DocumentHead
from runnel.sources.web_feeds.freshness import charset_of
from runnel.sources.web_feeds.hub_links import HubOffer, offer_of

logger = logging.getLogger("runnel")

LEASE_SECONDS = 10 * 86_400
"""The requested lease. A hub may grant another one, which is limited to the following range."""
_MIN_LEASE_SECONDS, _MAX_LEASE_SECONDS = 300, 90 * 86_400

_CALLBACK = re.compile(r"[A-Za-z0-9_-]{1,100}")
_METHODS = frozenset({"sha1", "sha256", "sha384", "sha512"})
_MAX_REDIRECTS = 3
_MAX_CHALLENGE_LENGTH = 2000
_VERIFY_AGAIN_MICROSECONDS = 3_600_000_000
_UNSUBSCRIBE_MICROSECONDS = 3_600_000_000
_MAX_REMEMBERED_PROBLEMS = 1000


class WebSubClient:
    """Subscribes to hubs and receives their pushes. Disabled unless the setting `public_url` is set."""

    def __init__(self, acquirer: Acquirer) -> None:
        self._catalog = acquirer.catalog
        self._acquirer = acquirer
        self._settings = acquirer.settings
        self._known_problems = BoundedCache[tuple[int, str], bool](_MAX_REMEMBERED_PROBLEMS)

    @property
    def enabled(self) -> bool:
        """Whether there is a public URL for the callbacks of hubs."""
        return bool(self._settings.public_url)

    def find_offer(self, response: HttpResponse, head: DocumentHead) -> HubOffer | None:
        """Return the hub and topic that a feed's response names, or None if there is no hub or WebSub is disabled."""
        return offer_of(response, head) if self.enabled else None

    # --- requests to hubs -----------------------------------------------------------------------------------------

    async def request(self, client: HttpClient, feed: Feed, offer: HubOffer) -> None:
        """Subscribe to a feed at a hub, unless that was done before. A new hub or topic replaces the previous one."""
        row = await asyncio.to_thread(self._add_hub, feed, offer)
        if row is not None:
            await self._send_request(client, row, "subscribe")

    def _add_hub(self, feed: Feed, offer: HubOffer) -> HubRow | None:
        with self._catalog.read() as connection:
            known = hubs.hubs_of(connection, [feed.id]).get(feed.id)
        if known is not None and (known.hub, known.topic) == (offer.hub, offer.topic):
            return None
        with self._catalog.write() as connection:
            row = HubRow(
                feed=feed.id,
                hub=offer.hub,
                topic=offer.topic,
                callback=secrets.token_urlsafe(32),
                secret=secrets.token_hex(32).encode(),
                state=HubState.PENDING,
                requested=now(connection),
            )
            # Store the row before the request is sent, because a hub may call back before it responds.
            hubs.put_hub(connection, row)
        return row

    async def maintain(self, client: HttpClient) -> None:
        """Renew leases before they end, repeat requests without a result, and unsubscribe dropped feeds."""
        for row in await asyncio.to_thread(self._start_renewals):
            await self._send_request(client, row, "subscribe")
        for row in await asyncio.to_thread(self._start_unsubscribing):
            await self._send_request(client, row, "unsubscribe")

    def _start_renewals(self) -> list[HubRow]:
        with self._catalog.read() as connection:
            if not hubs.to_renew(connection):
                return []
        with self._catalog.write() as connection:
            moment = now(connection)
            rows = [
                replace(
                    row,
                    state=HubState.RENEWING if row.pushes(moment) else HubState.PENDING,
                    requested=moment,
                    problem=None,
                )
                for row in hubs.to_renew(connection)
            ]
            for row in rows:
                hubs.put_hub(connection, row)
        return rows

    def _start_unsubscribing(self) -> list[HubRow]:
        with self._catalog.read() as connection:
            if not hubs.of_dropped_feeds(connection):
                return []
        rows: list[HubRow] = []
        with self._catalog.write() as connection:
            moment = now(connection)
            for row in hubs.of_dropped_feeds(connection):
                if row.state is not HubState.ENDING:
                    rows.append(replace(row, state=HubState.ENDING, requested=moment))
                    hubs.put_hub(connection, rows[-1])
                elif moment - (row.requested or 0) > _UNSUBSCRIBE_MICROSECONDS:
                    hubs.remove_hub(connection, row.callback)  # later pushes of this hub are rejected
        return rows

    async def _send_request(self, client: HttpClient, row: HubRow, mode: str) -> None:
        form = {
            "hub.mode": mode,
            "hub.topic": row.topic,
            "hub.callback": f"{self._settings.public_url.rstrip('/')}/websub/{quote(row.callback)}",
        }
        if mode == "subscribe":
            form |= {"hub.secret": row.secret.decode(), "hub.lease_seconds": str(LEASE_SECONDS)}
        try:
            response = await self._post(client, row.hub, urlencode(form).encode())
            problem = None if 200 <= response.status < 300 else f"the hub responded with status {response.status}"
        except InputError as error:
            problem = error.message
        if problem is not None:
            await asyncio.to_thread(self._record_failure, row, problem)

    async def _post(self, client: HttpClient, hub: str, body: bytes) -> HttpResponse:
        """Send a POST request to a hub, and follow its redirects (WebSub §5.1). The client checks every URL."""
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        for _ in range(_MAX_REDIRECTS):
            response = await client.post(hub, body, headers=headers)
            location = response.headers.get("Location", "")
            if response.status not in (307, 308) or not location:
                return response
            if hub.startswith("https:") and not urljoin(hub, location).startswith("https:"):
                return response  # the secret must not be sent unencrypted
            hub = urljoin(hub, location)
        return response

    def _record_failure(self, row: HubRow, problem: str) -> None:
        logger.info("a request to the hub %s of feed %d failed: %s", shown_url(row.hub), row.feed, problem)
        with self._catalog.write() as connection:
            current = hubs.hub_by_callback(connection, row.callback)
            if current is None:
                return
            match current.state:
                case HubState.PENDING:
                    hubs.set_state(connection, row.callback, HubState.FAILED, problem=problem)
                case HubState.ENDING:
                    hubs.remove_hub(connection, row.callback)
                case state:  # verified in the meantime, or the previous lease is still valid
                    hubs.set_state(connection, row.callback, state, problem=problem)

    # --- requests from hubs ---------------------------------------------------------------------------------------

    def verify(self, callback: str, params: Mapping[str, str]) -> str | None:
        """Return the response body for a hub's verification request, or None if the server has to respond with 404.

        The body is the challenge if we requested what the hub wants to verify. It is empty after a denial.
        """
        challenge = params.get("hub.challenge", "")
        match params.get("hub.mode"):
            case "denied":
                return "" if self.record_denial(callback, params) else None
            case "subscribe" if 0 < len(challenge) <= _MAX_CHALLENGE_LENGTH:
                return challenge if self._confirm(callback, params) else None
            case "unsubscribe" if 0 < len(challenge) <= _MAX_CHALLENGE_LENGTH:
                return challenge if self._confirm_unsubscription(callback, params) else None
            case _:
                return None

    def record_denial(self, callback: str, params: Mapping[str, str]) -> bool:
        """Record that a hub denied or ended a subscription. Return whether there is one. Polling continues."""
        if self._find_requested(callback, params) is None:
            return False
        reason = "".join(map(visible, params.get("hub.reason", "").strip()[:200]))
        with self._catalog.write() as connection:
            problem = f"the hub denied the subscription: {reason}" if reason else "the hub denied the subscription"
            hubs.set_state(connection, callback, HubState.DENIED, lease_until=now(connection), problem=problem)
        return True

    def _confirm(self, callback: str, params: Mapping[str, str]) -> bool:
        row = self._find_requested(callback, params)
        if row is None:
            return False
        with self._catalog.write() as connection:
            moment = now(connection)
            # A hub that did not get our response verifies again, so a verification is accepted for an hour.
            is_repeated = row.state is HubState.ACTIVE and moment - (row.requested or 0) < _VERIFY_AGAIN_MICROSECONDS
            if row.state not in (HubState.PENDING, HubState.RENEWING) and not is_repeated:
                return False
            until = moment + _parse_lease(params.get("hub.lease_seconds", "")) * 1_000_000
            hubs.set_state(connection, callback, HubState.ACTIVE, lease_until=until)
        return True

    def _confirm_unsubscription(self, callback: str, params: Mapping[str, str]) -> bool:
        row = self._find_requested(callback, params)
        if row is None or row.state is not HubState.ENDING:
            return False
        with self._catalog.write() as connection:
            hubs.remove_hub(connection, callback)
        return True

    def _find_requested(self, callback: str, params: Mapping[str, str]) -> HubRow | None:
        with self._catalog.read() as connection:
            row = hubs.hub_by_callback(connection, callback) if _CALLBACK.fullmatch(callback) else None
        return row if row is not None and params.get("hub.topic") == row.topic else None

    def expects(self, callback: str) -> bool:
        """Return whether a hub may push to this callback now: it was verified, and its lease has not ended."""
        with self._catalog.read() as connection:
            row = hubs.hub_by_callback(connection, callback)
            return row is not None and row.pushes(now(connection))

    def receive(self, callback: str, headers: Mapping[str, str], body: bytes) -> Acquisition | None:
        """Accept the items of a push. Return None (404) if the callback is unknown or its lease has ended.

        A push with a wrong signature is counted and ignored, without informing the sender (WebSub §7). Raise
        BacklogError if the lag limit is reached: the hub pushes again later, and the next poll also finds the items.
        """
        if not _CALLBACK.fullmatch(callback):
            return None
        with self._catalog.read() as connection:
            row = hubs.hub_by_callback(connection, callback)
            feed = None if row is None else feeds.feed_by_id(connection, row.feed)
            is_live = row is not None and bool(polls.live_of(connection, [row.feed]))
            moment = now(connection)
        if row is None or feed is None or not row.pushes(moment):
            return None
        if not _is_signed(row.secret, headers, body):
            logger.warning("ignored a push for feed %s with a wrong signature", feed.name)
            with self._catalog.write() as connection:
                hubs.count(connection, "refused")
            return Acquisition()
        if not is_live:
            return Acquisition()
        if self._acquirer.lag() >= self._settings.lag_limit:
            raise BacklogError(
                "the lag limit has been reached: too many items are waiting to be matched", hint="push again later"
            )
        content_type = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
        return self._accept(feed, row, body, content_type)

    def _accept(self, feed: Feed, row: HubRow, body: bytes, media_type: str) -> Acquisition:
        try:
            with self._catalog.write() as connection:
                owners.add_bytes(connection, feed.id, len(body), self._settings)
                hubs.count(connection, "pushes")
            place = f"push of {shown_url(row.topic)}"
            charset = charset_of({"Content-Type": media_type})
            adapted = self._acquirer.read_document(
                feed, body, place, base=row.topic, charset=charset, media_type=media_type
            )
        except QuotaExceededError as error:
            with self._catalog.write() as connection:
                hubs.set_state(connection, row.callback, row.state, problem=str(error))
            return Acquisition()
        except InputError as error:
            return Acquisition(quarantined=self._quarantine_new(feed, [error], DOCUMENT, body))
        try:
            accepted = self._acquirer.accept_adapted(feed, adapted)
            quarantined = self._quarantine_new(feed, adapted.problems, ITEM, body)
        except (StorageFullError, WorkspaceError):
            # The hub pushes again, or the next poll gets the items. Their bytes must not be counted twice.
            with suppress(StorageFullError, WorkspaceError), self._catalog.write() as connection:
                owners.add_bytes(connection, feed.id, -len(body))
            raise
        return Acquisition(accepted.accepted, accepted.unchanged, quarantined)

    def _quarantine_new(self, feed: Feed, problems: list[InputError], kind: str, body: bytes) -> int:
        """Quarantine the problems that were not quarantined before (hubs repeat pushes). Return their number."""
        new = [problem for problem in problems if not self._known_problems.get((feed.id, problem.message))]
        for problem in new:
            self._known_problems.put((feed.id, problem.message), True)
        if new:
            self._acquirer.quarantine(feed, new, kind, body)
        return len(new)


def _is_signed(secret: bytes, headers: Mapping[str, str], body: bytes) -> bool:
    """Return whether a push has a valid signature, made with the secret of its subscription.

    >>> signature = hmac.new(b"s", b"text", "sha256").hexdigest()
    >>> _is_signed(b"s", {"X-Hub-Signature": f"sha256={signature}"}, b"text"), _is_signed(b"s", {}, b"text")
    (True, False)
    """
    header = next((value for name, value in headers.items() if name.lower() == "x-hub-signature"), "")
    method, _, signature = header.strip().partition("=")
    if method.lower() not in _METHODS:
        return False
    expected = hmac.new(secret, body, method.lower()).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.strip().lower().encode("utf-8", "replace"))


def _parse_lease(text: str) -> int:
    seconds = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else LEASE_SECONDS
    return min(max(seconds, _MIN_LEASE_SECONDS), _MAX_LEASE_SECONDS)
