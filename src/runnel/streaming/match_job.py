"""The matching step: slices in, sealed blocks of matches out. Runs in Spark's Python workers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from runnel.log.item_files import read_items
from runnel.log.match_files import match_records, write_part
from runnel.log.storage import Storage, open_storage
from runnel.matching.build import build_matcher
from runnel.matching.claims import Claims, GateKeeper
from runnel.matching.contract import Matcher
from runnel.matching.graphs.bind import GraphBinder, united_bindings
from runnel.matching.observe import Observer, observations_to_json
from runnel.matching.operators.decide import Decider, for_queries_alone
from runnel.matching.operators.work import Operators
from runnel.model.batch import ItemBatch
from runnel.model.bindings import MatchBindings
from runnel.model.match import Matches
from runnel.model.segment import Slice
from runnel.plan.store import Plan, PlanVersion, load
from runnel.streaming.operator_brief import OperatorBrief
from runnel.streaming.operator_work import Undecided, briefed_decider, counted, operators

PART_DDL = "part string, claims binary"
_ARROW = pa.schema([("part", pa.string()), ("claims", pa.binary())])
LOOKED_DDL = "sequences array<long>, claims binary"
_LOOKED = pa.schema([("sequences", pa.list_(pa.int64())), ("claims", pa.binary())])

_PIECE = 2048
"""Items that are matched at once: few enough for their matches to find room in memory that was used before."""

_MOST_BYTES = 32 << 20
"""What a worker holds of matches before it writes them: one item may match ten thousand queries."""


def match_slices(storage_url: str, lineage: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for `mapInArrow`: matches every slice it is given with the plan that the slice names.

    Matches never travel through Spark: they are written here, and what goes on is where they are.
    """

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        storage = open_storage(storage_url)
        found = Found()
        for batch in batches:
            for row in batch.to_pylist():
                match_slice(storage, row, found)
                if found.size >= _MOST_BYTES:
                    yield _sealed(storage, lineage, found)
                    found = Found()
        if found.slices:
            yield _sealed(storage, lineage, found)

    return run


def look_at_slices(storage_url: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The same for looking only: gives the sequences of the items that match anything, and all claims."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        storage = open_storage(storage_url)
        for batch in batches:
            for row in batch.to_pylist():
                found = Found()
                match_slice(storage, row, found)
                sequences = [one for records in found.records for one in _matched(records)]
                columns = [
                    pa.array([sequences], pa.list_(pa.int64())),
                    pa.array([found.sealed_claims()], pa.binary()),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=_LOOKED)

    return run


def _matched(records: Any) -> list[int]:
    """The sequences of the items that match something; others may be there for the sake of their bindings."""
    matched = pc.greater(pc.list_value_length(records.column("steps")), 0)
    found: list[int] = records.filter(matched).column("sequence").to_pylist()
    return found


def match_slice(storage: Storage, row: dict[str, Any], found: Found) -> None:
    """Match one slice, and add what was found to what was found before."""
    one = Slice(row["tier"], row["path"], row["first_row"], row["rows"], row["first_sequence"], row["accepted"])
    items = read_items(storage, one)
    found.slices.append(one)
    found.plan = row["plan"]
    if row["base"] is None:
        return
    version = PlanVersion(row["plan"], row["base"], row["delta"], tuple(row["removed"] or ()))
    brief = OperatorBrief.load(row["operators"])
    loaded = _loaded(storage.url, version)
    found.operators = operators(storage.url, brief.share) if len(loaded.plan.operators) else None
    decider = None
    if found.operators is not None:
        decider = briefed_decider(found.operators, storage, loaded.plan, brief)
    matcher, observer = loaded.matcher, loaded.observer
    before = matcher.statistics.to_json()
    for start in range(0, len(items), _PIECE):
        found.add(ItemBatch(items.records.slice(start, _PIECE)), loaded, decider, brief.again)
    after = matcher.statistics.to_json()
    found.counters.update({name: after[name] - before[name] for name in after})
    found.observed.append(observations_to_json(observer.observe(items)))


@dataclass
class Found:
    """What was found in some slices. An item may match ten thousand queries: only the stored form is kept."""

    slices: list[Slice] = field(default_factory=list)
    plan: int = 0
    matches: int = 0
    size: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    observed: list[dict[str, object]] = field(default_factory=list)
    failures: list[list[Any]] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)
    claims: list[Claims] = field(default_factory=list)
    undecided: Undecided = field(default_factory=Undecided)
    operators: Operators | None = None

    def add(
        self, items: ItemBatch, loaded: Loaded, decider: Decider | None, again: Mapping[int, tuple[int, ...]]
    ) -> None:
        """Match a piece of a slice. Operators decide what filters let through; what must pass a gate is claimed."""
        matches = loaded.matcher.match(items)
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
        """What must be settled, if anything."""
        return Claims.of(self.claims).sealed() if self.claims else None


def _sealed(storage: Storage, lineage: int, found: Found) -> Any:
    """What was found as a part, under a name that no other attempt uses; gives one row that says where it is."""
    first, last = found.slices[0].first_sequence, found.slices[-1].last_sequence
    part = write_part(storage, lineage, found.records, (first, last))
    told = {
        "part": asdict(part),
        "plan": found.plan,
        "matches": found.matches,
        "counters": found.counters,
        "observed": found.observed,
        "failures": found.failures,
        **_told_of_operators(found),
    }
    columns = [pa.array([json.dumps(told)]), pa.array([found.sealed_claims()], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _told_of_operators(found: Found) -> dict[str, Any]:
    """What the commit notes of operators: what they left undecided, what was learned, and a file of new answers."""
    if found.operators is None:
        return {}
    answers = found.operators.new_answers()
    return {
        "undecided": found.undecided.to_json(),
        "learned": found.operators.caller.take_learned().to_json(),
        "answers": None if answers is None else asdict(answers),
    }


@dataclass(frozen=True)
class Loaded:
    """A plan in a worker, and all that is made of it."""

    plan: Plan
    matcher: Matcher
    observer: Observer
    keeper: GateKeeper
    binder: GraphBinder


@lru_cache(maxsize=2)
def _loaded(storage_url: str, version: PlanVersion) -> Loaded:
    """Two plans are enough for a worker: the batch's, and the one before it while tasks overlap."""
    plan = load(open_storage(storage_url), version)
    return Loaded(plan, build_matcher(plan), Observer.of(plan.base), GateKeeper(plan), GraphBinder(plan))
