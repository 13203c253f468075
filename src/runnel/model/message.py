"""Messages to endpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class MessageState(StrEnum):
    """The state of a message in the ledger."""

    OPEN = "open"
    DONE = "done"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of one subscription: the matches of a log range, sent as one request, mail or file write.

    `key` is the idempotency key. It is the same in all attempts and after restarts. `digest` is the digest of the
    item keys in the message, so that a replay can be compared with the original. `plan` is the plan version that was
    current when the message was recorded. `not_before` (microseconds since 1970) is when the next attempt may start.
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
