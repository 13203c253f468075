"""The counting algorithm, as a contender: every item's words lead to clauses, clauses to predicates, and those whose
clauses are all counted match.

It is the textbook way to match many conjunctions at once, in compiled loops, for the workloads' kinds of atom only:
single words of `text`, and comparisons of one number with constants. Texts are cut by the same compiled loops as in
Runnel's own matcher, so that only the algorithms differ.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from runnel.algebra.nodes.encode import decode_expression
from runnel.algebra.nodes.expressions import Atom, Between, Compare, Contains
from runnel.arrays import Array, Rows, offsets_of
from runnel.kernel import kernel
from runnel.matching.contract import MatchStatistics
from runnel.matching.filters.words.tokenize import tokenize
from runnel.matching.filters.words.vocabulary import Vocabulary
from runnel.model.item_batch import NUMBER, TEXT, ItemBatch
from runnel.model.match import Matches
from runnel.plan.logical_plan import EXACT, LogicalPlan

_MOST_CLAUSES = 8


@dataclass(frozen=True)
class _Atoms:
    """Words by number (`word_atoms` leads to atoms), and ranges by attribute."""

    words: Vocabulary
    word_atoms: Array
    attributes: tuple[str, ...]
    range_atoms: Array
    range_attributes: Array
    lows: Array
    highs: Array


class CountingMatcher:
    """Matches the queries of a logical plan with one scope and no formulas."""

    def __init__(self, logical: LogicalPlan) -> None:
        if len(logical.scopes) != 1 or np.any(logical.predicate_formulas != EXACT):
            raise ValueError("the counting contender takes the workloads' plans only")
        self.statistics = MatchStatistics()
        self._atoms = _decoded(logical)
        clauses, predicates = logical.clauses, logical.predicates
        negated = np.bincount(np.repeat(np.arange(len(clauses)), clauses.lengths), weights=clauses.values & 1)
        if predicates.lengths.max(initial=0) > _MOST_CLAUSES or negated.max(initial=0) > 1:
            raise ValueError("the counting contender takes eight clauses with one negated word each at the most")
        members = np.repeat(np.arange(len(predicates)), predicates.lengths)
        places = np.arange(len(members)) - predicates.offsets[members]
        owners, literals = clauses.expand(predicates.values)
        counted = (members * _MOST_CLAUSES + places).astype(np.int32)[owners]
        sign = (literals & 1).astype(bool)
        self._positive = Rows.grouped(literals[~sign] >> 1, counted[~sign], len(logical.atoms))
        self._negative = Rows.grouped(literals[sign] >> 1, counted[sign], len(logical.atoms))
        # A clause with a negated word holds until the word is seen, so counting starts above nothing.
        given = np.bincount(members, weights=(negated[predicates.values] > 0) << places, minlength=len(predicates))
        self._start = given.astype(np.uint8)
        self._needed = ((1 << predicates.lengths) - 1).astype(np.uint8)
        self._given = np.flatnonzero(self._start == self._needed)
        self._states = np.zeros(len(predicates), dtype=np.int64)
        self._hits = np.empty(len(predicates), dtype=np.int32)
        self._items = 0
        order = np.argsort(logical.target_predicates, kind="stable")
        owners, positions = logical.targets.expand(order)
        self._queries = Rows.grouped(
            logical.target_predicates[order][owners], logical.query_ids[positions], len(predicates)
        )

    def match(self, items: ItemBatch) -> Matches:
        """The queries that each item of the batch matches."""
        words, numbers = self._read(items)
        atoms = self._atoms
        offsets, predicates, touched = _count(
            words.offsets,
            words.values,
            atoms.word_atoms,
            numbers,
            atoms.range_atoms,
            atoms.range_attributes,
            atoms.lows,
            atoms.highs,
            self._positive.offsets,
            self._positive.values,
            self._negative.offsets,
            self._negative.values,
            self._start,
            self._needed,
            self._given,
            self._states,
            self._hits,
            self._items,
        )
        self._items += len(items)
        owners, queries = self._queries.expand(predicates)
        rows = np.repeat(np.arange(len(items)), np.diff(offsets))[owners]
        width = int(queries.max(initial=0)) + 1
        queries = np.sort(rows * width + queries) - np.sort(rows) * width
        self.statistics.items += len(items)
        self.statistics.candidates += touched
        self.statistics.matches += len(queries)
        return Matches(offsets_of(np.bincount(rows, minlength=len(items))), queries)

    def _read(self, items: ItemBatch) -> tuple[Rows, Array]:
        """The numbers of each item's words, and its values by attribute."""
        attributes = items.records.column("attributes")
        values = attributes.flatten()
        kinds = np.asarray(values.field("kind"))
        tokens = tokenize(values.field("text"), np.flatnonzero(kinds == TEXT), self._atoms.words)
        is_number = kinds == NUMBER
        rows = np.repeat(np.arange(len(items)), np.diff(np.asarray(attributes.offsets)))[is_number]
        names = pa.compute.index_in(values.field("name"), pa.array(self._atoms.attributes, pa.string()))
        numbers = np.full((len(items), len(self._atoms.attributes) + 1), np.nan)
        numbers[rows, np.asarray(names.fill_null(-1))[is_number]] = np.asarray(
            values.field("number").filter(pa.array(is_number))
        )
        return Rows(tokens.offsets, tokens.words), numbers


def _decoded(logical: LogicalPlan) -> _Atoms:
    words: list[tuple[str, int]] = []
    ranges: list[tuple[int, str, float, float]] = []
    for number in range(len(logical.atoms)):
        atom = cast(Atom, decode_expression(json.loads(logical.atoms.text(number))))
        match atom:
            case Contains(_, (word,)):
                words.append((word, number))
            case Between(attribute, float(low), float(high)):
                ranges.append((number, attribute.name, low, high))
            case Compare(attribute, "=", float(constant)):
                ranges.append((number, attribute.name, constant, constant))
            case Compare(attribute, ">=", float(constant)):
                ranges.append((number, attribute.name, constant, math.inf))
            case _:
                raise ValueError(f"the counting contender cannot count {atom!r}")
    names = tuple(sorted({name for _, name, _, _ in ranges}))
    return _Atoms(
        Vocabulary.of([word for word, _ in words]),
        np.array([number for _, number in words], dtype=np.int64),
        names,
        np.array([number for number, _, _, _ in ranges], dtype=np.int64),
        np.array([names.index(name) for _, name, _, _ in ranges], dtype=np.int64),
        np.array([low for _, _, low, _ in ranges], dtype=np.float64),
        np.array([high for _, _, _, high in ranges], dtype=np.float64),
    )


@kernel
def _count(  # type: ignore[no-untyped-def]
    word_offsets,
    words,
    word_atoms,
    numbers,
    range_atoms,
    range_attributes,
    lows,
    highs,
    positive_offsets,
    positive,
    negative_offsets,
    negative,
    start,
    needed,
    given,
    states,
    hits,
    before,
):
    """The predicates that hold for each item, and how many were touched in all.

    The state of a predicate is the item that touched it last (counted over all batches, from 1) and, in the lowest
    byte, its clauses that hold: one read and one write for every posting.
    """
    true_atoms = np.empty(len(word_atoms) + len(range_atoms), np.int64)
    word_item = np.full(len(word_atoms), -1, np.int64)
    offsets = np.zeros(len(word_offsets), np.int64)
    results = np.empty(1024, np.int32)
    total = 0
    touched = 0
    for item in range(len(word_offsets) - 1):
        stamp = (before + item + 1) << 8
        atoms = 0
        for place in range(word_offsets[item], word_offsets[item + 1]):
            word = words[place]
            if word >= 0 and word_item[word] != item:
                word_item[word] = item
                true_atoms[atoms] = word_atoms[word]
                atoms += 1
        for value in range(len(range_atoms)):
            number = numbers[item, range_attributes[value]]
            if lows[value] <= number and number <= highs[value]:
                true_atoms[atoms] = range_atoms[value]
                atoms += 1
        predicates = 0
        # What is denied comes first: another word of the clause may still make it hold.
        for value in range(atoms):
            atom = true_atoms[value]
            for place in range(negative_offsets[atom], negative_offsets[atom + 1]):
                predicate = negative[place] >> 3
                state = states[predicate]
                if state < stamp:
                    state = stamp | start[predicate]
                    hits[predicates] = predicate
                    predicates += 1
                states[predicate] = state & ~(1 << (negative[place] & 7))
        for value in range(atoms):
            atom = true_atoms[value]
            for place in range(positive_offsets[atom], positive_offsets[atom + 1]):
                predicate = positive[place] >> 3
                state = states[predicate]
                if state < stamp:
                    state = stamp | start[predicate]
                    hits[predicates] = predicate
                    predicates += 1
                states[predicate] = state | (1 << (positive[place] & 7))
        touched += predicates
        if total + predicates + len(given) > len(results):
            larger = np.empty(2 * (total + predicates + len(given)), np.int32)
            larger[:total] = results[:total]
            results = larger
        for value in range(predicates):
            if states[hits[value]] == stamp | needed[hits[value]]:
                results[total] = hits[value]
                total += 1
        for predicate in given:
            if states[predicate] < stamp:
                results[total] = predicate
                total += 1
        offsets[item + 1] = total
    return offsets, results[:total], touched
