"""What a worker found in some slices, until it is written: matches, claims, failures, and what operators left open.

An item may match ten thousand queries, so only the stored form is kept. Matches never travel through Spark: they are
written here, and what goes on is where they are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from runnel.logs.matches.match_files import match_records, write_part
from runnel.matching.costs.observe_stream import Observer, observations_to_json
from runnel.matching.gates.claims import Claims
from runnel.matching.operators.decide.decider import Decider, for_queries_alone
from runnel.matching.operators.decide.operators_in_process import Operators
from runnel.matching.patterns.bind_variables import united_bindings
from runnel.model.bindings import MatchBindings
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.storage.file_storage import Storage
from runnel.streaming.operator_snapshot import OperatorSnapshot
from runnel.streaming.worker.operator_work import UndecidedItems, counted, operators
from runnel.streaming.worker.plan_cache import CachedPlan
from runnel.streaming.worker.progress_mark import touch_mark

PART_DDL = "part string, claims binary"
PART_SCHEMA = pa.schema([("part", pa.string()), ("claims", pa.binary())])

_PIECE = 2048
"""Items that are matched at once: few enough for their matches to find room in memory that was used before."""

MOST_BYTES = 32 << 20
"""What a worker holds of matches before it writes them: one item may match ten thousand queries."""


@dataclass
class MatchBuffer:
    """What was found in some slices."""

    plan: int = 0
    matches: int = 0
    size: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    observed: list[dict[str, object]] = field(default_factory=list)
    failures: list[list[Any]] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)
    claims: list[Claims] = field(default_factory=list)
    undecided: UndecidedItems = field(default_factory=UndecidedItems)
    operators: Operators | None = None
    work: dict[int, Counter[str]] = field(default_factory=dict)
    """What the parts of a distributed plan took, by their numbers."""
    unmatched: int = 0
    """Items that filters let through nowhere, counted once for each plan they were matched with."""

    def add(self, storage: Storage, items: ItemBatch, loaded: CachedPlan, brief: OperatorSnapshot) -> None:
        """Match items. Operators decide what filters let through; what must pass a gate is claimed."""
        decider = None
        if len(loaded.plan.operators):
            self.operators = operators(storage.url, brief.share)
            decider = loaded.decider(self.operators, storage, brief)
        statistics = loaded.matcher.statistics
        before = statistics.to_json()
        for start in range(0, len(items), _PIECE):
            self._add_piece(ItemBatch(items.records.slice(start, _PIECE)), loaded, decider, brief.again)
            touch_mark(storage)
        after = statistics.to_json()
        self.counters.update({name: after[name] - before[name] for name in after})

    def observe(self, items: ItemBatch, observer: Observer) -> None:
        """Learn from items what the stream is like."""
        self.observed.append(observations_to_json(observer.observe(items)))

    def _add_piece(
        self, items: ItemBatch, loaded: CachedPlan, decider: Decider | None, again: Mapping[int, tuple[int, ...]]
    ) -> None:
        matches = loaded.matcher.match(items)
        useful = np.diff(matches.offsets) > 0
        useful[[failure.row for failure in matches.failures]] = True
        self.unmatched += len(items) - int(np.count_nonzero(useful))
        bindings: MatchBindings = {}
        if again:
            matches = for_queries_alone(items.sequences, matches, again)
        if decider is not None:
            matches, bindings = self._decided(items, matches, decider)
        if loaded.binder.is_needed:
            bindings = united_bindings(bindings, loaded.binder.bind_by_query(items, matches))
        if loaded.keeper.is_needed:
            matches, claims = loaded.keeper.take_out(items, matches)
            self.claims.append(claims)
            self.size += claims.rows.nbytes
        self.matches += matches.total
        self.failures += [[int(items.sequences[one.row]), one.query, one.reason] for one in matches.failures]
        self.records.append(match_records(items.sequences, matches, bindings))
        self.size += self.records[-1].nbytes

    def _decided(self, items: ItemBatch, matches: Matches, decider: Decider) -> tuple[Matches, MatchBindings]:
        decided = decider.decide(items, matches)
        if self.operators is not None:
            self.operators.note(decider, decided)
        self.undecided.add(items, decided.unknown)
        self.counters.update(counted(decided))
        return decided.matches, decided.bindings_by_query(items.sequences)

    def sealed_claims(self) -> bytes | None:
        """The claims that the commit resolves, if any."""
        return Claims.of(self.claims).sealed() if self.claims else None

    def sealed(self, storage: Storage, lineage: int, sequences: tuple[int, int]) -> tuple[str, bytes | None]:
        """What was found, written as a part of the items from one sequence to another; gives what is told of it.

        The part has a name that no other attempt uses.
        """
        part = write_part(storage, lineage, self.records, sequences)
        told = {
            "part": asdict(part),
            "plan": self.plan,
            "matches": self.matches,
            "counters": self.counters,
            "observed": self.observed,
            "failures": self.failures,
            "work": self.work,
            **self._told_of_operators(),
        }
        return json.dumps(told), self.sealed_claims()

    def _told_of_operators(self) -> dict[str, Any]:
        """What the commit notes of operators: what they left undecided, what was learned, and a file of answers."""
        if self.operators is None:
            return {}
        answers = self.operators.new_answers()
        return {
            "undecided": self.undecided.to_json(),
            "learned": self.operators.caller.take_learned().to_json(),
            "answers": None if answers is None else asdict(answers),
        }
