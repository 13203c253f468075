"""Sample the cost of queries: from time to time the runner measures a single item, in addition to matching it.

In: a plan, and batches of items. Out: the queries that needed work for the sampled item, each with its share of the
work. Work of the index is counted and converted to nanoseconds by estimates. Atoms that only the evaluator can decide
are evaluated again and timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from time import perf_counter_ns

import numpy as np

from runnel.algebra.nodes.expressions import Atom, ContainsStems, WordAtom
from runnel.algebra.nodes.render import render
from runnel.arrays import Array
from runnel.matching.costs.cost_kernel import reset_users, weigh
from runnel.matching.costs.cost_layout import CostLayout, layout_of
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.atoms.truth import evaluate_atom
from runnel.model.item_batch import ItemBatch
from runnel.model.learned.query_costs import MAX_PART, Cost, Costs, merged_costs
from runnel.plan.store import Plan

_BLOCK = 256
"""Items that the matcher matches together. An index entry that several of them lead to is read once."""

_MAX_TIMED = 48
"""Predicates that are timed per item. The others are extrapolated; the same holds for the next two limits."""
_MAX_WALKED = 4
"""Predicates per item whose index work is counted."""
_MAX_SHARING = 32
"""Queries per predicate that get a share of its cost."""

_MIN_NANOSECONDS = 1.0
"""Smaller costs per query are ignored."""

WALK, FORMULA = "Walk", "Formula"
"""The kinds of cost that do not belong to one atom: index work, and the formula of an inexact predicate."""


class CostSampler:
    """Samples the cost of the queries of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def sample(self, items: ItemBatch, chance: int) -> Costs:
        """Return the costs for one item of a batch, which `chance`, a random number, selects.

        The result is empty if the batch is empty or the item cannot be measured.
        """
        if not len(items):
            return Costs()
        item = ItemBatch(items.records.slice(chance % len(items), 1))
        block = min(len(items), _BLOCK)
        try:
            costs = merged_costs([part.sample(item, block, chance) for part in self._parts])
        except Exception:  # statistics are optional: an item that cannot be measured is skipped
            return Costs()
        return Costs(1.0, costs.queries)

    @cached_property
    def _parts(self) -> list[_PartCosts]:
        return [_PartCosts(layout_of(part), ~self._plan.removed(part)) for part in self._plan.parts]


class _PartCosts:
    """Samples the costs of one plan part. `alive` is a mask of its queries (by position) that were not removed."""

    def __init__(self, layout: CostLayout, alive: Array) -> None:
        self._layout = layout
        self._alive = alive

    def sample(self, item: ItemBatch, block: int, chance: int) -> Costs:
        """Return the costs for one item, which shares the index work with the other items of its block."""
        layout, arrays = self._layout, self._layout.arrays
        item_keys = layout.finder.keys(ItemColumns(item))
        keys = np.unique(item_keys.pairs()[1])
        posting_keys = np.append(keys, layout.every_item)
        capacity = int((arrays.posting_offsets[posting_keys + 1] - arrays.posting_offsets[posting_keys]).sum())
        predicates, spent = np.empty(capacity, dtype=np.int64), np.empty(capacity)
        doubtful = np.zeros(capacity, dtype=np.bool_)
        layout.present[keys] = True
        weights = self._item_shares(posting_keys, block)
        values = layout.present, *item_keys.numbers()
        try:
            weigh(posting_keys, weights, *values, arrays, layout.users, predicates, spent, doubtful)
            walked = self._index_costs(predicates, spent, chance)
            timed = self._time_predicates(np.unique(predicates[doubtful]), item, chance)
        finally:
            layout.present[keys] = False
            reset_users(predicates[doubtful], arrays, layout.users)
        return Costs(1.0, walked).merge(Costs(0.0, timed))

    def _item_shares(self, keys: Array, block: int) -> Array:
        """Return one item's share of reading each key's entries. Other items of its block may have the key too."""
        shares = self._layout.key_shares[keys]
        return np.asarray(-np.expm1(block * np.log1p(-shares)) / (block * shares))

    def _index_costs(self, predicates: Array, spent: Array, chance: int) -> dict[int, Cost]:
        """Return the index work by query, extrapolated from a few predicates."""
        costs: dict[int, Cost] = {}
        for index, scale in _sample_indices(len(predicates), _MAX_WALKED, chance):
            predicate = int(predicates[index])
            self._add_cost(predicate, float(spent[index]) * scale, WALK, self._layout.found_by(predicate), costs)
        return costs

    def _time_predicates(self, predicates: Array, item: ItemBatch, chance: int) -> dict[int, Cost]:
        """Time the evaluation of undecided predicates, extrapolated from a few; return the costs by query.

        The time of an atom is divided among all undecided predicates that need it.
        """
        layout = self._layout
        indices = _sample_indices(len(predicates), _MAX_TIMED, chance)
        sampled = [(int(predicates[index]), scale) for index, scale in indices]
        needed = {predicate: layout.needed(predicate) for predicate, _ in sampled}
        atoms = {atom: layout.atom(atom) for numbers in needed.values() for atom in numbers}
        times = _time_atoms(atoms, item, sampled[0][1] if sampled else 1.0)
        costs: dict[int, Cost] = {}
        for predicate, scale in sampled:
            shares = {atom: times[atom] / max(1, int(layout.users[atom])) for atom in needed[predicate]}
            if shares:
                costliest = max(shares, key=lambda atom: shares[atom])
                kind = FORMULA if layout.has_formula(predicate) else type(atoms[costliest]).__name__
                text = render(atoms[costliest])[:MAX_PART]
                self._add_cost(predicate, sum(shares.values()) * scale, kind, text, costs)
        return costs

    def _add_cost(self, predicate: int, spent: float, kind: str, part: str, costs: dict[int, Cost]) -> None:
        """Divide a cost among the queries of a predicate, unless the share of each query is negligible."""
        if spent < _MIN_NANOSECONDS * self._layout.count(predicate):
            return
        queries = self._layout.queries(predicate, self._alive)
        for index, scale in _sample_indices(len(queries), _MAX_SHARING, predicate):
            query, cost = int(queries[index]), Cost(spent * scale / len(queries), kind, part)
            costs[query] = costs[query].and_then(cost) if query in costs else cost


def _time_atoms(atoms: Mapping[int, Atom], item: ItemBatch, scale: float) -> dict[int, float]:
    """Return the nanoseconds that each atom takes on an item.

    Each atom is evaluated twice, and the first evaluation is not timed, so that work done once for all items, such as
    compiling a regular expression, is not counted. Work done once per item, such as splitting it into words, is
    divided among the atoms that need it. Each atom here stands for `scale` atoms.
    """
    warm, columns = ItemColumns(item), ItemColumns(item)
    for atom in atoms.values():
        _evaluate(atom, warm)
    _ = columns.names, columns.texts, columns.accepted(0)  # computed once per batch, so not timed
    times: dict[int, float] = {}
    for needs_words, prepare in ((True, _split_words), (False, _decode_item)):
        selected = {number: atom for number, atom in atoms.items() if _needs_words(atom) == needs_words}
        if selected:
            shared = _nanoseconds(lambda: prepare(selected.values(), columns)) / (len(selected) * scale)  # noqa: B023
            for number, atom in selected.items():
                times[number] = shared + _nanoseconds(lambda: _evaluate(atom, columns))  # noqa: B023
    return times


def _needs_words(atom: Atom) -> bool:
    return isinstance(atom, WordAtom) and atom.attribute.part is None


def _split_words(atoms: Iterable[Atom], columns: ItemColumns) -> None:
    """Split the texts that the atoms read into words."""
    for atom in atoms:
        for position in columns.positions(0, atom.attribute.name):
            if columns.texts[position] is not None:
                columns.words(position)
                if isinstance(atom, ContainsStems):
                    columns.stems(position, atom.language)


def _decode_item(atoms: Iterable[Atom], columns: ItemColumns) -> None:
    """Decode the attributes of the item for the evaluator."""
    columns.attributes(0)


def _evaluate(atom: Atom, columns: ItemColumns) -> None:
    try:
        evaluate_atom(atom, columns, 0)
    except Exception:  # a failing evaluation costs the time until it fails
        return


def _nanoseconds(work: Callable[[], None]) -> int:
    started = perf_counter_ns()
    work()
    return perf_counter_ns() - started


def _sample_indices(count: int, limit: int, chance: int) -> Iterator[tuple[int, float]]:
    """Choose at most `limit` of `count` indices, evenly spaced. Yield each with the number of indices it stands for.

    >>> list(_sample_indices(2, 3, 7)), [index for index, _ in _sample_indices(9, 3, 7)]
    ([(0, 1.0), (1, 1.0)], [7, 1, 4])
    """
    if count <= limit:
        yield from ((index, 1.0) for index in range(count))
        return
    for number in range(limit):
        yield (chance + number * count // limit) % count, count / limit
