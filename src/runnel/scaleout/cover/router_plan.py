"""The router's plan: a base, conditions that cover its predicates and a division of its queries in, a plan out.

The queries of the router are the partitions, by their number and one: an item that matches a query of a partition
matches the partition. It is a plan like any other, so it is laid out, written, loaded and matched like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import IDENTIFIER, Array, Rows, Texts, narrow_offsets, offsets_of
from runnel.plan.logical_plan import EXACT, LogicalPlan
from runnel.scaleout.cover.condition_rows import chosen, distinct
from runnel.scaleout.cover.cover_predicates import Cover

_LONGEST = 1024
"""Literals that a united clause has at most: its keys are put in order one by one."""

_SCOPES, _CELLS = 1024, 1 << 24
"""Up to so many scopes it is known which contain which, if scopes times sources that several have are not more."""


@dataclass(frozen=True)
class Routes:
    """What leads where: items of a scope that satisfy a condition go to a partition."""

    conditions: Array
    scopes: Array
    partitions: Array

    def __len__(self) -> int:
        return len(self.conditions)

    def kept(self, which: Array) -> Routes:
        """Some of the routes."""
        return Routes(self.conditions[which], self.scopes[which], self.partitions[which])

    def keys(self, scopes: int, count: int) -> Array:
        """A number for every route."""
        return np.asarray((self.conditions.astype(np.int64) * scopes + self.scopes) * count + self.partitions)

    @staticmethod
    def of(keys: Array, scopes: int, count: int) -> Routes:
        """The routes of such numbers."""
        return Routes(keys // (scopes * count), keys // count % scopes, keys % count)


def router_plan(
    logical: LogicalPlan,
    cover: Cover,
    partitions: Array,
    count: int,
    *,
    opened: tuple[Array, Array] | None = None,
) -> LogicalPlan:
    """The plan of the router, where `partitions` gives the partition of each of the base's queries and ways.

    A predicate whose root is not asked by its partition, for the items of the same sources, is asked for by itself:
    so an item goes only where somebody asks for what it has, or a merger does. Routes that are `opened` (partitions,
    and the scope of each) are taken by all items of the scope, unasked: nearly all would go there anyway.
    """
    if len(partitions) != len(logical.query_ids) or np.any((partitions < 0) | (partitions >= count)):
        raise ValueError(f"every query needs a partition from 0 to {count - 1}")
    wide = _wider_scopes(logical.scopes)
    asked = _asked(logical, partitions, count)
    conditions, routes = _routes(logical, cover, asked, count)
    if opened is not None:
        conditions, routes = _opened(conditions, routes, *opened, len(logical.scopes), count)
    routes = _most_general(conditions, routes, wide, count)
    clauses, texts = _all_clauses(logical, cover)
    united, predicates, plain = _united(conditions, routes, cover.keyed, clauses, count)
    return _plan(logical, conditions, plain, clauses, united, predicates, texts, count)


def _asked(logical: LogicalPlan, partitions: Array, count: int) -> Routes:
    """Which predicates are asked for which scope by which partition; predicates in place of conditions."""
    owners = np.repeat(np.arange(len(logical.targets)), logical.targets.lengths)
    pairs = np.unique(owners * count + partitions[logical.targets.values].astype(np.int64))
    targets = pairs // count
    return Routes(
        logical.target_predicates[targets].astype(np.int64),
        logical.target_scopes[targets].astype(np.int64),
        pairs % count,
    )


def _opened(
    conditions: Rows, routes: Routes, partitions: Array, scopes: Array, scope_count: int, count: int
) -> tuple[Rows, Routes]:
    """The conditions and routes with those besides that ask for nothing."""
    always = np.flatnonzero(conditions.lengths == 0)
    if not len(always):
        conditions = Rows(np.append(conditions.offsets, conditions.offsets[-1]), conditions.values)
        always = np.array([len(conditions) - 1])
    more = Routes(np.full(len(partitions), always[0]), scopes.astype(np.int64), partitions.astype(np.int64))
    keys = np.concatenate([routes.keys(scope_count, count), more.keys(scope_count, count)])
    return conditions, Routes.of(np.unique(keys), scope_count, count)


def _routes(logical: LogicalPlan, cover: Cover, asked: Routes, count: int) -> tuple[Rows, Routes]:
    """The conditions that routes need, and the routes, each once."""
    scopes = len(logical.scopes)
    found = cover.of_predicates[asked.conditions].astype(np.int64)
    roots = Routes(cover.kin.roots[asked.conditions], asked.scopes, asked.partitions)
    present = np.isin(roots.keys(scopes, count), asked.keys(scopes, count))
    alone = np.flatnonzero(~present & ~cover.merged[found])
    own = np.unique(asked.conditions[alone])
    conditions = cover.conditions
    if len(own) and (cover.most is None or len(np.unique(found)) + len(own) <= cover.most):
        rows = _ascending(chosen(logical.predicates, own))
        places = len(conditions) + np.searchsorted(own, asked.conditions[alone])
        found[alone] = places
        offsets = np.concatenate([conditions.offsets, conditions.offsets[-1] + rows.offsets[1:]])
        conditions = Rows(offsets, np.concatenate([conditions.values, rows.values]))
    conditions, numbers = distinct(conditions)
    keys = Routes(numbers[found], asked.scopes, asked.partitions).keys(scopes, count)
    return conditions, Routes.of(np.unique(keys), scopes, count)


def _ascending(rows: Rows) -> Rows:
    owners = np.repeat(np.arange(len(rows)), rows.lengths)
    return Rows(rows.offsets, rows.values[np.lexsort((rows.values, owners))].astype(np.int64))


def _wider_scopes(scopes: Rows) -> Rows:
    """For every scope those that contain it, itself included; of two that are equal, only the first contains both.

    Where that would be too large a table to find out, every scope is known to contain itself alone: the router then
    has more routes than it needs.
    """
    count = len(scopes)
    owners = np.repeat(np.arange(count), scopes.lengths)
    sources, places = np.unique(scopes.values, return_inverse=True)
    owners, places = np.divmod(np.unique(owners * len(sources) + places.reshape(-1)), max(1, len(sources)))
    sizes = np.bincount(owners, minlength=count)
    # A source that one scope has alone needs no column: the size of the scope is enough to tell of it.
    several = np.bincount(places, minlength=len(sources)) > 1
    columns = np.cumsum(several) - 1
    width = int(np.count_nonzero(several))
    if count > _SCOPES or count * width > _CELLS:
        return Rows(offsets_of(np.ones(count)), np.arange(count))
    inside = several[places]
    has = np.zeros((count, width), dtype=np.float32)
    has[owners[inside], columns[places[inside]]] = 1.0
    contained = has @ has.T == sizes[:, None]
    np.fill_diagonal(contained, True)
    equal = contained & contained.T
    contained &= ~equal | np.tri(count, dtype=bool)
    narrow, wide = np.nonzero(contained)
    return Rows.grouped(narrow, wide, count)


def _most_general(conditions: Rows, routes: Routes, wide: Rows, count: int) -> Routes:
    """Without routes that a partition has for more sources already, or where it gets all items of the sources."""
    scopes = len(wide)
    always = np.flatnonzero(conditions.lengths == 0)
    owners, found = wide.expand(routes.scopes)
    more = Routes(routes.conditions[owners], found, routes.partitions[owners])
    known = routes.keys(scopes, count)
    dropped = np.isin(more.keys(scopes, count), known) & (found != routes.scopes[owners])
    for one in always.tolist():
        everything = Routes(np.full(len(owners), one), found, more.partitions)
        dropped |= np.isin(everything.keys(scopes, count), known) & (more.conditions != one)
    return routes.kept(np.bincount(owners[dropped], minlength=len(routes)) == 0)


def _all_clauses(logical: LogicalPlan, cover: Cover) -> tuple[Rows, tuple[bytes, ...]]:
    """The clauses of the base and behind them the added ones; and the texts of atoms that the base does not have."""
    if not cover.added:
        return logical.clauses, ()
    wanted = {text.encode("utf-8", "surrogatepass"): place for place, text in enumerate(cover.added)}
    literals = 2 * (len(logical.atoms) + np.arange(len(wanted)))
    for atom in range(len(logical.atoms)):
        place = wanted.get(logical.atoms.raw(atom))
        if place is not None:
            literals[place] = 2 * atom
    own = logical.clauses
    offsets = np.concatenate([own.offsets, own.offsets[-1] + 1 + np.arange(len(literals))])
    return Rows(offsets, np.concatenate([own.values, literals])), tuple(wanted)


def _united(conditions: Rows, routes: Routes, keyed: Array, clauses: Rows, count: int) -> tuple[Rows, Routes, Routes]:
    """Routes of one clause that keys decide, for one scope and partition, become routes of few long clauses.

    Out: the long clauses, their routes (a clause in place of a condition), and the routes that stay as they are.
    """
    single = np.flatnonzero(conditions.lengths == 1)
    firsts, decided = np.zeros(len(conditions), dtype=np.int64), np.zeros(len(conditions), dtype=bool)
    firsts[single] = conditions.values[conditions.offsets[:-1][single]]
    decided[single] = keyed[firsts[single]]
    able = decided[routes.conditions]
    places = routes.scopes * count + routes.partitions
    _, numbers, sizes = np.unique(places[able], return_inverse=True, return_counts=True)
    several = sizes[numbers.reshape(-1)] > 1
    inside = np.flatnonzero(able)[several]
    owners, literals = clauses.expand(firsts[routes.conditions[inside]])
    width = int(literals.max(initial=0)) + 1
    pairs = np.unique(places[inside][owners] * width + literals)
    found, literals = pairs // width, pairs % width
    starts = np.flatnonzero(np.diff(found, prepend=-1))
    ranks = np.arange(len(found)) - np.repeat(starts, np.diff(np.append(starts, len(found))))
    begins = np.flatnonzero(ranks % _LONGEST == 0)
    long = Rows(np.append(begins, len(found)), literals)
    owners = found[begins]
    rest = np.ones(len(routes), dtype=bool)
    rest[inside] = False
    return long, Routes(np.arange(len(begins)), owners // count, owners % count), routes.kept(rest)


def _plan(
    logical: LogicalPlan,
    conditions: Rows,
    plain: Routes,
    clauses: Rows,
    united: Rows,
    single: Routes,
    texts: tuple[bytes, ...],
    count: int,
) -> LogicalPlan:
    """The plan of routes of conditions and of routes of united clauses, with what they use, numbered anew."""
    used, conditions_of = _numbered(plain.conditions)
    rows = chosen(conditions, used)
    own, clauses_of = _numbered(rows.values)
    literals = _joined(chosen(clauses, own), united)
    atoms, atoms_of = _numbered(literals.values >> 1)
    predicates = _joined(
        Rows(rows.offsets, clauses_of), Rows(np.arange(len(united) + 1), len(own) + np.arange(len(united)))
    )
    together = Routes(
        np.concatenate([conditions_of, len(used) + single.conditions]),
        np.concatenate([plain.scopes, single.scopes]),
        np.concatenate([plain.partitions, single.partitions]),
    )
    scopes, scopes_of = _numbered(together.scopes)
    targets, targets_of = _numbered(together.conditions * max(1, len(scopes)) + scopes_of)
    order = np.lexsort((together.partitions, targets_of))
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
        targets=_narrow(Rows.grouped(targets_of[order], together.partitions[order], len(targets))),
        query_ids=np.arange(1, count + 1, dtype=np.int64),
        query_since=np.zeros(count, dtype=np.int64),
    )


def _numbered(values: Array) -> tuple[Array, Array]:
    """The distinct values, ascending, and the place of each value among them."""
    found, numbers = np.unique(values, return_inverse=True)
    return found.astype(np.int64), numbers.reshape(-1).astype(np.int64)


def _joined(first: Rows, second: Rows) -> Rows:
    offsets = np.concatenate([first.offsets, first.offsets[-1] + second.offsets[1:]])
    return Rows(offsets, np.concatenate([first.values, second.values]))


def _narrow(rows: Rows) -> Rows:
    return Rows(narrow_offsets(rows.offsets), rows.values.astype(IDENTIFIER))


def _texts(texts: Texts, atoms: Array, added: tuple[bytes, ...]) -> Texts:
    """The texts of atoms; those behind the base's are added ones."""
    own = atoms[atoms < len(texts)]
    return Texts.of(
        [
            *(texts.raw(atom) for atom in own.tolist()),
            *(added[atom - len(texts)] for atom in atoms[len(own) :].tolist()),
        ]
    )
