"""Handling of poll responses: accept the items, record a problem, and schedule the next poll.

In: the state of a feed, and the response of its server or the reason why there is none. Out: a PollOutcome to record.
Items are accepted previous the poll is recorded, so that a crash in between repeats the poll and loses nothing.
"""

from __future__ import annotations

import hashlib
import logging
import random as randomness
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from runnel.catalog.access import owners
from runnel.catalog.logs.quarantine import DOCUMENT, ITEM
from runnel.catalog.polling.hubs import HubRow
from runnel.catalog.polling.poll_memory import PollMemory
from runnel.catalog.polling.polls import GONE, DuePoll, PollState
from runnel.errors import (
    BrokenDocumentError,
    InputError,
    QuotaExceededError,
    StorageFullError,
    WorkspaceError,
    visible,
)
from runnel.model.feed import ADMIN, Feed
from runnel.net.http_client import HttpResponse
from runnel.net.retry_after import retry_after
from runnel.net.urls import shown_url
from runnel.settings import Settings
from runnel.sources.acquire import Acquirer, Acquisition
from runnel.sources.documents.adapt import AdaptedFeed
from runnel.sources.documents.document_head import DAY, DocumentHead
from runnel.sources.feed_reader import content_digest
from runnel.sources.web_feeds.freshness import back_off, charset_of, fresh_for, next_wait
from runnel.sources.web_feeds.publishing_rates import learn
from runnel.sources.web_feeds.refresh import PublishingModel

logger = logging.getLogger("runnel")

FALL_BACK_AFTER = 3
"""Consecutive failures at a redirect's target after which the declared URL is polled again."""

_MAX_VALIDATOR_LENGTH = 1000
_MAX_PROBLEM_LENGTH = 500
DOCUMENT_STATUS = frozenset({200, 203, 226})
_STATUS_MESSAGES = {
    401: "the server requires a login",
    403: "the server denied access",
    404: "there is no document at this URL",
    410: "the publisher has discontinued this feed",
    429: "the server is limiting the request rate",
}


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The response to a poll, or the error that prevented one.

    `parsed` is the content of a new document, or the reason why it is invalid. It is None if nothing was parsed yet.
    """

    poll: DuePoll
    response: HttpResponse | None
    error: InputError | None = None
    parsed: AdaptedFeed | InputError | None = None


@dataclass(frozen=True, slots=True)
class PollOutcome:
    """The data to record after a poll: the new `state` and `memory` of the feed. `head` is set for a new document.

    `item_counts` is (new items, all items) of the document, from which the refresh policy learns. It is None if no
    document could be read. `is_saturated` means that all items were new, so some were probably missed.
    """

    poll: DuePoll
    state: PollState
    memory: PollMemory
    item_counts: tuple[int, int] | None = None
    acquisition: Acquisition = field(default_factory=Acquisition)
    is_saturated: bool = False
    head: DocumentHead | None = None
    host_pause_seconds: float | None = None
    """How long the server asked us to send no requests to its host."""
    uncounted_bytes: int = 0
    """Document bytes that still have to be added to the feed's usage in the catalog."""


class ResponseHandler:
    """Turns poll responses into poll outcomes. Not thread-safe.

    Times called `moment` are in microseconds since 1970.
    """

    def __init__(self, acquirer: Acquirer, random: randomness.Random | None = None) -> None:
        self._catalog = acquirer.catalog
        self._acquirer = acquirer
        self._settings = acquirer.settings
        self._random = random or randomness.Random()  # noqa: S311  jitter need not be unpredictable
        self._already_counted: set[int] = set()
        """Feeds whose last document counted towards the quota but could not be stored; the next poll repeats it."""

    def handle(self, fetched: FetchResult, moment: int, hub: HubRow | None = None) -> PollOutcome:
        """Accept the items of a response and return the outcome to record."""
        poll, response = fetched.poll, fetched.response
        if response is None:
            problem = "no response" if fetched.error is None else _format_error(fetched.error)
            return self._fail(poll, moment, None, problem)
        match response.status:
            case 304 if poll.state.changed is not None:
                return self._keep_unchanged(poll, response, moment, hub)
            case status if status in DOCUMENT_STATUS:
                return self._handle_document(fetched, response, moment, hub)
            case 410 if poll.state.address == poll.feed.address:
                return self._mark_gone(poll, moment)
            case 304:
                problem = "the server sent 304 Not Modified, but no document has been read yet"
                return self._fail(poll, moment, response, problem)
            case _:
                return self._fail(poll, moment, response, _describe_status(response.status))

    # --- success ---------------------------------------------------------------------------------------------------

    def _handle_document(
        self, fetched: FetchResult, response: HttpResponse, moment: int, hub: HubRow | None
    ) -> PollOutcome:
        poll, memory = fetched.poll, fetched.poll.state.memory
        digest = content_digest(response.body)
        if digest == memory.digest:
            return self._keep_unchanged(poll, response, moment, hub)
        try:
            uncounted_bytes = self._count_bytes(poll, len(response.body))
        except QuotaExceededError as error:
            return self._fail(poll, moment, response, str(error))
        try:
            outcome = self._accept_document(fetched, response, moment, digest, hub)
        except (StorageFullError, WorkspaceError):
            self._already_counted.add(poll.feed.id)
            raise
        return replace(outcome, uncounted_bytes=uncounted_bytes)

    def _accept_document(
        self, fetched: FetchResult, response: HttpResponse, moment: int, digest: str, hub: HubRow | None
    ) -> PollOutcome:
        """Accept the items of a new document, or quarantine the document if it cannot be parsed."""
        poll, memory = fetched.poll, fetched.poll.state.memory
        is_first = poll.state.changed is None
        try:
            adapted = self._parse(fetched, response)
        except InputError as error:
            return self._quarantine_document(poll, response, moment, digest, error)
        accepted = self._acquirer.accept_adapted(poll.feed, adapted, is_first=is_first)
        quarantined, fingerprints = self._quarantine_new(poll, memory, adapted.problems, ITEM, response.body)
        item_count, new_count = len(adapted.items), accepted.accepted
        is_saturated = not is_first and memory.held > 0 and new_count == item_count >= 2
        head = adapted.head
        memory = replace(
            memory.with_quarantined(fingerprints),
            digest=digest,
            broken=None,
            since=None,
            held=item_count,
            saturated=memory.saturated + is_saturated,
            ttl=head.ttl,
            skip_hours=head.skip_hours,
            skip_days=head.skip_days,
        )
        return PollOutcome(
            poll,
            replace(self._state_after_response(poll, response, moment, memory, hub), changed=moment),
            memory,
            item_counts=(new_count, item_count),
            acquisition=Acquisition(new_count, accepted.unchanged, quarantined),
            is_saturated=is_saturated,
            head=head,
        )

    def _parse(self, fetched: FetchResult, response: HttpResponse) -> AdaptedFeed:
        if isinstance(fetched.parsed, InputError):
            raise fetched.parsed
        return fetched.parsed or read_response(self._acquirer, fetched.poll.feed, response)

    def _keep_unchanged(self, poll: DuePoll, response: HttpResponse, moment: int, hub: HubRow | None) -> PollOutcome:
        memory = poll.state.memory
        # An unchanged document that could not be parsed previous still counts as a failure.
        memory = replace(memory, since=None if memory.broken is None else memory.since or moment)
        state = self._state_after_response(poll, response, moment, memory, hub)
        return PollOutcome(poll, replace(state, unchanged=1), memory, item_counts=(0, 0))

    def _state_after_response(
        self, poll: DuePoll, response: HttpResponse, moment: int, memory: PollMemory, hub: HubRow | None
    ) -> PollState:
        """Return the state after the server sent a document or confirmed that the last one is current."""
        previous = poll.state
        if previous.problem and memory.broken is None:
            logger.info("feed %s recovered", poll.feed.name)
        failures = 0 if memory.broken is None else previous.failures + 1
        etag, modified = _next_validators(previous, response, memory)
        now = moment / 1e6
        head = DocumentHead(memory.ttl, memory.skip_hours, memory.skip_days)
        period = poll_period(poll, self._settings)
        wait = next_wait(period, now, fresh=fresh_for(response.headers, now), head=head)
        due = moment + int(wait * 1e6)
        if hub is not None and hub.pushes(moment):
            # The hub pushes new items. A daily poll is enough to verify that it does (WebSub §5).
            due = max(due, min(moment + int(DAY * 1e6), hub.lease_until or 0))
        state = replace(
            previous,
            address=response.moved or previous.address,
            etag=etag,
            modified=modified,
            due=due,
            checked=moment,
            status=response.status,
            failures=failures,
            problem=memory.broken,
            requests=1,
            unchanged=0,
        )
        return self._fall_back_to_declared(poll, state)

    # --- failure ---------------------------------------------------------------------------------------------------

    def _quarantine_document(
        self, poll: DuePoll, response: HttpResponse, moment: int, digest: str, error: InputError
    ) -> PollOutcome:
        """Quarantine a document that cannot be parsed, once, and keep polling at the usual interval."""
        memory = poll.state.memory
        problem = _format_error(error)
        quarantined, fingerprints = self._quarantine_new(poll, memory, [error], DOCUMENT, response.body, digest)
        memory = replace(
            memory.with_quarantined(fingerprints), digest=digest, broken=problem, since=memory.since or moment
        )
        self._warn_once(poll, problem)
        state = self._state_after_response(poll, response, moment, memory, None)
        return PollOutcome(poll, state, memory, acquisition=Acquisition(quarantined=quarantined))

    def _fail(self, poll: DuePoll, moment: int, response: HttpResponse | None, problem: str) -> PollOutcome:
        """Record a failed poll and back off, at least as long as the server's Retry-After asks for."""
        previous, memory, settings = poll.state, poll.state.memory, self._settings
        failures = previous.failures + 1
        limit = settings.poll_retry_limit_seconds
        wait = back_off(failures, settings.poll_retry_seconds, limit, self._random)
        requested_wait = (
            None if response is None else retry_after(response.headers.get("Retry-After"), moment / 1e6, limit=limit)
        )
        wait = max(wait, requested_wait or 0.0)
        self._warn_once(poll, problem)
        state = replace(
            previous,
            due=moment + int(wait * 1e6),
            checked=moment,
            status=None if response is None else response.status,
            failures=failures,
            problem=problem[:_MAX_PROBLEM_LENGTH],
            requests=1,
            unchanged=0,
        )
        is_rate_limited = response is not None and response.status == 429
        return PollOutcome(
            poll,
            self._fall_back_to_declared(poll, state),
            replace(memory, since=memory.since or moment),
            host_pause_seconds=requested_wait if is_rate_limited else None,
        )

    def _mark_gone(self, poll: DuePoll, moment: int) -> PollOutcome:
        """Stop polling a feed whose server responded with 410 Gone."""
        problem = f"{_describe_status(410)}; `resume feed {poll.feed.name}` polls it again"
        self._warn_once(poll, problem)
        memory = poll.state.memory
        state = replace(
            poll.state,
            checked=moment,
            status=410,
            failures=poll.state.failures + 1,
            problem=problem,
            stopped=GONE,
            requests=1,
            unchanged=0,
        )
        return PollOutcome(poll, state, replace(memory, since=memory.since or moment))

    def _fall_back_to_declared(self, poll: DuePoll, state: PollState) -> PollState:
        """Go back to the declared URL after repeated failures; the redirect may have led to a login page."""
        declared = poll.feed.address or state.address
        if state.failures < FALL_BACK_AFTER or state.address == declared:
            return state
        return replace(state, address=declared, etag=None, modified=None)

    def _warn_once(self, poll: DuePoll, problem: str) -> None:
        """Log the first of a series of failures."""
        if poll.state.problem is None:
            logger.warning("cannot read feed %s: %s", poll.feed.name, problem)

    # --- quarantine and quotas -------------------------------------------------------------------------------------

    def _quarantine_new(
        self,
        poll: DuePoll,
        memory: PollMemory,
        problems: Sequence[InputError],
        kind: str,
        data: bytes,
        digest: str = "",
    ) -> tuple[int, list[str]]:
        """Quarantine the problems that were not quarantined before; return their number and all fingerprints.

        For rejected items, pass no digest. The fingerprint then depends only on the message, so a bad entry is
        quarantined once even if the rest of the document changes.
        """
        by_fingerprint = {_fingerprint(digest, problem): problem for problem in problems}
        new = [problem for fingerprint, problem in by_fingerprint.items() if fingerprint not in memory.quarantined]
        if new:
            self._acquirer.quarantine(poll.feed, new, kind, data)
        return len(new), list(by_fingerprint)

    def _count_bytes(self, poll: DuePoll, size: int) -> int:
        """Count a document towards its owner's quota before accepting it; return the bytes left to count.

        The admin has no quota, so the bytes of the admin's feeds are counted later, together with the poll.
        """
        if poll.feed.owner == ADMIN:
            return size
        if poll.feed.id in self._already_counted:
            self._already_counted.discard(poll.feed.id)
            return 0
        with self._catalog.write() as connection:
            owners.add_bytes(connection, poll.feed.id, size, self._settings)
        return 0


def read_response(acquirer: Acquirer, feed: Feed, response: HttpResponse) -> AdaptedFeed:
    """Read the document in a response. Return its items without accepting them."""
    return acquirer.read_document(
        feed,
        response.body,
        shown_url(response.url),
        base=response.url,
        charset=charset_of(response.headers),
        media_type=response.headers.get("Content-Type"),
    )


def poll_period(poll: DuePoll, settings: Settings) -> float:
    """Return the poll period of a feed in seconds."""
    return settings.poll_seconds if poll.feed.every is None else poll.feed.every.total_seconds()


def build_poll_states(outcomes: Sequence[PollOutcome], settings: Settings) -> list[PollState]:
    """Return the states to record. Update the publishing models from all successful polls in one vectorized call."""
    memories = [outcome.memory for outcome in outcomes]
    succeeded = [row for row, outcome in enumerate(outcomes) if outcome.item_counts is not None]
    if succeeded:
        polls = [outcomes[row].poll for row in succeeded]
        models = [
            PublishingModel.from_text(poll.state.memory.refresh, poll_period(poll, settings)).row for poll in polls
        ]
        polled_at = np.array([outcomes[row].state.checked for row in succeeded]) / 1e6
        previous = np.array([np.nan if poll.state.checked is None else poll.state.checked for poll in polls]) / 1e6
        elapsed = np.maximum(np.nan_to_num(polled_at - previous, nan=0.0), 0.0)
        counts = np.array([outcomes[row].item_counts for row in succeeded], dtype=np.float64)
        rows = np.frombuffer(b"".join(models)).reshape(len(succeeded), -1)
        for row, learned in zip(succeeded, learn(rows, polled_at, elapsed, counts[:, 0], counts[:, 1]), strict=True):
            memories[row] = replace(memories[row], refresh=PublishingModel(learned.tobytes(), b"").to_text())
    return [
        replace(outcome.state, learned=memory.to_text()) for outcome, memory in zip(outcomes, memories, strict=True)
    ]


def _fingerprint(digest: str, problem: InputError) -> str:
    return hashlib.blake2b(f"{digest}\0{problem.message}".encode("utf-8", "replace"), digest_size=6).hexdigest()


def _format_error(error: InputError) -> str:
    """Format an error for `runnel status`. Replace unprintable characters, because the text comes from outside."""
    place = f"{error.place}: " if error.place and isinstance(error, BrokenDocumentError) else ""
    hint = f" ({error.hint})" if error.hint else ""
    return "".join(map(visible, f"{place}{error.message}{hint}"[:_MAX_PROBLEM_LENGTH]))


def _describe_status(status: int) -> str:
    """Describe an HTTP error status.

    >>> _describe_status(404), _describe_status(503), _describe_status(204)
    ('there is no document at this URL (404)', 'the server failed (503)', 'unexpected HTTP status 204')
    """
    message = _STATUS_MESSAGES.get(status) or ("the server failed" if status >= 500 else None)
    return f"{message} ({status})" if message else f"unexpected HTTP status {status}"


def _next_validators(
    previous: PollState, response: HttpResponse, memory: PollMemory
) -> tuple[str | None, str | None]:
    """Return the ETag and Last-Modified values to send with the next request.

    A 304 response may omit them; the previous values then remain valid.
    """
    if previous.changed is None and memory.broken is not None:
        return None, None  # no document has been parsed yet, so a 304 would be useless
    etag, modified = _read_validator(response, "ETag"), _read_validator(response, "Last-Modified")
    if response.status == 304:
        return etag or previous.etag, modified or previous.modified
    return etag, modified


def _read_validator(response: HttpResponse, header: str) -> str | None:
    """Return a header value if it can be sent back unchanged, else None."""
    value = response.headers.get(header, "").strip()
    is_valid = 0 < len(value) <= _MAX_VALIDATOR_LENGTH and value.isascii() and value.isprintable()
    return value if is_valid else None
