"""What a poll's answer means: items to accept, a problem to show, and when to ask again.

In: what was known of a feed and what its server answered, or why it did not. Out: an Outcome, with the items of a
document already accepted: only after that may the poll be recorded, so that a crash in between reads the document
again and loses nothing.
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
"""Failures in a row at an address that a redirect gave, after which the declared one is asked again."""

_LONGEST_VALIDATOR = 1000
_MOST_PROBLEM = 500
DOCUMENT_STATUS = frozenset({200, 203, 226})
_WORDS = {
    401: "the server asks for a login",
    403: "the server refuses to show it",
    404: "there is nothing at this address",
    410: "the publisher has ended this feed",
    429: "the server asks to be asked less often",
}


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came of a request: an answer, or why there is none; `read` is what its document says."""

    poll: DuePoll
    answer: HttpResponse | None
    error: InputError | None = None
    read: AdaptedFeed | InputError | None = None


@dataclass(frozen=True, slots=True)
class PollOutcome:
    """What came of a poll. `state` is to be recorded, with what `memory` keeps; a new document has a `head`.

    `found` is how many items were new, of how many: what the refresh policy learns from.
    """

    poll: DuePoll
    state: PollState
    memory: PollMemory
    found: tuple[int, int] | None = None
    acquisition: Acquisition = field(default_factory=Acquisition)
    saturated: bool = False
    head: DocumentHead | None = None
    rest: float | None = None
    """Seconds for which the whole host asked to be left alone."""
    counted_bytes: int = 0
    """Bytes that are not yet counted in the catalog."""


class ResponseHandler:
    """Decides what answers mean, one at a time. Not for several threads at once."""

    def __init__(self, acquirer: Acquirer, random: randomness.Random | None = None) -> None:
        self._catalog = acquirer.catalog
        self._acquirer = acquirer
        self._settings = acquirer.settings
        self._random = random or randomness.Random()  # noqa: S311  waits need to differ, not to be secret
        self._counted: set[int] = set()
        """Feeds whose last document was counted and could not be kept for want of room: it comes once more."""

    def judge(self, fetched: Fetched, moment: int, hub: HubRow | None = None) -> PollOutcome:
        """What an answer means at a moment (microseconds since 1970)."""
        poll, answer = fetched.poll, fetched.answer
        if answer is None:
            problem = "there was no answer" if fetched.error is None else _told(fetched.error)
            return self._failed(poll, moment, None, problem)
        match answer.status:
            case 304 if poll.state.changed is not None:
                return self._unchanged(poll, answer, moment, hub)
            case status if status in DOCUMENT_STATUS:
                return self._document(fetched, answer, moment, hub)
            case 410 if poll.state.address == poll.feed.address:
                return self._gone(poll, moment)
            case 304:
                return self._failed(
                    poll, moment, answer, "the server says that nothing has changed, but gave nothing"
                )
            case _:
                return self._failed(poll, moment, answer, _refusal(answer.status))

    # --- what went well -----------------------------------------------------------------------------------------

    def _document(self, fetched: Fetched, answer: HttpResponse, moment: int, hub: HubRow | None) -> PollOutcome:
        poll, memory = fetched.poll, fetched.poll.state.memory
        digest = content_digest(answer.body)
        if digest == memory.digest:
            return self._unchanged(poll, answer, moment, hub)
        try:
            uncounted = self._count_bytes(poll, len(answer.body))
        except QuotaExceededError as error:
            return self._failed(poll, moment, answer, str(error))
        try:
            taken = self._taken(fetched, answer, moment, digest, hub)
        except (StorageFullError, WorkspaceError):
            self._counted.add(poll.feed.id)
            raise
        return replace(taken, counted_bytes=uncounted)

    def _taken(
        self, fetched: Fetched, answer: HttpResponse, moment: int, digest: str, hub: HubRow | None
    ) -> PollOutcome:
        """A new document: its items are accepted, or it is kept aside."""
        poll, memory = fetched.poll, fetched.poll.state.memory
        is_first = poll.state.changed is None
        try:
            adapted = self._read(fetched, answer)
        except InputError as error:
            return self._broken(poll, answer, moment, digest, error)
        accepted = self._acquirer.accept_adapted(poll.feed, adapted, is_first=is_first)
        told, marks = self._keep_aside(poll, memory, adapted.problems, ITEM, answer.body)
        held, new = len(adapted.items), accepted.accepted
        saturated = not is_first and memory.held > 0 and new == held >= 2
        head = adapted.head
        memory = replace(
            memory.with_aside(marks),
            digest=digest,
            broken=None,
            since=None,
            held=held,
            saturated=memory.saturated + saturated,
            ttl=head.ttl,
            skip_hours=head.skip_hours,
            skip_days=head.skip_days,
        )
        return PollOutcome(
            poll,
            replace(self._good(poll, answer, moment, memory, hub), changed=moment),
            memory,
            found=(new, held),
            acquisition=Acquisition(new, accepted.unchanged, told),
            saturated=saturated,
            head=head,
        )

    def _read(self, fetched: Fetched, answer: HttpResponse) -> AdaptedFeed:
        if isinstance(fetched.read, InputError):
            raise fetched.read
        return fetched.read or read_answer(self._acquirer, fetched.poll.feed, answer)

    def _unchanged(self, poll: DuePoll, answer: HttpResponse, moment: int, hub: HubRow | None) -> PollOutcome:
        memory = poll.state.memory
        # Where the document was broken it still is: nothing is mended by an unchanged answer.
        memory = replace(memory, since=None if memory.broken is None else memory.since or moment)
        state = self._good(poll, answer, moment, memory, hub)
        return PollOutcome(poll, replace(state, unchanged=1), memory, found=(0, 0))

    def _good(
        self, poll: DuePoll, answer: HttpResponse, moment: int, memory: PollMemory, hub: HubRow | None
    ) -> PollState:
        """The state after an answer with a document, or one that says that the last document still holds."""
        before = poll.state
        if before.problem and memory.broken is None:
            logger.info("the feed %s can be read again", poll.feed.name)
        failures = 0 if memory.broken is None else before.failures + 1
        etag, modified = _validators(before, answer, memory)
        now = moment / 1e6
        head = DocumentHead(memory.ttl, memory.skip_hours, memory.skip_days)
        wait = next_wait(every_of(poll, self._settings), now, fresh=fresh_for(answer.headers, now), head=head)
        due = moment + int(wait * 1e6)
        if hub is not None and hub.pushes(moment):
            # The hub tells what is new; asking now and then only makes sure that it does (WebSub §5).
            due = max(due, min(moment + int(DAY * 1e6), hub.lease_until or 0))
        state = replace(
            before,
            address=answer.moved or before.address,
            etag=etag,
            modified=modified,
            due=due,
            checked=moment,
            status=answer.status,
            failures=failures,
            problem=memory.broken,
            requests=1,
            unchanged=0,
        )
        return self._back_to_declared(poll, state)

    # --- what went wrong ----------------------------------------------------------------------------------------

    def _broken(
        self, poll: DuePoll, answer: HttpResponse, moment: int, digest: str, error: InputError
    ) -> PollOutcome:
        """A document that cannot be read is kept aside once, and its server is asked as usual."""
        memory = poll.state.memory
        reason = _told(error)
        told, marks = self._keep_aside(poll, memory, [error], DOCUMENT, answer.body, digest)
        memory = replace(memory.with_aside(marks), digest=digest, broken=reason, since=memory.since or moment)
        self._say(poll, reason)
        state = self._good(poll, answer, moment, memory, None)
        return PollOutcome(poll, state, memory, acquisition=Acquisition(put_aside=told))

    def _failed(self, poll: DuePoll, moment: int, answer: HttpResponse | None, problem: str) -> PollOutcome:
        before, memory, settings = poll.state, poll.state.memory, self._settings
        failures = before.failures + 1
        limit = settings.poll_retry_limit_seconds
        wait = back_off(failures, settings.poll_retry_seconds, limit, self._random)
        asked = None if answer is None else retry_after(answer.headers.get("Retry-After"), moment / 1e6, limit=limit)
        wait = max(wait, asked or 0.0)
        self._say(poll, problem)
        state = replace(
            before,
            due=moment + int(wait * 1e6),
            checked=moment,
            status=None if answer is None else answer.status,
            failures=failures,
            problem=problem[:_MOST_PROBLEM],
            requests=1,
            unchanged=0,
        )
        rest = asked if answer is not None and answer.status == 429 else None
        memory = replace(memory, since=memory.since or moment)
        return PollOutcome(poll, self._back_to_declared(poll, state), memory, rest=rest)

    def _gone(self, poll: DuePoll, moment: int) -> PollOutcome:
        problem = f"{_refusal(410)}; `resume feed {poll.feed.name}` asks again"
        self._say(poll, problem)
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

    def _back_to_declared(self, poll: DuePoll, state: PollState) -> PollState:
        """A redirect may have been a mistake, or a hotel's login page: what was declared gets another chance."""
        declared = poll.feed.address or state.address
        if state.failures < FALL_BACK_AFTER or state.address == declared:
            return state
        return replace(state, address=declared, etag=None, modified=None)

    def _say(self, poll: DuePoll, problem: str) -> None:
        if poll.state.problem is None:  # once, not at every poll
            logger.warning("the feed %s cannot be read: %s", poll.feed.name, problem)

    # --- parts --------------------------------------------------------------------------------------------------

    def _keep_aside(
        self,
        poll: DuePoll,
        memory: PollMemory,
        problems: Sequence[InputError],
        kind: str,
        data: bytes,
        digest: str = "",
    ) -> tuple[int, list[str]]:
        """Put aside what was not put aside before; gives how many, and the marks by which they are known again.

        The marks of refused items leave out the document's digest and the line: the same bad entry in an otherwise
        changed document is nothing new.
        """
        marked = {_mark(digest, problem): problem for problem in problems}
        fresh = [problem for mark, problem in marked.items() if mark not in memory.aside]
        if fresh:
            self._acquirer.keep_aside(poll.feed, fresh, kind, data)
        return len(fresh), list(marked)

    def _count_bytes(self, poll: DuePoll, size: int) -> int:
        """Count the bytes of an owner with a quota, before anything is accepted; gives how many are left to count."""
        if poll.feed.owner == ADMIN:
            return size
        if poll.feed.id in self._counted:
            self._counted.discard(poll.feed.id)
            return 0
        with self._catalog.write() as connection:
            owners.add_bytes(connection, poll.feed.id, size, self._settings)
        return 0


def read_answer(acquirer: Acquirer, feed: Feed, answer: HttpResponse) -> AdaptedFeed:
    """The items of a document that a server sent, not accepted yet."""
    return acquirer.read_document(
        feed,
        answer.body,
        shown_url(answer.url),
        base=answer.url,
        charset=charset_of(answer.headers),
        media_type=answer.headers.get("Content-Type"),
    )


def every_of(poll: DuePoll, settings: Settings) -> float:
    """How often a feed is to be asked, in seconds."""
    return settings.poll_seconds if poll.feed.every is None else poll.feed.every.total_seconds()


def states_of(outcomes: Sequence[PollOutcome], settings: Settings) -> list[PollState]:
    """The states to record, with what is remembered. What polls teach is learned for all of them in one go."""
    memories = [outcome.memory for outcome in outcomes]
    taught = [row for row, outcome in enumerate(outcomes) if outcome.found is not None]
    if taught:
        polls = [outcomes[row].poll for row in taught]
        before = [
            PublishingModel.from_text(poll.state.memory.refresh, every_of(poll, settings)).row for poll in polls
        ]
        at = np.array([outcomes[row].state.checked for row in taught]) / 1e6
        last = np.array([np.nan if poll.state.checked is None else poll.state.checked for poll in polls]) / 1e6
        elapsed = np.maximum(np.nan_to_num(at - last, nan=0.0), 0.0)
        found = np.array([outcomes[row].found for row in taught], dtype=np.float64)
        after = learn(np.frombuffer(b"".join(before)).reshape(len(taught), -1), at, elapsed, found[:, 0], found[:, 1])
        for row, learned in zip(taught, after, strict=True):
            memories[row] = replace(memories[row], refresh=PublishingModel(learned.tobytes(), b"").to_text())
    return [
        replace(outcome.state, learned=memory.to_text()) for outcome, memory in zip(outcomes, memories, strict=True)
    ]


def _mark(digest: str, problem: InputError) -> str:
    return hashlib.blake2b(f"{digest}\0{problem.message}".encode("utf-8", "replace"), digest_size=6).hexdigest()


def _told(error: InputError) -> str:
    """An error as status shows it; what came from outside may have any character in it."""
    place = f"{error.place}: " if error.place and isinstance(error, BrokenDocumentError) else ""
    hint = f" ({error.hint})" if error.hint else ""
    return "".join(map(visible, f"{place}{error.message}{hint}"[:_MOST_PROBLEM]))


def _refusal(status: int) -> str:
    """What a status means, in words.

    >>> _refusal(404), _refusal(503), _refusal(204)
    ('there is nothing at this address (404)', 'the server has trouble of its own (503)', 'the server answered 204')
    """
    words = _WORDS.get(status) or ("the server has trouble of its own" if status >= 500 else None)
    return f"{words} ({status})" if words else f"the server answered {status}"


def _validators(before: PollState, answer: HttpResponse, memory: PollMemory) -> tuple[str | None, str | None]:
    """ETag and Last-Modified to send with the next request; those before still hold where nothing has changed."""
    if before.changed is None and memory.broken is not None:
        return None, None  # until a document was read there is nothing that could be unchanged
    etag, modified = _validator(answer, "ETag"), _validator(answer, "Last-Modified")
    if answer.status == 304:
        return etag or before.etag, modified or before.modified
    return etag, modified


def _validator(answer: HttpResponse, name: str) -> str | None:
    """An ETag or a date to be sent back as it came; one that could not be is not kept."""
    value = answer.headers.get(name, "").strip()
    return value if value and len(value) <= _LONGEST_VALIDATOR and value.isascii() and value.isprintable() else None
