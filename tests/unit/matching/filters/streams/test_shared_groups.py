"""Groups in streams and own streams of sources: they reduce the entries read, and never change the matches."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scan_matcher import ScanMatcher

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Compare, Contains, Exists, Expression, Not, Or
from runnel.algebra.nodes.query import Filter, Node, Read, Union
from runnel.arrays import Array
from runnel.errors import CorruptDataError
from runnel.matching.filters.atoms.anchors import choose_anchors
from runnel.matching.filters.atoms.atom_layout import compute_atom_layout
from runnel.matching.filters.streams import emit
from runnel.matching.filters.streams.check_streams import BROKEN, count_doubts
from runnel.matching.filters.streams.entries import FLAT, StreamShape
from runnel.matching.filters.streams.shared_groups import MAX_LEVELS
from runnel.matching.filters.streams.stream_layout import StreamLayout, compute_stream_layout
from runnel.matching.filters.streams.stream_matcher import StreamMatcher
from runnel.matching.filters.streams.write_streams import ENTRY, FORMULA, GROUPED, HEAD, KIND
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.optimizer.optimize import optimize
from runnel.optimizer.optimizer_settings import OptimizerSettings
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Layout, Plan, PlanVersion, load, write_base
from runnel.storage.file_storage import FileStorage

WORDS = ("guitar", "concert", "festival", "orchestra", "symphony", "violin", "trumpet", "cathedral")
TITLE, PRICE = Attribute("title"), Attribute("price")
TREES = StreamShape(most_sources=0)
CUT = OptimizerSettings(max_clauses=3, max_literals=6)


def word(text: str) -> Expression:
    return Contains(TITLE, (text,))


def plan_of(
    folder: Path, definitions: Mapping[int, Node], shape: StreamShape, limits: OptimizerSettings | None = None
) -> Plan:
    """Build a plan with streams of this shape, with equal frequencies of all words."""
    logical = optimize([PlanQuery(query) for query in definitions], definitions, settings=limits)
    atoms = compute_atom_layout(logical, dict.fromkeys(WORDS, 0.01))
    streams = compute_stream_layout(logical, atoms, choose_anchors(logical, atoms), shape)
    storage = FileStorage(folder.as_uri())
    name = f"base-{len(list(folder.iterdir())) if folder.exists() else 0}"
    write_base(storage, name, logical, Layout(atoms.arrays() | streams.arrays(), streams.seldom()))
    return load(storage, PlanVersion(1, name))


def groups_of(layout: StreamLayout) -> list[tuple[int, int]]:
    """Return the position and the depth of each group."""
    groups = []
    for first, last in itertools.pairwise(layout.offsets.tolist()):
        if first == last or not layout.stream[first] & GROUPED:
            continue
        start = first + HEAD + 1 + int(layout.stream[first] ^ GROUPED) + int(layout.stream[first + 1])
        ends = [start + int(layout.stream[first + HEAD])]
        while start < ends[0]:
            while start == ends[-1]:
                ends.pop()
            groups.append((start, len(ends)))
            ends.append(start + ENTRY + int(layout.stream[start]))
            start += ENTRY + 1 + int(layout.stream[start + 1]) + int(layout.stream[start + ENTRY])
    return groups


def rows(matches: Matches) -> list[list[int]]:
    return [matches.row(row).tolist() for row in range(len(matches))]


def items_of(titles: list[str], feeds: Mapping[str, int], names: list[str] | None = None) -> ItemBatch:
    """Build a batch of items with these titles; `names` are the feeds of the items."""
    names = names or ["One"] * len(titles)
    items = [
        Item(name, str(n), {"title": (title,), "price": (float(n % 7),)})
        for n, (name, title) in enumerate(zip(names, titles, strict=True))
    ]
    return ItemBatch.of(items, feeds)


def test_nested_groups_reduce_entries_and_keep_matches(tmp_path: Path) -> None:
    combinations = itertools.chain.from_iterable(itertools.combinations(WORDS, size) for size in (1, 2, 3, 4, 5))
    definitions: dict[int, Node] = {
        10 + n: Filter(Read(1), And(tuple(map(word, chosen)))) for n, chosen in enumerate(combinations)
    }
    titles = [*[" ".join(chosen) for chosen in itertools.combinations(WORDS, 5)][::3], "violin", "nothing"]
    batch = items_of(titles, {"One": 1})
    flat, tree = (StreamMatcher(plan_of(tmp_path, definitions, shape)) for shape in (FLAT, TREES))
    layout = StreamLayout.stored(plan_of(tmp_path, definitions, TREES).base.layout)
    assert 3 <= max(depth for _, depth in groups_of(layout)) <= MAX_LEVELS
    expected = rows(ScanMatcher([PlanQuery(query) for query in definitions], definitions).match(batch))
    assert rows(flat.match(batch)) == rows(tree.match(batch)) == expected
    few = items_of(["violin guitar"] * 300, {"One": 1})
    before = flat.statistics.candidates, tree.statistics.candidates
    flat.match(few)
    tree.match(few)
    assert 2 * (tree.statistics.candidates - before[1]) < flat.statistics.candidates - before[0]
    plain = StreamLayout.stored(plan_of(tmp_path, definitions, FLAT).base.layout)
    assert len(layout.stream) < len(plain.stream)


def test_streams_without_shared_clauses_have_no_groups(tmp_path: Path) -> None:
    definitions: dict[int, Node] = {
        10 + n: Filter(Read(1), And((word(first), word(second))))
        for n, (first, second) in enumerate(itertools.combinations(WORDS, 2))
    }
    flat, tree = (StreamLayout.stored(plan_of(tmp_path, definitions, shape).base.layout) for shape in (FLAT, TREES))
    assert flat.stream.tolist() == tree.stream.tolist()
    assert flat.offsets.tolist() == tree.offsets.tolist()


_words = st.sampled_from(WORDS[:5]).map(word)
_slow = st.sampled_from([Compare(TITLE, ">=", "f"), Compare(TITLE, "<", "o")])
_literals = st.one_of(
    _words,
    _words,
    _words.map(Not),
    st.sampled_from([2.0, 4.0]).map(lambda low: Compare(PRICE, ">", low)),
    st.just(Contains(TITLE, ("violin", "guitar"))),
    st.just(Exists(Attribute("title"))),
    _slow,
    _slow.map(Not),
)
_clauses = st.one_of(_words, _words, _literals, st.lists(_literals, min_size=2, max_size=3).map(tuple).map(Or))
_conjunctions = st.lists(_clauses, min_size=1, max_size=5).map(tuple).map(And)
_conditions = st.lists(_conjunctions, min_size=12, max_size=60)
_titles = st.lists(st.lists(st.sampled_from(WORDS[:6]), max_size=5).map(" ".join), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(_conditions, _titles, st.sampled_from([None, CUT]))
def test_grouped_streams_match_like_the_reference_evaluator(
    tmp_path_factory: pytest.TempPathFactory,
    conditions: list[Expression],
    titles: list[str],
    limits: OptimizerSettings | None,
) -> None:
    definitions: dict[int, Node] = {10 + n: Filter(Read(1), condition) for n, condition in enumerate(conditions)}
    batch = items_of(titles, {"One": 1})
    expected = rows(ScanMatcher([PlanQuery(query) for query in definitions], definitions).match(batch))
    for shape in (FLAT, StreamShape()):
        matcher = StreamMatcher(plan_of(tmp_path_factory.mktemp("plan"), definitions, shape, limits))
        assert rows(matcher.match(batch)) == expected
        assert matcher.statistics.fallbacks == 0


def test_items_do_not_read_own_streams_of_other_sources(tmp_path: Path) -> None:
    definitions: dict[int, Node] = {
        100 + 10 * source + n: Filter(
            Read(source), And((word(text), word("concert"), Compare(PRICE, ">", 0.1 * source)))
        )
        for source in range(1, 41)
        for n, text in enumerate(("guitar", "violin"))
    }
    on_two_sources = Filter(Union((Read(1), Read(2))), word("violin"))
    on_all_sources = Filter(Union(tuple(Read(source) for source in range(1, 41))), word("guitar"))
    definitions |= {900: on_two_sources, 901: on_all_sources}
    feeds = {f"S{source}": source for source in range(1, 42)}
    names = [f"S{1 + n % 41}" for n in range(600)]
    titles = ["guitar concert", "violin", "violin concert guitar", "none"] * 150
    batch = items_of(titles, feeds, names)
    flat, own = (StreamMatcher(plan_of(tmp_path, definitions, shape)) for shape in (FLAT, StreamShape()))
    queries = [PlanQuery(query) for query in definitions]
    expected = rows(ScanMatcher(queries, definitions).match(batch))
    assert rows(flat.match(batch)) == rows(own.match(batch)) == expected
    first_source = items_of(titles[:40], {"S1": 1}, ["S1"] * 40)
    before = flat.statistics.candidates, own.statistics.candidates
    assert rows(flat.match(first_source)) == rows(own.match(first_source))
    assert own.statistics.candidates - before[1] == 4
    assert flat.statistics.candidates - before[0] == 82


def _matcher_with(plan: Plan, **arrays: Array) -> StreamMatcher:
    replaced = {f"streams.{name}": array for name, array in arrays.items()}
    return StreamMatcher(replace(plan, base=replace(plan.base, layout={**plan.base.layout, **replaced})))


def test_damaged_groups_are_rejected(tmp_path: Path) -> None:
    definitions: dict[int, Node] = {
        10 + n: Filter(Read(1), And(tuple(map(word, chosen))))
        for n, chosen in enumerate(itertools.combinations(WORDS, 4))
    }
    plan = plan_of(tmp_path, definitions, TREES)
    layout = StreamLayout.stored(plan.base.layout)
    stream, groups = layout.stream, [position for position, _ in groups_of(layout)]
    assert len(groups) > 3
    for position, number in (
        (groups[0], 0),
        (groups[0], 1_000_000),
        (groups[0] + 1, 1_000_000),
        (groups[0] + 2, 1_000_000),
        (groups[0] + ENTRY, 1_000_000),
        (groups[0] + ENTRY, stream[groups[0] + ENTRY] + 1),
        (groups[0] + ENTRY + 1, 1_000_000),
    ):
        damaged = stream.copy()
        damaged[position] = number
        with pytest.raises(CorruptDataError, match=r"streams\.stream does not have the format of streams"):
            _matcher_with(plan, stream=damaged)


def test_layout_without_own_streams_is_rejected(tmp_path: Path) -> None:
    definitions: dict[int, Node] = {10: Filter(Read(1), word("guitar")), 11: Filter(Read(2), word("violin"))}
    plan = plan_of(tmp_path, definitions, StreamShape())
    kept = {name: array for name, array in plan.base.layout.items() if not name.startswith("streams.own")}
    assert len(kept) < len(plan.base.layout)
    with pytest.raises(CorruptDataError, match="does not contain the index array own_keys"):
        StreamMatcher(replace(plan, base=replace(plan.base, layout=kept)))


def test_marks_of_an_interrupted_block_are_discarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = StreamMatcher(plan_of(tmp_path, {10: Filter(Read(1), word("w1"))}, StreamShape()))
    collect_queries, calls = emit.collect_queries, list[int]()

    def fail_at_second_call(*arguments: Any) -> bool:
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError
        return collect_queries(*arguments)

    monkeypatch.setattr(emit, "collect_queries", fail_at_second_call)
    matches = matcher.match(items_of(["w0"] * 256 + ["w1", "w0"], {"One": 1}))
    assert [row for row, queries in enumerate(rows(matches)) if queries] == [256]


def test_formula_clause_in_a_tail_must_not_have_literals() -> None:
    no_items, tail = 3, HEAD + ENTRY
    entry = [0, tail, no_items, no_items, no_items, no_items, no_items]
    limits = np.array([1, 2, 0], dtype=np.int64)

    def doubts(*literals: int) -> int:
        header = len(literals) | FORMULA << KIND
        stream = np.array([0, ENTRY, *entry, 1 + len(literals), header, *literals], dtype=np.uint32)
        return count_doubts(np.array([0, len(stream)], dtype=np.int64), stream, limits)

    assert doubts() == 1
    assert doubts(1) == BROKEN
