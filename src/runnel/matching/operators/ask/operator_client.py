"""A client for one operator: takes a batch of calls and returns one checked answer per call, whatever goes wrong.

A circuit breaker and the budget decide whether the operator is called at all, and each batch has a time limit. If a
batch fails as a whole, its calls are retried one by one, so that a call that crashes the operator does not fail the
others. Costs and failures are recorded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from runnel.matching.operators.ask.budget import Breaker, CallAllowance, Clock
from runnel.matching.operators.ask.notebook import Notebook
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.matching.operators.ask.question_keys import KeyMaker
from runnel.matching.operators.plugins.check_answers import InvalidAnswerError, check_answers
from runnel.matching.operators.plugins.contract import Answer, FailedCall, OperatorCall
from runnel.matching.operators.plugins.operator_process import OperatorHost, OperatorHostError, open_operator_host
from runnel.matching.operators.plugins.registry import is_builtin
from runnel.model.operator import OperatorDeclaration

_MAX_RETRY_TIME = 3
"""Total time of the successful retries of a failed batch, as a multiple of the operator's time limit."""

_MAX_FATAL_RETRIES = 3
"""Retried calls that may time out or crash the process before the remaining calls of the batch are abandoned."""


class OperatorClient:
    """Calls one operator. Thread-safe: up to `max_batches` batches may be in progress at once."""

    def __init__(
        self, declaration: OperatorDeclaration, environment: OperatorEnvironment, notebook: Notebook, clock: Clock
    ) -> None:
        self.declaration = declaration
        self.keys = KeyMaker(declaration, environment.folder)
        # A built-in operator handles concurrency itself, within a batch.
        is_plug_in = not is_builtin(declaration.source)
        self.max_batches = max(1, min(declaration.concurrency, environment.processes)) if is_plug_in else 1
        self._environment = environment
        self._notebook = notebook
        self._time_limit = declaration.time_limit.total_seconds()
        self._breaker = Breaker(clock)
        self._allowance = CallAllowance(declaration.budget, environment.share, clock)
        self._lock = Lock()
        self._idle_hosts: list[OperatorHost] = []
        self._is_closed = False

    def answer(self, calls: Sequence[OperatorCall]) -> list[Answer]:
        """Return one answer per call. Failures are answers, too; this method does not raise them."""
        if not self._breaker.allows():
            return [self._breaker_open()] * len(calls)
        allowed = self._allowance.take(len(calls))
        answers: list[Answer] = list(self._call_batch(calls[:allowed])) if allowed else []
        return answers + [self._over_budget()] * (len(calls) - allowed)

    def close(self) -> None:
        """Close all idle hosts. A host that is in use is closed when its batch ends."""
        with self._lock:
            self._is_closed = True
            idle_hosts, self._idle_hosts = self._idle_hosts, []
        for host in idle_hosts:
            host.close()

    def _call_batch(self, calls: Sequence[OperatorCall]) -> list[Answer]:
        try:
            return self._call_once(calls)
        except OperatorHostError as failure:
            # Retrying a single call helps only if the process died, which may have had an unrelated cause.
            is_retryable = failure.kind == "died" or (len(calls) > 1 and failure.kind != "refused")
            if not is_retryable:
                return [self._failed(failure)] * len(calls)
            return self._retry_individually(calls, failure)

    def _retry_individually(self, calls: Sequence[OperatorCall], batch_failure: OperatorHostError) -> list[Answer]:
        elapsed, fatal_failures = 0.0, 0
        answers: list[Answer] = []
        for call in calls:
            if not self._breaker.allows():
                answers.append(self._breaker_open())
            elif fatal_failures >= _MAX_FATAL_RETRIES or elapsed >= _MAX_RETRY_TIME * self._time_limit:
                reason = self._failed(batch_failure).reason
                answers.append(
                    FailedCall(
                        f"{reason}; not retried because retries of other calls of the batch failed or took too long"
                    )
                )
            elif not self._allowance.take(1):
                answers.append(self._over_budget())
            else:
                started = time.perf_counter()
                try:
                    answers += self._call_once([call])
                    elapsed += time.perf_counter() - started
                except OperatorHostError as failure:
                    answers.append(self._failed(failure))
                    fatal_failures += failure.kind != "raised"
        return answers

    def _call_once(self, calls: Sequence[OperatorCall]) -> list[Answer]:
        """Call the operator once, check its answers, and record cost and failures."""
        name, version = self.declaration.name, self.declaration.version
        started = time.perf_counter()
        failure: OperatorHostError | None = None
        answers: list[Answer] = []
        with self._borrow_host() as host:
            try:
                host.prepare()
                started = time.perf_counter()  # loading the operator does not count as cost of the calls
                raw_answers = host.answer(calls, self._time_limit)
            except OperatorHostError as error:
                failure = error
            seconds = time.perf_counter() - started
        if failure is None:
            try:
                answers = check_answers(raw_answers, len(calls), name, self.declaration.results)
            except InvalidAnswerError as error:
                failure = OperatorHostError(str(error), "raised")
        failures = len(calls) if failure else sum(isinstance(answer, FailedCall) for answer in answers)
        self._allowance.spend(seconds)
        self._notebook.note_calls(name, version, calls=len(calls), seconds=seconds, failures=failures)
        self._update_breaker(failure, seconds, all_failed=failures == len(calls))
        if failure is not None:
            raise failure
        return answers

    def _update_breaker(self, failure: OperatorHostError | None, seconds: float, *, all_failed: bool) -> None:
        """Open the breaker if the operator cannot be loaded, and count timeouts, crashes and slow failures.

        Fast failures cost little, so they do not open the breaker.
        """
        if failure is not None and failure.kind == "refused":
            self._breaker.record(failed=True, open_now=True)
            return
        is_fatal = failure is not None and failure.kind != "raised"
        is_slow = seconds >= self._time_limit / 2
        self._breaker.record(failed=is_fatal or (all_failed and is_slow))

    @contextmanager
    def _borrow_host(self) -> Iterator[OperatorHost]:
        """Yield an idle host or a new one, and return it to the idle hosts afterwards."""
        with self._lock:
            host = self._idle_hosts.pop() if self._idle_hosts else None
        environment = self._environment
        host = host or open_operator_host(
            self.declaration.source,
            environment.context(self.declaration),
            environment.modules,
            environment.megabytes,
        )
        try:
            yield host
        finally:
            with self._lock:
                is_closed = self._is_closed
                if not is_closed:
                    self._idle_hosts.append(host)
            if is_closed:
                host.close()

    def _failed(self, failure: OperatorHostError) -> FailedCall:
        return FailedCall(f"{self.declaration.name}: {failure.reason}")

    def _breaker_open(self) -> FailedCall:
        return FailedCall(
            f"{self.declaration.name}: not called because it failed recently; it is retried automatically",
            passing=True,
        )

    def _over_budget(self) -> FailedCall:
        budget = self.declaration.budget
        calls = [] if budget.calls is None else [f"{budget.calls:,} calls"]
        seconds = [] if budget.seconds is None else [f"{budget.seconds:g} seconds"]
        limits = " and ".join(calls + seconds)
        return FailedCall(f"{self.declaration.name}: over its budget of {limits} per minute", passing=True)
