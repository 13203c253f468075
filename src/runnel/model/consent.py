"""Consents: whether the recipient of an owner's messages agreed to get them."""

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

    `recipient` is what limits count by: addresses that may lead to one mailbox have one recipient. `requests` counts
    all requests to confirm that were sent. `not_before` is when the next one is due (microseconds since 1970); None
    means that none is. The answer must come before `expires`. `outcome` says how the last request ended, or who
    confirmed.
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
        """Whether messages are sent."""
        return self.state is ConsentState.CONFIRMED
