"""The atoms of a plan part as arrays: which keys they are found by, and how their truth is known.

In: a logical plan. Out: an AtomLayout, which every physical form of the index shares. A *key* is a token in a slot.
Keys are numbered by how many items are expected to have them, the most frequent first, so that what is looked at most
lies together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast

import numpy as np

from runnel.algebra.encode import decode_expression
from runnel.algebra.expressions import Atom
from runnel.matching.filters.atom_tests import AtomTest, Slot, SlotUse, TestKind, Token, test_of, use_of
from runnel.matching.filters.frequency import KnownWords, estimate
from runnel.plan.arrays import Array, Arrays, Rows, Texts
from runnel.plan.logical import LogicalPlan, identifiers
from runnel.plan.validate import check_ids, check_rows, check_texts

NOTHING = -1
Frequencies = Mapping[str, float]
"""The part of all items that hold a word, where it is known; it decides speed, never answers."""


@dataclass(frozen=True)
class AtomLayout:
    """The arrays.

    `key_hashes` are sorted and `key_ids` gives the key of each; `key_shares` is the part of all items expected to
    have a key. `atom_keys` gives the key whose presence is the truth of an atom, or NOTHING; `atom_candidates` the
    keys of which an item has one if the atom holds (none: not known), `atom_shares` the part of items that have one.
    `atom_phrases` are the keys of a phrase's words, in order; no keys for other atoms.
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
        """All arrays by the names under which they are stored."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        for name in (*_TEXTS, *_ROWS):
            plain |= getattr(self, name).arrays(name)
        return plain

    @staticmethod
    def stored(arrays: Arrays) -> AtomLayout:
        """The layout of arrays made by `arrays`."""
        fields: dict[str, Any] = {name: Texts.stored(arrays, name) for name in _TEXTS}
        fields |= {name: Rows.stored(arrays, name) for name in _ROWS}
        fields |= {name: arrays[name] for name in _PLAIN}
        return AtomLayout(**fields)

    @staticmethod
    def is_stored(arrays: Arrays) -> bool:
        """Whether these are arrays of this form."""
        return "key_ids" in arrays

    def keys_of(self, kind: Token) -> Array:
        """The keys whose tokens begin with a byte: those of one kind."""
        tokens = self.key_tokens
        return np.flatnonzero(tokens.data[tokens.offsets[:-1]] == kind[0]) if len(tokens) else np.empty(0, np.int64)

    def check(self, atoms: int) -> None:
        """Raise ValueError, naming the array, unless everything fits a plan with so many atoms."""
        check_texts("slots", self.slots)
        check_texts("key_tokens", self.key_tokens)
        keys = len(self.key_tokens)
        if np.any(self.key_tokens.offsets[1:] == self.key_tokens.offsets[:-1]):
            raise ValueError("key_tokens.offsets leaves a token without bytes")
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
    """The hash by which a key is looked up; the key itself is compared afterwards, so collisions are harmless."""
    return int.from_bytes(blake2b(slot.to_bytes(4, "little") + token, digest_size=8).digest(), "little")


def lay_out_atoms(logical: LogicalPlan, frequencies: Frequencies | None = None) -> AtomLayout:
    """The layout of a logical plan's atoms, with what is known of how frequent words are."""
    tests = [test_of(_decoded(logical, atom)) for atom in range(len(logical.atoms))]
    shares: dict[Token, float] = {}
    known = KnownWords(frequencies or {})
    chosen = [_cheapest(test, known, shares) for test in tests]
    slots = _numbered_slots(tests)
    keys = _Keys(slots, tests, shares)
    return AtomLayout(
        slots=Texts.of(json.dumps(slot) for slot in slots),
        slot_uses=_uses(tests, slots),
        key_hashes=keys.hashes,
        key_ids=keys.ids,
        key_slots=keys.slots,
        key_tokens=keys.tokens,
        key_shares=keys.shares,
        atom_kinds=np.array([test.kind for test in tests], dtype=np.uint8),
        atom_slots=identifiers([slots[test.slot] for test in tests]),
        atom_keys=identifiers([keys.exact(test) for test in tests]),
        atom_lows=np.array([test.low for test in tests], dtype=np.float64),
        atom_highs=np.array([test.high for test in tests], dtype=np.float64),
        atom_shares=np.array([share for _, share in chosen], dtype=np.float64),
        atom_candidates=Rows.of([list(dict.fromkeys(keys.numbers_of(found))) for found, _ in chosen]),
        atom_phrases=Rows.of([keys.numbers_of(one.keys if one.kind == TestKind.PHRASE else ()) for one in tests]),
    )


def _decoded(logical: LogicalPlan, atom: int) -> Atom:
    return cast(Atom, decode_expression(json.loads(logical.atoms.text(atom))))


def _cheapest(
    test: AtomTest, known: KnownWords, shares: dict[Token, float]
) -> tuple[tuple[tuple[Slot, Token], ...], float]:
    """The keys by which an atom is found, and the part of all items that they let through: all, without keys."""
    for _, token in test.keys:
        if token not in shares:
            shares[token] = estimate(token, known)
    if not test.keys:
        return (), 1.0
    estimates = [shares[token] for _, token in test.keys]
    if test.together:
        # All words of a phrase must be there, so its rarest word is enough; so it is with patterns.
        rarest = min(range(len(estimates)), key=estimates.__getitem__)
        return (test.keys[rarest],), estimates[rarest]
    return test.keys, min(1.0, sum(estimates))


def _numbered_slots(tests: list[AtomTest]) -> dict[Slot, int]:
    slots: dict[Slot, int] = {}
    for test in tests:
        for slot in (test.slot, *(slot for slot, _ in test.keys)):
            slots.setdefault(slot, len(slots))
    return slots


def _uses(tests: list[AtomTest], slots: dict[Slot, int]) -> Array:
    uses = np.zeros(len(slots), dtype=np.uint8)
    for slot in {test.slot for test in tests if test.kind == TestKind.RANGE}:
        uses[slots[slot]] |= SlotUse.RANGES
    for slot, kind in {(slot, token[:1]) for test in tests for slot, token in test.keys}:
        uses[slots[slot]] |= use_of(kind)
    return uses


class _Keys:
    """The distinct keys of the atoms (of a phrase, all its words), the most frequent first.

    Which they are does not depend on what is known of frequencies, so that two layouts of a plan can be compared.
    """

    def __init__(self, slots: dict[Slot, int], tests: list[AtomTest], shares: Mapping[Token, float]) -> None:
        self._slot_numbers = slots
        found = {(slots[slot], token) for test in tests for slot, token in test.keys}
        ordered = sorted(found, key=lambda key: (-shares[key[1]], key))
        hashes = np.array([hash_key(slot, token) for slot, token in ordered], dtype=np.uint64)
        order = np.argsort(hashes, kind="stable")
        self.hashes = hashes[order]
        self.ids = identifiers(order.tolist())
        self.slots = identifiers([slot for slot, _ in ordered])
        self.tokens = Texts.of(token for _, token in ordered)
        self.shares = np.array([shares[token] for _, token in ordered], dtype=np.float32)
        self._numbers = {key: number for number, key in enumerate(ordered)}

    def numbers_of(self, keys: tuple[tuple[Slot, Token], ...]) -> list[int]:
        """The numbers of keys."""
        return [self._numbers[self._slot_numbers[slot], token] for slot, token in keys]

    def exact(self, test: AtomTest) -> int:
        """The key whose presence is the truth of an atom, if there is one."""
        return self.numbers_of(test.keys)[0] if test.kind == TestKind.KEY else NOTHING
