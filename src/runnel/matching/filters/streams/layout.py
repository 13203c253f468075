"""The streams of a plan part: built at compile time, mapped by every worker.

The stream of a key has, in this order: how many *direct* and how many *joined* entries it holds; the direct entries,
which are predicates that the key proves; the joined ones, each of ENTRY numbers: the predicate, where its tail is (0:
none), and the keys of one more clause; then the tails. A tail is its length and the rest of the predicate's clauses:
a header (how many literals, and which kind of clause) and the literals. What most items fail comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from runnel.kernel import Number, kernel
from runnel.matching.filters.anchors import Anchors
from runnel.matching.filters.atom_layout import NOTHING, AtomLayout
from runnel.matching.filters.atom_tests import PREFIX, WORD, TestKind, Token
from runnel.matching.filters.layout import targets_of_predicates
from runnel.matching.filters.vocabulary import Vocabulary
from runnel.plan.arrays import IDENTIFIER, Array, Arrays, Rows, Texts, offsets_of, read_only
from runnel.plan.logical import EXACT, LogicalPlan
from runnel.plan.validate import check_ids, check_rows

INLINE = 5
"""Keys of the clause that stands in the entry itself."""

ENTRY = 2 + INLINE
KIND = 24
"""The bits of a header below the kind of its clause: how many literals it has."""


KEYS, MISSING, MIXED, FORMULA = 0, 1, 2, 3
"""The kinds of clause in a tail: only keys, one key that must be missing, any literals; or: the formula decides."""

KEY, RANGE, PHRASE, OTHER = 0, 1, 2, 3
"""How a literal of a mixed clause is known; in its number, above the sign and below the index."""


@dataclass(frozen=True)
class StreamLayout:
    """The arrays.

    `stream` from `offsets[key]` on is the stream of a key; the key after the last is that of predicates without an
    anchor. `extras` are the atoms without an exact key (ranges, phrases, others) in the order in which literals name
    them; `phrases` are their words, of phrases. `word_keys` are the keys of every word of the vocabulary,
    `prefix_keys` those of every prefix. `room` says how many entries can be in doubt.
    """

    offsets: Array
    stream: Array
    extras: Array
    phrases: Rows
    word_keys: Rows
    prefix_keys: Rows
    checks: Rows
    predicate_targets: Rows
    room: Array
    vocabulary: Vocabulary
    prefixes: Vocabulary

    def arrays(self) -> dict[str, Array]:
        """All arrays by the names under which they are stored."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        for name in _ROWS:
            plain |= getattr(self, name).arrays(name)
        plain |= self.vocabulary.arrays() | self.prefixes.arrays("prefixes")
        return {f"streams.{name}": array for name, array in plain.items()}

    @staticmethod
    def stored(arrays: Arrays) -> StreamLayout:
        """The layout of arrays made by `arrays`."""
        own = {name.removeprefix("streams."): array for name, array in arrays.items() if name.startswith("streams.")}
        fields: dict[str, Any] = {name: Rows.stored(own, name) for name in _ROWS}
        fields |= {name: own[name] for name in _PLAIN}
        return StreamLayout(**fields, vocabulary=Vocabulary.stored(own), prefixes=Vocabulary.stored(own, "prefixes"))

    @staticmethod
    def is_stored(arrays: Arrays) -> bool:
        """Whether there are streams of this form among these arrays."""
        return "streams.prefix_keys.offsets" in arrays

    def check(self, logical: LogicalPlan, atoms: AtomLayout) -> None:
        """Raise ValueError, naming the array, unless everything fits; a kernel does not look for itself."""
        keys, words = len(atoms.key_tokens), len(self.vocabulary)
        check_rows("streams", Rows(self.offsets, self.stream), None, keys + 1)
        check_ids("streams.extras", self.extras, 0, len(logical.atoms), len(self.extras))
        check_rows("streams.phrases", self.phrases, words, len(self.extras))
        check_rows("streams.word_keys", self.word_keys, keys, words)
        check_rows("streams.prefix_keys", self.prefix_keys, keys, len(self.prefixes))
        check_rows("streams.checks", self.checks, len(logical.clauses), len(logical.predicates))
        targets = self.predicate_targets
        check_rows("streams.predicate_targets", targets, len(logical.targets), len(logical.predicates))
        check_ids("streams.room", self.room, 0, None, 1)
        limits = np.array([len(logical.predicates), keys, len(self.extras)], dtype=np.int64)
        if not _sound(read_only(self.offsets), read_only(self.stream), limits):
            raise ValueError("streams refers to something that is not there")


_PLAIN = ("offsets", "stream", "extras", "room")
_ROWS = ("phrases", "word_keys", "prefix_keys", "checks", "predicate_targets")


def lay_out_streams(logical: LogicalPlan, atoms: AtomLayout, anchors: Anchors) -> StreamLayout:
    """The streams of a logical plan."""
    keys = len(atoms.key_tokens)
    extras = np.flatnonzero(atoms.atom_keys == NOTHING).astype(IDENTIFIER)
    codes = literal_codes(atoms, extras)
    offsets, stream = _build(
        anchors.keys.offsets,
        anchors.keys.values,
        anchors.clauses,
        anchors.checks.offsets,
        anchors.checks.values,
        read_only(logical.clauses.offsets),
        codes[logical.clauses.values],
        logical.predicate_formulas != EXACT,
        keys,
    )
    words, word_keys = _texts_of_keys(atoms, WORD)
    prefixes, prefix_keys = _texts_of_keys(atoms, PREFIX)
    return StreamLayout(
        offsets=offsets,
        stream=stream,
        extras=extras,
        phrases=_phrases(atoms, extras, word_keys),
        word_keys=word_keys,
        prefix_keys=prefix_keys,
        checks=anchors.checks,
        predicate_targets=targets_of_predicates(logical),
        room=_room(
            offsets_of(np.maximum(anchors.keys.lengths, 1)),
            anchors.checks.offsets,
            anchors.checks.values,
            read_only(logical.clauses.offsets),
            codes[logical.clauses.values],
            logical.predicate_formulas != EXACT,
        ),
        vocabulary=Vocabulary.of(words),
        prefixes=Vocabulary.of(prefixes),
    )


def literal_codes(atoms: AtomLayout, extras: Array) -> Array:
    """The number that stands for each literal in a tail: index, kind and sign."""
    kinds = np.full(len(atoms.atom_kinds), OTHER, dtype=np.int64)
    kinds[atoms.atom_kinds == TestKind.KEY] = KEY
    kinds[atoms.atom_kinds == TestKind.RANGE] = RANGE
    kinds[atoms.atom_kinds == TestKind.PHRASE] = PHRASE
    index = atoms.atom_keys.astype(np.int64)
    index[extras] = np.arange(len(extras))
    codes = index << 3 | kinds << 1
    return np.stack([codes, codes | 1], axis=1).reshape(-1).astype(np.uint32)


def _texts_of_keys(atoms: AtomLayout, kind: Token) -> tuple[Texts, Rows]:
    """The distinct words, or prefixes of words, among the keys, and the keys of each."""
    tokens, keys = atoms.key_tokens, atoms.keys_of(kind)
    texts: dict[bytes, int] = {}
    numbers = np.array([texts.setdefault(tokens.raw(key)[1:], len(texts)) for key in keys.tolist()], dtype=np.int64)
    return Texts.of(texts), Rows.grouped(numbers, keys.astype(IDENTIFIER), len(texts))


def _phrases(atoms: AtomLayout, extras: Array, word_keys: Rows) -> Rows:
    """The words of the phrases among the extras, in order; no words for the others."""
    words_of = np.full(len(atoms.key_tokens), NOTHING, dtype=IDENTIFIER)
    words_of[word_keys.values] = np.repeat(np.arange(len(word_keys)), word_keys.lengths)
    owners, keys = atoms.atom_phrases.expand(extras)
    return Rows(offsets_of(np.bincount(owners, minlength=len(extras))), words_of[keys])


@kernel
def _build(
    key_offsets: Array,
    key_values: Array,
    anchors: Array,
    check_offsets: Array,
    check_values: Array,
    clause_offsets: Array,
    codes: Array,
    formulas: Array,
    keys: int,
) -> tuple[Array, Array]:
    """Lay out the streams in two passes over the predicates: one counts, one writes."""
    clause_kinds = _clause_kinds(clause_offsets, codes)
    direct = np.zeros(keys + 1, dtype=np.int64)
    joined = np.zeros(keys + 1, dtype=np.int64)
    tails = np.zeros(keys + 1, dtype=np.int64)
    lone = np.array([keys], dtype=key_values.dtype)
    for predicate in range(len(anchors)):
        checks = check_values[check_offsets[predicate] : check_offsets[predicate + 1]]
        inline = _inline(checks, clause_offsets, clause_kinds)
        size = _tail_size(checks, inline, clause_offsets, formulas[predicate])
        leading = key_values[key_offsets[predicate] : key_offsets[predicate + 1]]
        for key in leading if anchors[predicate] != NOTHING else lone:
            if len(checks) == 0 and not formulas[predicate]:
                direct[key] += 1
            else:
                joined[key] += 1
                tails[key] += size
    offsets = np.zeros(keys + 2, dtype=np.int64)
    for key in range(keys + 1):
        size = 2 + direct[key] + ENTRY * joined[key] + tails[key] if direct[key] + joined[key] else 0
        offsets[key + 1] = offsets[key] + size
    stream = np.zeros(offsets[keys + 1], dtype=np.uint32)
    next_direct = offsets[:-1] + 2
    next_joined = next_direct + direct
    next_tail = next_joined + ENTRY * joined
    for key in range(keys + 1):
        if direct[key] + joined[key]:
            stream[offsets[key]] = direct[key]
            stream[offsets[key] + 1] = joined[key]
    for predicate in range(len(anchors)):
        checks = check_values[check_offsets[predicate] : check_offsets[predicate + 1]]
        inline = _inline(checks, clause_offsets, clause_kinds)
        size = _tail_size(checks, inline, clause_offsets, formulas[predicate])
        leading = key_values[key_offsets[predicate] : key_offsets[predicate + 1]]
        for key in leading if anchors[predicate] != NOTHING else lone:
            if len(checks) == 0 and not formulas[predicate]:
                stream[next_direct[key]] = predicate
                next_direct[key] += 1
                continue
            entry = next_joined[key]
            next_joined[key] += ENTRY
            stream[entry] = predicate
            _write_inline(stream, entry + 2, checks, inline, clause_offsets, codes, keys)
            if size:
                tail = next_tail[key]
                next_tail[key] += size
                stream[entry + 1] = tail - offsets[key]
                stream[tail] = size - 1
                _write_tail(
                    stream, tail + 1, checks, inline, clause_offsets, codes, clause_kinds, formulas[predicate]
                )
    return offsets, stream


@kernel
def _clause_kinds(clause_offsets: Array, codes: Array) -> Array:
    kinds = np.zeros(len(clause_offsets) - 1, dtype=np.uint8)
    for clause in range(len(kinds)):
        first, last = clause_offsets[clause], clause_offsets[clause + 1]
        for place in range(first, last):
            if codes[place] & 7:
                kinds[clause] = MIXED
        if last - first == 1 and codes[first] & 7 == 1:
            kinds[clause] = MISSING
    return kinds


@kernel
def _inline(checks: Array, clause_offsets: Array, clause_kinds: Array) -> int:
    """Which of the checks stands in the entry: the first that is made of few keys."""
    for place in range(len(checks)):
        clause = checks[place]
        if clause_kinds[clause] == KEYS and clause_offsets[clause + 1] - clause_offsets[clause] <= INLINE:
            return place
    return NOTHING


@kernel
def _tail_size(checks: Array, inline: int, clause_offsets: Array, formula: bool) -> int:
    size = 1 if formula else 0
    for place in range(len(checks)):
        if place != inline:
            size += 1 + clause_offsets[checks[place] + 1] - clause_offsets[checks[place]]
    return size + 1 if size else 0


@kernel
def _write_inline(
    stream: Array, spot: int, checks: Array, inline: int, clause_offsets: Array, codes: Array, keys: int
) -> None:
    """The keys of the inline clause; the key of always without one, that of never where there are fewer."""
    stream[spot : spot + INLINE] = keys + 1
    if inline == NOTHING:
        stream[spot] = keys
        return
    clause = checks[inline]
    for place in range(clause_offsets[clause], clause_offsets[clause + 1]):
        stream[spot] = codes[place] >> 3
        spot += 1


@kernel
def _write_tail(
    stream: Array,
    spot: int,
    checks: Array,
    inline: int,
    clause_offsets: Array,
    codes: Array,
    clause_kinds: Array,
    formula: bool,
) -> None:
    for which in range(len(checks)):
        if which == inline:
            continue
        clause = checks[which]
        kind = clause_kinds[clause]
        stream[spot] = (clause_offsets[clause + 1] - clause_offsets[clause]) | (kind << KIND)
        spot += 1
        for place in range(clause_offsets[clause], clause_offsets[clause + 1]):
            stream[spot] = codes[place] if kind == MIXED else codes[place] >> 3
            spot += 1
    if formula:
        stream[spot] = FORMULA << KIND


@kernel
def _room(
    entries: Array,
    check_offsets: Array,
    check_values: Array,
    clause_offsets: Array,
    codes: Array,
    formulas: Array,
) -> Array:
    """How many entries there are whose predicates have an atom that the walk cannot know, or a formula."""
    room = np.zeros(1, dtype=np.int64)
    for predicate in range(len(formulas)):
        unknown = formulas[predicate]
        for clause in check_values[check_offsets[predicate] : check_offsets[predicate + 1]]:
            for code in codes[clause_offsets[clause] : clause_offsets[clause + 1]]:
                unknown |= (code >> 1) & 3 == OTHER
        if unknown:
            room[0] += entries[predicate + 1] - entries[predicate]
    return room


@kernel
def _sound(offsets: Array, stream: Array, limits: Array) -> bool:
    """Whether every number in the streams lies within what it refers to: (predicates, keys, extras)."""
    predicates, keys, extras = limits[0], limits[1], limits[2]
    for key in range(len(offsets) - 1):
        first, last = offsets[key], offsets[key + 1]
        if first == last:
            continue
        if last - first < 2:
            return False
        direct, joined = np.int64(stream[first]), np.int64(stream[first + 1])
        tails = first + 2 + direct + ENTRY * joined
        if tails > last:
            return False
        for place in range(first + 2, first + 2 + direct):
            if stream[place] >= predicates:
                return False
        for entry in range(first + 2 + direct, tails, ENTRY):
            if stream[entry] >= predicates:
                return False
            for place in range(entry + 2, entry + ENTRY):
                if stream[place] > keys + 1:
                    return False
            tail = np.int64(stream[entry + 1])
            if tail and not (tails <= first + tail < last and _sound_tail(stream, first + tail, last, keys, extras)):
                return False
    return True


@kernel
def _sound_tail(stream: Array, spot: Number, last: int, keys: int, extras: int) -> bool:
    end = spot + 1 + np.int64(stream[spot])
    spot += 1
    if end > last:
        return False
    while spot < end:
        count, kind = np.int64(stream[spot]) & ((1 << KIND) - 1), np.int64(stream[spot]) >> KIND
        spot += 1
        if spot + count > end or kind > FORMULA:
            return False
        for place in range(spot, spot + count):
            number = np.int64(stream[place])
            if kind == MIXED:
                if number >> 3 >= (keys if number & 6 == 0 else extras):
                    return False
            elif number >= keys:
                return False
        spot += count
    return True
