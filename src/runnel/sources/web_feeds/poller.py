"""Polling: web feeds are asked for what is new, each in its time, the most urgent first.

In: the web feeds of the catalog whose time has come. Out: their items in the log, and what came of every poll in the
catalog. Requests are made by one event loop and stay under way across rounds, so that a slow host holds up nobody;
answers are read one after the other in another thread, and recorded many at a time.
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
    Fetched,
    PollOutcome,
    ResponseHandler,
    read_answer,
    states_of,
)
from runnel.sources.web_feeds.websub_client import WebSubClient

logger = logging.getLogger("runnel")

_ROUND_SECONDS = 0.5
"""How long a round waits for answers; those that take longer belong to a later round."""
_GATHER_SECONDS = 0.02
"""Answers that come within this time are read together."""
_RECORD_TOGETHER = 200
_RANK_SECONDS = 5.0
"""How long an order of urgency is good for, where more feeds are due than may be asked."""
_MOST_UNREAD_BYTES = 64 << 20
"""No more is asked for while so much waits to be read."""
_TEND_MICROSECONDS = 60_000_000


@dataclass(frozen=True, slots=True)
class _View:
    """What the catalog says at the beginning of a round."""

    moment: int
    due: list[DuePoll]


class WebFeeds(Source):
    """Web addresses: polled in their periods, and read at once if a hub pushes them."""

    schemes = frozenset({"http", "https"})
    is_for_owners = True
    has_period = True

    def check_address(self, address: str, folder: Path, settings: Settings) -> None:
        """Refuse what is no URL of a host, and addresses that may not be reached."""
        check_url(address, settings.allowed_addresses)

    def open(self, acquirer: Acquirer) -> Poller:
        """A poller of all web feeds."""
        return Poller(acquirer)


class Poller(SourceReader):
    """Polls the web feeds of a workspace. `read` is for threads, `poll_due` for coroutines; use one of the two."""

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
        self._subscriber = WebSubClient(acquirer)
        self._now = 0.0
        self._known_upto = 0
        self._tended: int | None = None
        self._order = PollOrder(settings)
        self._ranked: list[DuePoll] = []
        self._ranked_at = 0.0
        # All of these belong to the loop; only `_fetched` is emptied by the thread that reads answers.
        self._waiting: deque[DuePoll] = deque()
        self._held: dict[str, deque[DuePoll]] = {}
        self._tokens: int | None = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._errands: set[asyncio.Task[None]] = set()
        self._fetched: deque[Fetched] = deque()
        self._settled: list[PollOutcome] = []
        # What answers said besides, until it is heeded: kept here, since there may be no room for the next answer.
        self._total = Acquisition()
        self._rests: deque[tuple[str, float]] = deque()
        self._offers: deque[tuple[Feed, HubOffer]] = deque()
        self._under_way: set[int] = set()
        self._background = BackgroundLoop("runnel-poll-loop")
        self._round = threading.Lock()

    def read(self, *, once: bool = False, progressed: Callable[[], None] = lambda: None) -> Acquisition:
        """One round, for callers without an event loop; requests stay under way until the next."""
        with self._round:
            return self._background.run(self.poll_due(once=once))

    def close(self) -> None:
        """Drop what is under way (it is due still) and close connections; after `read`."""
        with self._round:
            if self._background.started:
                self._background.run(self.aclose())
                self._background.close()

    async def aclose(self) -> None:
        """The same, after `poll_due`."""
        under_way = [*self._tasks, *self._errands]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        try:
            await asyncio.to_thread(self._record)
        except RunnelError as error:
            logger.warning("what came of the last polls could not be recorded, so they are asked again: %s", error)
        if self._client is not None:
            await self._client.__aexit__(None, None, None)
            self._client = None

    # --- rounds -------------------------------------------------------------------------------------------------

    async def poll_due(self, *, once: bool = False) -> Acquisition:
        """One round: read what came meanwhile, ask the feeds whose time has come, and wait a little for answers.

        With `once` all feeds that are due are asked, whatever the budget, and the round waits for all of them.
        """
        client = await self._opened()
        # Before anything is asked: while there is no room for what was fetched, nothing more is.
        await self._settle(to_the_end=True)
        view = await asyncio.to_thread(self._look, once)
        clock = asyncio.get_running_loop().time
        deadline = clock() + _ROUND_SECONDS
        try:
            self._begin(view, once)
            self._launch(client)
            while (self._tasks or self._fetched) and (once or clock() < deadline):
                if self._tasks:
                    await asyncio.wait(self._tasks, timeout=_GATHER_SECONDS)
                await self._settle()
                self._launch(client)
        finally:
            # Nothing starts between rounds; what had no turn keeps its place for the next.
            self._ranked = [*(poll for held in self._held.values() for poll in held), *self._waiting]
            self._waiting.clear()
            self._held.clear()
        await self._settle(to_the_end=True)
        if once and self._errands:
            await asyncio.wait(self._errands)
        total, self._total = self._total, Acquisition()
        return total

    async def _opened(self) -> HttpClient:
        if self._client is None:
            self._client = await http_client_of(
                self._settings, concurrency=self._settings.poll_concurrency
            ).__aenter__()
        return self._client

    def _look(self, once: bool) -> _View:
        """What is due, most urgent first; nothing above the lag limit."""
        is_new = self._take_on()
        lag = self._acquirer.lag()
        with self._catalog.read() as connection:
            moment = now(connection)
            self._now = moment / 1e6
            room = self._settings.poll_concurrency - len(self._tasks)
            if lag >= self._settings.lag_limit or (not once and min(self._budget.available(self._now), room) <= 0):
                return _View(moment, self._ranked if lag < self._settings.lag_limit else [])
            if self._ranked and not once and not is_new and 0 <= self._now - self._ranked_at < _RANK_SECONDS:
                return _View(moment, self._ranked)
            due = polls.due_polls(connection)
        due = [
            poll
            for poll in due
            if poll.feed.id not in self._under_way and not self._hosts.rests(poll.state.address, self._now)
        ]
        self._ranked_at = self._now
        return _View(moment, due if once else self._order.by_urgency(due, self._now))

    def _take_on(self) -> bool:
        """Notice feeds that were declared, dropped or resumed; gives whether there were any."""
        with self._catalog.read() as connection:
            if not polls.wants_tending(connection, self._known_upto):
                return False
        with self._catalog.write() as connection:
            self._known_upto = polls.adopt(connection, self._known_upto)
            polls.tend(connection)
        return True

    def _begin(self, view: _View, once: bool) -> None:
        self._waiting = deque(view.due)
        self._held = {}
        self._tokens = None if once else self._budget.available(self._now)
        self._heed()
        if self._subscriber.enabled and (self._tended is None or view.moment - self._tended >= _TEND_MICROSECONDS):
            self._tended = view.moment
            self._run_errand(self._tend_hubs())

    # --- requests -----------------------------------------------------------------------------------------------

    def _launch(self, client: HttpClient) -> None:
        """Start as many of the waiting polls as the budget and the limits allow."""
        limit = self._settings.poll_concurrency
        while self._waiting and len(self._tasks) < limit and self._tokens != 0 and self._can_read_more():
            poll = self._waiting.popleft()
            address = poll.state.address
            if self._hosts.rests(address, self._now) or poll.feed.id in self._under_way:
                continue
            if not self._hosts.has_room(address):
                self._held.setdefault(host_of(address), deque()).append(poll)
                continue
            if self._tokens is not None:
                self._tokens -= 1
                self._budget.spend()
            self._hosts.begin(address)
            self._under_way.add(poll.feed.id)
            task = asyncio.get_running_loop().create_task(self._fetch(client, poll))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _can_read_more(self) -> bool:
        unread = list(self._fetched)
        bodies = sum(len(fetched.answer.body) for fetched in unread if fetched.answer is not None)
        return len(unread) < 4 * self._settings.poll_concurrency and bodies < _MOST_UNREAD_BYTES

    async def _fetch(self, client: HttpClient, poll: DuePoll) -> None:
        """Ask for one feed. Whatever happens is an answer to be judged, never an end of the round."""
        address = poll.state.address
        try:
            answer = await client.get(address, headers=_headers(poll))
            self._hosts.answered(address)
            fetched = Fetched(poll, answer)
        except InputError as error:
            fetched = Fetched(poll, None, error)
            if _is_silence(error):
                self._hosts.silent(address, self._now)
        except Exception as error:
            logger.exception("the feed %s could not be asked", poll.feed.name)
            fetched = Fetched(poll, None, UnreachableError(f"it could not be asked: {type(error).__name__}"))
        finally:
            self._hosts.end(address)
        self._fetched.append(await self._read(fetched))
        held = self._held.get(host_of(address))
        if held:
            self._waiting.appendleft(held.popleft())
        self._tasks.discard(asyncio.current_task())
        self._launch(client)

    async def _read(self, fetched: Fetched) -> Fetched:
        """Have a new document read in a sandbox, while others are fetched."""
        answer, poll = fetched.answer, fetched.poll
        if answer is None or answer.status not in DOCUMENT_STATUS:
            return fetched
        if await asyncio.to_thread(content_digest, answer.body) == poll.state.memory.digest:
            return fetched
        try:
            read = await document_pool().in_thread(read_answer, self._acquirer, poll.feed, answer)
        except InputError as error:
            return replace(fetched, read=error)
        except Exception:
            logger.exception("the document of feed %s was not read; it is fetched again later", poll.feed.name)
            return fetched
        return replace(fetched, read=read)

    # --- answers ------------------------------------------------------------------------------------------------

    async def _settle(self, *, to_the_end: bool = False) -> None:
        """Read what was fetched, and record it once enough has come together or at a round's end."""
        if not self._fetched and not (to_the_end and self._settled):
            return
        try:
            await asyncio.to_thread(self._read_answers, to_the_end)
        finally:
            self._heed()

    def _heed(self) -> None:
        """Leave the hosts alone that asked for it, and ask the hubs that were offered."""
        while self._rests:
            address, seconds = self._rests.popleft()
            self._hosts.rest(address, self._now, seconds)
        while self._offers:
            self._run_errand(self._request_push(*self._offers.popleft()))

    def _read_answers(self, to_the_end: bool) -> None:
        answers = list(self._fetched)
        ids = [fetched.poll.feed.id for fetched in answers]
        with self._catalog.read() as connection:
            moment = now(connection)
            live = polls.live_of(connection, ids)
            pushed = hubs.hubs_of(connection, ids) if self._subscriber.enabled else {}
        for fetched in answers:
            feed = fetched.poll.feed.id
            outcome = self._outcome(fetched, moment, pushed.get(feed)) if feed in live else None
            # Only now: an answer that could not be kept for want of room is read again, and not asked for again.
            self._fetched.popleft()
            if outcome is None:  # dropped or paused meanwhile
                self._under_way.discard(feed)
            else:
                self._note(outcome, fetched.answer)
        if to_the_end or len(self._settled) >= _RECORD_TOGETHER:
            self._record()

    def _note(self, outcome: PollOutcome, answer: HttpResponse | None) -> None:
        self._settled.append(outcome)
        self._total += outcome.acquisition
        if outcome.rest is not None:
            self._rests.append((outcome.poll.state.address, outcome.rest))
        if outcome.head is not None and answer is not None:
            offer = self._subscriber.offers(answer, outcome.head)
            self._offers.extend([] if offer is None else [(outcome.poll.feed, offer)])

    def _outcome(self, fetched: Fetched, moment: int, hub: HubRow | None) -> PollOutcome:
        try:
            return self._handler.judge(fetched, moment, hub)
        except (StorageFullError, WorkspaceError):
            raise  # not the feed's fault, and it passes
        except Exception as error:
            logger.exception("the document of the feed %s could not be read", fetched.poll.feed.name)
            odd = UnreachableError(f"its document could not be read: {type(error).__name__}")
            return self._handler.judge(Fetched(fetched.poll, None, odd), moment, hub)

    def _record(self) -> None:
        """Write what came of polls, all in one transaction; what cannot be written now is kept for the next time."""
        settled = self._settled
        if not settled:
            return
        states = states_of(settled, self._settings)
        with self._catalog.write() as connection:
            polls.record_polls(connection, states, saturated=sum(outcome.saturated for outcome in settled))
            for outcome in settled:
                if outcome.counted_bytes:
                    owners.add_bytes(connection, outcome.poll.feed.id, outcome.counted_bytes)
        self._settled = []
        self._under_way.difference_update(outcome.poll.feed.id for outcome in settled)

    # --- hubs ---------------------------------------------------------------------------------------------------

    async def _request_push(self, feed: Feed, offer: HubOffer) -> None:
        try:
            await self._subscriber.request(await self._opened(), feed, offer)
        except (StorageFullError, WorkspaceError):
            self._offers.append((feed, offer))  # a document offers it once, so it is asked for in the next round
            raise

    async def _tend_hubs(self) -> None:
        await self._subscriber.tend(await self._opened())

    def _run_errand(self, errand: Coroutine[Any, Any, None]) -> None:
        """Do something beside the polls, whose failure concerns nobody else."""
        task = asyncio.get_running_loop().create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errand_done)

    def _errand_done(self, task: asyncio.Task[None]) -> None:
        self._errands.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.warning("a hub could not be asked: %s", task.exception())


def _headers(poll: DuePoll) -> dict[str, str]:
    """What a request says: which forms we read, and which document we have already."""
    headers = {"Accept": ACCEPT}
    if poll.state.changed is not None:
        if poll.state.etag:
            headers["If-None-Match"] = poll.state.etag
        if poll.state.modified:
            headers["If-Modified-Since"] = poll.state.modified
    return headers


def _is_silence(error: InputError) -> bool:
    """Whether a host did not answer at all, and so would not answer others either."""
    return not isinstance(error, RefusedAddressError) and isinstance(error.__cause__, OSError)
