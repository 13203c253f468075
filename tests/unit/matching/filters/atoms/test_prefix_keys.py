"""Keys of word patterns: their tokens, their estimated frequencies, and their storage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.algebra.nodes.attributes import WHOLE, Attribute
from runnel.algebra.nodes.expressions import And, Contains, ContainsPattern, Not
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.arrays import Array
from runnel.errors import CorruptDataError
from runnel.matching.compile.compile_plan import compile_base
from runnel.matching.compile.gain import gain_of_compiling
from runnel.matching.filters.atoms import atom_tests
from runnel.matching.filters.atoms.atom_layout import compute_atom_layout
from runnel.matching.filters.atoms.atom_tests import PRESENCE
from runnel.matching.filters.atoms.key_frequency import NOTHING_KNOWN, KnownWords, estimate
from runnel.matching.filters.streams.stream_layout import StreamLayout
from runnel.matching.filters.streams.stream_matcher import StreamMatcher
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.optimizer.optimize import optimize
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage

KEY, PHRASE, OTHER = atom_tests.TestKind.KEY, atom_tests.TestKind.PHRASE, atom_tests.TestKind.OTHER
TITLE = Attribute("title")
DEFINITIONS: dict[int, Node] = {
    10: Filter(Read(1), ContainsPattern(TITLE, ("conc*",))),
    11: Filter(Read(1), ContainsPattern(WHOLE, ("conc*",))),
    12: Filter(Read(1), And((Contains(TITLE, ("rock",)), Not(ContainsPattern(TITLE, ("conc*", "h?ll")))))),
    13: Filter(Read(1), ContainsPattern(Attribute("body"), ("ha*",))),
}
ITEMS = [
    Item("One", "1", {"title": ("Rock CONCERT hall",), "body": ("hard",)}),
    Item("One", "2", {"title": ("rock", "concrete"), "body": ("that",)}),
    Item("One", "3", {"title": ("cone",), "other": ("Concorde",)}),
    Item("One", "4", {"title": ("hard rock",)}),
]
EXPECTED = [[10, 11, 13], [10, 11, 12], [11], [12]]


@pytest.mark.parametrize(
    ("patterns", "kind", "tokens"),
    [
        (("conc*",), KEY, (b"pconc",)),
        (("c*",), KEY, (b"pc",)),
        (("rock",), KEY, (b"wrock",)),
        (("rock", "ring"), PHRASE, (b"wrock", b"wring")),
        (("conc*", "h?ll", "rock"), OTHER, (b"pconc", b"wrock")),
        (("con?", "con*t"), OTHER, (b"pcon",)),
        (("str*e",), OTHER, (b"pstr",)),
        (("h?ll",), OTHER, (PRESENCE,)),
        (("*",), OTHER, (PRESENCE,)),
        ((), OTHER, (PRESENCE,)),
    ],
)
def test_pattern_has_the_keys_of_its_words_and_prefixes(
    patterns: tuple[str, ...], kind: int, tokens: tuple[bytes]
) -> None:
    test = atom_tests.test_of(ContainsPattern(TITLE, patterns))
    assert test.kind == kind
    assert test.keys == tuple((("title", ""), token) for token in tokens)


def test_consecutive_patterns_are_found_by_the_rarest_key() -> None:
    plan = optimize([PlanQuery(10)], {10: Filter(Read(1), ContainsPattern(TITLE, ("conc*", "h?ll", "rock")))})
    for rare, common, expected in (("concert", "rock", b"pconc"), ("rock", "concert", b"wrock")):
        atoms = compute_atom_layout(plan, {rare: 0.01, common: 0.5})
        assert [atoms.key_tokens.raw(key) for key in atoms.atom_candidates.row(0)] == [expected]
        assert math.isclose(atoms.atom_shares[0], 0.01, rel_tol=0.01)


_words = st.text("abé東", min_size=1, max_size=4)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(_words, st.floats(0.0, 1.0), max_size=12), _words)
def test_frequency_of_a_prefix_combines_those_of_its_words(frequencies: dict[str, float], prefix: str) -> None:
    shares = [share for word, share in frequencies.items() if word.startswith(prefix)]
    combined = KnownWords(frequencies).prefix(prefix)
    if not shares:
        assert combined is None
    else:
        assert combined is not None
        assert math.isclose(combined, 1.0 - math.exp(-sum(shares)), abs_tol=1e-9)
    share = estimate(b"p" + prefix.encode(), KnownWords(frequencies))
    assert 0.0 < share < 1.0


def test_guessed_frequency_falls_with_prefix_length_and_is_lower_for_words() -> None:
    guesses = [estimate(b"p" + b"concertina"[:size], NOTHING_KNOWN) for size in range(2, 11)]
    assert guesses == sorted(guesses, reverse=True)
    assert len(set(guesses)) == len(guesses)
    assert estimate(b"wconc", NOTHING_KNOWN) < estimate(b"pconc", NOTHING_KNOWN)


def _plan(folder: Path, definitions: Mapping[int, Node] = DEFINITIONS) -> Plan:
    storage = FileStorage(folder.as_uri())
    compile_base(storage, "base", [PlanQuery(feed) for feed in definitions], definitions)
    return load(storage, PlanVersion(1, "base"))


def _match_items(plan: Plan) -> list[list[int]]:
    matches = StreamMatcher(plan).match(ItemBatch.of(ITEMS, {"One": 1}))
    return [matches.row(row).tolist() for row in range(len(matches))]


def _replace_arrays(plan: Plan, **arrays: Array) -> Plan:
    replaced = {f"streams.{name.replace('__', '.')}": array for name, array in arrays.items()}
    return replace(plan, base=replace(plan.base, layout={**plan.base.layout, **replaced}))


def test_prefixes_are_stored_once_for_all_slots_and_match(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    stored = StreamLayout.stored(plan.base.layout)
    assert len(stored.prefixes) == 2
    assert stored.prefixes.find("cone") == -1
    assert [len(stored.prefix_keys.row(stored.prefixes.find(prefix))) for prefix in ("conc", "ha")] == [2, 1]
    assert _match_items(plan) == EXPECTED


def test_recompiling_a_new_plan_has_no_gain(tmp_path: Path) -> None:
    assert gain_of_compiling(_plan(tmp_path), {}).share == 0.0


def test_damaged_prefix_arrays_are_rejected(tmp_path: Path) -> None:
    plan = _plan(tmp_path)
    stored = StreamLayout.stored(plan.base.layout)
    values = stored.prefix_keys.values
    with pytest.raises(CorruptDataError, match=r"streams\.prefix_keys\.values contains an id that is out of range"):
        _match_items(_replace_arrays(plan, prefix_keys__values=values + 1000))
    with pytest.raises(CorruptDataError, match=r"streams\.prefix_keys\.offsets must contain exactly 3 integers"):
        _match_items(_replace_arrays(plan, prefix_keys__offsets=np.array([0, len(values)])))
    with pytest.raises(CorruptDataError, match=r"prefixes\.chunk_offsets must contain ascending integers"):
        _match_items(_replace_arrays(plan, prefixes__chunk_offsets=stored.prefixes.chunk_offsets[:-1]))
    incomplete = {name: array for name, array in plan.base.layout.items() if name != "streams.prefixes.slots"}
    with pytest.raises(CorruptDataError, match=r"does not contain the index array prefixes\.slots"):
        _match_items(replace(plan, base=replace(plan.base, layout=incomplete)))
    offsets = plan.base.layout["key_tokens.offsets"].copy()
    offsets[1] = offsets[0]
    empty = {**plan.base.layout, "key_tokens.offsets": offsets}
    with pytest.raises(CorruptDataError, match="empty token"):
        _match_items(replace(plan, base=replace(plan.base, layout=empty)))
