"""The streams of a plan part: built at compile time and mapped by every worker.

A stream is a sequence of integers: the number of its *direct* entries; the size of its *joined* entries; the direct
entries; the joined entries; the groups; the tails. Sizes are numbers of integers. A direct entry is a predicate that
the key proves. A joined entry has ENTRY integers: the predicate, the offset of its tail in the stream (0 if it has
none), and the keys of one more clause. A tail is its size and the remaining clauses of the predicate, the most
selective first. Each clause is a header (number of literals and kind of clause) and its literals.

A *group* contains the predicates that share a clause (see `shared_groups`). It begins with ENTRY integers: the size
of its content, the number of its direct entries, and the keys of the clause. Its content is the size of its joined
entries, its direct entries, its joined entries, and nested groups. If a stream has groups, the bit GROUPED is set in
its first integer, and its third integer is the size of the groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from runnel.arrays import IDENTIFIER, Array, Arrays, Rows, Texts, offsets_of, read_only
from runnel.kernel import kernel
from runnel.matching.filters.atoms.anchors import Anchors
from runnel.matching.filters.atoms.atom_layout import NOTHING, AtomLayout
from runnel.matching.filters.atoms.atom_tests import PREFIX, WORD, TestKind, Token
from runnel.matching.filters.streams.check_streams import BROKEN, count_doubts
from runnel.matching.filters.streams.entries import StreamShape, enter_predicates, sources_of
from runnel.matching.filters.streams.shared_groups import OpenClauses, expected_holders, group_predicates
from runnel.matching.filters.streams.write_streams import (
    KEY,
    OTHER,
    PHRASE,
    RANGE,
    StreamSource,
    inline_clauses,
    write_streams,
)
from runnel.matching.filters.words.vocabulary import Vocabulary
from runnel.plan.logical_plan import EXACT, LogicalPlan, QueryTable
from runnel.plan.validate import check_ids, check_rows


@dataclass(frozen=True)
class StreamLayout:
    """The arrays of the streams.

    Stream n is `stream[offsets[n]:offsets[n + 1]]`. The first streams belong to the keys, in their order, followed by
    the stream of predicates without an anchor and the own streams of sources, whose keys are `own_keys` (see
    `entries`). `extras` are the atoms that no single key decides (ranges, phrases, others); literals refer to their
    positions. `phrases` are the words of the phrases among them. `word_keys` are the keys of every word of the
    vocabulary, `prefix_keys` those of every prefix. `room` is the maximum number of undecided entries.
    """

    offsets: Array
    stream: Array
    own_keys: Rows
    extras: Array
    phrases: Rows
    word_keys: Rows
    prefix_keys: Rows
    checks: Rows
    room: Array
    vocabulary: Vocabulary
    prefixes: Vocabulary

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that are read for every item, by the names under which they are stored."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        for name in _ROWS:
            plain |= getattr(self, name).arrays(name)
        plain |= self.vocabulary.arrays() | self.prefixes.arrays("prefixes")
        return {f"streams.{name}": array for name, array in plain.items()}

    def seldom(self) -> dict[str, Array]:
        """Return the arrays that are read only for undecided predicates."""
        return self.checks.arrays("streams.checks")

    @staticmethod
    def stored(arrays: Arrays) -> StreamLayout:
        """Build a layout from the arrays that `arrays` and `seldom` returned."""
        prefix = "streams."
        stored = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        fields: dict[str, Any] = {name: Rows.stored(stored, name) for name in (*_ROWS, "checks")}
        fields |= {name: stored[name] for name in _PLAIN}
        vocabulary, prefixes = Vocabulary.stored(stored), Vocabulary.stored(stored, "prefixes")
        return StreamLayout(**fields, vocabulary=vocabulary, prefixes=prefixes)

    def check(self, queries: QueryTable, predicates: int, atoms: AtomLayout) -> None:
        """Raise a ValueError that names the array if an array is invalid, because kernels do not check bounds.

        `check_seldom` checks the arrays of `seldom` when they are first used.
        """
        keys, words = len(atoms.key_tokens), len(self.vocabulary)
        check_rows("streams.own_keys", self.own_keys, keys + 1, len(sources_of(queries)))
        streams = keys + 1 + len(self.own_keys.values)
        check_rows("streams", Rows(self.offsets, self.stream), None, streams)
        check_ids("streams.extras", self.extras, 0, len(atoms.atom_kinds), len(self.extras))
        check_rows("streams.phrases", self.phrases, words, len(self.extras))
        check_rows("streams.word_keys", self.word_keys, keys, words)
        check_rows("streams.prefix_keys", self.prefix_keys, keys, len(self.prefixes))
        check_ids("streams.room", self.room, 0, None, 1)
        limits = np.array([predicates, keys, len(self.extras)], dtype=np.int64)
        doubts = count_doubts(read_only(self.offsets), read_only(self.stream), limits)
        if doubts == BROKEN or doubts > int(self.room[0]):
            raise ValueError("streams.stream does not have the format of streams")

    def check_seldom(self, logical: LogicalPlan) -> None:
        """Raise a ValueError that names the array if an array of `seldom` is invalid."""
        check_rows("streams.checks", self.checks, len(logical.clauses), len(logical.predicates))


_PLAIN = ("offsets", "stream", "extras", "room")
_ROWS = ("own_keys", "phrases", "word_keys", "prefix_keys")


def compute_stream_layout(
    logical: LogicalPlan, atoms: AtomLayout, anchors: Anchors, shape: StreamShape | None = None
) -> StreamLayout:
    """Build the streams of a logical plan."""
    extras = np.flatnonzero(atoms.atom_keys == NOTHING).astype(IDENTIFIER)
    entries = enter_predicates(logical, anchors, len(atoms.key_tokens), shape or StreamShape())
    source = _stream_source(logical, atoms, anchors, extras)
    unknown = _unknown_clauses(source.clause_offsets, source.codes)
    rows = read_only(entries.predicates.offsets), read_only(entries.predicates.values)
    usable = inline_clauses(source.clause_offsets, source.codes)
    open_clauses = OpenClauses(source.check_offsets, source.checks, anchors.clause_shares, usable)
    holders = expected_holders(stream_shares(atoms, entries.own_keys))
    groups = group_predicates(*rows, holders, open_clauses, (shape or StreamShape()).trees)
    offsets, stream = write_streams(*rows, groups, source)
    vocabulary, word_keys, prefixes, prefix_keys = words_of_keys(atoms)
    return StreamLayout(
        offsets=offsets,
        stream=stream,
        own_keys=entries.own_keys,
        extras=extras,
        phrases=_phrases(atoms, extras, word_keys),
        word_keys=word_keys,
        prefix_keys=prefix_keys,
        checks=anchors.checks,
        room=_count_doubtful(rows[1], source, unknown),
        vocabulary=vocabulary,
        prefixes=prefixes,
    )


def stream_shares(atoms: AtomLayout, own_keys: Rows) -> Array:
    """Return the expected share of items that lead to each stream, if all sources have equally many items."""
    shares = np.append(atoms.key_shares.astype(np.float64), 1.0)
    return np.concatenate([shares, shares[own_keys.values] / max(1, len(own_keys))])


def _stream_source(logical: LogicalPlan, atoms: AtomLayout, anchors: Anchors, extras: Array) -> StreamSource:
    return StreamSource(
        check_offsets=read_only(anchors.checks.offsets),
        checks=read_only(anchors.checks.values),
        clause_offsets=read_only(logical.clauses.offsets),
        codes=read_only(literal_codes(atoms, extras)[logical.clauses.values]),
        formulas=read_only(logical.predicate_formulas != EXACT),
        keys=len(atoms.key_tokens),
    )


def literal_codes(atoms: AtomLayout, extras: Array) -> Array:
    """Return the code of each literal in a tail, which contains its index, kind and sign."""
    kinds = np.full(len(atoms.atom_kinds), OTHER, dtype=np.int64)
    kinds[atoms.atom_kinds == TestKind.KEY] = KEY
    kinds[atoms.atom_kinds == TestKind.RANGE] = RANGE
    kinds[atoms.atom_kinds == TestKind.PHRASE] = PHRASE
    index = atoms.atom_keys.astype(np.int64)
    index[extras] = np.arange(len(extras))
    codes = index << 3 | kinds << 1
    return np.stack([codes, codes | 1], axis=1).reshape(-1).astype(np.uint32)


def words_of_keys(atoms: AtomLayout) -> tuple[Vocabulary, Rows, Vocabulary, Rows]:
    """Return the vocabulary of the keys that are words, the keys of each word, and the same for prefixes."""
    words, word_keys = _texts_of_keys(atoms, WORD)
    prefixes, prefix_keys = _texts_of_keys(atoms, PREFIX)
    return Vocabulary.of(words), word_keys, Vocabulary.of(prefixes), prefix_keys


def _texts_of_keys(atoms: AtomLayout, kind: Token) -> tuple[Texts, Rows]:
    """Return the distinct words, or prefixes of words, among the keys, and the keys of each."""
    tokens, keys = atoms.key_tokens, atoms.keys_of(kind)
    texts: dict[bytes, int] = {}
    numbers = np.array([texts.setdefault(tokens.raw(key)[1:], len(texts)) for key in keys.tolist()], dtype=np.int64)
    return Texts.of(texts), Rows.grouped(numbers, keys.astype(IDENTIFIER), len(texts))


def _phrases(atoms: AtomLayout, extras: Array, word_keys: Rows) -> Rows:
    """Return the words of each phrase among the extras in order; the rows of other extras are empty."""
    key_words = np.full(len(atoms.key_tokens), NOTHING, dtype=IDENTIFIER)
    key_words[word_keys.values] = np.repeat(np.arange(len(word_keys)), word_keys.lengths)
    owners, keys = atoms.atom_phrases.expand(extras)
    return Rows(offsets_of(np.bincount(owners, minlength=len(extras))), key_words[keys])


@kernel
def _unknown_clauses(clause_offsets: Array, codes: Array) -> Array:
    """Return a mask of the clauses with an atom that only the evaluator can decide."""
    unknown = np.zeros(len(clause_offsets) - 1, dtype=np.bool_)
    for clause in range(len(unknown)):
        for code in codes[clause_offsets[clause] : clause_offsets[clause + 1]]:
            unknown[clause] |= (code >> 1) & 3 == OTHER
    return unknown


@kernel
def _count_doubtful(predicates: Array, source: StreamSource, unknown: Array) -> Array:
    """Return the number of entries whose predicates have a formula or a clause of the mask `unknown`."""
    check_offsets, checks, formulas = source.check_offsets, source.checks, source.formulas
    doubtful = formulas.copy()
    for predicate in range(len(doubtful)):
        for index in range(check_offsets[predicate], check_offsets[predicate + 1]):
            doubtful[predicate] |= unknown[checks[index]]
    count = np.zeros(1, dtype=np.int64)
    for predicate in predicates:
        count[0] += doubtful[predicate]
    return count
