"""WebSub: publishers that push what is new, so that nobody needs to ask for it (W3C recommendation, 2018).

In: answers of feeds that name a hub, and what hubs say at our callback. Out: requests to hubs, and pushed items in
the log. All state is in the catalog, so the poller that asks and the server that hubs call need not share a process.
A hub is believed only about what was asked of it, and a push only with the signature of the secret it was given.
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
"""The lease that is asked for. Hubs give what they like, within these bounds:"""
_SHORTEST_LEASE, _LONGEST_LEASE = 300, 90 * 86_400

_CALLBACK = re.compile(r"[A-Za-z0-9_-]{1,100}")
_METHODS = frozenset({"sha1", "sha256", "sha384", "sha512"})
_MOST_REDIRECTS = 3
_LONGEST_CHALLENGE = 2000
_AGAIN_WITHIN = 3_600_000_000
_GIVE_UP_AFTER = 3_600_000_000
_MARKS_KEPT = 1000


class WebSubClient:
    """Our side of WebSub. Does nothing unless the setting `public_url` says where hubs can reach us."""

    def __init__(self, acquirer: Acquirer) -> None:
        self._catalog = acquirer.catalog
        self._acquirer = acquirer
        self._settings = acquirer.settings
        self._quarantined = BoundedCache[tuple[int, str], bool](_MARKS_KEPT)

    @property
    def enabled(self) -> bool:
        """Whether hubs can be told where to push."""
        return bool(self._settings.public_url)

    def offers(self, answer: HttpResponse, head: DocumentHead) -> HubOffer | None:
        """The hub that a feed's answer names, and the topic to ask it for; None where it offers no push."""
        return offer_of(answer, head) if self.enabled else None

    # --- asking hubs --------------------------------------------------------------------------------------------

    async def request(self, client: HttpClient, feed: Feed, offer: HubOffer) -> None:
        """Ask a hub to push a feed, unless it was asked already. Another hub or topic takes the first one's place."""
        row = await asyncio.to_thread(self._enter, feed, offer)
        if row is not None:
            await self._ask(client, row, "subscribe")

    def _enter(self, feed: Feed, offer: HubOffer) -> HubRow | None:
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
            # Before the request goes out: hubs may call back before they answer it.
            hubs.put_hub(connection, row)
        return row

    async def tend(self, client: HttpClient) -> None:
        """Renew leases before they end, ask again where hubs were silent, and unsubscribe dropped feeds."""
        for row in await asyncio.to_thread(self._renewing):
            await self._ask(client, row, "subscribe")
        for row in await asyncio.to_thread(self._ending):
            await self._ask(client, row, "unsubscribe")

    def _renewing(self) -> list[HubRow]:
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

    def _ending(self) -> list[HubRow]:
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
                elif moment - (row.requested or 0) > _GIVE_UP_AFTER:
                    hubs.remove_hub(connection, row.callback)  # what it still pushes goes nowhere
        return rows

    async def _ask(self, client: HttpClient, row: HubRow, mode: str) -> None:
        form = {
            "hub.mode": mode,
            "hub.topic": row.topic,
            "hub.callback": f"{self._settings.public_url.rstrip('/')}/websub/{quote(row.callback)}",
        }
        if mode == "subscribe":
            form |= {"hub.secret": row.secret.decode(), "hub.lease_seconds": str(LEASE_SECONDS)}
        try:
            answer = await self._post(client, row.hub, urlencode(form).encode())
            problem = None if 200 <= answer.status < 300 else f"the hub answered {answer.status}"
        except InputError as error:
            problem = error.message
        if problem is not None:
            await asyncio.to_thread(self._failed, row, problem)

    async def _post(self, client: HttpClient, hub: str, body: bytes) -> HttpResponse:
        """Post to a hub; it may send us on to another address (WebSub §5.1), each checked by the client."""
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        for _ in range(_MOST_REDIRECTS):
            answer = await client.post(hub, body, headers=headers)
            following = answer.headers.get("Location", "")
            if answer.status not in (307, 308) or not following:
                return answer
            if hub.startswith("https:") and not urljoin(hub, following).startswith("https:"):
                return answer  # the secret must not go where anybody can read it
            hub = urljoin(hub, following)
        return answer

    def _failed(self, row: HubRow, problem: str) -> None:
        logger.info("the hub %s of feed %d: %s", shown_url(row.hub), row.feed, problem)
        with self._catalog.write() as connection:
            current = hubs.hub_by_callback(connection, row.callback)
            if current is None:
                return
            match current.state:
                case HubState.PENDING:
                    hubs.set_state(connection, row.callback, HubState.FAILED, problem=problem)
                case HubState.ENDING:
                    hubs.remove_hub(connection, row.callback)
                case state:  # verified meanwhile, or the old lease still holds
                    hubs.set_state(connection, row.callback, state, problem=problem)

    # --- what hubs say ------------------------------------------------------------------------------------------

    def verify(self, callback: str, params: Mapping[str, str]) -> str | None:
        """What to answer a hub that asks whether we meant it: its challenge, or None (404) where we did not.

        A denial is answered with an empty text.
        """
        challenge = params.get("hub.challenge", "")
        match params.get("hub.mode"):
            case "denied":
                return "" if self.denied(callback, params) else None
            case "subscribe" if 0 < len(challenge) <= _LONGEST_CHALLENGE:
                return challenge if self._confirm(callback, params) else None
            case "unsubscribe" if 0 < len(challenge) <= _LONGEST_CHALLENGE:
                return challenge if self._confirm_end(callback, params) else None
            case _:
                return None

    def denied(self, callback: str, params: Mapping[str, str]) -> bool:
        """A hub does not want our subscription, or ends it; gives whether it was ours. Polling goes on as before."""
        if self._asked_for(callback, params) is None:
            return False
        reason = "".join(map(visible, params.get("hub.reason", "").strip()[:200]))
        with self._catalog.write() as connection:
            problem = f"the hub denies it: {reason}" if reason else "the hub denies it"
            hubs.set_state(connection, callback, HubState.DENIED, lease_until=now(connection), problem=problem)
        return True

    def _confirm(self, callback: str, params: Mapping[str, str]) -> bool:
        row = self._asked_for(callback, params)
        if row is None:
            return False
        with self._catalog.write() as connection:
            moment = now(connection)
            # A hub that missed our answer asks once more, so a request is good for an hour.
            repeated = row.state is HubState.ACTIVE and moment - (row.requested or 0) < _AGAIN_WITHIN
            if row.state not in (HubState.PENDING, HubState.RENEWING) and not repeated:
                return False
            until = moment + _lease(params.get("hub.lease_seconds", "")) * 1_000_000
            hubs.set_state(connection, callback, HubState.ACTIVE, lease_until=until)
        return True

    def _confirm_end(self, callback: str, params: Mapping[str, str]) -> bool:
        row = self._asked_for(callback, params)
        if row is None or row.state is not HubState.ENDING:
            return False
        with self._catalog.write() as connection:
            hubs.remove_hub(connection, callback)
        return True

    def _asked_for(self, callback: str, params: Mapping[str, str]) -> HubRow | None:
        with self._catalog.read() as connection:
            row = hubs.hub_by_callback(connection, callback) if _CALLBACK.fullmatch(callback) else None
        return row if row is not None and params.get("hub.topic") == row.topic else None

    def expects(self, callback: str) -> bool:
        """Whether a hub may push to this callback now: it agreed to, and its lease has not ended."""
        with self._catalog.read() as connection:
            row = hubs.hub_by_callback(connection, callback)
            return row is not None and row.pushes(now(connection))

    def receive(self, callback: str, headers: Mapping[str, str], body: bytes) -> Acquisition | None:
        """Take what a hub pushes; None (404) where nobody waits for it, or the hub's lease has ended.

        A wrong signature is counted and the push ignored, without telling the sender (WebSub §7). Raises Backlogged
        above the lag limit: hubs try again later, and the next poll finds the items in any case.
        """
        if not _CALLBACK.fullmatch(callback):
            return None
        with self._catalog.read() as connection:
            row = hubs.hub_by_callback(connection, callback)
            feed = None if row is None else feeds.feed_by_id(connection, row.feed)
            live = row is not None and bool(polls.live_of(connection, [row.feed]))
            moment = now(connection)
        if row is None or feed is None or not row.pushes(moment):
            return None
        if not _is_signed(row.secret, headers, body):
            logger.warning("a push for the feed %s has a wrong signature and is ignored", feed.name)
            with self._catalog.write() as connection:
                hubs.count(connection, "refused")
            return Acquisition()
        if not live:
            return Acquisition()
        if self._acquirer.lag() >= self._settings.lag_limit:
            raise BacklogError("too many items wait for matching", hint="push again later")
        content_type = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
        return self._take(feed, row, body, content_type)

    def _take(self, feed: Feed, row: HubRow, body: bytes, media_type: str) -> Acquisition:
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
            return Acquisition(put_aside=self._keep_aside(feed, [error], DOCUMENT, body))
        try:
            accepted = self._acquirer.accept_adapted(feed, adapted)
            told = self._keep_aside(feed, adapted.problems, ITEM, body)
        except (StorageFullError, WorkspaceError):
            # The hub pushes again, and the next poll finds the items in any case: it is not counted twice.
            with suppress(StorageFullError, WorkspaceError), self._catalog.write() as connection:
                owners.add_bytes(connection, feed.id, -len(body))
            raise
        return Acquisition(accepted.accepted, accepted.unchanged, told)

    def _keep_aside(self, feed: Feed, problems: list[InputError], kind: str, body: bytes) -> int:
        """Keep what was refused, the same thing once: hubs repeat themselves."""
        fresh = [problem for problem in problems if not self._quarantined.get((feed.id, problem.message))]
        for problem in fresh:
            self._quarantined.put((feed.id, problem.message), True)
        if fresh:
            self._acquirer.keep_aside(feed, fresh, kind, body)
        return len(fresh)


def _is_signed(secret: bytes, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether a push carries the signature of the secret that its hub was given.

    >>> made = hmac.new(b"s", b"text", "sha256").hexdigest()
    >>> _is_signed(b"s", {"X-Hub-Signature": f"sha256={made}"}, b"text"), _is_signed(b"s", {}, b"text")
    (True, False)
    """
    given = next((value for name, value in headers.items() if name.lower() == "x-hub-signature"), "")
    method, _, signature = given.strip().partition("=")
    if method.lower() not in _METHODS:
        return False
    expected = hmac.new(secret, body, method.lower()).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.strip().lower().encode("utf-8", "replace"))


def _lease(text: str) -> int:
    seconds = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else LEASE_SECONDS
    return min(max(seconds, _SHORTEST_LEASE), _LONGEST_LEASE)
