"""Asking the recipients of owners' messages whether they want them.

In: consents for which a request is due. Out: requests at their recipients, and consents that were confirmed or put
off. A request is counted before it is sent, so that neither a crash nor many owners together can exceed the limits.
Requests are sent in a thread of their own; nobody waits for them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from sqlalchemy import Connection

from runnel.catalog.access import consents, owners, signing_keys
from runnel.catalog.access.workspace_secrets import workspace_secret
from runnel.catalog.declared import feeds, subscriptions
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog, now
from runnel.delivery.settle_attempts import reason_of, retry_wait
from runnel.delivery.transports import Transports
from runnel.errors import FencedError
from runnel.model.consent import Consent, ConsentState
from runnel.model.subscription import Subscription
from runnel.settings import Settings
from runnel.sinks.contract import ConfirmationRequest, ConfirmingSink
from runnel.sinks.registry import find_sink

logger = logging.getLogger("runnel")

UNANSWERED = 3
"""How many requests one owner may have sent to a person who answers none of them."""

_ROUND = 100
_AT_ONCE = 8
_RETRY_SECONDS = (5.0, 300.0)
"""Waits before a request that failed is sent again; after the last one somebody has to ask for another."""


class Confirmer:
    """Sends the requests that are due. Its methods are called from one thread."""

    def __init__(self, catalog: Catalog, settings: Settings, open_transports: Callable[[], Transports]) -> None:
        self._catalog = catalog
        self._settings = settings
        self._open_transports = open_transports
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._error: FencedError | None = None
        self._has_exempted = False

    def ask(self, epoch: int, *, wait: bool = False, deadline: float = math.inf) -> None:
        """Begin to send the requests that are due, unless some are under way.

        Told to `wait`, wait until these were sent, or until a deadline of the monotonic clock.
        """
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error.with_traceback(None)
        if self._thread is None:
            self._exempt(epoch)
            with self._catalog.read() as connection:
                due = consents.due_consents(connection, _ROUND)
            if due:
                self._thread = threading.Thread(
                    target=self._run, args=(epoch, due), name="runnel-confirm", daemon=True
                )
                self._thread.start()
        if wait and self._thread is not None:
            self._thread.join(None if deadline == math.inf else max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Stop asking. A request that is under way is sent again later, and counts."""
        thread, loop = self._thread, self._loop
        if thread is not None:
            if loop is not None:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._cancel)
            thread.join()
        self._thread = None

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _exempt(self, epoch: int) -> None:
        """Confirm what waits and need not, once per run: the admin may have exempted its domain."""
        if self._has_exempted or not self._settings.confirmed_domains:
            return
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            for one in consents.pending_consents(connection):
                sink = find_sink(one.kind)
                if isinstance(sink, ConfirmingSink) and is_exempt(sink, one.target, self._settings):
                    consents.confirm_consent(connection, one, consents.EXEMPT)
        self._has_exempted = True

    # --- in the thread -------------------------------------------------------------------------------------------

    def _run(self, epoch: int, due: Sequence[tuple[Consent, int]]) -> None:
        try:
            asyncio.run(self._ask_all(epoch, due))
        except asyncio.CancelledError:
            pass
        except FencedError as error:
            self._error = error
        except Exception:
            logger.exception("requests to confirm could not be sent; the next round tries again")
        finally:
            self._loop = self._task = None

    async def _ask_all(self, epoch: int, due: Sequence[tuple[Consent, int]]) -> None:
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        transports = self._open_transports()
        free = asyncio.Semaphore(_AT_ONCE)

        async def ask(consent: Consent, subscription: int) -> None:
            async with free:
                request = await asyncio.to_thread(self._begin, epoch, consent, subscription)
                if request is not None:
                    await self._send(epoch, transports, request)

        try:
            await asyncio.gather(*(ask(*one) for one in due))
        finally:
            await transports.close()

    async def _send(self, epoch: int, transports: Transports, begun: tuple[Consent, ConfirmationRequest]) -> None:
        consent, request = begun
        error: Exception | None = None
        agreed = False
        try:
            agreed = await transports.confirm(request)
        except Exception as raised:
            error = raised
        await asyncio.to_thread(self._end, epoch, consent, agreed, error)

    def _begin(self, epoch: int, consent: Consent, number: int) -> tuple[Consent, ConfirmationRequest] | None:
        """Count a request and give what is to be sent; None if it may not be sent now."""
        settings = self._settings
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            current = consents.consent_of(connection, consent.owner, consent.kind, consent.target)
            subscription = subscriptions.subscription_by_number(connection, number)
            sink = find_sink(consent.kind)
            if current is None or subscription is None or current.state is not ConsentState.PENDING:
                return None
            if not isinstance(sink, ConfirmingSink):
                consents.end_request(connection, current, "the output is not installed", None, reached=True)
                return None
            if consents.has_refused(connection, consent.kind, sink.refuser(consent.target)):
                consents.end_request(connection, current, "the recipient refused for good", None, reached=True)
                return None
            moment = now(connection)
            sent = consents.unanswered_requests(connection, consent.owner, consent.kind, consent.recipient)
            if sink.answers_later and sent >= UNANSWERED:
                reason = f"{sent} requests were not answered; the admin can confirm the subscription"
                consents.end_request(connection, current, reason, None, reached=True)
                return None
            if self._has_enough(connection, consent):
                tomorrow = (moment // consents.DAY + 1) * consents.DAY
                reason = "the recipient got as many requests as are allowed per day; the next is sent tomorrow"
                consents.end_request(connection, current, reason, tomorrow, reached=True)
                return None
            retry = moment + int(_RETRY_SECONDS[min(current.attempts, len(_RETRY_SECONDS) - 1)] * 1e6)
            lifetime = settings.confirmation_days * consents.DAY
            current = consents.begin_request(connection, current, retry=retry, lifetime=lifetime)
            return current, self._request(connection, current, subscription, has_link=sink.answers_later)

    def _has_enough(self, connection: Connection, consent: Consent) -> bool:
        """Whether a recipient got all requests of today, or all that one owner may use of them.

        An owner may use half, so that nobody alone keeps the other owners from asking.
        """
        by_owner = consents.requests_today(connection, consent.kind, consent.recipient)
        limit = self._settings.confirmation_requests_per_day
        return sum(by_owner.values()) >= limit or by_owner.get(consent.owner, 0) >= max(1, limit // 2)

    def _request(
        self, connection: Connection, consent: Consent, subscription: Subscription, *, has_link: bool
    ) -> ConfirmationRequest:
        secret = workspace_secret(connection, consents.CONFIRMATION)
        feed = feeds.feed_by_id(connection, subscription.feed)
        link = None
        if has_link and self._settings.public_url:
            token = consents.consent_token(secret, consent)
            link = f"{self._settings.public_url.rstrip('/')}/confirm/{token}"
        return ConfirmationRequest(
            key=f"confirm-{consent.id}-{(consent.nonce or b'').hex()[:16]}",
            subscription=subscription,
            feed_name="" if feed is None else feed.name,
            owner_name=owners.owner_by_id(connection, consent.owner).name,
            challenge=consents.challenge_of(secret, consent),
            sent=datetime.fromtimestamp(now(connection) / 1e6, UTC),
            expires=datetime.fromtimestamp(consent.expires / 1e6, UTC),
            link=link,
            refuse=None if link is None else f"{link}/refuse",
            signing_keys=signing_keys.keys_of(connection, [subscription.id]).get(subscription.id, ()),
        )

    def _end(self, epoch: int, consent: Consent, agreed: bool, error: Exception | None) -> None:
        """Write down how a request ended."""
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            if agreed:
                consents.confirm_consent(connection, consent, "the endpoint repeated the challenge")
            elif error is None:
                consents.end_request(connection, consent, "asked; no answer yet", None, reached=True)
            else:
                wait = retry_wait(consent.attempts, error, _RETRY_SECONDS)
                later = None if wait is None else now(connection) + int(wait * 1e6)
                sink = find_sink(consent.kind)
                # A person got nothing if the mail server was unreachable. Any other failure may come after a mail.
                is_personal = isinstance(sink, ConfirmingSink) and sink.answers_later
                reached = not (is_personal and _is_unconnected(error))
                consents.end_request(connection, consent, reason_of(error), later, reached=reached)
        if error is not None:
            logger.warning("a request to confirm (%s, owner %d) failed: %s", consent.kind, consent.owner, error)


def is_exempt(sink: ConfirmingSink, target: str, settings: Settings) -> bool:
    """Whether the setting `confirmed_domains` names the domain of a target."""
    domain = sink.domain(target)
    return any(
        domain.endswith(pattern[1:]) if pattern.startswith("*.") else domain == pattern
        for pattern in settings.confirmed_domains
    )


def _is_unconnected(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ConnectionError):
            return True
        error = error.__cause__
    return False
