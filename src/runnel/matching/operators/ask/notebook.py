"""Statistics about operator calls and tests, collected by a worker.

`Caller` records calls, `decide` records tests. The statistics are committed with the batch, so that they count once.
`model.learned.operator_statistics` describes how they are used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from threading import Lock

from runnel.model.learned.operator_statistics import TEST_BYTES, OperatorStatistics, OperatorUse, operator_key
from runnel.model.learned.stream_statistics import ObservedShare


def key_of_test(text: str) -> bytes:
    """Return the digest that identifies a test. `text` is its term's canonical text, with operator versions.

    >>> key_of_test("mobPattern@1(?1) and ?1 > 50").hex()
    'f5343c315c217e8c31ee67511204d6fe'
    """
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=TEST_BYTES, person=b"runnel test/1").digest()


class Notebook:
    """Collects statistics until they are taken. Thread-safe.

    >>> notebook = Notebook()
    >>> notebook.note_calls("mob", 1, calls=2, seconds=0.08)
    >>> notebook.note_test(key_of_test("mob@1()"), asked=2, passed=1)
    >>> notebook.take().operators
    {'mob 1': OperatorUse(calls=2.0, seconds=0.08, failures=0.0, hits=0.0)}
    >>> notebook.take()
    OperatorStatistics(operators={}, tests={})
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._operators: dict[str, OperatorUse] = {}
        self._tests: dict[bytes, ObservedShare] = {}
        self.on_calls: Callable[[], None] = lambda: None
        """Called after every `note_calls`."""

    def note_calls(
        self, name: str, version: int, *, calls: int = 0, seconds: float = 0.0, failures: int = 0, hits: int = 0
    ) -> None:
        """Record calls of an operator, their total seconds, the number of failures, and answers from the cache."""
        key = operator_key(name, version)
        with self._lock:
            use = self._operators.get(key, OperatorUse())
            self._operators[key] = use.plus(OperatorUse(float(calls), seconds, float(failures), float(hits)))
        self.on_calls()

    def note_test(self, test: bytes, *, asked: int, passed: int) -> None:
        """Record for how many items a test was evaluated, and for how many it passed."""
        with self._lock:
            share = self._tests.get(test, ObservedShare(0.0, 0.0))
            self._tests[test] = ObservedShare(share.asked + asked, share.held + passed)

    def take(self) -> OperatorStatistics:
        """Return everything that was recorded since the last `take`."""
        with self._lock:
            statistics = OperatorStatistics(self._operators, self._tests)
            self._operators, self._tests = {}, {}
        return statistics
