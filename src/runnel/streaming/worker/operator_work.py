"""Operators in a Spark worker, and what it reports of them to the commit."""

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
    """The operators of the workspace that this process works for."""
    storage = open_storage(storage_url)
    opened = Operators(storage, OperatorEnvironment.kept(storage, share))
    opened.caller.notebook.on_calls = lambda: touch_mark(storage)
    return opened


@lru_cache(maxsize=2)
def declarations_at(storage_url: str, path: str | None) -> tuple[OperatorDeclaration, ...]:
    """The operators that a snapshot names; read once for all slices that name the same file."""
    return () if path is None else read_declarations(open_storage(storage_url), path)


@lru_cache(maxsize=2)
def _read_learned(storage_url: str, path: str) -> OperatorStatistics:
    return OperatorStatistics.from_json(json.loads(open_storage(storage_url).read(path)))


def learned_at(storage: Storage, path: str | None) -> OperatorStatistics:
    """What was learned of operators; nothing where the file is gone, since it only affects speed."""
    if path is None:
        return OperatorStatistics()
    try:
        return _read_learned(storage.url, path)
    except (OSError, ValueError):
        logger.warning("what was learned of operators could not be read from %s", path)
        return OperatorStatistics()


@dataclass
class UndecidedItems:
    """What operators left undecided in some slices: by operator and reason, the items and their queries."""

    by_reason: dict[tuple[Key, str, bool], dict[int, list[int]]] = field(default_factory=dict)

    def add(self, items: ItemBatch, unknown: tuple[UndecidedQuery, ...]) -> None:
        """Add what is unknown of a batch."""
        for one in unknown:
            rows = self.by_reason.setdefault((one.operator, one.reason, one.passing), {})
            rows.setdefault(int(items.sequences[one.row]), []).append(one.query)

    def to_json(self) -> list[object]:
        """As a JSON value."""
        return [
            [list(operator), reason, passing, [[sequence, queries] for sequence, queries in rows.items()]]
            for (operator, reason, passing), rows in self.by_reason.items()
        ]


def counted(decided: Decisions) -> Counter[str]:
    """The counters of a batch that operators decided."""
    return Counter(
        operator_calls=decided.calls, operator_rounds=decided.rounds, operator_unknown=len(decided.unknown)
    )
