"""Joins in matching let pass, and annotate with, what the reference evaluator says, however the log is cut."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given, settings
from tests.unit.matching.gates.gated_worlds import GatedWorld
from tests.unit.matching.joins.joined_worlds import joined_worlds

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.nodes.query import Gated, Node, Read
from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.semantics.evaluate_log import evaluate_log
from runnel.algebra.semantics.joins import NO_INDEX, Join, Window
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.temporary_plan import TemporaryPlan
from runnel.matching.gates.claims import Claims, GateKeeper
from runnel.matching.gates.ordered_matcher import OrderedMatcher
from runnel.matching.gates.resolve_gates import resolve_gates
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.plan.logical_plan import PlanQuery


@settings(max_examples=150, deadline=None, derandomize=True)
@given(world=joined_worlds())
def test_matches_and_annotations_are_those_of_the_definition(world: GatedWorld) -> None:
    queries = [PlanQuery(feed, since) for feed, since in sorted(world.since.items())]
    with TemporaryPlan(queries, world.definitions) as plan:
        matcher = OrderedMatcher(plan, build_matcher(plan))
        found: dict[int, set[int]] = {}
        for batch in world.batches():
            matches = matcher.match(batch)
            found |= {int(batch.sequences[row]): set(matches.row(row).tolist()) for row in range(len(batch))}
    expected = list(evaluate_log(world.items, world.definitions, world.since))
    assert found == {one.item.sequence: set(one.feeds) for one in expected}
    assert {key: {each.gate: each.newest for each in several} for key, several in matcher.annotations.items()} == {
        (feed, one.item.sequence): dict(joined) for one in expected for feed, joined in one.annotations.items()
    }


def test_windows_of_several_partitions_store_all_values_of_an_item() -> None:
    """Two partitions prepare the same item for their own windows, with different attributes."""
    claims: list[Claims] = []
    photo = Item("Photos", "p", {"price": (5.0,), "year": (2000.0,)})
    batch = ItemBatch.of([photo], {"Photos": 2})
    for query, name in ((10, "price"), (20, "year")):
        less = cast(Expression, WindowAtom("<", Attribute(name), Attribute(name)))
        window: Node = Gated(Read(2), Window(((name, NO_INDEX),)))
        definitions = {query: Gated(Read(1), Join(5, less, "photos"), Read(query + 1)), query + 1: window}
        with TemporaryPlan([PlanQuery(query), PlanQuery(query + 1)], definitions) as plan:
            claims.append(GateKeeper(plan).take_out(batch, build_matcher(plan).match(batch))[1])
    added = resolve_gates(Claims.of(claims).at_gates(), lambda keys: {}).new_window_items()
    assert added is not None
    assert len(added) == 1
    assert added.attributes(0) == photo.attributes


def test_candidates_of_other_windows_do_not_fail_an_item(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.matching.joins.find_pairs.MAX_CANDIDATES", 3)
    equal = cast(Expression, WindowAtom("=", Attribute("band"), Attribute("band")))
    window = Window((("band", "values"),))
    definitions: dict[int, Node] = {
        10: Gated(Read(1), Join(100, equal, "big"), Read(11)),
        11: Gated(Read(2), window),
        20: Gated(Read(1), Join(100, equal, "tiny"), Read(21)),
        21: Gated(Read(3), window),
    }
    items = [Item("Big", str(number), {"band": ("Muse",)}) for number in range(5)]
    items += [Item(feed, feed, {"band": ("Muse",)}) for feed in ("Tiny", "News")]
    batch = ItemBatch.of(items, {"News": 1, "Big": 2, "Tiny": 3})
    with TemporaryPlan([PlanQuery(feed) for feed in definitions], definitions) as plan:
        keeper, matcher = GateKeeper(plan), build_matcher(plan)
        claims = keeper.take_out(batch, matcher.match(batch))[1]
    resolved = resolve_gates(claims.at_gates(), lambda keys: {})
    news = int(batch.sequences[-1])
    matches = set(zip(*(column.tolist() for column in resolved.matches(claims)), strict=True))
    assert (news, 20) in matches
    assert (news, 10) not in matches
    assert list(resolved.failures) == [(10, news)]
