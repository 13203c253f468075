"""The streams of one part of a plan at work: a batch in, the queries of every item out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from runnel.arrays import IDENTIFIER, Array, Rows, offsets_of, read_only
from runnel.errors import CorruptDataError
from runnel.logs.matches.match_steps import steps_of
from runnel.matching.contract import MatchStatistics
from runnel.matching.filters.atoms.atom_layout import NOTHING, AtomLayout
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.atoms.item_keys import KeyFinder
from runnel.matching.filters.index.index_layout import stored_atoms, targets_of_predicates
from runnel.matching.filters.index.part_index import PartIndex
from runnel.matching.filters.index.plan_words import WHOLE, word_slots
from runnel.matching.filters.index.reach import Reach
from runnel.matching.filters.streams import emit, mark, masks, walk
from runnel.matching.filters.streams.block_texts import Prefixed, cut_texts
from runnel.matching.filters.streams.entries import sources_of
from runnel.matching.filters.streams.lead import lead
from runnel.matching.filters.streams.settle_doubts import DoubtEvaluator
from runnel.matching.filters.streams.stream_layout import StreamLayout
from runnel.matching.patterns.plan_patterns import load_patterns
from runnel.model.match import Failure, Steps
from runnel.plan.store import PlanPart

_FIRST_ROOM = 4096
"""Queries that an item may match before more room is made."""


@dataclass(frozen=True)
class StreamMatches:
    """The queries of every row, as steps, and the failures."""

    steps: Steps
    failures: tuple[Failure, ...] = ()


class StreamPart:
    """One part of a plan, over its mapped arrays."""

    def __init__(self, part: PlanPart, removed: Array) -> None:
        self.part = part
        self.atoms = stored_atoms(part)
        self.layout = _stored_streams(part, self.atoms)
        self._alive = ~removed
        self._word_slots = word_slots(self.atoms)
        self._whole = self._word_slots.pop(WHOLE, NOTHING)
        self._finder = KeyFinder(self.atoms, load_patterns(part, self.atoms), words=False)
        self._settler = DoubtEvaluator(part, self.atoms, self.layout)
        self._block = 0
        self._is_marked = False
        self._lines = emit.make_lines(_FIRST_ROOM, part.queries.query_ids)
        scopes = part.queries.scopes
        self._sources = sources_of(part.queries)
        dense = np.searchsorted(self._sources, scopes.values)
        owners = np.repeat(np.arange(len(scopes)), scopes.lengths)
        self._scopes_of = Rows.grouped(dense, owners, len(self._sources))

    @property
    def living(self) -> int:
        """How many queries live in this part."""
        return int(np.count_nonzero(self._alive))

    @cached_property
    def reach(self) -> Reach:
        """What lies behind predicates, for items that are matched slowly."""
        return Reach(self.part.logical, targets_of_predicates(self.part.logical), self._alive)

    @cached_property
    def _index(self) -> PartIndex:
        """The index that is asked for items of which a key is in doubt: streams know only yes and no."""
        return PartIndex(self.part, ~self._alive)

    def match(self, columns: ItemColumns, statistics: MatchStatistics) -> StreamMatches:
        """The queries of this part that each item of the batch matches."""
        keys = self._finder.keys(columns)
        if len(keys.doubtful_rows()):
            return self._indexed(columns, statistics)
        rows, found = keys.pairs()
        order = np.argsort(rows, kind="stable")
        rows, found = rows[order], found[order]
        places, numbers = keys.numbers()
        sources = self._dense_sources(columns.feeds)
        vocabularies = self.layout.vocabulary, self.layout.prefixes
        words, prefixed = cut_texts(columns, *vocabularies, self._word_slots, whole=self._whole != NOTHING)
        blocks: list[tuple[Array, Array, Array, Array]] = []
        failures: list[Failure] = []
        for first in range(0, len(columns), masks.BLOCK):
            if self._is_marked:
                self.__dict__.pop("_state", None)  # something ended the block before: what it left belongs to nobody
            self._is_marked = True
            last = min(first + masks.BLOCK, len(columns))
            low, high = np.searchsorted(rows, [first, last])
            self._mark(words, (first, last), rows[low:high], found[low:high])
            self._mark_prefixes(prefixed, (first, last))
            low, high = np.searchsorted(places, [first * self._finder.slots, last * self._finder.slots])
            slots = max(1, self._finder.slots)
            block_numbers = mark.group_numbers(places[low:high], numbers[low:high], slots, first)
            failures += self._walk(columns, words, block_numbers, (first, last), sources, statistics)
            mark.clear(self._state)
            self._is_marked = False
            counts, leap_counts = self._lines.counts[: last - first], self._lines.leap_counts[: last - first]
            blocks.append((counts.copy(), leap_counts.copy(), *emit.copy_lines(self._lines, last - first)))
        return StreamMatches(emit.joined_steps(blocks), tuple(failures))

    def _indexed(self, columns: ItemColumns, statistics: MatchStatistics) -> StreamMatches:
        """The same by the index."""
        found = self._index.match(columns, statistics)
        pairs = np.unique(np.stack([found.rows, found.queries], axis=1), axis=0)
        offsets = offsets_of(np.bincount(pairs[:, 0], minlength=len(columns)))
        return StreamMatches(steps_of(offsets, np.ascontiguousarray(pairs[:, 1])), found.failures)

    def _mark(self, words: walk.BlockTexts, rows: tuple[int, int], key_rows: Array, keys: Array) -> None:
        layout = self.layout
        mark.mark_words(
            words,
            rows,
            self._whole,
            read_only(layout.word_keys.offsets),
            read_only(layout.word_keys.values),
            read_only(self.atoms.key_slots),
            self._state,
        )
        mark.mark_keys(key_rows, keys, rows[0], self._state)
        mark.mark_all(rows[1] - rows[0], self._state)

    def _mark_prefixes(self, prefixed: Prefixed, rows: tuple[int, int]) -> None:
        keys = self.layout.prefix_keys
        low, high = np.searchsorted(prefixed.rows, rows)
        mark.mark_prefixes(
            prefixed,
            (low, high),
            rows[0],
            self._whole,
            read_only(keys.offsets),
            read_only(keys.values),
            read_only(self.atoms.key_slots),
            self._state,
        )

    def _walk(
        self,
        columns: ItemColumns,
        words: walk.BlockTexts,
        numbers: walk.BlockNumbers,
        rows: tuple[int, int],
        sources: Array,
        statistics: MatchStatistics,
    ) -> list[Failure]:
        """Fill the masks of the queries for a block."""
        self._block += 1
        count = lead(self._arrays, self._state, sources[rows[0] : rows[1]])
        doubtful = walk.walk(self._arrays, words, numbers, self._state, count, self._block)
        unknown = None
        if doubtful:
            unknown = self._settler.settle(columns, words, numbers, self._arrays, self._state, doubtful, statistics)
        mark_scopes = sources[rows[0] : rows[1]], self._scopes_of.offsets, self._scopes_of.values
        emit.mark_scopes(*mark_scopes, self._scope_masks)
        sequences = columns.sequences[rows[0] : rows[1]]
        failures: list[Failure] = []
        if unknown is not None:
            self._turn(unknown.masks, unknown.touched, sequences)
            failures = unknown.failures(emit.rows_of(self._lines, rows[1] - rows[0]), rows[0])
        self._turn(self._state.hits, self._state.touched, sequences)
        counters = self._state.counters
        statistics.candidates += int(counters[0])
        statistics.clause_checks += int(counters[1])
        statistics.atom_evaluations += int(counters[2])
        counters[:3] = 0
        return failures

    def _turn(self, hits: Array, touched: Array, sequences: Array) -> None:
        """Fill the lines, with more room where an item matches more queries than any before it."""
        while not emit.turn(hits, touched, self._queries, self._scope_masks, sequences, self._lines):
            self._lines = emit.make_lines(4 * self._lines.steps.shape[1], self._queries.ids)

    def _dense_sources(self, feeds: Array) -> Array:
        places = np.searchsorted(self._sources, feeds)
        known = places < len(self._sources)
        known[known] = self._sources[places[known]] == feeds[known]
        return np.where(known, places, NOTHING)

    @cached_property
    def _arrays(self) -> walk.PartArrays:
        atoms, layout = self.atoms, self.layout
        return walk.PartArrays(
            offsets=read_only(layout.offsets),
            stream=read_only(layout.stream),
            own_offsets=read_only(layout.own_keys.offsets),
            own_keys=read_only(layout.own_keys.values),
            extras=read_only(layout.extras),
            phrase_offsets=read_only(layout.phrases.offsets),
            phrase_words=read_only(layout.phrases.values),
            phrase_key_offsets=read_only(atoms.atom_phrases.offsets),
            phrase_keys=read_only(atoms.atom_phrases.values),
            atom_slots=read_only(atoms.atom_slots),
            atom_lows=read_only(atoms.atom_lows),
            atom_highs=read_only(atoms.atom_highs),
            whole=self._whole,
        )

    @cached_property
    def _queries(self) -> emit.QueryArrays:
        table = self.part.queries
        targets = np.repeat(np.arange(len(table.targets), dtype=IDENTIFIER), table.targets.lengths)
        queries = table.targets.values
        asked = Rows.grouped(queries, targets, len(table.query_ids))
        living = self._alive[queries]
        predicates = table.target_predicates[targets[living]]
        asking = Rows.grouped(predicates, queries[living], self.part.predicate_count)
        return emit.QueryArrays(
            asking_offsets=read_only(asking.offsets),
            asking=read_only(asking.values),
            asked_offsets=read_only(asked.offsets),
            asked=read_only(asked.values),
            target_predicates=read_only(table.target_predicates),
            target_scopes=read_only(table.target_scopes),
            since=read_only(table.query_since),
            newest=int(table.query_since.max(initial=0)),
            ids=read_only(table.query_ids),
        )

    @cached_property
    def _state(self) -> walk.WalkState:
        keys, extras, room = len(self.atoms.key_tokens), len(self.layout.extras), int(self.layout.room[0])
        streams = len(self.layout.offsets) - 1
        return walk.WalkState(
            present=masks.make_masks(keys + 2),
            flags=np.zeros(keys + 2, dtype=np.uint8),
            streams=np.zeros(streams + walk.AHEAD, dtype=np.uint32),
            holders=masks.make_masks(streams),
            extra_masks=masks.make_masks(extras),
            stamps=np.zeros(extras, dtype=np.int64),
            hits=masks.make_masks(self.part.predicate_count),
            touched=masks.make_bits(self.part.predicate_count),
            doubtful=np.zeros(room, dtype=np.int64),
            doubts=masks.make_masks(room),
            counters=np.zeros(4, dtype=np.int64),
        )

    @cached_property
    def _scope_masks(self) -> Array:
        return masks.make_masks(len(self.part.queries.scopes))


def _stored_streams(part: PlanPart, atoms: AtomLayout) -> StreamLayout:
    """The streams of a loaded plan part, checked."""
    folder = part.manifest.folder
    try:
        found = StreamLayout.stored(part.layout)
        found.check(part.queries, part.predicate_count, atoms)
    except KeyError as error:
        raise CorruptDataError(f"{folder} has no index array {error.args[0]}") from error
    except ValueError as error:
        raise CorruptDataError(f"{folder}: the index array {error}") from error
    return found
