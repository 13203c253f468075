"""Match batches with the streams of one plan part. In: a batch. Out: the queries that every item matches."""

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
from runnel.matching.filters.index.part_queries import PartQueries
from runnel.matching.filters.index.plan_words import WHOLE, word_slots
from runnel.matching.filters.streams import emit, mark, masks, walk
from runnel.matching.filters.streams.block_texts import Prefixed, cut_texts
from runnel.matching.filters.streams.entries import sources_of
from runnel.matching.filters.streams.lead import lead
from runnel.matching.filters.streams.settle_doubts import DoubtEvaluator
from runnel.matching.filters.streams.stream_layout import StreamLayout
from runnel.matching.patterns.plan_patterns import load_patterns
from runnel.model.match import Failure, Steps
from runnel.plan.store import PlanPart

_INITIAL_CAPACITY = 4096
"""Queries per item for which memory is allocated at first."""


@dataclass(frozen=True)
class StreamMatches:
    """The query ids of every row, encoded as steps, and the failures."""

    steps: Steps
    failures: tuple[Failure, ...] = ()


class StreamPart:
    """Matches batches with the streams of one plan part."""

    def __init__(self, part: PlanPart, removed: Array) -> None:
        self.part = part
        self.atoms = stored_atoms(part)
        self.layout = _load_streams(part, self.atoms)
        self._alive = ~removed
        self._word_slots = word_slots(self.atoms)
        self._whole = self._word_slots.pop(WHOLE, NOTHING)
        self._finder = KeyFinder(self.atoms, load_patterns(part, self.atoms), words=False)
        self._doubt_evaluator = DoubtEvaluator(part, self.atoms, self.layout)
        self._block = 0
        self._is_marked = False
        self._block_matches = emit.make_block_matches(_INITIAL_CAPACITY, part.queries.query_ids)
        scopes = part.queries.scopes
        self._sources = sources_of(part.queries)
        source_indices = np.searchsorted(self._sources, scopes.values)
        owners = np.repeat(np.arange(len(scopes)), scopes.lengths)
        self._scopes_by_source = Rows.grouped(source_indices, owners, len(self._sources))

    @property
    def living(self) -> int:
        """The number of queries of this part that were not removed."""
        return int(np.count_nonzero(self._alive))

    @cached_property
    def part_queries(self) -> PartQueries:
        """The queries of predicates, for items that the reference evaluator matches."""
        return PartQueries(self.part.logical, targets_of_predicates(self.part.logical), self._alive)

    @cached_property
    def _index(self) -> PartIndex:
        """The anchor index, for batches with undecided keys, which streams cannot represent."""
        return PartIndex(self.part, ~self._alive)

    def match(self, columns: ItemColumns, statistics: MatchStatistics) -> StreamMatches:
        """Return the queries of this part that each item of the batch matches."""
        batch_keys = self._finder.keys(columns)
        if len(batch_keys.doubtful_rows()):
            return self._match_with_index(columns, statistics)
        rows, keys = batch_keys.pairs()
        order = np.argsort(rows, kind="stable")
        rows, keys = rows[order], keys[order]
        cells, numbers = batch_keys.numbers()
        sources = self._source_indices(columns.feeds)
        vocabularies = self.layout.vocabulary, self.layout.prefixes
        words, prefixed = cut_texts(columns, *vocabularies, self._word_slots, whole=self._whole != NOTHING)
        blocks: list[tuple[Array, Array, Array, Array]] = []
        failures: list[Failure] = []
        for first in range(0, len(columns), masks.BLOCK):
            if self._is_marked:
                self.__dict__.pop("_state", None)  # an exception interrupted the last block: discard its marks
            self._is_marked = True
            last = min(first + masks.BLOCK, len(columns))
            low, high = np.searchsorted(rows, [first, last])
            self._mark_keys(words, (first, last), rows[low:high], keys[low:high])
            self._mark_prefixes(prefixed, (first, last))
            low, high = np.searchsorted(cells, [first * self._finder.slots, last * self._finder.slots])
            slots = max(1, self._finder.slots)
            block_numbers = mark.group_numbers(cells[low:high], numbers[low:high], slots, first)
            failures += self._match_block(columns, words, block_numbers, (first, last), sources, statistics)
            mark.clear(self._state)
            self._is_marked = False
            block_matches, size = self._block_matches, last - first
            counts, leap_counts = block_matches.counts[:size], block_matches.leap_counts[:size]
            blocks.append((counts.copy(), leap_counts.copy(), *emit.copy_steps(block_matches, size)))
        return StreamMatches(emit.concatenate_blocks(blocks), tuple(failures))

    def _match_with_index(self, columns: ItemColumns, statistics: MatchStatistics) -> StreamMatches:
        """Match a batch with the anchor index."""
        matches = self._index.match(columns, statistics)
        pairs = np.unique(np.stack([matches.rows, matches.queries], axis=1), axis=0)
        offsets = offsets_of(np.bincount(pairs[:, 0], minlength=len(columns)))
        return StreamMatches(steps_of(offsets, np.ascontiguousarray(pairs[:, 1])), matches.failures)

    def _mark_keys(self, words: walk.BlockTexts, rows: tuple[int, int], key_rows: Array, keys: Array) -> None:
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

    def _match_block(
        self,
        columns: ItemColumns,
        words: walk.BlockTexts,
        numbers: walk.BlockNumbers,
        rows: tuple[int, int],
        sources: Array,
        statistics: MatchStatistics,
    ) -> list[Failure]:
        """Match a marked block: fill the block matches, and return the failures."""
        self._block += 1
        count = lead(self._arrays, self._state, sources[rows[0] : rows[1]])
        doubtful = walk.walk(self._arrays, words, numbers, self._state, count, self._block)
        unknown = None
        if doubtful:
            unknown = self._doubt_evaluator.decide(
                columns, words, numbers, self._arrays, self._state, doubtful, statistics
            )
        by_source = self._scopes_by_source
        emit.mark_scopes(sources[rows[0] : rows[1]], by_source.offsets, by_source.values, self._scope_masks)
        sequences = columns.sequences[rows[0] : rows[1]]
        failures: list[Failure] = []
        if unknown is not None:
            self._collect_queries(unknown.masks, unknown.touched, sequences)
            failures = unknown.failures(emit.query_rows(self._block_matches, rows[1] - rows[0]), rows[0])
        self._collect_queries(self._state.hits, self._state.touched, sequences)
        counters = self._state.counters
        statistics.candidates += int(counters[0])
        statistics.clause_checks += int(counters[1])
        statistics.atom_evaluations += int(counters[2])
        counters[:3] = 0
        return failures

    def _collect_queries(self, hits: Array, touched: Array, sequences: Array) -> None:
        """Fill the block matches. Enlarge them if an item matches more queries than they can contain."""
        while not emit.collect_queries(
            hits, touched, self._queries, self._scope_masks, sequences, self._block_matches
        ):
            self._block_matches = emit.make_block_matches(4 * self._block_matches.steps.shape[1], self._queries.ids)

    def _source_indices(self, feeds: Array) -> Array:
        """Return the index of each feed among the sources of the part, or NOTHING."""
        indices = np.searchsorted(self._sources, feeds)
        is_source = indices < len(self._sources)
        is_source[is_source] = self._sources[indices[is_source]] == feeds[is_source]
        return np.where(is_source, indices, NOTHING)

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
        query_targets = Rows.grouped(queries, targets, len(table.query_ids))
        is_alive = self._alive[queries]
        predicates = table.target_predicates[targets[is_alive]]
        predicate_queries = Rows.grouped(predicates, queries[is_alive], self.part.predicate_count)
        return emit.QueryArrays(
            predicate_query_offsets=read_only(predicate_queries.offsets),
            predicate_queries=read_only(predicate_queries.values),
            query_target_offsets=read_only(query_targets.offsets),
            query_targets=read_only(query_targets.values),
            target_predicates=read_only(table.target_predicates),
            target_scopes=read_only(table.target_scopes),
            since=read_only(table.query_since),
            newest=int(table.query_since.max(initial=0)),
            ids=read_only(table.query_ids),
        )

    @cached_property
    def _state(self) -> walk.WalkState:
        keys, extras, max_doubts = len(self.atoms.key_tokens), len(self.layout.extras), int(self.layout.room[0])
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
            doubtful=np.zeros(max_doubts, dtype=np.int64),
            doubts=masks.make_masks(max_doubts),
            counters=np.zeros(4, dtype=np.int64),
        )

    @cached_property
    def _scope_masks(self) -> Array:
        return masks.make_masks(len(self.part.queries.scopes))


def _load_streams(part: PlanPart, atoms: AtomLayout) -> StreamLayout:
    """Load and check the streams of a plan part."""
    folder = part.manifest.folder
    try:
        layout = StreamLayout.stored(part.layout)
        layout.check(part.queries, part.predicate_count, atoms)
    except KeyError as error:
        raise CorruptDataError(f"plan {folder} does not contain the index array {error.args[0]}") from error
    except ValueError as error:
        raise CorruptDataError(f"plan {folder}: index array {error}") from error
    return layout
