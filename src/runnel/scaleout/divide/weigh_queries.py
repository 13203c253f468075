"""What every query costs for an item of the stream, and what it shares with others.

In: a logical plan with the arrays of its atoms and anchors, the router's condition of every predicate and the part of
the items that satisfies it. Out: Weights, from which queries are assigned to partitions. Some work is done once in a
partition however many of its queries need it: finding a target, asking an operator a question. Such work is weighed
by itself (`shared`), so that it can be said what dividing those who share it costs.
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
from runnel.scaleout.divide.affinity import components, place_conditions, scope_order
from runnel.scaleout.divide.operator_questions import OperatorQuestions, find_questions

ENTRY = 0.055
"""Microseconds of CPU for an entry that is walked for an item.

This and the others come from what `python -m benchmarks.partitions --parts constants` measures, on an idle machine:
workloads H, M and S at 20,000 and 100,000 queries, batches of 2,048 items. The fit gave 0.056 (0.083 with much else
at work on two cores). With it a plan is off by up to a seventh, and by a fifth at a million queries.
"""

EMIT = 0.001
"""Microseconds for a match that is written: too few for the fit to tell from none; what matches more weighs more."""

PATTERN = 0.0025
"""Microseconds for an item pattern, of an item that has a value for it, whether it matches or not.

It was measured with graph patterns on graphs of 90 triples: from 20,000 to 60,000 patterns it was 0.0026, from 50 to
20,000 patterns 0.0015.
"""

COPY = EACH_ITEM
"""Microseconds to take an item apart once more: what an item costs in a partition where nothing matches it."""

_TARGET_BYTES, _LITERAL_BYTES, _ATOM_BYTES = 60.0, 20.0, 60.0
"""What targets, literals, and atoms beside their texts take in a plan's files.

Chosen by hand: with them a query of M takes 244 bytes at 100,000 queries (in truth 276) and 194 at a million (186),
and a graph pattern 1,294 (1,428).
"""


@dataclass(frozen=True)
class Weights:
    """The queries (`owners`, by ascending catalog ids; ways belong to their query) and what they weigh.

    `microseconds` is what a query costs for an item of the stream, its part of what is shared included; `own` is
    without that. `groups` are dense numbers; `order` is the place of each query on a line on which groups lie
    together, near ones near each other. `clumps` are dense numbers too, each of one query, or of those of a group who
    ask an operator the same dear question and are never divided.
    Row i of `shared` is what query i shares with others; the first of these are targets, found by way of `roots`
    (condition and scope, one for each target), the others questions to operators.
    A root is satisfied by the part `root_shares` of the items of the sources of its scope, and found by `root_keys`;
    it has a topic if it asks for an item pattern (-1: none), which the part `topic_shares` of all items is about.
    `copy` is what an item costs once more in every partition that it comes to.
    """

    owners: Array
    microseconds: Array
    bytes: Array
    groups: Array
    order: Array
    clumps: Array
    own: Array
    shared: Rows
    shared_microseconds: Array
    roots: Array
    root_shares: Array
    root_scopes: Array
    root_topics: Array
    root_keys: Rows
    topic_shares: Array
    key_shares: Array
    scopes: Rows
    copy: float = COPY

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def group_count(self) -> int:
        """How many groups there are."""
        return int(self.groups.max()) + 1 if len(self.groups) else 0

    @property
    def scope_parts(self) -> Array:
        """The part of all items that is of a source of each scope; sources are taken to be equally frequent."""
        return np.asarray(self.scopes.lengths / max(1, len(np.unique(self.scopes.values))))

    @property
    def marked_groups(self) -> Array:
        """The groups as an assignment keeps them: negative where they must not be divided."""
        sizes = np.bincount(self.clumps)
        whole = np.zeros(self.group_count, dtype=bool)
        whole[self.groups[sizes[self.clumps] > 1]] = True
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
    """Weigh the queries of a plan.

    `conditions` gives for every predicate the router's condition that it implies, `shares` the part of the items that
    satisfies each. `matches` are measured matches for an item, by position in `logical.query_ids` (NaN: not known);
    `operator_milliseconds` what a call of an operator takes, by its name.
    """
    plan = _Weighing(logical, atoms, anchors, conditions.astype(np.int64), shares)
    emitted = plan.rates if matches is None else np.where(np.isnan(matches), plan.rates, matches)
    # What comes to be decided is what filters let through, however little of it matches in the end.
    questions = find_questions(logical, plan.owner_of, plan.rates, operator_milliseconds or {})
    shared, shared_microseconds = plan.shared(questions)
    own = EMIT * np.bincount(plan.owner_of, weights=emitted, minlength=len(plan.owners))
    users = np.maximum(1, np.bincount(shared.values, minlength=len(shared_microseconds)))
    filtering = own + _by_row(shared, np.where(plan.is_target(len(users)), shared_microseconds / users, 0.0))
    groups, order, clumps = plan.arranged(questions, filtering)
    root_shares, topics = np.minimum(1.0, shares[plan.root_conditions]), plan.near.topics[plan.root_conditions]
    return Weights(
        owners=plan.owners,
        microseconds=own + _by_row(shared, shared_microseconds / users),
        bytes=plan.bytes(shared, users),
        groups=groups,
        order=order,
        clumps=clumps,
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
    """The part of the items that is about each topic: at most one for each item."""
    known = topics >= 0
    found = np.bincount(topics[known], weights=shares[known])
    return np.asarray(found / max(1.0, float(found.sum())))


def per_block(shares: Array) -> Array:
    """The part of an item in walking entries that so many items have: a block of items walks an entry once."""
    return np.asarray((1.0 - (1.0 - shares) ** BLOCK) / BLOCK)


def _by_row(rows: Rows, weights: Array) -> Array:
    """For every row the weights of its values, summed up."""
    owners = np.repeat(np.arange(len(rows)), rows.lengths)
    return np.bincount(owners, weights=weights[rows.values], minlength=len(rows))


class _Weighing:
    """What a plan's targets cost, and whose they are."""

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
        self.near = place_conditions(logical, atoms, anchors, conditions, len(shares))
        self.key_shares = np.minimum(1.0, atoms.key_shares.astype(np.float64))
        members = np.repeat(np.arange(len(logical.targets)), logical.targets.lengths)
        places = logical.targets.values.astype(np.int64)
        self.rates = np.minimum(
            1.0, np.bincount(places, weights=self._target_rates[members], minlength=len(logical.query_ids))
        )
        pairs = np.unique(self.owner_of[places] * max(1, len(logical.targets)) + members)
        self._pair_owners, self._pair_targets = np.divmod(pairs, max(1, len(logical.targets)))
        patterns = atoms.keys_of(PATTERN_KEY)
        self._is_pattern = np.isin(atoms.atom_keys, patterns)
        own = COPY if len(patterns) < len(atoms.key_tokens) or not len(patterns) else 0.0
        self.copy = own + sum(cover_of(family).copy_microseconds for family in atoms.families())

    def _predicate_rates(self) -> Array:
        """The part of the items that is expected to satisfy each predicate."""
        predicates = self._logical.predicates
        shares = np.clip(self._anchors.clause_shares, 1e-12, 1.0)
        return np.exp(_by_row(predicates, np.log(shares)))

    def keys_of_roots(self) -> Rows:
        """The keys by which the predicate that stands for a root's condition is found."""
        owners, keys = self._anchors.keys.expand(self.near.predicates[self.root_conditions])
        return Rows(offsets_of(np.bincount(owners, minlength=len(self.root_conditions))), keys.astype(np.int64))

    def is_target(self, count: int) -> Array:
        """Which of so many things that are shared are targets."""
        return np.arange(count) < len(self._logical.targets)

    def shared(self, questions: OperatorQuestions) -> tuple[Rows, Array]:
        """What queries share with others, and what that costs for an item."""
        targets = len(self._logical.targets)
        owners = np.concatenate([self._pair_owners, questions.owners])
        values = np.concatenate([self._pair_targets, questions.numbers + targets])
        rows = Rows.grouped(owners, values, len(self.owners))
        return rows, np.concatenate([self._found() + self._evaluated(), questions.microseconds])

    def _found(self) -> Array:
        """By target the microseconds to find it: what has no keys is asked of all items, and mostly about numbers."""
        predicates = self._logical.target_predicates.astype(np.int64)
        owners, keys = self._anchors.keys.expand(predicates)
        shares = self.key_shares[keys] * self._target_parts[owners]
        entries = np.bincount(owners, weights=per_block(shares), minlength=len(predicates))
        lone = self._anchors.keys.lengths[predicates] == 0
        return np.where(lone, (EACH_NUMBER + ENTRY / BLOCK) * self._target_parts, ENTRY * entries)

    def _evaluated(self) -> Array:
        """By target the microseconds of item patterns, and of what only the evaluator knows."""
        patterns, others = self._atoms_of_predicates()
        slow = (self._logical.predicate_formulas != EXACT) | (others > 0)
        costs = PATTERN * patterns + EACH_EVALUATION * self._rates * slow
        return np.asarray(costs[self._logical.target_predicates] * self._target_parts)

    def _atoms_of_predicates(self) -> tuple[Array, Array]:
        """How many item patterns each predicate has, and how many atoms that only the evaluator knows."""
        literals = self._logical.clauses.values >> 1
        clause_of = np.repeat(np.arange(len(self._logical.clauses)), self._logical.clauses.lengths)
        others = self._atoms.atom_kinds == TestKind.OTHER
        counts = (
            np.bincount(clause_of, weights=flags[literals], minlength=len(self._logical.clauses))
            for flags in (self._is_pattern, others)
        )
        patterns, evaluated = (_by_row(self._logical.predicates, count) for count in counts)
        return patterns, evaluated

    def arranged(self, questions: OperatorQuestions, filtering: Array) -> tuple[Array, Array, Array]:
        """The group of every query, its place on the line, and its clump; `filtering` is its cost without operators.

        A group is a root, or those who must stay together because of operators, whatever their roots.
        """
        heaviest, lines = self._heaviest(), self._root_places()
        roots = np.full(len(heaviest), len(self.root_conditions), dtype=np.int64)
        roots[heaviest >= 0] = self.roots[heaviest[heaviest >= 0]]
        sets, asked = _dear(questions, filtering)
        numbers = np.arange(len(heaviest))
        _, groups = np.unique(np.where(asked >= 0, len(lines) + sets, roots), return_inverse=True)
        _, clumps = np.unique(np.where(asked >= 0, len(numbers) + asked, numbers), return_inverse=True)
        first = np.full(int(groups.max(initial=-1)) + 1, len(lines), dtype=np.int64)
        np.minimum.at(first, groups, lines[roots])
        order = np.empty(len(groups), dtype=np.int64)
        order[np.lexsort((lines[roots], asked, groups, first[groups]))] = numbers
        return groups, order, clumps

    def _root_places(self) -> Array:
        """The place of every root on the line, near those of the same sources; behind them, that of no root."""
        places = np.empty(len(self.root_conditions) + 1, dtype=np.int64)
        scopes = scope_order(self._logical.scopes)[self.root_scopes]
        order = np.lexsort((self.near.places[self.root_conditions], scopes))
        places[np.append(order, len(order))] = np.arange(len(places))
        return places

    def _heaviest(self) -> Array:
        """Of every query the target that most items satisfy, or -1."""
        order = np.lexsort((-self._pair_targets, self._target_rates[self._pair_targets]))
        found = np.full(len(self.owners), -1, dtype=np.int64)
        found[self._pair_owners[order]] = self._pair_targets[order]  # of several, the last stays
        return found

    def bytes(self, shared: Rows, users: Array) -> Array:
        """About how many bytes of a plan each query takes; what is shared counts in parts."""
        logical = self._logical
        literals = logical.clauses.values >> 1
        clause_of = np.repeat(np.arange(len(logical.clauses)), logical.clauses.lengths)
        atom_users = np.maximum(1, np.bincount(literals, minlength=len(logical.atoms)))
        texts = (np.diff(logical.atoms.offsets) + _ATOM_BYTES) / atom_users
        clauses = np.bincount(clause_of, weights=_LITERAL_BYTES + texts[literals], minlength=len(logical.clauses))
        clause_users = np.maximum(1, np.bincount(logical.predicates.values, minlength=len(clauses)))
        targets = _TARGET_BYTES + _by_row(logical.predicates, clauses / clause_users)[logical.target_predicates]
        known = np.zeros(len(users))
        known[: len(targets)] = targets / users[: len(targets)]
        return np.asarray(16.0 + _by_row(shared, known))


def _dear(questions: OperatorQuestions, filtering: Array) -> tuple[Array, Array]:
    """Who must stay together because of an operator: a number for each set, and the question for its members, or -1.

    Dividing those who ask a question can save at most what their filters cost, and asks the question once more.
    """
    saved = np.bincount(questions.numbers, weights=filtering[questions.owners], minlength=len(questions.microseconds))
    dear = questions.microseconds > saved
    chosen = dear[questions.numbers]
    owners, numbers = questions.owners[chosen], questions.numbers[chosen]
    sets = components(owners, numbers + len(filtering), len(filtering) + len(dear))[: len(filtering)]
    asked = np.full(len(filtering), -1, dtype=np.int64)
    order = np.argsort(questions.microseconds[numbers], kind="stable")
    asked[owners[order]] = numbers[order]  # of several, the dearest stays
    return sets, asked
