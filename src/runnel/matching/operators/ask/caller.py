"""Calling operators about items. In: questions about items. Out: one answer per question.

A question that several items repeat is sent to a pure operator once, unless the cache has its answer. The remaining
questions are split into batches, which the clients of all operators send concurrently. New answers of pure operators
are added to the cache.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache

from runnel.matching.operators.ask.answer_cache import AnswerCache
from runnel.matching.operators.ask.budget import Clock
from runnel.matching.operators.ask.cache_files import CacheDraft
from runnel.matching.operators.ask.notebook import Notebook
from runnel.matching.operators.ask.operator_client import OperatorClient
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.matching.operators.ask.question_keys import Contents
from runnel.matching.operators.plugins.contract import Answer, FailedCall, OperatorCall, Question
from runnel.matching.operators.plugins.registry import is_builtin
from runnel.model.learned.operator_statistics import OperatorStatistics
from runnel.model.operator import OperatorDeclaration
from runnel.storage.file_storage import Storage

_MAX_THREADS = 64
_WAITING_SOURCES = ("http", "lookup", "rules")
"""Built-in operators that wait for a service, a database or another process."""


@dataclass
class _Group:
    """The calls of one operator, and for each call the positions of the questions that need its answer."""

    client: OperatorClient
    calls: list[OperatorCall] = field(default_factory=list)
    positions: list[list[int]] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)


class Caller:
    """Calls operators about items. Not thread-safe. A worker uses one caller as long as it runs."""

    def __init__(
        self,
        environment: OperatorEnvironment,
        declarations: Mapping[tuple[str, int], OperatorDeclaration],
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        self._environment = environment
        self._clock = clock
        self.notebook = Notebook()
        self._cache = AnswerCache(environment.memory_bytes)
        self._contents = Contents()
        self._declarations: dict[tuple[str, int], OperatorDeclaration] = {}
        self._clients: dict[tuple[str, int], OperatorClient] = {}
        self._threads: ThreadPoolExecutor | None = None
        self.use_declarations(declarations)

    def use_declarations(self, declarations: Mapping[tuple[str, int], OperatorDeclaration]) -> None:
        """Use these operators from now on. Close the clients of operators that were removed or changed."""
        self._declarations = dict(declarations)
        for operator, client in list(self._clients.items()):
            if declarations.get(operator) != client.declaration:
                self._clients.pop(operator).close()

    def use_segments(self, storage: Storage, paths: Iterable[str]) -> None:
        """Search these segments for answers, too. `paths` lists the newest segment last."""
        self._cache.use_segments(storage, paths)

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer per question, in order. Failures are answers, too; this method does not raise them."""
        answers: list[Answer | None] = [None] * len(questions)
        groups = self._group_questions(questions, answers)
        for group in groups:
            if group.client.declaration.pure:
                self._use_cached_answers(group, answers)
        self._call_operators([group for group in groups if group.calls], answers)
        return [FailedCall("the operator was not called") if answer is None else answer for answer in answers]

    def take_unsaved(self) -> CacheDraft:
        """Return the answers of pure operators that are in no segment yet, and release all items.

        A worker calls this method at the end of a task.
        """
        self._contents.clear()
        return self._cache.take_unsaved()

    def take_learned(self) -> OperatorStatistics:
        """Return the statistics that were recorded since the last call."""
        return self.notebook.take()

    def close(self) -> None:
        """Close the clients of all operators, which ends their idle processes."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def _group_questions(self, questions: Sequence[Question], answers: list[Answer | None]) -> list[_Group]:
        """Group the questions by operator. Questions with the same key to a pure operator become one call."""
        groups: dict[tuple[str, int], _Group] = {}
        by_key: dict[tuple[tuple[str, int], bytes], int] = {}
        for position, question in enumerate(questions):
            operator = question.operator
            group = groups.get(operator)
            if group is None:
                client = self._client(operator)
                if client is None:
                    answers[position] = FailedCall(f"operator {operator[0]} version {operator[1]} is not registered")
                    continue
                group = groups[operator] = _Group(client)
            attributes, content = self._contents.read(question.attributes, group.client.declaration.reads)
            if group.client.declaration.pure:
                key = group.client.keys.key(question.inputs, content)
                index = by_key.setdefault((operator, key), len(group.calls))
                if index < len(group.calls):
                    group.positions[index].append(position)
                    continue
                group.keys.append(key)
            group.calls.append(OperatorCall(attributes, question.inputs))
            group.positions.append([position])
        return list(groups.values())

    def _client(self, operator: tuple[str, int]) -> OperatorClient | None:
        declaration = self._declarations.get(operator)
        if declaration is None:
            return None
        if operator not in self._clients:
            self._clients[operator] = OperatorClient(declaration, self._environment, self.notebook, self._clock)
        return self._clients[operator]

    def _use_cached_answers(self, group: _Group, answers: list[Answer | None]) -> None:
        """Fill in the answers that are cached, and remove their calls from the group."""
        cached = self._cache.find(group.keys)
        hits, missing = 0, []
        for index, key in enumerate(group.keys):
            rows = cached.get(key)
            if rows is None:
                missing.append(index)
                continue
            hits += len(group.positions[index])
            for position in group.positions[index]:
                answers[position] = rows
        group.calls = [group.calls[index] for index in missing]
        group.positions = [group.positions[index] for index in missing]
        group.keys = [group.keys[index] for index in missing]
        if hits:
            declaration = group.client.declaration
            self.notebook.note_calls(declaration.name, declaration.version, hits=hits)

    def _call_operators(self, groups: Sequence[_Group], answers: list[Answer | None]) -> None:
        """Call all operators concurrently, each with at most its number of concurrent batches."""
        tasks: list[tuple[_Group, deque[range]]] = []
        for group in groups:
            size = max(1, group.client.declaration.batch)
            batches = deque(
                range(first, min(first + size, len(group.calls))) for first in range(0, len(group.calls), size)
            )
            tasks += [(group, batches)] * min(group.client.max_batches, len(batches))
        # Operators that compute in this process are called here, one after another, while threads wait for the other
        # operators. Computing in threads would not be faster, because only one of them can run at a time, and the
        # measured cost of a call would include the time of the others.
        inline = [number for number, (group, _) in enumerate(tasks) if _computes(group.client.declaration.source)]
        if len(tasks) == 1:
            inline = [0]
        elif len(inline) < len(tasks) and self._threads is None:
            self._threads = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="operators")
        futures = {
            number: self._threads.submit(_call_batches, *task)
            for number, task in enumerate(tasks)
            if self._threads is not None and number not in inline
        }
        new_answers = {number: _call_batches(*tasks[number]) for number in inline}
        new_answers |= {number: future.result() for number, future in futures.items()}
        for number, (group, _) in enumerate(tasks):
            self._add_answers(group, new_answers[number], answers)

    def _add_answers(self, group: _Group, new_answers: Mapping[int, Answer], answers: list[Answer | None]) -> None:
        for index, answer in new_answers.items():
            for position in group.positions[index]:
                answers[position] = answer
            if group.client.declaration.pure and not isinstance(answer, FailedCall):
                self._cache.add(group.keys[index], answer)


@lru_cache(maxsize=1024)
def _computes(source: str) -> bool:
    """Return whether an operator only computes in this process, and does not wait for anything outside."""
    return is_builtin(source) and source not in _WAITING_SOURCES


def _call_batches(group: _Group, batches: deque[range]) -> dict[int, Answer]:
    """Call the operator with batches until the queue is empty. Return the answers by the index of their call."""
    answers: dict[int, Answer] = {}
    while True:
        try:
            batch = batches.popleft()
        except IndexError:
            return answers
        answers.update(zip(batch, group.client.answer([group.calls[index] for index in batch]), strict=True))
