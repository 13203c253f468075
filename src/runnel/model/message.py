"""Deliveries: messages on their way to an endpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class MessageState(StrEnum):
    """Where a message stands in the ledger."""

    OPEN = "open"
    DONE = "done"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of one subscription: the matches of a log range, sent as one POST, digest or file write.

    `key` is the idempotency key: it stays the same over retries and restarts. `digest` is the digest of the item
    keys inside, so that a replay can be compared with what was sent. `plan` is the plan version that was
    current when it was recorded; `not_before` (microseconds since 1970) is when it may be tried next.
    """

    subscription: int
    number: int
    first_sequence: int
    last_sequence: int
    count: int
    key: str
    digest: str
    state: MessageState = MessageState.OPEN
    attempts: int = 0
    outcome: str | None = None
    plan: int = field(default=0, compare=False)
    not_before: int = field(default=0, compare=False)
