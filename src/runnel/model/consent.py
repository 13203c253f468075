"""Consents: whether the recipient of an owner's messages has agreed to receive them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ConsentState(StrEnum):
    """Whether messages may be sent."""

    PENDING = "pending"
    CONFIRMED = "confirmed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Consent:
    """The consent of one target to the messages of one owner.

    `recipient` is the key for limits: addresses that may lead to the same mailbox have the same recipient. `requests`
    counts all confirmation requests that were sent. `not_before` is when the next request is due (microseconds since
    1970), or None if none is due. The answer must arrive before `expires`. `outcome` describes how the last request
    ended, or who confirmed.
    """

    id: int
    owner: int
    kind: str
    target: str
    recipient: str
    state: ConsentState
    nonce: bytes | None
    requests: int
    attempts: int
    not_before: int | None
    expires: int
    outcome: str | None

    @property
    def is_confirmed(self) -> bool:
        """Whether messages may be sent."""
        return self.state is ConsentState.CONFIRMED
