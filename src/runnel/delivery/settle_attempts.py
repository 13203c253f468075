"""Settling: decides what the result of an attempt means for its message, and records it in the ledger.

In: results of attempts. Out: one transaction for many attempts, under the runner's lease. A failed message is retried
after the waits of the setting `retry_seconds`, or later if the endpoint asked for a longer wait. After a permanent
failure, or at the end of the schedule, it becomes a dead letter. A subscription is disabled if its endpoint is gone,
if several messages in a row were given up and the last one was permanently refused, or if two messages in a row
failed until the end of the schedule.
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

_MAX_WAIT_SECONDS = 86_400.0
_JITTER = 0.1
_DEFERRED_SECONDS = 5.0
_RANDOM = random.Random()  # noqa: S311


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of one attempt to deliver a message: the outcome that the sink returned, or the error."""

    message: Message
    outcome: str = ""
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        """Whether the message was delivered."""
        return self.error is None


class HostSilentError(RunnelError):
    """A message was not attempted, because its host did not respond to earlier messages."""


class RateLimitedError(RunnelError):
    """A message has to wait `seconds`, because its recipient got as many messages as the hourly limit allows."""

    def __init__(self, message: str, *, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


def is_host_trouble(error: BaseException | None) -> bool:
    """Return whether an error means that a host did not respond, as opposed to an error response.

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
    """Return the seconds until the next attempt after `attempts` attempts, or None if the message is given up.

    >>> retry_wait(1, DeliveryError("busy", retry_after=60), (5, 300))
    60
    >>> retry_wait(3, DeliveryError("busy"), (5, 300)) is None
    True
    """
    requested: float | None = None
    if isinstance(error, DeliveryError):
        if error.permanent or error.gone:
            return None
        requested = error.retry_after
    elif isinstance(error, InputError) and not is_host_trouble(error):
        return None  # would fail again in the same way, for example a stylesheet with an error
    if attempts > len(schedule):
        return None
    return min(max(schedule[attempts - 1], requested or 0.0), _MAX_WAIT_SECONDS)


def _log_failure(attempt: Attempt, settled: SettledAttempt) -> None:
    """Log a failed attempt as a warning, or at debug level if it was not made because its host is paused."""
    if attempt.error is None or not settled.tried:
        return
    consequence = "it is given up" if settled.state is MessageState.DEAD else "it is tried again later"
    level = logging.DEBUG if isinstance(attempt.error, HostSilentError) else logging.WARNING
    number = attempt.message.attempts + 1
    logger.log(
        level, "attempt %d of message %s failed (%s): %s", number, attempt.message.key, consequence, settled.outcome
    )


def reason_of(error: Exception) -> str:
    """Format an error for the owner of a message, without paths of the workspace.

    >>> reason_of(PermissionError(13, "Permission denied", "/srv/runnel/items/1.arrow"))
    'PermissionError: Permission denied'
    """
    if isinstance(error, RunnelError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}: {error.strerror}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class AttemptRecorder:
    """Records the results of attempts in the ledger."""

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        self._catalog = catalog
        self._schedule = settings.retry_seconds
        self._refusals_to_disable = settings.refusals_to_disable
        self.transactions = 0
        self.seconds = 0.0

    def settle(self, epoch: int, attempts: Sequence[Attempt], ended: Sequence[int] = ()) -> int:
        """Record attempts, and give up the open messages of `ended` subscriptions. Return how many were delivered."""
        if not attempts and not ended:
            return 0
        started = perf_counter()
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            moment = now(connection)
            settled = [self._settle_attempt(attempt, moment) for attempt in attempts]
            ledger.settle_all(connection, settled)
            for attempt, result in zip(attempts, settled, strict=True):
                if result.state is MessageState.DEAD:
                    self._disable_after_failures(connection, attempt)
            ledger.bury(connection, ended, "the subscription ended before this message was sent")
        self.transactions += 1
        self.seconds += perf_counter() - started
        for attempt, result in zip(attempts, settled, strict=True):
            _log_failure(attempt, result)
        return sum(attempt.is_done for attempt in attempts)

    def _settle_attempt(self, attempt: Attempt, moment: int) -> SettledAttempt:
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
        # Messages that failed together should not all be retried at the same moment.
        wait = min(wait * (1 + _RANDOM.uniform(0, _JITTER)), _MAX_WAIT_SECONDS)
        return SettledAttempt(message, MessageState.OPEN, reason, not_before=moment + int(wait * 1e6))

    def _disable_after_failures(self, connection: Connection, attempt: Attempt) -> None:
        """Disable the subscription of a dead letter under the conditions in the module docstring."""
        message, error, max_attempts = attempt.message, attempt.error, len(self._schedule) + 1
        is_refusal = message.attempts + 1 < max_attempts
        if error is None:
            return
        if isinstance(error, DeliveryError) and error.gone:
            reason = reason_of(error)
        elif is_refusal and ledger.gave_up_before(connection, message, self._refusals_to_disable - 1):
            if self._refusals_to_disable == 1:
                reason = f"a message was permanently refused: {reason_of(error)}"
            else:
                count = self._refusals_to_disable
                cause = f"the last was permanently refused: {reason_of(error)}"
                reason = f"{count} messages in a row were given up, {cause}"
        elif not is_refusal and ledger.gave_up_before(connection, message, 1, attempts=max_attempts):
            reason = f"two messages in a row failed in all attempts, the last with: {reason_of(error)}"
        else:
            return
        subscription = subscriptions.subscription_by_number(connection, message.subscription)
        if subscription is not None:
            subscriptions.disable_subscription(connection, subscription, reason)
            logger.warning(
                "subscription %d is disabled (to enable it, run `resume subscription %d;`): %s",
                subscription.id,
                subscription.id,
                reason,
            )
