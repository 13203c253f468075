"""The indexes of windows find exactly the pairs of the definition, however items are divided into parts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.matching.joins.joined_worlds import conditions

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import Expression, conjunction, disjunction
from runnel.algebra.nodes.gate_rules import LoggedItem
from runnel.algebra.nodes.window_atoms import WindowAtom, WindowRelation
from runnel.algebra.semantics.evaluate import holds
from runnel.algebra.semantics.joins import Join, window_of
from runnel.algebra.semantics.window_conditions import condition_given
from runnel.matching.joins.find_pairs import JoinItems, PairFinder, has_index
from runnel.matching.joins.prepare_items import column_name, list_rows, prepare_joined_items, prepare_window_items
from runnel.matching.joins.select_members import MemberSelection
from runnel.matching.joins.window_items import (
    ListedTexts,
    NewItems,
    WindowItems,
    index_items,
    merge_window_items,
    no_items,
)
from runnel.model.item import Attributes, Item
from runnel.model.item_batch import ItemBatch
from runnel.storage.file_storage import FileStorage
from runnel.streaming.window_store import read_segment, write_segment

START = datetime(2026, 11, 1, tzinfo=UTC)
TITLE, PRICE = Attribute("title"), Attribute("price")
WORDS = ("muse", "MUSE", "live", "paris", "東京", "straße", "don't", "x")
LEASTS = (Fraction(1, 3), Fraction(1, 2), Fraction(3, 5), Fraction(999_999, 1_000_000), Fraction(1))
WINDOW = 7


def window_atom(
    relation: WindowRelation, attribute: Attribute, window: Attribute, least: Fraction | None = None
) -> Expression:
    """Return a window atom, which occurs only in conditions of joins, as a condition."""
    return cast(Expression, WindowAtom(relation, attribute, window, least))


texts = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=7).map(" ".join),
    # Longer texts share bits of signatures, and some are longer than their marks can tell.
    st.tuples(st.integers(0, 30), st.sampled_from((5, 40, 66, 70))).map(
        lambda drawn: " ".join(f"word{number}" for number in range(drawn[0], sum(drawn)))
    ),
)
values = st.fixed_dictionaries(
    {},
    optional={
        "title": st.lists(texts, min_size=1, max_size=3).map(tuple),
        "price": st.lists(st.integers(1, 4).map(float), min_size=1, max_size=2).map(tuple),
    },
)
logs = st.lists(values, min_size=1, max_size=14).map(
    lambda drawn: [
        LoggedItem(number, START + timedelta(hours=number), 1, f"{number % 5}", cast(Attributes, attributes))
        for number, attributes in enumerate(drawn, 1)
    ]
)
similarities = st.sampled_from(LEASTS).map(lambda least: window_atom("similar", TITLE, TITLE, least))


def batch_of(items: Sequence[LoggedItem]) -> ItemBatch:
    return ItemBatch.of(
        [Item("One", item.id, item.attributes, sequence=item.sequence, time=item.accepted) for item in items],
        {"One": 1},
    )


def part_of(
    items: Sequence[LoggedItem], condition: Expression, windows: Sequence[tuple[int, ...]] = ()
) -> WindowItems:
    """Index items, which are in these windows, or all in one."""
    columns = Join(1, condition, "w").window_rule.columns
    batch = batch_of(items)
    rows = np.arange(len(items))
    table = prepare_window_items(batch, rows, columns).table
    listed = {}
    for name, kind in columns:
        if kind != "none":
            owners, found = list_rows(table.column(column_name(Attribute(name), kind)), rows)
            listed[name, kind] = ListedTexts(owners, found)
    members = windows or [(WINDOW,)] * len(items)
    accepted = batch.records.column("accepted").cast(pa.int64()).to_numpy()
    columns_of = {name: table.column(name).combine_chunks() for name in ("id", "values")}
    return index_items(
        NewItems(
            batch.sequences,
            accepted,
            table.column("feed").to_numpy(),
            columns_of["id"],
            columns_of["values"],
            np.repeat(rows, [len(each) for each in members]),
            np.array([window for each in members for window in each], dtype=np.int64),
            listed,
        )
    )


def items_to_join(items: Sequence[LoggedItem], condition: Expression) -> JoinItems:
    batch = batch_of(items)
    accepted = batch.records.column("accepted").cast(pa.int64()).to_numpy()
    prepared = prepare_joined_items(batch, np.arange(len(items)), [condition])
    return JoinItems(batch.sequences, accepted, prepared.table, prepared.positions)


def found(parts: Sequence[WindowItems], items: Sequence[LoggedItem], condition: Expression) -> list[tuple[int, int]]:
    """Return the pairs of sequences in the order in which they are found."""
    finder = PairFinder(parts)
    members = None if has_index(condition) else [part.members_of(WINDOW) for part in parts]
    pairs = finder.find(condition, items_to_join(items, condition), members)
    assert not pairs.failed.any()
    sequences = finder.sequences_of(pairs.rows).tolist()
    return [(items[item].sequence, other) for item, other in zip(pairs.items.tolist(), sequences, strict=True)]


def defined(items: Sequence[LoggedItem], condition: Expression) -> list[tuple[int, int]]:
    return [
        (item.sequence, other.sequence)
        for item in items
        for other in reversed(items)
        if other.sequence < item.sequence
        and holds(condition_given(condition, other.attributes), item.attributes, item.accepted)
    ]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(items=logs, condition=similarities)
def test_similar_texts_are_found_in_parts_divided_anywhere(items: list[LoggedItem], condition: Expression) -> None:
    expected = defined(items, condition)
    for cut in range(len(items) + 1):
        parts = [part_of(several, condition) for several in (items[:cut], items[cut:]) if several]
        assert found(parts, items, condition) == expected
        assert found([merge_window_items(parts)], items, condition) == expected


@settings(max_examples=80, deadline=None, derandomize=True)
@given(items=logs, several=st.lists(conditions(), min_size=1, max_size=2), similar=similarities, is_and=st.booleans())
def test_conditions_of_all_kinds_hold_as_defined(
    items: list[LoggedItem], several: list[Expression], similar: Expression, is_and: bool
) -> None:
    condition = (conjunction if is_and else disjunction)([similar, *several])
    cut = len(items) // 2
    parts = [part_of(own, condition) for own in (items[:cut], items[cut:]) if own]
    assert found(parts, items, condition) == defined(items, condition)


def test_stored_items_are_those_that_were_written(tmp_path: Path) -> None:
    condition = conjunction([window_atom("similar", TITLE, TITLE), window_atom("<", PRICE, PRICE)])
    attributes: list[Attributes] = [{"title": ("Muse live",), "price": (float(number % 3),)} for number in range(9)]
    items = [
        LoggedItem(number, START + timedelta(hours=number), 1, f"i{number}", each)
        for number, each in enumerate(attributes, 1)
    ]
    storage = FileStorage(tmp_path.as_uri())
    part = part_of(items, condition, [(3, 5) if number % 2 else (5,) for number in range(9)])
    stored = read_segment(storage, write_segment(storage, part).path)
    assert found([stored], items, condition) == defined(items, condition) != []
    assert stored.members_of(3).tolist() == [1, 3, 5, 7]
    assert [stored.identity(row) for row in (0, 8)] == [(1, b"i1"), (1, b"i9")]
    kept = merge_window_items([stored, part], lambda each: each.sequences > 6)
    assert kept.sequences.tolist() == [7, 7, 8, 8, 9, 9]
    assert kept.members_of(3).tolist() == [2, 3]
    assert kept.attributes(0) == {"price": (0.0,)}, "texts that are only compared by similarity are not stored"


def test_an_item_with_too_many_candidates_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.matching.joins.find_pairs.MAX_CANDIDATES", 3)
    title = window_atom("similar", TITLE, TITLE)
    for condition in (title, window_atom("=", TITLE, TITLE), disjunction([title, window_atom("=", PRICE, PRICE)])):
        titles = ["Muse live", "Muse live", "Muse live", "U2", "Muse live", "U2", "Muse live"]
        items = [
            LoggedItem(number, START, 1, f"{number}", {"title": (each,)}) for number, each in enumerate(titles, 1)
        ]
        finder = PairFinder([part_of(items, condition)])
        pairs = finder.find(condition, items_to_join(items, condition))
        assert pairs.failed.tolist() == [False] * 6 + [True]
        assert sorted(set(pairs.items.tolist())) == [1, 2, 4, 5]


extents: st.SearchStrategy[timedelta | int] = st.sampled_from(
    (1, 2, 3, 1_000_000, timedelta(hours=1), timedelta(hours=2, microseconds=1), timedelta(days=9))
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data(), windows=st.lists(st.sets(st.integers(1, 4)).map(tuple), min_size=2, max_size=12))
def test_claims_select_the_items_of_their_window(data: st.DataObject, windows: list[tuple[int, ...]]) -> None:
    """Parts end anywhere, and one may repeat items of another, as after a window was filled again."""
    condition = window_atom("=", PRICE, PRICE)
    items = [
        LoggedItem(number, START + timedelta(hours=number), 1, f"{number}", {"price": (1.0,)})
        for number in range(1, len(windows) + 1)
    ]
    cut = data.draw(st.integers(0, len(items)))
    ranges = [(0, cut)]
    if data.draw(st.booleans()):
        ranges.append((data.draw(st.integers(0, cut)), cut))
    parts = [part_of(items[low:high], condition, windows[low:high]) for low, high in ranges if low < high]
    # The last part has the items of the run, which come after all others.
    parts.append(part_of(items[cut:], condition, windows[cut:]) if cut < len(items) else no_items())
    last = LoggedItem(len(items) + 1, START + timedelta(hours=len(items) + 1), 1, "last", {"price": (1.0,)})
    joining = [*items[cut:], last]
    finder = PairFinder(parts)
    join_items = items_to_join(joining, condition)
    pairs = finder.find(condition, join_items)
    claims = [(number, window, data.draw(extents)) for number in range(len(joining)) for window in (1, 2, 3, 4, 9)]
    owners, keys = (np.array(column) for column in list(zip(*claims, strict=True))[:2])
    numbers = np.array([Join(extent, condition, "w").split()[1] for _, _, extent in claims])
    selection = MemberSelection.of([part.members for part in parts])
    selected = selection.select(join_items, pairs, owners, selection.numbers_of(keys), numbers, finder)
    sequences = finder.sequences_of(pairs.rows[selected.pairs]).tolist()
    expected = {
        (claim, other.sequence)
        for claim, (number, window, extent) in enumerate(claims)
        for other in window_of(
            joining[number], [each for each, own in zip(items, windows, strict=True) if window in own], extent
        )
    }
    assert set(zip(selected.claims.tolist(), sequences, strict=True)) == expected


@pytest.mark.parametrize("last", [None, 1, 2, 3, 100])
def test_an_item_is_compared_with_the_last_members_of_its_window_in_all_parts(last: int | None) -> None:
    condition = window_atom("<", PRICE, PRICE)
    items = [
        LoggedItem(number, START + timedelta(hours=number), 1, f"{number}", {"price": (float(number),)})
        for number in range(1, 9)
    ]
    windows = [(WINDOW,) if number % 3 else (5,) for number in range(8)]
    parts = [part_of(items[low:high], condition, windows[low:high]) for low, high in ((0, 3), (3, 4), (4, 8))]
    finder = PairFinder(parts)
    pairs = finder.find(condition, items_to_join(items, condition), [part.members_of(WINDOW) for part in parts], last)
    own = [item.sequence for item, keys in zip(items, windows, strict=True) if WINDOW in keys]
    sizes = [min(sum(other < item.sequence for other in own), last or 100) for item in items]
    assert pairs.candidates.tolist() == sizes
    assert len(pairs) == 0, "older items have lower prices"
    assert not has_index(condition)
