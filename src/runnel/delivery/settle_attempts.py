"""Settling: what the end of an attempt means for a message, and writing that down.

In: how attempts ended. Out: one transaction for many of them, under the runner's lease. A failure is tried again by
the schedule of the settings, or later if the endpoint asked for that; `permanent` ones and those at the end of the
schedule are dead letters. A subscription is disabled when its endpoint is gone, refuses messages for good several
times in a row, or was silent for very long.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from sqlalchemy import Connection

from runnel.catalog.declared import subscriptions
from runnel.catalog.delivery import ledger
from runnel.catalog.delivery.ledger import SettledAttempt
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog, now
from runnel.errors import (
    BacklogError,
    DeliveryError,
    InputError,
    RefusedAddressError,
    RunnelError,
    StylesheetError,
    UnreachableError,
)
from runnel.model.message import Message, MessageState
from runnel.settings import Settings

logger = logging.getLogger("runnel")

_LONGEST_WAIT = 86_400.0
_JITTER = 0.1
_DEFERRED_SECONDS = 5.0
_JITTERING = random.Random()  # noqa: S311


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one attempt at a message ended: with the sink's words, or with an error."""

    message: Message
    outcome: str = ""
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        """Whether the endpoint took the message."""
        return self.error is None


class HostSilentError(RunnelError):
    """A message was not tried, because its host has not answered others for a while."""


class RateLimitedError(RunnelError):
    """A message has to wait, because its recipient got as many as are allowed; `seconds` is for how long."""

    def __init__(self, message: str, *, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


def is_host_trouble(error: BaseException | None) -> bool:
    """Whether an error says that a host did not answer, rather than what it answered.

    >>> is_host_trouble(TimeoutError()), is_host_trouble(DeliveryError("the endpoint answered 500"))
    (True, False)
    """
    while error is not None:
        if isinstance(error, RefusedAddressError | StylesheetError):
            return False
        if isinstance(error, OSError | UnreachableError):
            return True
        error = error.__cause__
    return False


def retry_wait(attempts: int, error: Exception, schedule: Sequence[float]) -> float | None:
    """Seconds until a message is tried again after so many attempts; None if it is given up.

    >>> retry_wait(1, DeliveryError("busy", retry_after=60), (5, 300))
    60
    >>> retry_wait(3, DeliveryError("busy"), (5, 300)) is None
    True
    """
    asked: float | None = None
    if isinstance(error, DeliveryError):
        if error.permanent or error.gone:
            return None
        asked = error.retry_after
    elif isinstance(error, InputError) and not is_host_trouble(error):
        return None  # what was refused today (a stylesheet that failed, say) is refused tomorrow
    if attempts > len(schedule):
        return None
    return min(max(schedule[attempts - 1], asked or 0.0), _LONGEST_WAIT)


def _tell(attempt: Attempt, settled: SettledAttempt) -> None:
    """Say in the log what failed; of those that were not tried for the sake of a silent host only who asks hears."""
    if attempt.error is None or not settled.tried:
        return
    end = "is given up" if settled.state is MessageState.DEAD else "is tried again"
    level = logging.DEBUG if isinstance(attempt.error, HostSilentError) else logging.WARNING
    number = attempt.message.attempts + 1
    logger.log(level, "message %s failed (attempt %d) and %s: %s", attempt.message.key, number, end, settled.outcome)


def reason_of(error: Exception) -> str:
    """An error in words for the owner of the message, who does not see the admin's paths.

    >>> reason_of(PermissionError(13, "Permission denied", "/srv/runnel/items/1.arrow"))
    'PermissionError: Permission denied'
    """
    if isinstance(error, RunnelError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}: {error.strerror}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class AttemptRecorder:
    """Writes down how attempts ended."""

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        self._catalog = catalog
        self._schedule = settings.retry_seconds
        self._refusals = settings.refusals_to_disable
        self.transactions = 0
        self.seconds = 0.0

    def settle(self, epoch: int, attempts: Sequence[Attempt], ended: Sequence[int] = ()) -> int:
        """Write down attempts, and give up what was open for subscriptions that ended; gives how many were taken."""
        if not attempts and not ended:
            return 0
        started = perf_counter()
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            moment = now(connection)
            settled = [self._judge(one, moment) for one in attempts]
            ledger.settle_all(connection, settled)
            for one, result in zip(attempts, settled, strict=True):
                if result.state is MessageState.DEAD:
                    self._consider_disabling(connection, one)
            ledger.bury(connection, ended, "the subscription ended before this was sent")
        self.transactions += 1
        self.seconds += perf_counter() - started
        for one, result in zip(attempts, settled, strict=True):
            _tell(one, result)
        return sum(one.is_done for one in attempts)

    def _judge(self, attempt: Attempt, moment: int) -> SettledAttempt:
        message, error = attempt.message, attempt.error
        if error is None:
            return SettledAttempt(message, MessageState.DONE, attempt.outcome)
        reason = reason_of(error)
        if isinstance(error, BacklogError | RateLimitedError):
            seconds = error.seconds if isinstance(error, RateLimitedError) else _DEFERRED_SECONDS
            later = moment + int(seconds * 1e6)
            return SettledAttempt(message, MessageState.OPEN, reason, not_before=later, tried=False)
        wait = retry_wait(message.attempts + 1, error, self._schedule)
        if wait is None:
            return SettledAttempt(message, MessageState.DEAD, reason)
        # Those that failed together need not come again in the same instant.
        wait = min(wait * (1 + _JITTERING.uniform(0, _JITTER)), _LONGEST_WAIT)
        return SettledAttempt(message, MessageState.OPEN, reason, not_before=moment + int(wait * 1e6))

    def _consider_disabling(self, connection: Connection, attempt: Attempt) -> None:
        """Stop sending to an endpoint that wants no more, refuses every message, or took none for very long."""
        message, error, given_up = attempt.message, attempt.error, len(self._schedule) + 1
        is_refusal = message.attempts + 1 < given_up
        if error is None:
            return
        if isinstance(error, DeliveryError) and error.gone:
            reason = reason_of(error)
        elif is_refusal and ledger.gave_up_before(connection, message, self._refusals - 1):
            count = "a message was" if self._refusals == 1 else f"{self._refusals} messages in a row were"
            reason = f"{count} refused for good, the last with: {reason_of(error)}"
        elif not is_refusal and ledger.gave_up_before(connection, message, 1, attempts=given_up):
            reason = f"two messages in a row were given up, the last with: {reason_of(error)}"
        else:
            return
        held = subscriptions.subscription_by_number(connection, message.subscription)
        if held is not None:
            subscriptions.disable_subscription(connection, held, reason)
            logger.warning(
                "subscription %d is disabled, its messages wait for `resume subscription %d;`: %s",
                held.id,
                held.id,
                reason,
            )
