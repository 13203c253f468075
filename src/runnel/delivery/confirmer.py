"""Sends confirmation requests: a recipient of an owner's messages has to confirm before it gets any.

In: consents for which a request is due. Out: sent requests, and consents that are confirmed or wait for the next
request. A request is counted before it is sent, so neither a crash nor several owners together can exceed the limits.
Requests are sent in a separate thread, in the background.
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
"""Maximum number of requests of one owner to a person who answers none of them."""

_MAX_REQUESTS = 100
_MAX_CONCURRENT = 8
_RETRY_SECONDS = (5.0, 300.0)
"""Waits before a failed request is sent again. After the last one, a new request has to be started by a statement."""


class Confirmer:
    """Sends the confirmation requests that are due. All public methods must be called from the same thread."""

    def __init__(self, catalog: Catalog, settings: Settings, open_transports: Callable[[], Transports]) -> None:
        self._catalog = catalog
        self._settings = settings
        self._open_transports = open_transports
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._error: FencedError | None = None
        self._is_exempting_done = False

    def send_due(self, epoch: int, *, wait: bool = False, deadline: float = math.inf) -> None:
        """Start to send the requests that are due, unless requests are already being sent.

        With `wait`, wait until these requests were sent, or until `deadline` (monotonic clock).
        """
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error.with_traceback(None)
        if self._thread is None:
            self._confirm_exempt(epoch)
            with self._catalog.read() as connection:
                due = consents.due_consents(connection, _MAX_REQUESTS)
            if due:
                self._thread = threading.Thread(
                    target=self._run, args=(epoch, due), name="runnel-confirm", daemon=True
                )
                self._thread.start()
        if wait and self._thread is not None:
            self._thread.join(None if deadline == math.inf else max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Stop sending. A request that is being sent counts towards the limits and is sent again later."""
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

    def _confirm_exempt(self, epoch: int) -> None:
        """Confirm pending consents whose domain the admin has exempted with `confirmed_domains`, once per run."""
        if self._is_exempting_done or not self._settings.confirmed_domains:
            return
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            for consent in consents.pending_consents(connection):
                sink = find_sink(consent.kind)
                if isinstance(sink, ConfirmingSink) and is_exempt(sink, consent.target, self._settings):
                    consents.confirm_consent(connection, consent, consents.EXEMPT)
        self._is_exempting_done = True

    # --- in the thread -------------------------------------------------------------------------------------------

    def _run(self, epoch: int, due: Sequence[tuple[Consent, int]]) -> None:
        try:
            asyncio.run(self._send_all(epoch, due))
        except asyncio.CancelledError:
            pass
        except FencedError as error:
            self._error = error
        except Exception:
            logger.exception("cannot send confirmation requests; they are sent again when they are next due")
        finally:
            self._loop = self._task = None

    async def _send_all(self, epoch: int, due: Sequence[tuple[Consent, int]]) -> None:
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        transports = self._open_transports()
        semaphore = asyncio.Semaphore(_MAX_CONCURRENT)

        async def send_request(consent: Consent, subscription: int) -> None:
            async with semaphore:
                request = await asyncio.to_thread(self._begin, epoch, consent, subscription)
                if request is not None:
                    await self._send(epoch, transports, *request)

        try:
            await asyncio.gather(*(send_request(consent, subscription) for consent, subscription in due))
        finally:
            await transports.close()

    async def _send(self, epoch: int, transports: Transports, consent: Consent, request: ConfirmationRequest) -> None:
        error: Exception | None = None
        is_confirmed = False
        try:
            is_confirmed = await transports.confirm(request)
        except Exception as raised:
            error = raised
        await asyncio.to_thread(self._record_result, epoch, consent, is_confirmed, error)

    def _begin(self, epoch: int, consent: Consent, number: int) -> tuple[Consent, ConfirmationRequest] | None:
        """Count a request and return it with its consent. Return None if it must not be sent now."""
        settings = self._settings
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            current = consents.consent_of(connection, consent.owner, consent.kind, consent.target)
            subscription = subscriptions.subscription_by_number(connection, number)
            sink = find_sink(consent.kind)
            if current is None or subscription is None or current.state is not ConsentState.PENDING:
                return None
            if not isinstance(sink, ConfirmingSink):
                reason = "the output is not installed, or it does not send confirmation requests"
                consents.end_request(connection, current, reason, None, reached=True)
                return None
            if consents.has_refused(connection, consent.kind, sink.refuser(consent.target)):
                consents.end_request(connection, current, "the recipient refused permanently", None, reached=True)
                return None
            moment = now(connection)
            sent = consents.unanswered_requests(connection, consent.owner, consent.kind, consent.recipient)
            if sink.answers_later and sent >= UNANSWERED:
                reason = f"the recipient did not answer {sent} requests; the admin can confirm the subscription"
                consents.end_request(connection, current, reason, None, reached=True)
                return None
            if self._is_daily_limit_reached(connection, consent):
                tomorrow = (moment // consents.DAY + 1) * consents.DAY
                reason = "no more requests to this recipient are allowed today; the next one is sent tomorrow"
                consents.end_request(connection, current, reason, tomorrow, reached=True)
                return None
            retry = moment + int(_RETRY_SECONDS[min(current.attempts, len(_RETRY_SECONDS) - 1)] * 1e6)
            lifetime = settings.confirmation_days * consents.DAY
            current = consents.begin_request(connection, current, retry=retry, lifetime=lifetime)
            return current, self._build_request(connection, current, subscription, has_link=sink.answers_later)

    def _is_daily_limit_reached(self, connection: Connection, consent: Consent) -> bool:
        """Return whether today's request limit of a recipient, or the owner's part of it, is used up.

        One owner may use half of the limit, so that a single owner cannot block the requests of the others.
        """
        by_owner = consents.requests_today(connection, consent.kind, consent.recipient)
        limit = self._settings.confirmation_requests_per_day
        return sum(by_owner.values()) >= limit or by_owner.get(consent.owner, 0) >= max(1, limit // 2)

    def _build_request(
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

    def _record_result(self, epoch: int, consent: Consent, is_confirmed: bool, error: Exception | None) -> None:
        """Record the result of a request, and schedule the next one if it failed."""
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            if is_confirmed:
                consents.confirm_consent(connection, consent, "the endpoint repeated the challenge")
            elif error is None:
                consents.end_request(connection, consent, "request sent; no answer yet", None, reached=True)
            else:
                wait = retry_wait(consent.attempts, error, _RETRY_SECONDS)
                not_before = None if wait is None else now(connection) + int(wait * 1e6)
                sink = find_sink(consent.kind)
                # If the mail server was unreachable, no mail was sent, so the request does not count. After any
                # other failure, the mail may have been sent.
                is_to_person = isinstance(sink, ConfirmingSink) and sink.answers_later
                reached = not (is_to_person and _is_connection_error(error))
                consents.end_request(connection, consent, reason_of(error), not_before, reached=reached)
        if error is not None:
            logger.warning("a confirmation request (%s, owner %d) failed: %s", consent.kind, consent.owner, error)


def is_exempt(sink: ConfirmingSink, target: str, settings: Settings) -> bool:
    """Return whether the setting `confirmed_domains` contains the domain of a target."""
    domain = sink.domain(target)
    return any(
        domain.endswith(pattern[1:]) if pattern.startswith("*.") else domain == pattern
        for pattern in settings.confirmed_domains
    )


def _is_connection_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ConnectionError):
            return True
        error = error.__cause__
    return False
