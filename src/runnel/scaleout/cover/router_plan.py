"""Build the router's plan from conditions that cover the predicates of a base, and the partitions of its queries.

Each query of the router stands for a partition, and its ID is the number of the partition plus one. An item that
matches a query of a partition matches the router's query of that partition. The router is compiled, written, loaded
and matched like any other plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import IDENTIFIER, Array, Rows, Texts, narrow_offsets, offsets_of
from runnel.plan.logical_plan import EXACT, LogicalPlan
from runnel.scaleout.cover.condition_rows import chosen, distinct
from runnel.scaleout.cover.cover_predicates import Cover

_MAX_LITERALS = 1024
"""Limit for the literals of a united clause, because its keys are sorted one by one."""

_MAX_SCOPES, _MAX_CELLS = 1024, 1 << 24
"""Limits for scopes, and for scopes times shared sources, up to which scopes are compared with one another."""


@dataclass(frozen=True)
class Routes:
    """Routes: items of scope i that satisfy condition i go to partition i."""

    conditions: Array
    scopes: Array
    partitions: Array

    def __len__(self) -> int:
        return len(self.conditions)

    def select(self, selection: Array) -> Routes:
        """Return the routes that a mask or an array of indexes selects."""
        return Routes(self.conditions[selection], self.scopes[selection], self.partitions[selection])

    def keys(self, scopes: int, count: int) -> Array:
        """Return a number for every route."""
        return np.asarray((self.conditions.astype(np.int64) * scopes + self.scopes) * count + self.partitions)

    @staticmethod
    def of(keys: Array, scopes: int, count: int) -> Routes:
        """Return the routes for numbers that `keys` returned."""
        return Routes(keys // (scopes * count), keys // count % scopes, keys % count)


def router_plan(
    logical: LogicalPlan,
    cover: Cover,
    partitions: Array,
    count: int,
    *,
    opened: tuple[Array, Array] | None = None,
) -> LogicalPlan:
    """Return the plan of the router. `partitions` has the partition of each query and disjunct of the base.

    If the root of a predicate has no query in the same partition and for the same sources, the predicate has a
    condition of its own. So an item goes only to partitions with a query or a merger for it. All items of a scope
    take `opened` routes (partitions, and the scope of each) without a check, because nearly all of them would go
    there anyway.
    """
    if len(partitions) != len(logical.query_ids) or np.any((partitions < 0) | (partitions >= count)):
        raise ValueError(f"every query needs a partition from 0 to {count - 1}")
    wide = _wider_scopes(logical.scopes)
    requested = _requested_routes(logical, partitions, count)
    conditions, routes = _condition_routes(logical, cover, requested, count)
    if opened is not None:
        conditions, routes = _add_open_routes(conditions, routes, *opened, len(logical.scopes), count)
    routes = _drop_redundant(conditions, routes, wide, count)
    clauses, texts = _all_clauses(logical, cover)
    united, single, plain = _unite_clauses(conditions, routes, cover.keyed, clauses, count)
    return _build_plan(logical, conditions, plain, clauses, united, single, texts, count)


def _requested_routes(logical: LogicalPlan, partitions: Array, count: int) -> Routes:
    """Return which predicates occur with which scope in which partition, with predicates in place of conditions."""
    owners = np.repeat(np.arange(len(logical.targets)), logical.targets.lengths)
    pairs = np.unique(owners * count + partitions[logical.targets.values].astype(np.int64))
    targets = pairs // count
    return Routes(
        logical.target_predicates[targets].astype(np.int64),
        logical.target_scopes[targets].astype(np.int64),
        pairs % count,
    )


def _add_open_routes(
    conditions: Rows, routes: Routes, partitions: Array, scopes: Array, scope_count: int, count: int
) -> tuple[Rows, Routes]:
    """Add routes with an empty condition for the given partitions and scopes."""
    always = np.flatnonzero(conditions.lengths == 0)
    if not len(always):
        conditions = Rows(np.append(conditions.offsets, conditions.offsets[-1]), conditions.values)
        always = np.array([len(conditions) - 1])
    more = Routes(np.full(len(partitions), always[0]), scopes.astype(np.int64), partitions.astype(np.int64))
    keys = np.concatenate([routes.keys(scope_count, count), more.keys(scope_count, count)])
    return conditions, Routes.of(np.unique(keys), scope_count, count)


def _condition_routes(logical: LogicalPlan, cover: Cover, requested: Routes, count: int) -> tuple[Rows, Routes]:
    """Return the conditions that routes need, and the distinct routes."""
    scopes = len(logical.scopes)
    of_routes = cover.of_predicates[requested.conditions].astype(np.int64)
    roots = Routes(cover.subsuming_roots.roots[requested.conditions], requested.scopes, requested.partitions)
    has_root = np.isin(roots.keys(scopes, count), requested.keys(scopes, count))
    alone = np.flatnonzero(~has_root & ~cover.merged[of_routes])
    own = np.unique(requested.conditions[alone])
    conditions = cover.conditions
    if len(own) and (cover.most is None or len(np.unique(of_routes)) + len(own) <= cover.most):
        rows = _ascending(chosen(logical.predicates, own))
        of_routes[alone] = len(conditions) + np.searchsorted(own, requested.conditions[alone])
        offsets = np.concatenate([conditions.offsets, conditions.offsets[-1] + rows.offsets[1:]])
        conditions = Rows(offsets, np.concatenate([conditions.values, rows.values]))
    conditions, numbers = distinct(conditions)
    keys = Routes(numbers[of_routes], requested.scopes, requested.partitions).keys(scopes, count)
    return conditions, Routes.of(np.unique(keys), scopes, count)


def _ascending(rows: Rows) -> Rows:
    owners = np.repeat(np.arange(len(rows)), rows.lengths)
    return Rows(rows.offsets, rows.values[np.lexsort((rows.values, owners))].astype(np.int64))


def _wider_scopes(scopes: Rows) -> Rows:
    """Return for every scope those that contain it, including itself. Of equal scopes, the first contains all.

    If there are too many scopes and sources to determine this, every scope contains only itself, and the router has
    more routes than necessary.
    """
    count = len(scopes)
    owners = np.repeat(np.arange(count), scopes.lengths)
    sources, columns = np.unique(scopes.values, return_inverse=True)
    owners, columns = np.divmod(np.unique(owners * len(sources) + columns.reshape(-1)), max(1, len(sources)))
    sizes = np.bincount(owners, minlength=count)
    # A source of a single scope needs no column, because the size of that scope accounts for it.
    is_shared = np.bincount(columns, minlength=len(sources)) > 1
    shared_columns = np.cumsum(is_shared) - 1
    width = int(np.count_nonzero(is_shared))
    if count > _MAX_SCOPES or count * width > _MAX_CELLS:
        return Rows(offsets_of(np.ones(count)), np.arange(count))
    inside = is_shared[columns]
    has = np.zeros((count, width), dtype=np.float32)
    has[owners[inside], shared_columns[columns[inside]]] = 1.0
    contained = has @ has.T == sizes[:, None]
    np.fill_diagonal(contained, True)
    equal = contained & contained.T
    contained &= ~equal | np.tri(count, dtype=bool)
    narrow, wide = np.nonzero(contained)
    return Rows.grouped(narrow, wide, count)


def _drop_redundant(conditions: Rows, routes: Routes, wide: Rows, count: int) -> Routes:
    """Drop routes that the partition has for a wider scope, or for a scope of which it receives all items."""
    scopes = len(wide)
    always = np.flatnonzero(conditions.lengths == 0)
    owners, wider = wide.expand(routes.scopes)
    widened = Routes(routes.conditions[owners], wider, routes.partitions[owners])
    keys = routes.keys(scopes, count)
    is_redundant = np.isin(widened.keys(scopes, count), keys) & (wider != routes.scopes[owners])
    for condition in always.tolist():
        open_routes = Routes(np.full(len(owners), condition), wider, widened.partitions)
        is_redundant |= np.isin(open_routes.keys(scopes, count), keys) & (widened.conditions != condition)
    return routes.select(np.bincount(owners[is_redundant], minlength=len(routes)) == 0)


def _all_clauses(logical: LogicalPlan, cover: Cover) -> tuple[Rows, tuple[bytes, ...]]:
    """Return the clauses of the base followed by the added ones, and the texts of the atoms of added clauses."""
    if not cover.added:
        return logical.clauses, ()
    added = {text.encode("utf-8", "surrogatepass"): index for index, text in enumerate(cover.added)}
    literals = 2 * (len(logical.atoms) + np.arange(len(added)))
    for atom in range(len(logical.atoms)):
        index = added.get(logical.atoms.raw(atom))
        if index is not None:
            literals[index] = 2 * atom
    own = logical.clauses
    offsets = np.concatenate([own.offsets, own.offsets[-1] + 1 + np.arange(len(literals))])
    return Rows(offsets, np.concatenate([own.values, literals])), tuple(added)


def _unite_clauses(
    conditions: Rows, routes: Routes, keyed: Array, clauses: Rows, count: int
) -> tuple[Rows, Routes, Routes]:
    """Unite routes with a single keyed clause, for each scope and partition, to few routes with long clauses.

    Return the long clauses, their routes (with clauses in place of conditions), and the routes that stay unchanged.
    """
    single = np.flatnonzero(conditions.lengths == 1)
    firsts, is_keyed = np.zeros(len(conditions), dtype=np.int64), np.zeros(len(conditions), dtype=bool)
    firsts[single] = conditions.values[conditions.offsets[:-1][single]]
    is_keyed[single] = keyed[firsts[single]]
    is_candidate = is_keyed[routes.conditions]
    ends = routes.scopes * count + routes.partitions
    _, numbers, sizes = np.unique(ends[is_candidate], return_inverse=True, return_counts=True)
    has_others = sizes[numbers.reshape(-1)] > 1
    inside = np.flatnonzero(is_candidate)[has_others]
    owners, literals = clauses.expand(firsts[routes.conditions[inside]])
    width = int(literals.max(initial=0)) + 1
    pairs = np.unique(ends[inside][owners] * width + literals)
    pair_ends, literals = pairs // width, pairs % width
    starts = np.flatnonzero(np.diff(pair_ends, prepend=-1))
    ranks = np.arange(len(pair_ends)) - np.repeat(starts, np.diff(np.append(starts, len(pair_ends))))
    begins = np.flatnonzero(ranks % _MAX_LITERALS == 0)
    long_clauses = Rows(np.append(begins, len(pair_ends)), literals)
    clause_ends = pair_ends[begins]
    is_unchanged = np.ones(len(routes), dtype=bool)
    is_unchanged[inside] = False
    united = Routes(np.arange(len(begins)), clause_ends // count, clause_ends % count)
    return long_clauses, united, routes.select(is_unchanged)


def _build_plan(
    logical: LogicalPlan,
    conditions: Rows,
    plain: Routes,
    clauses: Rows,
    united: Rows,
    single: Routes,
    texts: tuple[bytes, ...],
    count: int,
) -> LogicalPlan:
    """Build the plan from routes with conditions (`plain`) and routes with united clauses (`single`).

    Only the parts that they use are kept, with new numbers.
    """
    used, conditions_of = _unique(plain.conditions)
    rows = chosen(conditions, used)
    own, clauses_of = _unique(rows.values)
    literals = _concatenate(chosen(clauses, own), united)
    atoms, atoms_of = _unique(literals.values >> 1)
    predicates = _concatenate(
        Rows(rows.offsets, clauses_of), Rows(np.arange(len(united) + 1), len(own) + np.arange(len(united)))
    )
    routes = Routes(
        np.concatenate([conditions_of, len(used) + single.conditions]),
        np.concatenate([plain.scopes, single.scopes]),
        np.concatenate([plain.partitions, single.partitions]),
    )
    scopes, scopes_of = _unique(routes.scopes)
    targets, targets_of = _unique(routes.conditions * max(1, len(scopes)) + scopes_of)
    order = np.lexsort((routes.partitions, targets_of))
    kept = chosen(logical.scopes, scopes)
    return LogicalPlan(
        atoms=_texts(logical.atoms, atoms, texts),
        clauses=_narrow(Rows(literals.offsets, 2 * atoms_of + (literals.values & 1))),
        predicates=_narrow(predicates),
        predicate_formulas=np.full(len(predicates), EXACT, dtype=IDENTIFIER),
        formula_kinds=np.empty(0, dtype=np.uint8),
        formulas=Rows.of([]),
        scopes=Rows(narrow_offsets(kept.offsets), kept.values),
        target_predicates=(targets // max(1, len(scopes))).astype(IDENTIFIER),
        target_scopes=(targets % max(1, len(scopes))).astype(IDENTIFIER),
        targets=_narrow(Rows.grouped(targets_of[order], routes.partitions[order], len(targets))),
        query_ids=np.arange(1, count + 1, dtype=np.int64),
        query_since=np.zeros(count, dtype=np.int64),
    )


def _unique(values: Array) -> tuple[Array, Array]:
    """Return the distinct values in ascending order, and the index of each value among them."""
    distinct_values, indexes = np.unique(values, return_inverse=True)
    return distinct_values.astype(np.int64), indexes.reshape(-1).astype(np.int64)


def _concatenate(first: Rows, second: Rows) -> Rows:
    offsets = np.concatenate([first.offsets, first.offsets[-1] + second.offsets[1:]])
    return Rows(offsets, np.concatenate([first.values, second.values]))


def _narrow(rows: Rows) -> Rows:
    return Rows(narrow_offsets(rows.offsets), rows.values.astype(IDENTIFIER))


def _texts(texts: Texts, atoms: Array, added: tuple[bytes, ...]) -> Texts:
    """Return the texts of atoms. Numbers beyond the atoms of the base stand for added ones."""
    own = atoms[atoms < len(texts)]
    return Texts.of(
        [
            *(texts.raw(atom) for atom in own.tolist()),
            *(added[atom - len(texts)] for atom in atoms[len(own) :].tolist()),
        ]
    )
