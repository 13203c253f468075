"""The client of one operator: batches of asks in, checked answers out, whatever the operator does.

Its breaker and its budget decide whether it is asked, and its time limit for how long. When a batch fails as a whole,
its asks are tried one by one, so that one that kills the operator does not fail its neighbors; all of that takes a
few time limits at most. Costs and failures are noted.
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
from runnel.matching.operators.plugins.check_answers import InvalidAnswerError, checked_answers
from runnel.matching.operators.plugins.contract import Answer, Ask, Failed
from runnel.matching.operators.plugins.operator_process import OperatorHost, OperatorHostError, open_operator_host
from runnel.matching.operators.plugins.registry import is_shipped
from runnel.model.operator import OperatorDeclaration

RETRY_LIMITS = 3
"""Time limits that the asks of a failed batch may take together when they are tried one by one, and how many of them
may be late or end their process before the others are given up."""


class OperatorClient:
    """Asks one operator. Several batches may be under way at once, as many as `lanes`."""

    def __init__(
        self, declaration: OperatorDeclaration, environment: OperatorEnvironment, notebook: Notebook, clock: Clock
    ) -> None:
        self.declaration = declaration
        self.keys = KeyMaker(declaration, environment.folder)
        # An operator that comes with Runnel decides itself how many asks of a batch it answers at once.
        is_plug_in = not is_shipped(declaration.source)
        self.lanes = max(1, min(declaration.concurrency, environment.processes)) if is_plug_in else 1
        self._environment = environment
        self._notebook = notebook
        self._limit = declaration.time_limit.total_seconds()
        self._breaker = Breaker(clock)
        self._allowance = CallAllowance(declaration.budget, environment.share, clock)
        self._lock = Lock()
        self._idle: list[OperatorHost] = []
        self._closed = False

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        """The answers to a batch, one for each ask."""
        if not self._breaker.allows():
            return [self._resting()] * len(asks)
        allowed = self._allowance.take(len(asks))
        answers: list[Answer] = list(self._attempt(asks[:allowed])) if allowed else []
        return answers + [self._over_budget()] * (len(asks) - allowed)

    def close(self) -> None:
        """End all processes that have nothing to do; the others end with their batch."""
        with self._lock:
            self._closed = True
            ended, self._idle = self._idle, []
        for host in ended:
            host.close()

    def _attempt(self, asks: Sequence[Ask]) -> list[Answer]:
        try:
            return self._exchange(asks)
        except OperatorHostError as failure:
            # A process may be ended by somebody else; whatever else befell a single ask would befall it again.
            if failure.kind == "refused" or (len(asks) == 1 and failure.kind != "died"):
                return [self._failed(failure)] * len(asks)
            return self._one_by_one(asks, failure)

    def _one_by_one(self, asks: Sequence[Ask], first: OperatorHostError) -> list[Answer]:
        spent, fatal = 0.0, 0
        answers: list[Answer] = []
        for ask in asks:
            if not self._breaker.allows():
                answers.append(self._resting())
            elif fatal >= RETRY_LIMITS or spent >= RETRY_LIMITS * self._limit:
                answers.append(
                    Failed(f"{self._failed(first).reason}; others of its batch failed, so it was given up")
                )
            elif not self._allowance.take(1):
                answers.append(self._over_budget())
            else:
                began = time.perf_counter()
                try:
                    answers += self._exchange([ask])
                    spent += time.perf_counter() - began
                except OperatorHostError as failure:
                    answers.append(self._failed(failure))
                    fatal += failure.kind != "raised"
        return answers

    def _exchange(self, asks: Sequence[Ask]) -> list[Answer]:
        """Ask once, and note what came of it."""
        name, version = self.declaration.name, self.declaration.version
        began = time.perf_counter()
        failure: OperatorHostError | None = None
        answers: list[Answer] = []
        with self._host() as host:
            try:
                host.prepare()
                began = time.perf_counter()  # what a process needs to begin is no cost of a call
                said = host.answer(asks, self._limit)
            except OperatorHostError as error:
                failure = error
            seconds = time.perf_counter() - began
        if failure is None:
            try:
                answers = checked_answers(said, len(asks), name, self.declaration.results)
            except InvalidAnswerError as wrong:
                failure = OperatorHostError(str(wrong), "raised")
        failures = len(asks) if failure else sum(isinstance(one, Failed) for one in answers)
        self._allowance.spend(seconds)
        self._notebook.note_calls(name, version, calls=len(asks), seconds=seconds, failures=failures)
        self._note_breaker(failure, seconds, failures == len(asks))
        if failure is not None:
            raise failure
        return answers

    def _note_breaker(self, failure: OperatorHostError | None, seconds: float, all_failed: bool) -> None:
        """Failures that take time make an operator rest; those that come at once cost nothing and hide nothing."""
        if failure is not None and failure.kind == "refused":
            self._breaker.note(failed=True, at_once=True)
        elif (failure is not None and failure.kind != "raised") or (all_failed and seconds >= self._limit / 2):
            self._breaker.note(failed=True)
        else:
            self._breaker.note(failed=False)

    @contextmanager
    def _host(self) -> Iterator[OperatorHost]:
        with self._lock:
            host = self._idle.pop() if self._idle else None
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
                keep = not self._closed
                if keep:
                    self._idle.append(host)
            if not keep:
                host.close()

    def _failed(self, failure: OperatorHostError) -> Failed:
        return Failed(f"{self.declaration.name}: {failure.reason}")

    def _resting(self) -> Failed:
        return Failed(
            f"{self.declaration.name} failed several times in a row and is asked again in some seconds", passing=True
        )

    def _over_budget(self) -> Failed:
        budget = self.declaration.budget
        of_calls = [] if budget.calls is None else [f"{budget.calls:,} calls"]
        of_seconds = [] if budget.seconds is None else [f"{budget.seconds:g} seconds"]
        shown = " and ".join(of_calls + of_seconds)
        return Failed(f"{self.declaration.name}: over budget, which is {shown} in a minute", passing=True)
