"""The operators of a Spark worker, and the reports about them that a worker sends to the commit."""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.matching.operators.decide.decider import Decisions, Key, UndecidedQuery
from runnel.matching.operators.decide.operators_in_process import Operators
from runnel.model.item_batch import ItemBatch
from runnel.model.learned.operator_statistics import OperatorStatistics
from runnel.model.operator import OperatorDeclaration
from runnel.storage.file_storage import Storage, open_storage
from runnel.streaming.operator_snapshot import read_declarations
from runnel.streaming.worker.progress_mark import touch_mark

logger = logging.getLogger("runnel")


@lru_cache(maxsize=1)
def operators(storage_url: str, share: float) -> Operators:
    """Return the operators of the workspace, which may use `share` of their budgets in this process."""
    storage = open_storage(storage_url)
    opened = Operators(storage, OperatorEnvironment.kept(storage, share))
    opened.caller.notebook.on_calls = lambda: touch_mark(storage)
    return opened


@lru_cache(maxsize=2)
def load_declarations(storage_url: str, path: str | None) -> tuple[OperatorDeclaration, ...]:
    """Return the declarations of a snapshot. The file is read once for all slices that refer to it."""
    return () if path is None else read_declarations(open_storage(storage_url), path)


@lru_cache(maxsize=2)
def _read_statistics(storage_url: str, path: str) -> OperatorStatistics:
    return OperatorStatistics.from_json(json.loads(open_storage(storage_url).read(path)))


def load_statistics(storage: Storage, path: str | None) -> OperatorStatistics:
    """Return the operator statistics of a snapshot, or none if the file cannot be read: they affect only speed."""
    if path is None:
        return OperatorStatistics()
    try:
        return _read_statistics(storage.url, path)
    except (OSError, ValueError):
        logger.warning("cannot read the operator statistics in %s; continuing without them", path)
        return OperatorStatistics()


@dataclass
class UndecidedItems:
    """Items that operators left undecided.

    `by_reason` maps (operator, reason, whether the failure is temporary) to the queries of each item, by sequence.
    """

    by_reason: dict[tuple[Key, str, bool], dict[int, list[int]]] = field(default_factory=dict)

    def add(self, items: ItemBatch, unknown: tuple[UndecidedQuery, ...]) -> None:
        """Add the undecided queries of a batch of items."""
        for undecided in unknown:
            key = (undecided.operator, undecided.reason, undecided.passing)
            sequence = int(items.sequences[undecided.row])
            self.by_reason.setdefault(key, {}).setdefault(sequence, []).append(undecided.query)

    def to_json(self) -> list[object]:
        """Return the items as a JSON value."""
        return [
            [list(operator), reason, passing, [[sequence, queries] for sequence, queries in rows.items()]]
            for (operator, reason, passing), rows in self.by_reason.items()
        ]


def operator_counters(decided: Decisions) -> Counter[str]:
    """Return the operator counters of a batch."""
    return Counter(
        operator_calls=decided.calls, operator_rounds=decided.rounds, operator_unknown=len(decided.unknown)
    )
