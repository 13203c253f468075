"""Sampling what queries cost: a runner looks closely at an item now and then, beside the matching.

In: a plan, and batches of items. Out: the queries that the sampled item gave work to, each with its part of it. What
indexes do is counted and weighed; what only the evaluator can decide is done once more and timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from time import perf_counter_ns

import numpy as np

from runnel.algebra.nodes.expressions import Atom, ContainsStems, WordAtom
from runnel.algebra.nodes.render import render
from runnel.arrays import Array
from runnel.matching.costs.cost_kernel import forget_users, weigh
from runnel.matching.costs.cost_layout import CostLayout, layout_of
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.atoms.truth import evaluate_atom
from runnel.model.item_batch import ItemBatch
from runnel.model.learned.query_costs import MAX_PART, Cost, Costs, merged_costs
from runnel.plan.store import Plan

_BLOCK = 256
"""Items that the matcher takes together: an entry that several of them lead to is walked once."""

_MOST_TIMED = 48
_MOST_WALKED = 4
_MOST_SHARING = 32
"""Predicates of an item that are timed, and that are only counted, and the queries of one; a part stands for all."""

_LEAST = 1.0
"""Nanoseconds that are worth noting."""

WALK, FORMULA = "Walk", "Formula"
"""The kinds of cost that are no atom's: being found and looked at, and a condition too large for the index."""


class CostSampler:
    """Samples what the queries of a plan cost."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def sample(self, items: ItemBatch, chance: int) -> Costs:
        """The costs that an item of a batch shows, or nothing; which item is up to `chance`."""
        if not len(items):
            return Costs()
        one = ItemBatch(items.records.slice(chance % len(items), 1))
        block = min(len(items), _BLOCK)
        try:
            costs = merged_costs([part.sample(one, block, chance) for part in self._parts])
        except Exception:  # an item that breaks this is matched the slow way; statistics can do without it
            return Costs()
        return Costs(1.0, costs.queries)

    @cached_property
    def _parts(self) -> list[_PartCosts]:
        return [_PartCosts(layout_of(part), ~self._plan.removed(part)) for part in self._plan.parts]


class _PartCosts:
    """One part of a plan; `alive` says which of its queries (by position) count."""

    def __init__(self, layout: CostLayout, alive: Array) -> None:
        self._layout = layout
        self._alive = alive

    def sample(self, item: ItemBatch, block: int, chance: int) -> Costs:
        """The costs that one item shows, which shares the walk with others of its block."""
        layout, arrays = self._layout, self._layout.arrays
        found = layout.finder.keys(ItemColumns(item))
        keys = np.unique(found.pairs()[1])
        leading = np.append(keys, layout.everyone)
        room = int((arrays.posting_offsets[leading + 1] - arrays.posting_offsets[leading]).sum())
        predicates, spent = np.empty(room, dtype=np.int64), np.empty(room)
        doubtful = np.zeros(room, dtype=np.bool_)
        layout.present[keys] = True
        known = layout.present, *found.numbers()
        try:
            weigh(leading, self._sharing(leading, block), *known, arrays, layout.users, predicates, spent, doubtful)
            walked = self._walked(predicates, spent, chance)
            timed = self._timed(np.unique(predicates[doubtful]), item, chance)
        finally:
            layout.present[keys] = False
            forget_users(predicates[doubtful], arrays, layout.users)
        return Costs(1.0, walked).merge(Costs(0.0, timed))

    def _sharing(self, keys: Array, block: int) -> Array:
        """Which part of walking a key's entries is one item's, among so many of which some have the key too."""
        shares = self._layout.key_shares[keys]
        return np.asarray(-np.expm1(block * np.log1p(-shares)) / (block * shares))

    def _walked(self, predicates: Array, spent: Array, chance: int) -> dict[int, Cost]:
        """The work of being found and looked at, of some for all."""
        costs: dict[int, Cost] = {}
        for place, scale in _some(len(predicates), _MOST_WALKED, chance):
            predicate = int(predicates[place])
            self._share(predicate, float(spent[place]) * scale, WALK, self._layout.found_by(predicate), costs)
        return costs

    def _timed(self, predicates: Array, item: ItemBatch, chance: int) -> dict[int, Cost]:
        """Evaluate what is in doubt once more, of some for all, and share the time among those who need it."""
        layout = self._layout
        chosen = [(int(predicates[place]), scale) for place, scale in _some(len(predicates), _MOST_TIMED, chance)]
        needed = {predicate: layout.needed(predicate) for predicate, _ in chosen}
        atoms = {atom: layout.atom(atom) for several in needed.values() for atom in several}
        times = _time_atoms(atoms, item, chosen[0][1] if chosen else 1.0)
        costs: dict[int, Cost] = {}
        for predicate, scale in chosen:
            parts = {atom: times[atom] / max(1, int(layout.users[atom])) for atom in needed[predicate]}
            if parts:
                dearest = max(parts, key=lambda atom: parts[atom])
                kind = FORMULA if layout.has_formula(predicate) else type(atoms[dearest]).__name__
                self._share(predicate, sum(parts.values()) * scale, kind, render(atoms[dearest])[:MAX_PART], costs)
        return costs

    def _share(self, predicate: int, spent: float, kind: str, part: str, costs: dict[int, Cost]) -> None:
        """Share a cost among the living queries of a predicate; what is next to nothing for each is left out."""
        if spent < _LEAST * self._layout.count(predicate):
            return
        queries = self._layout.queries(predicate, self._alive)
        for place, scale in _some(len(queries), _MOST_SHARING, predicate):
            query, cost = int(queries[place]), Cost(spent * scale / len(queries), kind, part)
            costs[query] = costs[query].and_then(cost) if query in costs else cost


def _time_atoms(atoms: Mapping[int, Atom], item: ItemBatch, scale: float) -> dict[int, float]:
    """The nanoseconds that each atom takes on an item.

    They are evaluated twice: what is made once for all items, such as a compiled expression, is nobody's cost. What
    is made once for an item, its words, is shared by all that need it, of whom there are `scale` for each one here.
    """
    warm, columns = ItemColumns(item), ItemColumns(item)
    for atom in atoms.values():
        _evaluate(atom, warm)
    _ = columns.names, columns.texts, columns.accepted(0)  # what is made once for a whole batch
    times: dict[int, float] = {}
    for on_words, prepare in ((True, _cut), (False, _read)):
        chosen = {number: atom for number, atom in atoms.items() if _is_on_words(atom) == on_words}
        if chosen:
            shared = _nanoseconds(lambda: prepare(chosen.values(), columns)) / (len(chosen) * scale)  # noqa: B023
            for number, atom in chosen.items():
                times[number] = shared + _nanoseconds(lambda: _evaluate(atom, columns))  # noqa: B023
    return times


def _is_on_words(atom: Atom) -> bool:
    return isinstance(atom, WordAtom) and atom.attribute.part is None


def _cut(atoms: Iterable[Atom], columns: ItemColumns) -> None:
    """Cut the texts that atoms look at into words."""
    for atom in atoms:
        for position in columns.positions(0, atom.attribute.name):
            if columns.texts[position] is not None:
                columns.words(position)
                if isinstance(atom, ContainsStems):
                    columns.stems(position, atom.language)


def _read(atoms: Iterable[Atom], columns: ItemColumns) -> None:
    """Read the item for the evaluator."""
    columns.attributes(0)


def _evaluate(atom: Atom, columns: ItemColumns) -> None:
    try:
        evaluate_atom(atom, columns, 0)
    except Exception:  # a query that fails on an item costs what it took to fail
        return


def _nanoseconds(work: Callable[[], None]) -> int:
    started = perf_counter_ns()
    work()
    return perf_counter_ns() - started


def _some(count: int, most: int, chance: int) -> Iterator[tuple[int, float]]:
    """Some of so many places, spread evenly, and for how many each stands.

    >>> list(_some(2, 3, 7)), [place for place, _ in _some(9, 3, 7)]
    ([(0, 1.0), (1, 1.0)], [7, 1, 4])
    """
    if count <= most:
        yield from ((place, 1.0) for place in range(count))
        return
    for turn in range(most):
        yield (chance + turn * count // most) % count, count / most
