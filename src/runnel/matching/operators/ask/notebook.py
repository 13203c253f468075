"""Taking notes: calls that were made and tests that passed in, what is learned of them out.

The caller notes calls; who decides ways notes tests. What was noted travels to the commit of the batch, so that it
counts once. `model.learned.operator_statistics` says what becomes of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from threading import Lock

from runnel.model.learned.operator_statistics import TEST_BYTES, OperatorStatistics, OperatorUse, operator_key
from runnel.model.learned.stream_statistics import ObservedShare


def key_of_test(text: str) -> bytes:
    """The digest under which a test is learned: of its term's canonical text, with versions of operators.

    >>> key_of_test("mobPattern@1(?1) and ?1 > 50").hex()
    'f5343c315c217e8c31ee67511204d6fe'
    """
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=TEST_BYTES, person=b"runnel test/1").digest()


class Notebook:
    """What was observed since it was last taken. May be written in from several threads.

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
        """Called whenever calls were noted."""

    def note_calls(
        self, name: str, version: int, *, calls: int = 0, seconds: float = 0.0, failures: int = 0, hits: int = 0
    ) -> None:
        """Note calls of an operator, how long they took together, how many failed, and answers that were known."""
        key = operator_key(name, version)
        with self._lock:
            known = self._operators.get(key, OperatorUse())
            self._operators[key] = known.plus(OperatorUse(float(calls), seconds, float(failures), float(hits)))
        self.on_calls()

    def note_test(self, test: bytes, *, asked: int, passed: int) -> None:
        """Note of a test for how many items it was asked, and for how many it passed."""
        with self._lock:
            known = self._tests.get(test, ObservedShare(0.0, 0.0))
            self._tests[test] = ObservedShare(known.asked + asked, known.held + passed)

    def take(self) -> OperatorStatistics:
        """All that was noted since the last time."""
        with self._lock:
            taken = OperatorStatistics(self._operators, self._tests)
            self._operators, self._tests = {}, {}
        return taken
