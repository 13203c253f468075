"""The atoms of a plan part as arrays: the keys that find them, and how their truth is decided.

In: a logical plan. Out: an AtomLayout, which all matchers share. A *key* is a token in a slot. Keys are numbered by
their expected frequency in items, the most frequent first, so that frequently read data is adjacent in memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast

import numpy as np

from runnel.algebra.nodes.encode import decode_expression
from runnel.algebra.nodes.expressions import Atom
from runnel.arrays import IDENTIFIER, Array, Arrays, Rows, Texts, narrow_offsets, row_offsets
from runnel.families import registry
from runnel.matching.filters.atoms.atom_tests import (
    AtomTest,
    Slot,
    SlotUse,
    TestKind,
    Token,
    pattern_test,
    test_of,
    use_of,
    word_test,
)
from runnel.matching.filters.atoms.key_frequency import KnownWords, estimate
from runnel.plan.logical_plan import LogicalPlan, identifiers
from runnel.plan.validate import check_ids, check_rows, check_texts

NOTHING = -1
"""The value in place of a key or a clause if there is none."""

Frequencies = Mapping[str, float]
"""The known shares of items that contain a word. They affect only speed, never the matches."""


@dataclass(frozen=True)
class AtomLayout:
    """The arrays of slots, keys and atoms.

    `key_hashes` are sorted, and `key_ids` has the key of each hash. `key_shares` is the expected share of items that
    have a key. `atom_keys` has the key whose presence decides an atom, or NOTHING. `atom_candidates` are keys of
    which an item has at least one if the atom holds (an empty row: unknown), and `atom_shares` is the expected share
    of items that have one. `atom_phrases` are the keys of a phrase's words in order, and empty for other atoms.
    """

    slots: Texts
    slot_uses: Array
    key_hashes: Array
    key_ids: Array
    key_slots: Array
    key_tokens: Texts
    key_shares: Array
    atom_kinds: Array
    atom_slots: Array
    atom_keys: Array
    atom_lows: Array
    atom_highs: Array
    atom_shares: Array
    atom_candidates: Rows
    atom_phrases: Rows

    def arrays(self) -> dict[str, Array]:
        """Return all arrays by the names under which they are stored."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        for name in (*_TEXTS, *_ROWS):
            plain |= getattr(self, name).arrays(name)
        return plain

    @staticmethod
    def stored(arrays: Arrays) -> AtomLayout:
        """Build a layout from the arrays that `arrays` returned."""
        fields: dict[str, Any] = {name: Texts.stored(arrays, name) for name in _TEXTS}
        fields |= {name: Rows.stored(arrays, name) for name in _ROWS}
        fields |= {name: arrays[name] for name in _PLAIN}
        return AtomLayout(**fields)

    def keys_of(self, kind: Token) -> Array:
        """Return the keys whose tokens begin with the byte `kind`, such as WORD or PREFIX."""
        tokens = self.key_tokens
        return np.flatnonzero(tokens.data[tokens.offsets[:-1]] == kind[0]) if len(tokens) else np.empty(0, np.int64)

    def families(self) -> list[str]:
        """Return the condition families whose patterns are among the atoms."""
        return [name for name, _ in self._pattern_slots()]

    def atoms_of(self, family: str) -> Array:
        """Return the atoms that are patterns of a family."""
        slots = [slot for name, slot in self._pattern_slots() if name == family]
        return np.flatnonzero(np.isin(self.atom_slots, slots)) if slots else np.empty(0, np.int64)

    def _pattern_slots(self) -> list[tuple[str, int]]:
        slots = np.flatnonzero(self.slot_uses & SlotUse.PATTERNS).tolist()
        return [(json.loads(self.slots.text(slot))[0], slot) for slot in slots]

    def check(self, atoms: int) -> None:
        """Raise a ValueError that names the array if an array does not fit a plan with this number of atoms."""
        check_texts("slots", self.slots)
        check_texts("key_tokens", self.key_tokens)
        keys = len(self.key_tokens)
        if np.any(self.key_tokens.offsets[1:] == self.key_tokens.offsets[:-1]):
            raise ValueError("key_tokens contains an empty token")
        check_ids("slot_uses", self.slot_uses, 0, None, len(self.slots))
        check_ids("key_hashes", self.key_hashes, None, None, keys)
        check_ids("key_ids", self.key_ids, 0, keys, keys)
        check_ids("key_slots", self.key_slots, 0, len(self.slots), keys)
        check_ids("atom_kinds", self.atom_kinds, 0, len(TestKind), atoms)
        check_ids("atom_slots", self.atom_slots, 0, len(self.slots), atoms)
        check_ids("atom_keys", self.atom_keys, NOTHING, keys, atoms)
        check_rows("atom_candidates", self.atom_candidates, keys, atoms)
        check_rows("atom_phrases", self.atom_phrases, keys, atoms)


_TEXTS = ("slots", "key_tokens")
_ROWS = ("atom_candidates", "atom_phrases")
_PLAIN = (
    "slot_uses",
    "key_hashes",
    "key_ids",
    "key_slots",
    "key_shares",
    "atom_kinds",
    "atom_slots",
    "atom_keys",
    "atom_lows",
    "atom_highs",
    "atom_shares",
)


def hash_key(slot: int, token: Token) -> int:
    """Return the hash by which a key is looked up. The lookup then compares the key, so collisions are harmless."""
    return int.from_bytes(blake2b(slot.to_bytes(4, "little") + token, digest_size=8).digest(), "little")


def compute_atom_layout(logical: LogicalPlan, frequencies: Frequencies | None = None) -> AtomLayout:
    """Build the layout of a logical plan's atoms. `frequencies` are the known frequencies of words."""
    tests = _atom_tests(logical.atoms)
    slots = _number_slots(tests)
    keys = _Keys(slots, tests, KnownWords(frequencies or {}))
    kinds = np.array([test.kind for test in tests], dtype=np.uint8)
    candidates, shares = keys.candidates(tests)
    return AtomLayout(
        slots=Texts.of(json.dumps(slot) for slot in slots),
        slot_uses=_slot_uses(tests, slots, keys),
        key_hashes=keys.hashes,
        key_ids=keys.ids,
        key_slots=keys.slots,
        key_tokens=keys.tokens,
        key_shares=keys.shares.astype(np.float32),
        atom_kinds=kinds,
        atom_slots=identifiers([slots[test.slot] for test in tests]),
        atom_keys=keys.exact(kinds == TestKind.KEY),
        atom_lows=np.array([test.low for test in tests], dtype=np.float64),
        atom_highs=np.array([test.high for test in tests], dtype=np.float64),
        atom_shares=shares,
        atom_candidates=candidates,
        atom_phrases=_filter_values(keys.of_atoms, np.repeat(kinds == TestKind.PHRASE, keys.of_atoms.lengths)),
    )


def _atom_tests(atoms: Texts) -> list[AtomTest]:
    """Return the tests of stored atoms. Most atoms are a single word, so these are not decoded first."""
    tests = []
    families = {f'["{name}",': name for name in registry().families}
    tags = tuple(families)
    for text in atoms.texts():
        if text.startswith(tags):
            family = families[text[: text.index(",") + 1]]
            tests.append(pattern_test(family, text))
            continue
        match value := json.loads(text):
            case ["contains", str(name), str(word)] if word.isascii():
                tests.append(word_test((name, ""), word))
            case _:
                tests.append(test_of(cast(Atom, decode_expression(value))))
    return tests


def _number_slots(tests: list[AtomTest]) -> dict[Slot, int]:
    slots: dict[Slot, int] = {}
    for test in tests:
        slots.setdefault(test.slot, len(slots))
        for slot, _ in test.keys:
            slots.setdefault(slot, len(slots))
    return slots


def _slot_uses(tests: list[AtomTest], slots: dict[Slot, int], keys: _Keys) -> Array:
    uses = np.zeros(len(slots), dtype=np.uint16)
    for slot in {test.slot for test in tests if test.kind == TestKind.RANGE}:
        uses[slots[slot]] |= SlotUse.RANGES
    if len(keys.tokens):
        kinds = keys.tokens.data[keys.tokens.offsets[:-1]]
        for slot_number, kind in np.unique(np.stack([keys.slots, kinds.astype(IDENTIFIER)], axis=1), axis=0).tolist():
            uses[slot_number] |= use_of(bytes([kind]))
    return uses


def _filter_values(rows: Rows, is_kept: Array) -> Rows:
    """Return the rows with only those values that the mask selects."""
    counts_before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(is_kept)])
    return Rows(narrow_offsets(counts_before[rows.offsets]), rows.values[is_kept])


class _Keys:
    """The distinct keys of the atoms (including all words of phrases), the most frequent first.

    The set of keys does not depend on the known frequencies, so that two layouts of a plan can be compared.
    """

    def __init__(self, slots: dict[Slot, int], tests: list[AtomTest], known: KnownWords) -> None:
        numbers: dict[tuple[Slot, Token], int] = {}
        atom_keys = [numbers.setdefault(key, len(numbers)) for test in tests for key in test.keys]
        tokens = [token for _, token in numbers]
        estimates = {token: estimate(token, known) for token in dict.fromkeys(tokens)}
        shares = np.array([estimates[token] for token in tokens], dtype=np.float64)
        key_slots = identifiers([slots[slot] for slot, _ in numbers])
        by_share = np.lexsort((_ranks(tokens), key_slots, -shares))
        self.shares = shares[by_share]
        self.slots = key_slots[by_share]
        tokens = [tokens[number] for number in by_share.tolist()]
        self.tokens = Texts.of(tokens)
        hashes = np.array(list(map(hash_key, self.slots.tolist(), tokens)), dtype=np.uint64)
        by_hash = np.argsort(hashes, kind="stable")
        self.hashes = hashes[by_hash]
        self.ids = by_hash.astype(IDENTIFIER)
        new_numbers = np.empty(len(by_share), dtype=IDENTIFIER)
        new_numbers[by_share] = np.arange(len(by_share))
        offsets = row_offsets([len(test.keys) for test in tests])
        self.of_atoms = Rows(offsets, new_numbers[np.array(atom_keys, dtype=np.int64)])

    def exact(self, has_key: Array) -> Array:
        """Return the key that decides each atom, or NOTHING. The mask selects the atoms that a single key decides."""
        keys = np.full(len(has_key), NOTHING, dtype=IDENTIFIER)
        keys[has_key] = self.of_atoms.values[self.of_atoms.offsets[:-1][has_key]]
        return keys

    def candidates(self, tests: list[AtomTest]) -> tuple[Rows, Array]:
        """Return the keys that find each atom, and the expected share of items that have one (1 without keys)."""
        rows, lengths = self.of_atoms, self.of_atoms.lengths
        is_kept, shares = np.ones(len(rows.values), dtype=bool), np.ones(len(tests))
        has_one_key = lengths == 1
        shares[has_one_key] = np.minimum(1.0, self.shares[rows.values[rows.offsets[:-1][has_one_key]]])
        for atom in np.flatnonzero(lengths > 1).tolist():
            start, stop = int(rows.offsets[atom]), int(rows.offsets[atom + 1])
            estimates = self.shares[rows.values[start:stop]].tolist()
            if tests[atom].together:
                # An item must have all keys, such as the words of a phrase, so the rarest key is enough.
                indices = np.array([min(range(len(estimates)), key=estimates.__getitem__)])
                shares[atom] = estimates[indices[0]]
            else:
                indices = np.unique(rows.values[start:stop], return_index=True)[1]
                shares[atom] = min(1.0, sum(estimates))
            is_kept[start:stop] = False
            is_kept[start + indices] = True
        return _filter_values(rows, is_kept), shares


def _ranks(tokens: list[Token]) -> Array:
    """Return the rank of each token in sorted order."""
    ranks = np.empty(len(tokens), dtype=np.int64)
    ranks[sorted(range(len(tokens)), key=tokens.__getitem__)] = np.arange(len(tokens))
    return ranks
