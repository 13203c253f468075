"""Estimate the cost of each query per item of the stream, and the work that queries share.

In: a logical plan with the layout of its atoms and anchors, the router's condition of every predicate, and the
fraction of items that satisfies it. Out: Weights, from which queries are assigned to partitions. Some work is done
once per partition, no matter how many of its queries need it: finding a target, or calling an operator for a
question. Such work is listed separately (`shared`), so that the cost of splitting the queries that share it can be
computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, Rows, offsets_of
from runnel.matching.compile.expected_work import EACH_EVALUATION, EACH_ITEM, EACH_NUMBER
from runnel.matching.filters.atoms.anchors import Anchors
from runnel.matching.filters.atoms.atom_layout import AtomLayout
from runnel.matching.filters.atoms.atom_tests import PATTERN_KEY, TestKind
from runnel.matching.filters.streams.masks import BLOCK
from runnel.plan.gates import query_of
from runnel.plan.logical_plan import EXACT, LogicalPlan
from runnel.scaleout.cover.contract import cover_of
from runnel.scaleout.divide.affinity import components, order_conditions, scope_order
from runnel.scaleout.divide.operator_questions import OperatorQuestions, find_questions

ENTRY = 0.055
"""Microseconds of CPU time per entry that is scanned for an item.

This and the other constants come from the measurements of `python -m benchmarks.partitions --parts constants` on an
idle machine: workloads H, M and S with 20,000 and 100,000 queries, in batches of 2,048 items. The fit gave 0.056
(0.083 with other work on two cores). Estimates for a plan differ from measurements by up to a seventh, and by a fifth
with a million queries.
"""

EMIT = 0.001
"""Microseconds per written match. Too small to be measured, but gives queries with more matches more weight."""

PATTERN = 0.0025
"""Microseconds per item pattern, for each item that has a value for it, whether it matches or not.

Measured with graph patterns on graphs of 90 triples: 0.0026 from 20,000 to 60,000 patterns, and 0.0015 from 50 to
20,000 patterns.
"""

COPY = EACH_ITEM
"""Microseconds for parsing an item once more: the cost of an item in a partition where nothing matches it."""

_TARGET_BYTES, _LITERAL_BYTES, _ATOM_BYTES = 60.0, 20.0, 60.0
"""Estimated bytes in the files of a plan per target, per literal, and per atom in addition to its text.

Chosen by hand. With them the estimate for a query of M is 244 bytes with 100,000 queries (actually 276) and 194 with
a million (186), and for a graph pattern 1,294 (1,428).
"""


@dataclass(frozen=True)
class Weights:
    """The queries of a plan, their costs, and the work that they share.

    A *target* is a pair of a predicate and a scope (see `LogicalPlan`). The *root* of a target is a pair of the
    router's condition that the predicate implies and the same scope. All costs are per item of the stream.
    """

    owners: Array
    """The catalog ids of the queries, in ascending order. A disjunct belongs to its query."""
    microseconds: Array
    """The cost of each query, including its part of shared work."""
    bytes: Array
    """The estimated bytes of each query in the files of a plan, including its part of shared data."""
    groups: Array
    """The group of each query, numbered from 0. The queries of a group have the same root, or must stay together
    because of operators."""
    order: Array
    """The rank of each query in an order in which the queries of a group are adjacent, and so are related groups."""
    units: Array
    """The unit of each query, numbered from 0. A unit is never separated: it is a single query, or the queries of a
    group that share an expensive question to an operator."""
    own: Array
    """The cost of each query without shared work."""
    shared: Rows
    """For each query, the work that it shares with others: targets are numbered first, then operator questions."""
    shared_microseconds: Array
    """The cost of each target, followed by that of each question to an operator."""
    roots: Array
    """The root of each target."""
    root_shares: Array
    """The fraction of the items from the sources of a root's scope that satisfy its condition."""
    root_scopes: Array
    """The scope of each root."""
    root_topics: Array
    """The topic of each root that has an item pattern, otherwise -1 (see `Affinity`)."""
    root_keys: Rows
    """The keys of items under which an index finds the predicate that represents each root's condition."""
    topic_shares: Array
    """The fraction of all items that are about each topic."""
    key_shares: Array
    """The fraction of items that have each key."""
    scopes: Rows
    """The source feeds of each scope."""
    copy: float = COPY
    """The cost of an item in each additional partition that it is routed to."""

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def group_count(self) -> int:
        """The number of groups."""
        return int(self.groups.max()) + 1 if len(self.groups) else 0

    @property
    def scope_parts(self) -> Array:
        """The fraction of all items that come from the sources of each scope, if all sources are equally frequent."""
        return np.asarray(self.scopes.lengths / max(1, len(np.unique(self.scopes.values))))

    @property
    def marked_groups(self) -> Array:
        """The groups as stored in an assignment: negative if the group must stay in one partition."""
        sizes = np.bincount(self.units)
        whole = np.zeros(self.group_count, dtype=bool)
        whole[self.groups[sizes[self.units] > 1]] = True
        return np.where(whole[self.groups], -1 - self.groups, self.groups)


def weigh_queries(
    logical: LogicalPlan,
    atoms: AtomLayout,
    anchors: Anchors,
    conditions: Array,
    shares: Array,
    *,
    matches: Array | None = None,
    operator_milliseconds: Mapping[str, float] | None = None,
) -> Weights:
    """Estimate the costs of the queries of a plan.

    `conditions` has for every predicate the router's condition that it implies, `shares` the fraction of items that
    satisfies each condition. `matches` are measured matches per item, by position in `logical.query_ids` (NaN if
    unknown). `operator_milliseconds` is the time of a call, by the name of the operator.
    """
    plan = _Weighing(logical, atoms, anchors, conditions.astype(np.int64), shares)
    emitted = plan.rates if matches is None else np.where(np.isnan(matches), plan.rates, matches)
    # Operators are called for everything that passes the filters, even if little of it matches in the end.
    questions = find_questions(logical, plan.owner_of, plan.rates, operator_milliseconds or {})
    shared, shared_microseconds = plan.shared(questions)
    own = EMIT * np.bincount(plan.owner_of, weights=emitted, minlength=len(plan.owners))
    users = np.maximum(1, np.bincount(shared.values, minlength=len(shared_microseconds)))
    filtering = own + _by_row(shared, np.where(plan.is_target(len(users)), shared_microseconds / users, 0.0))
    groups, order, units = plan.arrange(questions, filtering)
    root_shares, topics = np.minimum(1.0, shares[plan.root_conditions]), plan.affinity.topics[plan.root_conditions]
    return Weights(
        owners=plan.owners,
        microseconds=own + _by_row(shared, shared_microseconds / users),
        bytes=plan.bytes(shared, users),
        groups=groups,
        order=order,
        units=units,
        own=own,
        shared=shared,
        shared_microseconds=shared_microseconds,
        roots=plan.roots,
        root_shares=root_shares,
        root_scopes=plan.root_scopes,
        root_topics=topics,
        root_keys=plan.keys_of_roots(),
        topic_shares=_topic_shares(topics, root_shares),
        key_shares=plan.key_shares,
        scopes=logical.scopes,
        copy=plan.copy,
    )


def _topic_shares(topics: Array, shares: Array) -> Array:
    """Return the expected fraction of items per topic (see `Affinity`), if each item has at most one topic."""
    has_topic = topics >= 0
    totals = np.bincount(topics[has_topic], weights=shares[has_topic])
    return np.asarray(totals / max(1.0, float(totals.sum())))


def per_block(shares: Array) -> Array:
    """Return the scans per item of entries that these fractions of items have. A block scans an entry only once."""
    return np.asarray((1.0 - (1.0 - shares) ** BLOCK) / BLOCK)


def _by_row(rows: Rows, weights: Array) -> Array:
    """Return for every row the sum of the weights of its values."""
    owners = np.repeat(np.arange(len(rows)), rows.lengths)
    return np.bincount(owners, weights=weights[rows.values], minlength=len(rows))


class _Weighing:
    """Computes the costs of the targets of a plan, and which queries they belong to."""

    def __init__(
        self, logical: LogicalPlan, atoms: AtomLayout, anchors: Anchors, conditions: Array, shares: Array
    ) -> None:
        self._logical, self._atoms, self._anchors = logical, atoms, anchors
        self.owners, self.owner_of = np.unique(query_of(logical.query_ids), return_inverse=True)
        sources = max(1, len(np.unique(logical.scopes.values)))
        scope_parts = logical.scopes.lengths / sources
        target_predicates, self._target_scopes = logical.target_predicates.astype(np.int64), logical.target_scopes
        self._rates = self._predicate_rates()
        self._target_parts = scope_parts[self._target_scopes]
        self._target_rates = self._rates[target_predicates] * self._target_parts
        keys = conditions[target_predicates] * max(1, len(logical.scopes)) + self._target_scopes
        roots, self.roots = np.unique(keys, return_inverse=True)
        self.root_conditions, self.root_scopes = np.divmod(roots, max(1, len(logical.scopes)))
        self.affinity = order_conditions(logical, atoms, anchors, conditions, len(shares))
        self.key_shares = np.minimum(1.0, atoms.key_shares.astype(np.float64))
        members = np.repeat(np.arange(len(logical.targets)), logical.targets.lengths)
        positions = logical.targets.values.astype(np.int64)
        self.rates = np.minimum(
            1.0, np.bincount(positions, weights=self._target_rates[members], minlength=len(logical.query_ids))
        )
        pairs = np.unique(self.owner_of[positions] * max(1, len(logical.targets)) + members)
        self._pair_owners, self._pair_targets = np.divmod(pairs, max(1, len(logical.targets)))
        patterns = atoms.keys_of(PATTERN_KEY)
        self._is_pattern = np.isin(atoms.atom_keys, patterns)
        own = COPY if len(patterns) < len(atoms.key_tokens) or not len(patterns) else 0.0
        self.copy = own + sum(cover_of(family).copy_microseconds for family in atoms.families())

    def _predicate_rates(self) -> Array:
        """Return the expected fraction of items that satisfies each predicate."""
        predicates = self._logical.predicates
        shares = np.clip(self._anchors.clause_shares, 1e-12, 1.0)
        return np.exp(_by_row(predicates, np.log(shares)))

    def keys_of_roots(self) -> Rows:
        """Return the keys by which the predicate that represents the condition of each root is found."""
        owners, keys = self._anchors.keys.expand(self.affinity.predicates[self.root_conditions])
        return Rows(offsets_of(np.bincount(owners, minlength=len(self.root_conditions))), keys.astype(np.int64))

    def is_target(self, count: int) -> Array:
        """Return which of `count` shared kinds of work are targets."""
        return np.arange(count) < len(self._logical.targets)

    def shared(self, questions: OperatorQuestions) -> tuple[Rows, Array]:
        """Return the work that queries share with others, and its cost per item."""
        targets = len(self._logical.targets)
        owners = np.concatenate([self._pair_owners, questions.owners])
        values = np.concatenate([self._pair_targets, questions.numbers + targets])
        rows = Rows.grouped(owners, values, len(self.owners))
        return rows, np.concatenate([self._search_costs() + self._evaluation_costs(), questions.microseconds])

    def _search_costs(self) -> Array:
        """Return the microseconds for finding each target.

        A target without keys is checked for all items; its conditions are mostly about numbers.
        """
        predicates = self._logical.target_predicates.astype(np.int64)
        owners, keys = self._anchors.keys.expand(predicates)
        shares = self.key_shares[keys] * self._target_parts[owners]
        entries = np.bincount(owners, weights=per_block(shares), minlength=len(predicates))
        is_keyless = self._anchors.keys.lengths[predicates] == 0
        return np.where(is_keyless, (EACH_NUMBER + ENTRY / BLOCK) * self._target_parts, ENTRY * entries)

    def _evaluation_costs(self) -> Array:
        """Return by target the microseconds for item patterns and for atoms that only the evaluator can decide."""
        patterns, others = self._atoms_of_predicates()
        slow = (self._logical.predicate_formulas != EXACT) | (others > 0)
        costs = PATTERN * patterns + EACH_EVALUATION * self._rates * slow
        return np.asarray(costs[self._logical.target_predicates] * self._target_parts)

    def _atoms_of_predicates(self) -> tuple[Array, Array]:
        """Count the item patterns of each predicate, and its atoms that only the evaluator can decide."""
        literals = self._logical.clauses.values >> 1
        clause_of = np.repeat(np.arange(len(self._logical.clauses)), self._logical.clauses.lengths)
        others = self._atoms.atom_kinds == TestKind.OTHER
        counts = (
            np.bincount(clause_of, weights=flags[literals], minlength=len(self._logical.clauses))
            for flags in (self._is_pattern, others)
        )
        patterns, evaluated = (_by_row(self._logical.predicates, count) for count in counts)
        return patterns, evaluated

    def arrange(self, questions: OperatorQuestions, filtering: Array) -> tuple[Array, Array, Array]:
        """Return the group, the position and the unit of every query. `filtering` is its cost without operators.

        A group consists of the queries of a root, or of queries that must stay together because of operators.
        """
        heaviest, root_positions = self._most_frequent_targets(), self._root_positions()
        roots = np.full(len(heaviest), len(self.root_conditions), dtype=np.int64)
        roots[heaviest >= 0] = self.roots[heaviest[heaviest >= 0]]
        sets, shared_questions = _expensive_questions(questions, filtering)
        numbers = np.arange(len(heaviest))
        _, groups = np.unique(np.where(shared_questions >= 0, len(root_positions) + sets, roots), return_inverse=True)
        _, units = np.unique(
            np.where(shared_questions >= 0, len(numbers) + shared_questions, numbers), return_inverse=True
        )
        first = np.full(int(groups.max(initial=-1)) + 1, len(root_positions), dtype=np.int64)
        np.minimum.at(first, groups, root_positions[roots])
        order = np.empty(len(groups), dtype=np.int64)
        order[np.lexsort((root_positions[roots], shared_questions, groups, first[groups]))] = numbers
        return groups, order, units

    def _root_positions(self) -> Array:
        """Return the position of every root in an order by sources and affinity, followed by that of no root."""
        positions = np.empty(len(self.root_conditions) + 1, dtype=np.int64)
        scopes = scope_order(self._logical.scopes)[self.root_scopes]
        order = np.lexsort((self.affinity.positions[self.root_conditions], scopes))
        positions[np.append(order, len(order))] = np.arange(len(positions))
        return positions

    def _most_frequent_targets(self) -> Array:
        """Return for every query its target that most items satisfy, or -1."""
        order = np.lexsort((-self._pair_targets, self._target_rates[self._pair_targets]))
        targets = np.full(len(self.owners), -1, dtype=np.int64)
        targets[self._pair_owners[order]] = self._pair_targets[order]  # the last of several assignments remains
        return targets

    def bytes(self, shared: Rows, users: Array) -> Array:
        """Estimate the bytes of each query in the files of a plan, including its part of shared data."""
        logical = self._logical
        literals = logical.clauses.values >> 1
        clause_of = np.repeat(np.arange(len(logical.clauses)), logical.clauses.lengths)
        atom_users = np.maximum(1, np.bincount(literals, minlength=len(logical.atoms)))
        texts = (np.diff(logical.atoms.offsets) + _ATOM_BYTES) / atom_users
        clauses = np.bincount(clause_of, weights=_LITERAL_BYTES + texts[literals], minlength=len(logical.clauses))
        clause_users = np.maximum(1, np.bincount(logical.predicates.values, minlength=len(clauses)))
        targets = _TARGET_BYTES + _by_row(logical.predicates, clauses / clause_users)[logical.target_predicates]
        sizes = np.zeros(len(users))
        sizes[: len(targets)] = targets / users[: len(targets)]
        return np.asarray(16.0 + _by_row(shared, sizes))


def _expensive_questions(questions: OperatorQuestions, filtering: Array) -> tuple[Array, Array]:
    """Find queries that must stay together because of an operator.

    Return a number for each set of such queries, and for each query its most expensive question, or -1. Separating
    the queries of a question saves at most the cost of their filters, and costs another evaluation of the question.
    """
    saved = np.bincount(questions.numbers, weights=filtering[questions.owners], minlength=len(questions.microseconds))
    is_expensive = questions.microseconds > saved
    chosen = is_expensive[questions.numbers]
    owners, numbers = questions.owners[chosen], questions.numbers[chosen]
    sets = components(owners, numbers + len(filtering), len(filtering) + len(is_expensive))[: len(filtering)]
    shared_questions = np.full(len(filtering), -1, dtype=np.int64)
    order = np.argsort(questions.microseconds[numbers], kind="stable")
    shared_questions[owners[order]] = numbers[order]  # the last of several assignments, the most expensive, remains
    return sets, shared_questions
