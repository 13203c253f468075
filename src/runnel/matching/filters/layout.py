"""The index arrays of a plan part, laid out at compile time and mapped by every worker.

Every predicate is *anchored* at the clause that the fewest items are expected to satisfy, among the clauses that
are disjunctions of keys: an item can satisfy the predicate only if it has one of these keys. The postings lead from
a key to the predicates anchored there. Predicates without such a clause (only ranges or negations) are asked for
every item.
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
from runnel.errors import CorruptData
from runnel.matching.filters.atom_tests import AtomTest, Slot, SlotUse, TestKind, Token, test_of, use_of
from runnel.matching.filters.frequency import estimate
from runnel.plan.arrays import Array, Arrays, Rows, Texts, offsets_of
from runnel.plan.logical import LogicalPlan, identifiers
from runnel.plan.store import PlanPart
from runnel.plan.validate import check_ids, check_rows, check_texts

NOTHING = -1


@dataclass(frozen=True)
class FilterLayout:
    """The arrays. Keys are in the order of their hashes; `anchors` gives a predicate's clause, or NOTHING.

    `checks` are the clauses that a candidate must still be checked for: all but an anchor that its key proves.
    """

    slots: Texts
    slot_uses: Array
    key_hashes: Array
    key_slots: Array
    key_tokens: Texts
    atom_kinds: Array
    atom_slots: Array
    atom_keys: Array
    atom_lows: Array
    atom_highs: Array
    anchors: Array
    postings: Rows
    unanchored: Array
    checks: Rows
    predicate_targets: Rows

    def arrays(self) -> dict[str, Array]:
        """All arrays by the names under which they are stored."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        for name in (*_TEXTS, *_ROWS):
            plain |= getattr(self, name).arrays(name)
        return plain

    @staticmethod
    def stored(arrays: Arrays) -> FilterLayout:
        """The layout of arrays made by `arrays`."""
        fields: dict[str, Any] = {name: Texts.stored(arrays, name) for name in _TEXTS}
        fields |= {name: Rows.stored(arrays, name) for name in _ROWS}
        fields |= {name: arrays[name] for name in _PLAIN}
        return FilterLayout(**fields)


_TEXTS = ("slots", "key_tokens")
_ROWS = ("postings", "checks", "predicate_targets")
_PLAIN = (
    "slot_uses",
    "key_hashes",
    "key_slots",
    "atom_kinds",
    "atom_slots",
    "atom_keys",
    "atom_lows",
    "atom_highs",
    "anchors",
    "unanchored",
)


def stored_layout(part: PlanPart) -> FilterLayout:
    """The layout of a loaded plan part, checked against its logical plan: a damaged index must not match wrongly."""
    folder, logical = part.manifest.folder, part.logical
    try:
        found = FilterLayout.stored(part.layout)
        check_texts("slots", found.slots)
        check_texts("key_tokens", found.key_tokens)
        keys, predicates = len(found.key_tokens), len(logical.predicates)
        check_ids("key_slots", found.key_slots, 0, len(found.slots), keys)
        check_ids("key_hashes", found.key_hashes, None, None, keys)
        check_ids("atom_kinds", found.atom_kinds, 0, len(TestKind), len(logical.atoms))
        check_ids("atom_slots", found.atom_slots, 0, len(found.slots), len(logical.atoms))
        check_ids("atom_keys", found.atom_keys, NOTHING, keys, len(logical.atoms))
        check_ids("anchors", found.anchors, NOTHING, len(logical.clauses), predicates)
        check_ids("unanchored", found.unanchored, 0, predicates, len(found.unanchored))
        check_rows("postings", found.postings, predicates, keys)
        check_rows("checks", found.checks, len(logical.clauses), predicates)
        check_rows("predicate_targets", found.predicate_targets, len(logical.targets), predicates)
    except KeyError as error:
        raise CorruptData(f"{folder} has no index array {error.args[0]}") from error
    except ValueError as error:
        raise CorruptData(f"{folder}: the index array {error}") from error
    return found


def hash_key(slot: int, token: Token) -> int:
    """The hash by which a key is looked up; the key itself is compared afterwards, so collisions are harmless."""
    return int.from_bytes(blake2b(slot.to_bytes(4, "little") + token, digest_size=8).digest(), "little")


def layout(logical: LogicalPlan, frequencies: Mapping[str, float] | None = None) -> FilterLayout:
    """Lay out the index of a logical plan.

    `frequencies` gives the part of all items that hold a word, where known.
    """
    tests = [test_of(_decoded(logical, atom)) for atom in range(len(logical.atoms))]
    costs = [_cheapest(test, frequencies or {}) for test in tests]
    slots = _numbered_slots(tests)
    keys = _Keys(slots, costs, tests)
    anchors, checks = _anchored(logical, tests, [cost for _, cost in costs])
    postings, unanchored = _postings(logical, anchors, keys)
    count = len(logical.predicates)
    return FilterLayout(
        slots=Texts.of(json.dumps(slot) for slot in slots),
        slot_uses=_uses(tests, slots),
        key_hashes=keys.hashes,
        key_slots=keys.slots,
        key_tokens=keys.tokens,
        atom_kinds=np.array([test.kind for test in tests], dtype=np.uint8),
        atom_slots=identifiers([slots[test.slot] for test in tests]),
        atom_keys=identifiers([keys.exact(atom) for atom in range(len(tests))]),
        atom_lows=np.array([test.low for test in tests], dtype=np.float64),
        atom_highs=np.array([test.high for test in tests], dtype=np.float64),
        anchors=identifiers(anchors),
        postings=postings,
        unanchored=unanchored,
        checks=checks,
        predicate_targets=Rows.grouped(logical.target_predicates, np.arange(len(logical.targets)), count),
    )


def _decoded(logical: LogicalPlan, atom: int) -> Atom:
    return cast(Atom, decode_expression(json.loads(logical.atoms.text(atom))))


def _cheapest(test: AtomTest, frequencies: Mapping[str, float]) -> tuple[tuple[tuple[Slot, Token], ...], float]:
    """The keys by which an atom is found, and how many items they let through; an atom without keys lets all."""
    if not test.keys:
        return (), 1.0
    estimates = [estimate(token, frequencies) for _, token in test.keys]
    if test.kind == TestKind.PHRASE:
        # All words of a phrase must be there, so its rarest word is enough.
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
    for test in tests:
        if test.kind == TestKind.RANGE:
            uses[slots[test.slot]] |= SlotUse.RANGES
        for slot, token in test.keys:
            uses[slots[slot]] |= use_of(token)
    return uses


class _Keys:
    """The distinct keys of the atoms, in the order of their hashes, and the keys of every atom."""

    def __init__(
        self,
        slots: dict[Slot, int],
        costs: list[tuple[tuple[tuple[Slot, Token], ...], float]],
        tests: list[AtomTest],
    ) -> None:
        found = {(slots[slot], token) for keys, _ in costs for slot, token in keys}
        ordered = sorted((hash_key(slot, token), slot, token) for slot, token in found)
        self.hashes = np.array([one[0] for one in ordered], dtype=np.uint64)
        self.slots = identifiers([one[1] for one in ordered])
        self.tokens = Texts.of(one[2] for one in ordered)
        numbers = {(slot, token): number for number, (_, slot, token) in enumerate(ordered)}
        self.of_atom = [[numbers[slots[slot], token] for slot, token in keys] for keys, _ in costs]
        self._tests = tests

    def __len__(self) -> int:
        return len(self.hashes)

    def exact(self, atom: int) -> int:
        """The key whose presence is the truth of an atom, if there is one."""
        return self.of_atom[atom][0] if self._tests[atom].kind == TestKind.KEY else NOTHING


def _anchored(logical: LogicalPlan, tests: list[AtomTest], costs: list[float]) -> tuple[list[int], Rows]:
    """The anchor of every predicate, and the clauses left to check, those first that fewest items satisfy."""
    expected, usable, proven = [], [], []
    for literals in logical.clauses.lists():
        positive = not any(literal & 1 for literal in literals)
        expected.append(sum(costs[literal >> 1] for literal in literals if not literal & 1) + _negated(literals))
        usable.append(positive and all(tests[literal >> 1].keys for literal in literals))
        proven.append(positive and all(tests[literal >> 1].kind == TestKind.KEY for literal in literals))
    anchors, checks = [], []
    for clauses in logical.predicates.lists():
        ordered = sorted(clauses, key=lambda clause: (expected[clause], clause))
        anchor = next((clause for clause in ordered if usable[clause]), NOTHING)
        anchors.append(anchor)
        checks.append([clause for clause in ordered if clause != anchor or not proven[clause]])
    return anchors, Rows.of(checks)


def _negated(literals: list[int]) -> float:
    return float(sum(literal & 1 for literal in literals))


def _postings(logical: LogicalPlan, anchors: list[int], keys: _Keys) -> tuple[Rows, Array]:
    found: list[tuple[int, int]] = []
    unanchored = []
    for predicate, anchor in enumerate(anchors):
        if anchor == NOTHING:
            unanchored.append(predicate)
            continue
        atoms = (literal >> 1 for literal in logical.clauses.row(anchor).tolist())
        found.extend((key, predicate) for key in sorted({key for atom in atoms for key in keys.of_atom[atom]}))
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    if not len(pairs):
        return Rows(offsets_of(np.zeros(len(keys), dtype=np.int64)), identifiers([])), identifiers(unanchored)
    return Rows.grouped(pairs[:, 0], identifiers(pairs[:, 1].tolist()), len(keys)), identifiers(unanchored)
