"""A buffer for the results of matching slices: matches, claims, failures, and items that operators left undecided.

An item may match ten thousand queries, so the buffer contains matches in the compact form in which they are stored.
Matches do not pass through Spark: the worker writes them to a file, and Spark passes on a description of that file.
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
from runnel.streaming.worker.operator_work import UndecidedItems, operator_counters, operators
from runnel.streaming.worker.plan_cache import CachedPlan
from runnel.streaming.worker.progress_mark import touch_mark

PART_DDL = "part string, claims binary"
PART_SCHEMA = pa.schema([("part", pa.string()), ("claims", pa.binary())])

_CHUNK_ITEMS = 2048
"""Items that are matched at once: few enough for the memory of their matches to be reused by the next chunk."""

MAX_BUFFER_BYTES = 32 << 20
"""A worker writes its buffered matches when they reach this size."""


@dataclass
class MatchBuffer:
    """The results of matching slices with plan version `plan`. `size` is the approximate size in bytes."""

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
    """The load of each partition of a distributed plan, by the number of the partition."""
    unmatched: int = 0
    """Items for which no query passed the filters or failed, counted once per plan that they were matched with."""

    def add(self, storage: Storage, items: ItemBatch, loaded: CachedPlan, snapshot: OperatorSnapshot) -> None:
        """Match items and add the results. Queries with gates result in claims, which are resolved at the commit."""
        decider = None
        if len(loaded.plan.operators):
            self.operators = operators(storage.url, snapshot.share)
            decider = loaded.decider(self.operators, storage, snapshot)
        statistics = loaded.matcher.statistics
        before = statistics.to_json()
        for start in range(0, len(items), _CHUNK_ITEMS):
            self._add_chunk(ItemBatch(items.records.slice(start, _CHUNK_ITEMS)), loaded, decider, snapshot.again)
            touch_mark(storage)
        after = statistics.to_json()
        self.counters.update({name: after[name] - before[name] for name in after})

    def observe(self, items: ItemBatch, observer: Observer) -> None:
        """Collect statistics of the stream from items."""
        self.observed.append(observations_to_json(observer.observe(items)))

    def _add_chunk(
        self, items: ItemBatch, loaded: CachedPlan, decider: Decider | None, again: Mapping[int, tuple[int, ...]]
    ) -> None:
        matches = loaded.matcher.match(items)
        has_result = np.diff(matches.offsets) > 0
        has_result[[failure.row for failure in matches.failures]] = True
        self.unmatched += len(items) - int(np.count_nonzero(has_result))
        bindings: MatchBindings = {}
        if again:
            matches = for_queries_alone(items.sequences, matches, again)
        if decider is not None:
            matches, bindings = self._decide(items, matches, decider)
        if loaded.binder.is_needed:
            bindings = united_bindings(bindings, loaded.binder.bind_by_query(items, matches))
        if loaded.keeper.is_needed:
            matches, claims = loaded.keeper.take_out(items, matches)
            self.claims.append(claims)
            self.size += claims.nbytes
        self.matches += matches.total
        self.failures += [
            [int(items.sequences[failure.row]), failure.query, failure.reason] for failure in matches.failures
        ]
        self.records.append(match_records(items.sequences, matches, bindings))
        self.size += self.records[-1].nbytes

    def _decide(self, items: ItemBatch, matches: Matches, decider: Decider) -> tuple[Matches, MatchBindings]:
        decided = decider.decide(items, matches)
        if self.operators is not None:
            self.operators.note(decider, decided)
        self.undecided.add(items, decided.unknown)
        self.counters.update(operator_counters(decided))
        return decided.matches, decided.bindings_by_query(items.sequences)

    def encode_claims(self) -> bytes | None:
        """Encode the claims for the commit, or return None if there are none."""
        return Claims.of(self.claims).encode() if self.claims else None

    def write(self, storage: Storage, lineage: int, sequences: tuple[int, int]) -> tuple[str, bytes | None]:
        """Write the matches as a part of the match log; return its description, in JSON, and the encoded claims.

        `sequences` are the first and the last sequence of the items. The name of the part is unique to this attempt.
        """
        part = write_part(storage, lineage, self.records, sequences)
        description = {
            "part": asdict(part),
            "plan": self.plan,
            "matches": self.matches,
            "counters": self.counters,
            "observed": self.observed,
            "failures": self.failures,
            "work": self.work,
            **self._describe_operators(),
        }
        return json.dumps(description), self.encode_claims()

    def _describe_operators(self) -> dict[str, Any]:
        """Return the undecided items, the statistics of operators, and the file with new answers, if any."""
        if self.operators is None:
            return {}
        answers = self.operators.new_answers()
        return {
            "undecided": self.undecided.to_json(),
            "learned": self.operators.caller.take_learned().to_json(),
            "answers": None if answers is None else asdict(answers),
        }
