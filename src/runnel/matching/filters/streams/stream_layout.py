"""The streams of a plan part: built at compile time, mapped by every worker.

A stream has, in this order: how many *direct* entries it holds, and how many numbers its *joined* ones take; the
direct entries, which are predicates that the key proves; the joined ones, each of ENTRY numbers: the predicate, where
its tail is (0: none), and the keys of one more clause; then groups, and the tails. A tail is its length and the rest
of the predicate's clauses: a header (how many literals, and which kind of clause) and the literals. What most items
fail comes first.

A *group* holds the predicates that share a clause (see `shared_groups`). It begins with ENTRY numbers: how many
follow that belong to it, how many direct entries are among these, and the keys of the clause. What belongs to it is
the size of its joined entries, its direct entries, the joined ones, and groups inside it. Where a stream has groups,
its first number has the bit GROUPED, and its third one says how many numbers they take.
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
    Written,
    inline_clauses,
    write_streams,
)
from runnel.matching.filters.words.vocabulary import Vocabulary
from runnel.plan.logical_plan import EXACT, LogicalPlan, QueryTable
from runnel.plan.validate import check_ids, check_rows


@dataclass(frozen=True)
class StreamLayout:
    """The arrays.

    `stream` from `offsets[number]` on is a stream; its number is its key, where the key after the last is that of
    predicates without an anchor. After these come the own streams of sources, whose keys are `own_keys` (see
    `entries`). `extras` are the atoms without an exact key (ranges, phrases, others) in the order in which literals
    name them; `phrases` are their words, of phrases. `word_keys` are the keys of every word of the vocabulary,
    `prefix_keys` those of every prefix. `room` says how many entries can be in doubt.
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
        """The arrays that are looked at for every item, by the names under which they are stored."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        for name in _ROWS:
            plain |= getattr(self, name).arrays(name)
        plain |= self.vocabulary.arrays() | self.prefixes.arrays("prefixes")
        return {f"streams.{name}": array for name, array in plain.items()}

    def seldom(self) -> dict[str, Array]:
        """The arrays that are looked at where something is in doubt."""
        return self.checks.arrays("streams.checks")

    @staticmethod
    def stored(arrays: Arrays) -> StreamLayout:
        """The layout of arrays made by `arrays`."""
        own = {name.removeprefix("streams."): array for name, array in arrays.items() if name.startswith("streams.")}
        fields: dict[str, Any] = {name: Rows.stored(own, name) for name in (*_ROWS, "checks")}
        fields |= {name: own[name] for name in _PLAIN}
        return StreamLayout(**fields, vocabulary=Vocabulary.stored(own), prefixes=Vocabulary.stored(own, "prefixes"))

    def check(self, queries: QueryTable, predicates: int, atoms: AtomLayout) -> None:
        """Raise ValueError, naming the array, unless everything fits; a kernel does not look for itself.

        What is seldom looked at is checked by itself, when it first is.
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
            raise ValueError("streams refers to something that is not there")

    def check_seldom(self, logical: LogicalPlan) -> None:
        """The same for the arrays that are looked at where something is in doubt."""
        check_rows("streams.checks", self.checks, len(logical.clauses), len(logical.predicates))


_PLAIN = ("offsets", "stream", "extras", "room")
_ROWS = ("own_keys", "phrases", "word_keys", "prefix_keys")


def lay_out_streams(
    logical: LogicalPlan, atoms: AtomLayout, anchors: Anchors, shape: StreamShape | None = None
) -> StreamLayout:
    """The streams of a logical plan."""
    extras = np.flatnonzero(atoms.atom_keys == NOTHING).astype(IDENTIFIER)
    entries = enter_predicates(logical, anchors, len(atoms.key_tokens), shape or StreamShape())
    source = _written(logical, atoms, anchors, extras)
    unknown = _unknown_clauses(source.clause_offsets, source.codes)
    rows = read_only(entries.predicates.offsets), read_only(entries.predicates.values)
    usable = inline_clauses(source.clause_offsets, source.codes)
    asked = OpenClauses(source.check_offsets, source.checks, anchors.clause_shares, usable)
    holders = expected_holders(stream_shares(atoms, entries.own_keys))
    groups = group_predicates(*rows, holders, asked, (shape or StreamShape()).trees)
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
        room=_room(rows[1], source, unknown),
        vocabulary=vocabulary,
        prefixes=prefixes,
    )


def stream_shares(atoms: AtomLayout, own_keys: Rows) -> Array:
    """The part of all items expected to lead to each stream, where every source has as many items as any other."""
    shares = np.append(atoms.key_shares.astype(np.float64), 1.0)
    return np.concatenate([shares, shares[own_keys.values] / max(1, len(own_keys))])


def _written(logical: LogicalPlan, atoms: AtomLayout, anchors: Anchors, extras: Array) -> Written:
    return Written(
        check_offsets=read_only(anchors.checks.offsets),
        checks=read_only(anchors.checks.values),
        clause_offsets=read_only(logical.clauses.offsets),
        codes=read_only(literal_codes(atoms, extras)[logical.clauses.values]),
        formulas=read_only(logical.predicate_formulas != EXACT),
        keys=len(atoms.key_tokens),
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


def words_of_keys(atoms: AtomLayout) -> tuple[Vocabulary, Rows, Vocabulary, Rows]:
    """The words among the keys, the keys of each, and the same of prefixes of words."""
    words, word_keys = _texts_of_keys(atoms, WORD)
    prefixes, prefix_keys = _texts_of_keys(atoms, PREFIX)
    return Vocabulary.of(words), word_keys, Vocabulary.of(prefixes), prefix_keys


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
def _unknown_clauses(clause_offsets: Array, codes: Array) -> Array:
    """Which clauses have an atom that the walk cannot know."""
    unknown = np.zeros(len(clause_offsets) - 1, dtype=np.bool_)
    for clause in range(len(unknown)):
        for code in codes[clause_offsets[clause] : clause_offsets[clause + 1]]:
            unknown[clause] |= (code >> 1) & 3 == OTHER
    return unknown


@kernel
def _room(predicates: Array, source: Written, unknown: Array) -> Array:
    """How many entries there are whose predicates have a clause that the walk cannot know, or a formula."""
    check_offsets, checks, formulas = source.check_offsets, source.checks, source.formulas
    doubtful = formulas.copy()
    for predicate in range(len(doubtful)):
        for place in range(check_offsets[predicate], check_offsets[predicate + 1]):
            doubtful[predicate] |= unknown[checks[place]]
    room = np.zeros(1, dtype=np.int64)
    for predicate in predicates:
        room[0] += doubtful[predicate]
    return room
