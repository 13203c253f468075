"""Polling: requests web feeds when they are due, the most urgent first, and accepts their items.

In: the web feeds that are due. Out: their items in the item log, and the outcome of every poll in the catalog. One
event loop sends the requests, which may span several rounds, so that a slow host does not delay others. Responses are
handled one after the other in another thread, and recorded in batches.
"""

from __future__ import annotations

import asyncio
import logging
import random as randomness
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runnel.catalog.access import owners
from runnel.catalog.polling import hubs, polls
from runnel.catalog.polling.hubs import HubRow
from runnel.catalog.polling.polls import DuePoll
from runnel.catalog.store.connection import now
from runnel.errors import (
    InputError,
    RefusedAddressError,
    RunnelError,
    StorageFullError,
    UnreachableError,
    WorkspaceError,
)
from runnel.model.feed import Feed
from runnel.net.background_loop import BackgroundLoop
from runnel.net.http_client import HttpClient, HttpResponse, check_url, http_client_of
from runnel.settings import Settings
from runnel.sources.acquire import Acquirer, Acquisition
from runnel.sources.contract import Source, SourceReader
from runnel.sources.document_pool import document_pool
from runnel.sources.documents.decode import ACCEPT
from runnel.sources.feed_reader import content_digest
from runnel.sources.web_feeds.host_pace import HostPace, RequestBudget, host_of
from runnel.sources.web_feeds.hub_links import HubOffer
from runnel.sources.web_feeds.poll_order import PollOrder
from runnel.sources.web_feeds.response_handler import (
    DOCUMENT_STATUS,
    FetchResult,
    PollOutcome,
    ResponseHandler,
    build_poll_states,
    read_response,
)
from runnel.sources.web_feeds.websub_client import WebSubClient

logger = logging.getLogger("runnel")

_ROUND_SECONDS = 0.5
"""How long a round waits for responses. Later responses are handled in a later round."""
_GATHER_SECONDS = 0.02
"""Responses that arrive within this time are handled together."""
_RECORD_BATCH = 200
_RANK_SECONDS = 5.0
"""How long the ranking by urgency is reused if more feeds are due than may be polled."""
_MAX_UNHANDLED_BYTES = 64 << 20
"""No polls are started while the response bodies that wait to be handled have at least this size."""
_HUB_CHECK_MICROSECONDS = 60_000_000


@dataclass(frozen=True, slots=True)
class _DueFeeds:
    """The time of the catalog at the start of a round, and the feeds that are due then."""

    moment: int
    due: list[DuePoll]


class WebFeeds(Source):
    """http and https URLs. Feeds are polled in their periods, or pushed by a hub."""

    schemes = frozenset({"http", "https"})
    is_for_owners = True
    has_period = True

    def check_address(self, address: str, folder: Path, settings: Settings) -> None:
        """Raise InputError for an invalid URL, or for a host that must not be contacted."""
        check_url(address, settings.allowed_addresses)

    def open(self, acquirer: Acquirer) -> Poller:
        """Return a poller for all web feeds."""
        return Poller(acquirer)


class Poller(SourceReader):
    """Polls the web feeds of a workspace.

    Use either `read` and `close` from threads, or `poll_due` and `aclose` in an event loop, not both.
    """

    name = "poll"
    pause = _ROUND_SECONDS
    has_period = True

    def __init__(self, acquirer: Acquirer, *, random: randomness.Random | None = None) -> None:
        settings = acquirer.settings
        self._catalog = acquirer.catalog
        self._acquirer = acquirer
        self._settings = settings
        self._client: HttpClient | None = None
        self._handler = ResponseHandler(acquirer, random)
        self._budget = RequestBudget(settings.poll_budget)
        self._hosts = HostPace(settings.poll_host_concurrency, settings.poll_retry_seconds)
        self._websub = WebSubClient(acquirer)
        self._now = 0.0
        self._known_upto = 0
        self._hubs_checked: int | None = None
        self._order = PollOrder(settings)
        self._ranked: list[DuePoll] = []
        self._ranked_at = 0.0
        # Only the event loop uses the following, except that the thread which handles responses empties `_fetched`.
        self._waiting: deque[DuePoll] = deque()
        self._waiting_for_host: dict[str, deque[DuePoll]] = {}
        self._tokens: int | None = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._hub_tasks: set[asyncio.Task[None]] = set()
        self._fetched: deque[FetchResult] = deque()
        self._outcomes: list[PollOutcome] = []
        # Results of handled responses that are still to be used. They are attributes, because handling a later
        # response may fail, for example if the storage is full.
        self._total = Acquisition()
        self._host_pauses: deque[tuple[str, float]] = deque()
        self._offers: deque[tuple[Feed, HubOffer]] = deque()
        self._in_progress: set[int] = set()
        self._background = BackgroundLoop("runnel-poll-loop")
        self._round = threading.Lock()

    def read(self, *, once: bool = False, progressed: Callable[[], None] = lambda: None) -> Acquisition:
        """Run one poll round, for callers without an event loop. Open requests continue until the next round."""
        with self._round:
            return self._background.run(self.poll_due(once=once))

    def close(self) -> None:
        """Cancel open requests, whose feeds stay due, and close connections. The counterpart of `read`."""
        with self._round:
            if self._background.started:
                self._background.run(self.aclose())
                self._background.close()

    async def aclose(self) -> None:
        """Do the same as `close`, in the event loop of `poll_due`."""
        tasks = [*self._tasks, *self._hub_tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await asyncio.to_thread(self._record)
        except RunnelError as error:
            logger.warning("cannot record the last polls; their feeds will be polled again: %s", error)
        if self._client is not None:
            await self._client.__aexit__(None, None, None)
            self._client = None

    # --- rounds -------------------------------------------------------------------------------------------------

    async def poll_due(self, *, once: bool = False) -> Acquisition:
        """Run one round: handle the responses that arrived, poll the feeds that are due, and wait briefly.

        With `once`, poll all feeds that are due, without the request budget, and wait for all of them.
        """
        client = await self._open_client()
        # Handle earlier responses first. If the storage is full, this raises, and no further requests are sent.
        await self._handle_responses(record_all=True)
        due = await asyncio.to_thread(self._find_due, once)
        clock = asyncio.get_running_loop().time
        deadline = clock() + _ROUND_SECONDS
        try:
            self._begin_round(due, once)
            self._start_polls(client)
            while (self._tasks or self._fetched) and (once or clock() < deadline):
                if self._tasks:
                    await asyncio.wait(self._tasks, timeout=_GATHER_SECONDS)
                await self._handle_responses()
                self._start_polls(client)
        finally:
            # No polls start between rounds. Those that were not started keep their rank for the next round.
            held = (poll for polls_of_host in self._waiting_for_host.values() for poll in polls_of_host)
            self._ranked = [*held, *self._waiting]
            self._waiting.clear()
            self._waiting_for_host.clear()
        await self._handle_responses(record_all=True)
        if once and self._hub_tasks:
            await asyncio.wait(self._hub_tasks)
        total, self._total = self._total, Acquisition()
        return total

    async def _open_client(self) -> HttpClient:
        if self._client is None:
            self._client = await http_client_of(
                self._settings, concurrency=self._settings.poll_concurrency
            ).__aenter__()
        return self._client

    def _find_due(self, once: bool) -> _DueFeeds:
        """Return the feeds that are due, most urgent first, or none if the lag limit is reached."""
        has_changes = self._update_polled_feeds()
        lag = self._acquirer.lag()
        with self._catalog.read() as connection:
            moment = now(connection)
            self._now = moment / 1e6
            free_slots = self._settings.poll_concurrency - len(self._tasks)
            if lag >= self._settings.lag_limit or (
                not once and min(self._budget.available(self._now), free_slots) <= 0
            ):
                return _DueFeeds(moment, self._ranked if lag < self._settings.lag_limit else [])
            if self._ranked and not once and not has_changes and 0 <= self._now - self._ranked_at < _RANK_SECONDS:
                return _DueFeeds(moment, self._ranked)
            due = polls.due_polls(connection)
        due = [
            poll
            for poll in due
            if poll.feed.id not in self._in_progress and not self._hosts.is_paused(poll.state.address, self._now)
        ]
        self._ranked_at = self._now
        return _DueFeeds(moment, due if once else self._order.by_urgency(due, self._now))

    def _update_polled_feeds(self) -> bool:
        """Update the poll states after feeds were declared, dropped or resumed. Return whether there were any."""
        with self._catalog.read() as connection:
            if not polls.needs_maintenance(connection, self._known_upto):
                return False
        with self._catalog.write() as connection:
            self._known_upto = polls.adopt(connection, self._known_upto)
            polls.maintain_polls(connection)
        return True

    def _begin_round(self, due: _DueFeeds, once: bool) -> None:
        self._waiting = deque(due.due)
        self._waiting_for_host = {}
        self._tokens = None if once else self._budget.available(self._now)
        self._apply_pauses_and_offers()
        is_check_due = self._hubs_checked is None or due.moment - self._hubs_checked >= _HUB_CHECK_MICROSECONDS
        if self._websub.enabled and is_check_due:
            self._hubs_checked = due.moment
            self._start_hub_task(self._maintain_hubs())

    # --- requests -----------------------------------------------------------------------------------------------

    def _start_polls(self, client: HttpClient) -> None:
        """Start as many of the waiting polls as the budget and the limits allow."""
        limit = self._settings.poll_concurrency
        while self._waiting and len(self._tasks) < limit and self._tokens != 0 and self._can_handle_more():
            poll = self._waiting.popleft()
            address = poll.state.address
            if self._hosts.is_paused(address, self._now) or poll.feed.id in self._in_progress:
                continue
            if not self._hosts.has_room(address):
                self._waiting_for_host.setdefault(host_of(address), deque()).append(poll)
                continue
            if self._tokens is not None:
                self._tokens -= 1
                self._budget.spend()
            self._hosts.begin(address)
            self._in_progress.add(poll.feed.id)
            task = asyncio.get_running_loop().create_task(self._fetch(client, poll))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _can_handle_more(self) -> bool:
        unhandled = list(self._fetched)
        size = sum(len(fetched.response.body) for fetched in unhandled if fetched.response is not None)
        return len(unhandled) < 4 * self._settings.poll_concurrency and size < _MAX_UNHANDLED_BYTES

    async def _fetch(self, client: HttpClient, poll: DuePoll) -> None:
        """Request one feed. Every failure becomes a fetch result, so that it does not end the round."""
        address = poll.state.address
        try:
            response = await client.get(address, headers=_request_headers(poll))
            self._hosts.record_response(address)
            fetched = FetchResult(poll, response)
        except InputError as error:
            fetched = FetchResult(poll, None, error)
            if _is_host_failure(error):
                self._hosts.record_failure(address, self._now)
        except Exception as error:
            logger.exception("cannot request feed %s", poll.feed.name)
            fetched = FetchResult(poll, None, UnreachableError(f"the request failed: {type(error).__name__}"))
        finally:
            self._hosts.end(address)
        self._fetched.append(await self._parse(fetched))
        polls_of_host = self._waiting_for_host.get(host_of(address))
        if polls_of_host:
            self._waiting.appendleft(polls_of_host.popleft())
        self._tasks.discard(asyncio.current_task())
        self._start_polls(client)

    async def _parse(self, fetched: FetchResult) -> FetchResult:
        """Parse a new document in a sandbox, while other feeds are fetched."""
        response, poll = fetched.response, fetched.poll
        if response is None or response.status not in DOCUMENT_STATUS:
            return fetched
        if await asyncio.to_thread(content_digest, response.body) == poll.state.memory.digest:
            return fetched
        try:
            parsed = await document_pool().in_thread(read_response, self._acquirer, poll.feed, response)
        except InputError as error:
            return replace(fetched, parsed=error)
        except Exception:
            logger.exception("cannot parse the document of feed %s; trying again", poll.feed.name)
            return fetched
        return replace(fetched, parsed=parsed)

    # --- responses ------------------------------------------------------------------------------------------------

    async def _handle_responses(self, *, record_all: bool = False) -> None:
        """Handle the responses that arrived. Record outcomes if a batch is full or `record_all` is set."""
        if not self._fetched and not (record_all and self._outcomes):
            return
        try:
            await asyncio.to_thread(self._handle_fetched, record_all)
        finally:
            self._apply_pauses_and_offers()

    def _apply_pauses_and_offers(self) -> None:
        """Pause the hosts that asked for it, and send requests to the hubs that responses named."""
        while self._host_pauses:
            address, seconds = self._host_pauses.popleft()
            self._hosts.pause(address, self._now, seconds)
        while self._offers:
            self._start_hub_task(self._request_push(*self._offers.popleft()))

    def _handle_fetched(self, record_all: bool) -> None:
        results = list(self._fetched)
        ids = [fetched.poll.feed.id for fetched in results]
        with self._catalog.read() as connection:
            moment = now(connection)
            live = polls.live_of(connection, ids)
            hubs_by_feed = hubs.hubs_of(connection, ids) if self._websub.enabled else {}
        for fetched in results:
            feed = fetched.poll.feed.id
            outcome = self._handle(fetched, moment, hubs_by_feed.get(feed)) if feed in live else None
            # Remove the result only now. If the storage is full, it is handled again, without another request.
            self._fetched.popleft()
            if outcome is None:  # the feed was dropped or paused in the meantime
                self._in_progress.discard(feed)
            else:
                self._add_outcome(outcome, fetched.response)
        if record_all or len(self._outcomes) >= _RECORD_BATCH:
            self._record()

    def _add_outcome(self, outcome: PollOutcome, response: HttpResponse | None) -> None:
        self._outcomes.append(outcome)
        self._total += outcome.acquisition
        if outcome.host_pause_seconds is not None:
            self._host_pauses.append((outcome.poll.state.address, outcome.host_pause_seconds))
        if outcome.head is not None and response is not None:
            offer = self._websub.find_offer(response, outcome.head)
            self._offers.extend([] if offer is None else [(outcome.poll.feed, offer)])

    def _handle(self, fetched: FetchResult, moment: int, hub: HubRow | None) -> PollOutcome:
        try:
            return self._handler.handle(fetched, moment, hub)
        except (StorageFullError, WorkspaceError):
            raise  # affects all feeds and is temporary
        except Exception as error:
            logger.exception("cannot handle the response of feed %s", fetched.poll.feed.name)
            failure = UnreachableError(f"the response could not be handled: {type(error).__name__}")
            return self._handler.handle(FetchResult(fetched.poll, None, failure), moment, hub)

    def _record(self) -> None:
        """Record poll outcomes in one transaction. If that fails, keep them for the next call."""
        outcomes = self._outcomes
        if not outcomes:
            return
        states = build_poll_states(outcomes, self._settings)
        with self._catalog.write() as connection:
            polls.record_polls(connection, states, saturated=sum(outcome.is_saturated for outcome in outcomes))
            for outcome in outcomes:
                if outcome.uncounted_bytes:
                    owners.add_bytes(connection, outcome.poll.feed.id, outcome.uncounted_bytes)
        self._outcomes = []
        self._in_progress.difference_update(outcome.poll.feed.id for outcome in outcomes)

    # --- hubs ---------------------------------------------------------------------------------------------------

    async def _request_push(self, feed: Feed, offer: HubOffer) -> None:
        try:
            await self._websub.request(await self._open_client(), feed, offer)
        except (StorageFullError, WorkspaceError):
            self._offers.append((feed, offer))  # only a new document names the hub, so keep it for the next round
            raise

    async def _maintain_hubs(self) -> None:
        await self._websub.maintain(await self._open_client())

    def _start_hub_task(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine concurrently with the polls. If it fails, only log the error."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._hub_tasks.add(task)
        task.add_done_callback(self._finish_hub_task)

    def _finish_hub_task(self, task: asyncio.Task[None]) -> None:
        self._hub_tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.warning("a WebSub request failed: %s", task.exception())


def _request_headers(poll: DuePoll) -> dict[str, str]:
    """Return the headers of a poll: the accepted media types, and the validators of the last document."""
    headers = {"Accept": ACCEPT}
    if poll.state.changed is not None:
        if poll.state.etag:
            headers["If-None-Match"] = poll.state.etag
        if poll.state.modified:
            headers["If-Modified-Since"] = poll.state.modified
    return headers


def _is_host_failure(error: InputError) -> bool:
    """Return whether a host did not respond at all, so that requests for its other feeds would fail, too."""
    return not isinstance(error, RefusedAddressError) and isinstance(error.__cause__, OSError)
