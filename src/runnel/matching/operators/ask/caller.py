"""Asking operators: questions about items in, an answer for each out; see `Caller`.

Repeated questions to pure operators are asked once, and known answers are found in the cache. The rest is cut into
batches, which the clients of all operators send at the same time. New answers are known from then on.
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
from runnel.matching.operators.plugins.contract import Answer, Ask, Failed, Question
from runnel.matching.operators.plugins.registry import is_shipped
from runnel.model.learned.operator_statistics import OperatorStatistics
from runnel.model.operator import OperatorDeclaration
from runnel.storage.file_storage import Storage

_MOST_LANES = 64
_WAITING = ("http", "lookup", "rules")
"""Operators that come with Runnel and wait for a service, a database or another process."""


@dataclass
class _Group:
    """The asks that one operator needs, and for each the positions of the questions that wait for its answer."""

    client: OperatorClient
    asks: list[Ask] = field(default_factory=list)
    positions: list[list[int]] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)


class Caller:
    """Asks operators about items. To be used from one thread; kept for the life of a worker."""

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
        """Use these operators from now on; the processes of all others are ended."""
        self._declarations = dict(declarations)
        for operator in [one for one in self._clients if declarations.get(one) != self._clients[one].declaration]:
            self._clients.pop(operator).close()

    def use_segments(self, storage: Storage, paths: Iterable[str]) -> None:
        """Look for answers in these files as well, the newest last."""
        self._cache.use_segments(storage, paths)

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """An answer for every question, in order. Failures are answers too; nothing is raised for them."""
        answers: list[Answer | None] = [None] * len(questions)
        groups = self._grouped(questions, answers)
        for group in groups:
            if group.client.declaration.pure:
                self._find_known(group, answers)
        self._ask_all([group for group in groups if group.asks], answers)
        return [Failed("it was not asked") if one is None else one for one in answers]

    def take_fresh(self) -> CacheDraft:
        """The answers of pure operators that are in no file yet; for the end of a task. Items are released, too."""
        self._contents.forget()
        return self._cache.take_fresh()

    def take_learned(self) -> OperatorStatistics:
        """What was observed since the last time."""
        return self.notebook.take()

    def close(self) -> None:
        """End all processes."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def _grouped(self, questions: Sequence[Question], answers: list[Answer | None]) -> list[_Group]:
        """The questions by operator; for a pure one, those of one key are one."""
        groups: dict[tuple[str, int], _Group] = {}
        by_key: dict[tuple[tuple[str, int], bytes], int] = {}
        for position, question in enumerate(questions):
            operator = question.operator
            group = groups.get(operator)
            if group is None:
                client = self._client(operator)
                if client is None:
                    answers[position] = Failed(f"there is no operator {operator[0]} of version {operator[1]}")
                    continue
                group = groups[operator] = _Group(client)
            seen, content = self._contents.read(question.attributes, group.client.declaration.reads)
            if group.client.declaration.pure:
                key = group.client.keys.key(question.inputs, content)
                known = by_key.setdefault((operator, key), len(group.asks))
                if known < len(group.asks):
                    group.positions[known].append(position)
                    continue
                group.keys.append(key)
            group.asks.append(Ask(seen, question.inputs))
            group.positions.append([position])
        return list(groups.values())

    def _client(self, operator: tuple[str, int]) -> OperatorClient | None:
        declaration = self._declarations.get(operator)
        if declaration is None:
            return None
        if operator not in self._clients:
            self._clients[operator] = OperatorClient(declaration, self._environment, self.notebook, self._clock)
        return self._clients[operator]

    def _find_known(self, group: _Group, answers: list[Answer | None]) -> None:
        """Answer what is known, and leave the rest in the group."""
        found = self._cache.find(group.keys)
        hits, left = 0, []
        for number, key in enumerate(group.keys):
            rows = found.get(key)
            if rows is None:
                left.append(number)
                continue
            hits += len(group.positions[number])
            for position in group.positions[number]:
                answers[position] = rows
        group.asks = [group.asks[number] for number in left]
        group.positions = [group.positions[number] for number in left]
        group.keys = [group.keys[number] for number in left]
        if hits:
            declaration = group.client.declaration
            self.notebook.note_calls(declaration.name, declaration.version, hits=hits)

    def _ask_all(self, groups: Sequence[_Group], answers: list[Answer | None]) -> None:
        """Ask what is left, all operators side by side; each runs as many batches at once as it may."""
        lanes: list[tuple[_Group, deque[range]]] = []
        for group in groups:
            size = max(1, group.client.declaration.batch)
            batches = deque(
                range(first, min(first + size, len(group.asks))) for first in range(0, len(group.asks), size)
            )
            lanes += [(group, batches)] * min(group.client.lanes, len(batches))
        # Operators that compute in this process run here, one after another, while others wait for theirs in threads:
        # threads would only take turns, and the measured cost of a call would be mostly that of its neighbors.
        here = [lane for lane, (group, _) in enumerate(lanes) if _computes(group.client.declaration.source)]
        if len(lanes) == 1:
            here = [0]
        elif len(here) < len(lanes) and self._threads is None:
            self._threads = ThreadPoolExecutor(_MOST_LANES, thread_name_prefix="operators")
        started = {
            lane: self._threads.submit(_run_lane, *work)
            for lane, work in enumerate(lanes)
            if self._threads is not None and lane not in here
        }
        given = {lane: _run_lane(*lanes[lane]) for lane in here}
        given |= {lane: future.result() for lane, future in started.items()}
        for lane, (group, _) in enumerate(lanes):
            self._take_in(group, given[lane], answers)

    def _take_in(self, group: _Group, given: Mapping[int, Answer], answers: list[Answer | None]) -> None:
        for number, answer in given.items():
            for position in group.positions[number]:
                answers[position] = answer
            if group.client.declaration.pure and not isinstance(answer, Failed):
                self._cache.add(group.keys[number], answer)


@lru_cache(maxsize=1024)
def _computes(source: str) -> bool:
    """Whether an operator does nothing but compute in this process."""
    return is_shipped(source) and source not in _WAITING


def _run_lane(group: _Group, batches: deque[range]) -> dict[int, Answer]:
    """Ask batches until there are none left; answers by the numbers of their asks."""
    given: dict[int, Answer] = {}
    while True:
        try:
            batch = batches.popleft()
        except IndexError:
            return given
        given.update(zip(batch, group.client.answer([group.asks[number] for number in batch]), strict=True))
