"""The workloads of the benchmarks: the same seed gives the same data, and all their forms mean the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.contenders import CONTENDERS, Setting, parsed
from benchmarks.counting import CountingMatcher
from benchmarks.event_workload import make_event_queries, make_events
from benchmarks.measuring import agree, digest, head, joined
from benchmarks.workloads import FIRST_QUERY, KINDS, SOURCE, Kind, QuerySet, frequencies, make_items, make_queries
from benchmarks.zipf import vocabulary
from tests.scan_matcher import ScanMatcher

from runnel.algebra.nodes.query import Filter, Read
from runnel.algebra.values.words import words
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.optimizer.optimize import optimize
from runnel.plan.logical_plan import LogicalPlan
from runnel.plan.validate import validate
from runnel.storage.file_storage import FileStorage

ITEMS = make_items(12)
EVENTS = make_events(40)


def small(kind: Kind | None, count: int = 400) -> QuerySet:
    return make_event_queries(count) if kind is None else make_queries(kind, count)


def batch_for(kind: Kind | None) -> ItemBatch:
    return EVENTS.batch() if kind is None else ITEMS.batch()


def scanned(queries: QuerySet, batch: ItemBatch) -> Matches:
    """What the reference evaluator finds, from the text of the statements on."""
    definitions = parsed(queries.statements(), queries.feed)
    return ScanMatcher(queries.plan_queries(), definitions).match(batch)


@pytest.mark.parametrize("kind", [*KINDS, None])
def test_the_same_seed_gives_the_same_queries(kind: Kind | None) -> None:
    first, again = list(small(kind).statements()), list(small(kind).statements())
    assert first == again
    other = make_event_queries(400, seed=8) if kind is None else make_queries(kind, 400, seed=8)
    assert first != list(other.statements())


def test_the_same_seed_gives_the_same_items() -> None:
    assert list(make_items(5).records()) == list(make_items(5).records())
    assert list(make_items(5).records()) != list(make_items(5, seed=2).records())
    assert list(make_events(5).records()) == list(make_events(5).records())


@pytest.mark.parametrize("kind", [*KINDS, None])
def test_the_statements_say_what_the_expressions_say(kind: Kind | None) -> None:
    queries = small(kind)
    assert parsed(queries.statements(), queries.feed) == queries.definitions()
    assert queries.definitions()[FIRST_QUERY] == Filter(Read(SOURCE), next(queries.expressions()))


@pytest.mark.parametrize("kind", [*KINDS, None])
def test_the_logical_plan_is_the_optimisers_but_for_its_numbers(kind: Kind | None) -> None:
    queries = small(kind)
    plan = queries.logical()
    validate("workload", plan, np.empty(0, dtype=np.int64))
    optimized = optimize(queries.plan_queries(), queries.definitions())
    assert unnumbered(plan) == unnumbered(optimized)
    counts = {name: plan.counts[name] for name in ("queries", "targets", "predicates", "clauses", "atoms")}
    assert counts == {name: optimized.counts[name] for name in counts}


def unnumbered(plan: LogicalPlan) -> dict[int, object]:
    """For every query its sources and its clauses, by the texts of their atoms."""
    texts = [plan.atoms.text(atom) for atom in range(len(plan.atoms))]
    clauses = [frozenset((texts[value >> 1], value & 1) for value in row) for row in plan.clauses.lists()]
    predicates = [frozenset(clauses[value] for value in row) for row in plan.predicates.lists()]
    scopes = list(plan.scopes.lists())
    values: dict[int, object] = {}
    for target, members in enumerate(plan.targets.lists()):
        meaning = predicates[plan.target_predicates[target]], scopes[plan.target_scopes[target]]
        values |= {int(plan.query_ids[member]): meaning for member in members}
    return values


@pytest.mark.parametrize("kind", [*KINDS, None])
def test_every_contender_answers_as_the_evaluator_on_the_text_form(kind: Kind | None, tmp_path: Path) -> None:
    queries, batch = small(kind), batch_for(kind)
    wanted = scanned(queries, batch)
    assert wanted.total >= 5
    setting = Setting(queries, FileStorage(tmp_path.as_uri()), None if kind is None else frequencies())
    for name, compile_matcher in CONTENDERS.items():
        if kind is None and name == "counting":
            continue
        assert digest(compile_matcher(setting).matcher.match(batch)) == digest(wanted), name


def test_counting_refuses_what_it_cannot_count() -> None:
    with pytest.raises(ValueError, match="cannot count"):
        CountingMatcher(make_event_queries(50).logical())


def test_items_in_columns_are_the_items_in_records() -> None:
    batch = ITEMS.batch(3, 7)
    records = list(ITEMS.records())[3:7]
    items = [
        Item("News", record["id"], {name: (value,) for name, value in record.items() if name != "id"})
        for record in records
    ]
    expected = ItemBatch.of(items, {"News": SOURCE}, first_sequence=4)
    batch.records.validate(full=True)
    assert batch.records.to_pylist() == expected.records.to_pylist()
    assert words(records[0]["text"]) == [vocabulary()[word] for word in ITEMS.words.row(3).tolist()]


def test_batches_hold_every_item_once() -> None:
    sequences = [batch.sequences.tolist() for batch in ITEMS.batches(5)]
    assert sequences == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12]]


def test_the_first_queries_alone_are_the_same_queries() -> None:
    queries = small("M")
    assert list(queries.head(50).statements()) == list(queries.statements())[:50]
    assert len(queries.head(50).atoms) < len(queries.atoms)
    assert len(queries.head(10_000)) == len(queries)


def test_the_workloads_have_the_shape_that_they_promise() -> None:
    for kind, expected in (("H", 0.021), ("M", 0.0082), ("S", 0.00137)):
        queries, items = make_queries(kind, 20_000), make_items(200)  # type: ignore[arg-type]
        shape = queries.shape
        assert shape["clauses_per_query"] == pytest.approx(2.5, abs=0.1)
        assert shape["literals_per_query"] == pytest.approx(6.5, abs=0.2)
        share = CountingMatcher(queries.logical()).match(items.batch()).total / 200 / 20_000
        assert share == pytest.approx(expected, rel=0.15), kind
    lengths = make_items(2000).words.lengths
    assert float(lengths.mean()) == pytest.approx(180, abs=4)


def test_answers_are_compared_on_what_both_were_given() -> None:
    whole = Matches.of([[1], [2, 3], [4]])
    assert agree(whole, head(whole, 2))
    assert digest(joined([head(whole, 2), Matches.of([[4]])])) == digest(whole)
    assert not agree(whole, Matches.of([[1], [2]]))
