"""Match the tree patterns of a plan part. In: a batch. Out: the keys of the patterns that hold, and solutions."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

import numpy as np

from runnel.algebra.nodes.item_patterns import Solution
from runnel.algebra.trees.steps import MAX_STEPS
from runnel.algebra.trees.tree_patterns import TreePattern
from runnel.algebra.trees.tree_solutions import plain_value, solve
from runnel.arrays import Array
from runnel.errors import TooExpensiveError
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.patterns.contract import PatternKeys
from runnel.matching.trees.read_trees import NodeReader, read_trees, trees_in
from runnel.matching.trees.tree_kernel import STATES, NodeArrays, Scratch, match_tree
from runnel.matching.trees.tree_layout import TreeLayout
from runnel.model.item import Value
from runnel.model.trees.tree_nodes import TreeNodes

MOST_WORK = 4_000_000
"""Maximum work on one pattern and one tree: nodes times operations."""

MOST_WORK_PER_TREE = 50_000_000
"""Maximum work on all patterns of a plan part and one tree."""

MOST_SOLUTIONS = 10_000
"""Maximum number of solutions of a pattern that are read for one tree."""

_LISTS = 2 + MAX_STEPS
"""Least space in the arena, in lists of all nodes: the two at its beginning, and one for every step of a pattern."""

_LEAST_SPACE = 1 << 20
"""Least space in the arena, so that the lists of most patterns are kept while a small tree is matched."""

_CACHED_PATTERNS = 4096


@dataclass
class TreeSolutions:
    """The solutions of pairs of a row and an atom, in sets of one tree each, as numbers of values."""

    pairs: Array
    is_whole: Array
    _sets: list[Array] = field(default_factory=list)
    _values: list[str] = field(default_factory=list)

    def rows(self, number: int) -> Array:
        """Return a set of solutions by its number."""
        return self._sets[number]

    def value(self, number: int) -> Value:
        """Return the plain value with a number."""
        return plain_value(self._values[number])


class TreePart:
    """The matcher of the tree patterns of one plan part, on its mapped arrays."""

    def __init__(
        self, layout: TreeLayout, atom_keys: Array, *, most: int = MOST_WORK, most_per_tree: int = MOST_WORK_PER_TREE
    ) -> None:
        self.layout = layout
        self._reader = NodeReader(layout)
        self._atom_keys = atom_keys
        self._by_key = np.argsort(layout.keys, kind="stable")
        self._most, self._most_per_tree = most, most_per_tree

    def keys(self, columns: ItemColumns) -> PatternKeys:
        """Return the rows of a batch and the patterns that match them."""
        rows, positions = trees_in(columns)
        found, doubted = _Pairs(), _Pairs()
        scratch: Scratch | None = None
        for row, nodes in zip(rows.tolist(), read_trees(columns, positions), strict=True):
            arrays = self._reader.read(nodes)
            scratch = _fit_scratch(scratch, self.layout, len(nodes))
            holding, undecided = self._match(arrays, nodes, scratch)
            found.add(row, self.layout.keys[holding])
            doubted.add(row, self.layout.keys[undecided])
        return PatternKeys(*found.distinct(), *doubted.without(found))

    def _match(self, arrays: NodeArrays, nodes: TreeNodes, scratch: Scratch) -> tuple[Array, Array]:
        """Return the patterns that hold for a tree, and those that are not decided."""
        found, doubted = (np.empty(len(self.layout), dtype=np.int32) for _ in range(2))
        counts = match_tree(self.layout.plan_arrays, arrays, scratch, self._most, self._most_per_tree, found, doubted)
        holding, undecided = found[: counts[0]], doubted[: counts[1]]
        approximate = self.layout.approximate[holding] != 0
        if not np.any(approximate):
            return holding, undecided
        verdicts = [(number, self._decide(number, nodes)) for number in holding[approximate].tolist()]
        exact = [number for number, verdict in verdicts if verdict]
        unknown = [number for number, verdict in verdicts if verdict is None]
        return (
            np.concatenate([holding[~approximate], np.array(exact, dtype=np.int32)]),
            np.concatenate([undecided, np.array(unknown, dtype=np.int32)]),
        )

    def _decide(self, number: int, nodes: TreeNodes) -> bool | None:
        """Return whether an approximate pattern holds, by its definition, or None if that takes too many attempts."""
        try:
            return next(solve(self.pattern(number).condition, nodes), None) is not None
        except TooExpensiveError:
            return None

    def pattern(self, number: int) -> TreePattern:
        """Return the pattern with a number in the layout."""
        return _decoded(self.layout.encoded.text(number))

    def solutions(self, columns: ItemColumns, rows: Array, atoms: Array, named: Array | None = None) -> TreeSolutions:
        """Return the solutions of atoms on rows of a batch, one set for every tree of the row."""
        tree_rows, positions = trees_in(columns)
        trees = list(read_trees(columns, positions))
        first, last = (np.searchsorted(tree_rows, rows, side=side).tolist() for side in ("left", "right"))
        numbers = self._by_key[np.searchsorted(self.layout.keys[self._by_key], self._atom_keys[atoms])].tolist()
        values: dict[str, int] = {}
        pairs, wholes, sets = list[int](), list[bool](), list[Array]()
        for pair, number in enumerate(numbers):
            pattern = self.pattern(number)
            for tree in trees[first[pair] : last[pair]]:
                solutions, is_whole = first_solutions(pattern, tree)
                pairs.append(pair)
                wholes.append(is_whole)
                sets.append(_number_values(pattern, solutions, values))
        return TreeSolutions(np.array(pairs, dtype=np.int64), np.array(wholes, dtype=np.bool_), sets, list(values))


def first_solutions(pattern: TreePattern, nodes: TreeNodes) -> tuple[list[Solution], bool]:
    """Return the solutions of a pattern on a tree within the limits, and whether these are all."""
    solutions: list[Solution] = []
    try:
        solutions.extend(islice(solve(pattern.condition, nodes), MOST_SOLUTIONS))
    except TooExpensiveError:
        return solutions, False
    return solutions, len(solutions) < MOST_SOLUTIONS


def _number_values(pattern: TreePattern, solutions: list[Solution], values: dict[str, int]) -> Array:
    """Return solutions as numbers of their values, in the order of the canonical variables."""
    variables = [str(number) for number in range(1, len(pattern.variables()) + 1)]
    rows = [[values.setdefault(solution[name], len(values)) for name in variables] for solution in solutions]
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(variables))


@lru_cache(maxsize=_CACHED_PATTERNS)
def _decoded(encoded: str) -> TreePattern:
    return TreePattern.decode(json.loads(encoded))


def _fit_scratch(scratch: Scratch | None, layout: TreeLayout, nodes: int) -> Scratch:
    """Return scratch arrays that are large enough for a tree: the given ones, or new ones."""
    if scratch is not None and scratch.masks.shape[1] >= nodes:
        return scratch
    return Scratch(
        memo=np.zeros((len(layout.steps), 3), dtype=np.int32),
        present=np.zeros(len(layout.features), dtype=np.int32),
        seen=np.empty(len(layout.features), dtype=np.int32),
        arena=np.empty(max(_LISTS * nodes, _LEAST_SPACE), dtype=np.int32),
        masks=np.empty((layout.height, nodes), dtype=np.bool_),
        marks=np.zeros(nodes, dtype=np.int32),
        state=np.zeros(STATES, dtype=np.int64),
    )


class _Pairs:
    """Pairs of a row and a key. The row of an item with several trees is added several times."""

    def __init__(self) -> None:
        self._rows: list[Array] = []
        self._keys: list[Array] = []

    def add(self, row: int, keys: Array) -> None:
        """Add the keys of one tree."""
        if len(keys):
            self._rows.append(np.full(len(keys), row, dtype=np.int64))
            self._keys.append(keys)

    def distinct(self) -> tuple[Array, Array]:
        """Return the rows and keys without repetitions."""
        if not self._rows:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        pairs = np.unique(np.stack([np.concatenate(self._rows), np.concatenate(self._keys)], axis=1), axis=0)
        return pairs[:, 0], pairs[:, 1]

    def without(self, others: _Pairs) -> tuple[Array, Array]:
        """Return the distinct pairs that are not in `others`."""
        rows, keys = self.distinct()
        known = set(zip(*(array.tolist() for array in others.distinct()), strict=True)) if len(rows) else set()
        kept = [pair not in known for pair in zip(rows.tolist(), keys.tolist(), strict=True)]
        return rows[kept], keys[kept]
