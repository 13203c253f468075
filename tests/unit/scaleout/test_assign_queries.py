"""Assignments: every query has a partition, loads are balanced, and groups stay together if possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.scaleout.generated_weights import generated_weights, weights_of

from runnel.arrays import Array, Rows
from runnel.errors import RunnelError
from runnel.scaleout.divide.assign_queries import LIMIT, assign_queries, choose_assignment, weigh_assignment
from runnel.scaleout.divide.balanced_split import split_evenly
from runnel.scaleout.divide.weigh_queries import EMIT, ENTRY, Weights
from runnel.scaleout.partitioning import STRATEGIES, Strategy

GENERATED = settings(deadline=None, derandomize=True, max_examples=60)
COUNTS = st.integers(1, 9)
STRATEGY = st.sampled_from(STRATEGIES)


@GENERATED
@given(generated_weights(), COUNTS, STRATEGY)
def test_every_query_has_a_partition_and_loads_are_balanced(weights: Weights, count: int, strategy: Strategy) -> None:
    partitions = assign_queries(weights, count, strategy)
    assert len(partitions) == len(weights)
    assert partitions.min() >= 0
    assert partitions.max() < count
    assert np.array_equal(partitions, assign_queries(weights, count, strategy))
    for amounts in (weights.microseconds, weights.bytes):
        loads = np.bincount(partitions, weights=amounts, minlength=count)
        fair = amounts.sum() / count
        # Few and uneven queries cannot be balanced better than up to one or two queries.
        assert loads.max() <= 1.15 * fair + 2.5 * amounts.max()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("count", [2, 7, 16])
def test_loads_of_many_queries_stay_within_the_limit(strategy: Strategy, count: int) -> None:
    generator = np.random.default_rng(7)
    work = np.exp(1.5 * generator.standard_normal(20_000))
    sizes = np.where(np.arange(20_000) < 4_000, 2_000.0, 150.0)  # the first queries take most of the bytes
    weights = weights_of(np.repeat(np.arange(2_000), 10), work, sizes, np.full(2_000, 0.01))
    partitions = assign_queries(weights, count, strategy)
    for amounts in (work, sizes):
        loads = np.bincount(partitions, weights=amounts, minlength=count)
        assert loads.max() <= 1.15 * amounts.sum() / count


@GENERATED
@given(generated_weights(), COUNTS)
def test_group_is_split_only_if_no_partition_has_room_for_it(weights: Weights, count: int) -> None:
    partitions = assign_queries(weights, count, "grouped")
    amounts = [entry * count / entry.sum() for entry in (weights.microseconds, weights.bytes)]
    loads = np.stack([np.bincount(partitions, weights=element, minlength=count) for element in amounts])
    for group in range(weights.group_count):
        own = weights.groups == group
        within = np.unique(partitions[own])
        if len(within) == 1:
            continue
        whole = max(float(element[own].sum()) for element in amounts)
        rooms = []
        for value in within.tolist():
            others = [
                float(load[value] - amount[own & (partitions == value)].sum())
                for load, amount in zip(loads, amounts, strict=True)
            ]
            rooms.append(max(other + float(amount[own].sum()) for other, amount in zip(others, amounts, strict=True)))
        assert whole > 1.0 or min(rooms) > 1.0  # in one partition, it would exceed a fair share


@pytest.mark.parametrize("count", [2, 5])
def test_spread_distributes_every_group(count: int) -> None:
    groups = np.repeat(np.arange(30), 17)
    weights = weights_of(groups, np.linspace(1.0, 2.0, len(groups)), np.ones(len(groups)), np.full(30, 0.02))
    partitions = assign_queries(weights, count, "spread")
    for group in range(30):
        dealt = np.bincount(partitions[groups == group], minlength=count)
        assert dealt.max() - dealt.min() <= 1


def test_groups_that_fit_are_not_split() -> None:
    weights = weights_of(np.repeat(np.arange(50), 20), np.ones(1_000), np.ones(1_000), np.full(50, 0.02))
    partitions = assign_queries(weights, 5, "grouped")
    assert all(len(set(partitions[weights.groups == group].tolist())) == 1 for group in range(50))
    assert np.bincount(partitions).max() <= LIMIT * 200


def test_group_too_large_for_one_partition_is_split_over_as_many_as_needed() -> None:
    groups = np.concatenate([np.zeros(600, dtype=np.int64), np.repeat(np.arange(1, 41), 10)])
    weights = weights_of(groups, np.ones(1_000), np.ones(1_000), np.full(41, 0.1))
    chosen = choose_assignment(weights, 5, "grouped")
    assert 3 <= len(set(chosen.partitions[groups == 0].tolist())) <= 4
    assert "split over several partitions" in chosen.reason
    assert np.bincount(chosen.partitions).max() <= 230


@GENERATED
@given(generated_weights(), COUNTS)
def test_grouped_makes_no_more_copies_than_spread(weights: Weights, count: int) -> None:
    grouped, spread = (
        weigh_assignment(weights, assign_queries(weights, count, value), count, value) for value in STRATEGIES
    )
    # If groups are split, neither strategy is always better; they differ by at most one partition for one root.
    cut = _split_groups(weights, assign_queries(weights, count, "grouped"))
    assert grouped.weighed.copies <= spread.weighed.copies + cut * count + 1e-9


def _split_groups(weights: Weights, partitions: Array) -> int:
    return sum(len(np.unique(partitions[weights.groups == group])) > 1 for group in range(weights.group_count))


def test_groups_that_match_few_items_cause_few_copies() -> None:
    weights = weights_of(np.repeat(np.arange(100), 20), np.ones(2_000), np.ones(2_000), np.full(100, 0.005))
    chosen = choose_assignment(weights, 4)
    grouped, spread = chosen.weighed
    assert grouped.copies == pytest.approx(4 * (1 - 0.995**25))
    assert spread.copies == pytest.approx(4 * (1 - 0.995**100))
    assert chosen.strategy == "grouped"
    assert "0.47 copies" in chosen.reason


def test_single_expensive_group_is_spread() -> None:
    # All work belongs to one root that every tenth item satisfies. If grouped, one worker would do everything.
    work = np.concatenate([np.full(20, 30.0), np.full(80, 0.01)])
    groups = np.concatenate([np.zeros(20, dtype=np.int64), np.arange(1, 81)])
    weights = weights_of(groups, work, np.ones(100), np.append(0.1, np.full(80, 1e-4)))
    chosen = choose_assignment(weights, 4)
    assert chosen.division.skew < 1.2
    assert chosen.division.queries.sum() == 100


def test_wanted_strategy_is_chosen_and_named_in_the_reason() -> None:
    weights = weights_of(np.repeat(np.arange(100), 20), np.ones(2_000), np.ones(2_000), np.full(100, 0.005))
    chosen = choose_assignment(weights, 4, "spread")
    assert (chosen.strategy, chosen.reason.split(":")[0]) == (
        "spread",
        "related queries are distributed, as the settings say",
    )
    assert [entry.strategy for entry in chosen.weighed] == list(STRATEGIES)


def test_an_item_has_only_one_source() -> None:
    scopes = Rows.of([[1], [2], [1, 2]], np.int64)
    weights = weights_of(np.arange(3), np.ones(3), np.ones(3), np.array([0.5, 0.5, 0.2]), scopes, np.array([0, 1, 2]))
    apart = weigh_assignment(weights, np.array([0, 1, 2]), 3)
    assert apart.shares.tolist() == pytest.approx([0.25, 0.25, 0.2])
    together = weigh_assignment(weights, np.array([0, 0, 0]), 3)
    assert together.shares.tolist() == pytest.approx([0.6, 0.0, 0.0])
    assert together.weighed.copies == pytest.approx(0.6)


def test_shared_work_counts_in_every_partition_that_does_it() -> None:
    weights = replace(
        weights_of(np.zeros(2, dtype=np.int64), np.array([6.0, 6.0]), np.ones(2), np.array([0.25])),
        own=np.array([1.0, 1.0]),
        shared=Rows.of([[0], [0]]),
        shared_microseconds=np.array([10.0]),
        roots=np.array([0]),
        copy=8.0,
    )
    together, apart = (weigh_assignment(weights, np.array(value), 2) for value in ([0, 0], [0, 1]))
    assert together.microseconds.tolist() == pytest.approx([14.0, 0.0])
    assert apart.microseconds.tolist() == pytest.approx([13.0, 13.0])
    # The router parses an item, and looks up a key that occurs in one block of items.
    asked = 8.0 + ENTRY / 256
    assert together.weighed.longest == pytest.approx(asked + 14.0 + EMIT * 0.25)
    assert apart.weighed.microseconds == pytest.approx(asked + ENTRY / 256 + 26.0 + EMIT * 0.5)
    assert not len(apart.routes.open_scopes)


def test_route_that_nearly_all_items_take_is_open() -> None:
    scopes = Rows.of([[1], [2]], np.int64)
    weights = weights_of(
        np.arange(600), np.ones(600), np.ones(600), np.full(600, 0.03), scopes, np.repeat([0, 0, 1], 200)
    )
    partitions = np.concatenate([np.arange(400) // 200, np.arange(200) % 20 // 19])
    division = weigh_assignment(weights, partitions, 2)
    # 200 roots miss one item in four hundred; of the other source, one partition has 190, and the other ten.
    assert list(zip(division.routes.open_partitions.tolist(), division.routes.open_scopes.tolist(), strict=True)) == [
        (0, 0),
        (0, 1),
        (1, 0),
    ]
    assert division.shares.tolist() == pytest.approx([1.0, 0.5 + 0.5 * (1 - 0.97**10)])
    everything = weigh_assignment(weights, np.zeros(600, dtype=np.int64), 1)
    assert everything.routes.router == pytest.approx(EMIT)  # no route is checked, so no item is parsed


def test_a_graph_is_about_one_topic() -> None:
    weights = weights_of(np.arange(40), np.ones(40), np.ones(40), np.full(40, 0.1))
    alone = weigh_assignment(weights, np.arange(40) // 10, 4)
    assert alone.shares.tolist() == pytest.approx([1 - 0.9**10] * 4)
    about = replace(weights, root_topics=np.arange(40) // 10, topic_shares=np.full(4, 0.25))
    together, apart = (weigh_assignment(about, np.arange(40) // 10, 4), weigh_assignment(about, np.arange(40) % 4, 4))
    assert together.shares.tolist() == pytest.approx([0.25 * (1 - 0.6**10)] * 4)
    assert apart.weighed.copies > 2.5 > 1.0 > together.weighed.copies


def test_zero_partitions_are_rejected() -> None:
    weights = weights_of(np.zeros(1, dtype=np.int64), np.ones(1), np.ones(1), np.ones(1))
    with pytest.raises(RunnelError, match="0 partitions"):
        assign_queries(weights, 0, "grouped")


@GENERATED
@given(st.integers(1, 300), COUNTS, st.integers(0, 1_000))
def test_split_balances_both_amounts(size: int, count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    first, second = generator.random(size), np.sort(generator.random(size))
    parts = split_evenly(first, second, count)
    for amounts in (first, second):
        loads = np.bincount(parts, weights=amounts, minlength=count)
        assert loads.max() <= amounts.sum() / count + 3 * amounts.max()
    runs = np.count_nonzero(np.diff(parts)) + 1
    assert runs <= 4 * count  # few runs, because each part needs two cuts
