"""Workloads of filters: items of words with Zipf frequencies, and queries in conjunctive normal form over them.

Everything is drawn from seeds with array operations, so that a million queries take seconds and are the same
everywhere. A `QuerySet` gives the same queries as a logical plan, as expressions, as statements and as lines for
other systems; `Items` gives items as batches and as JSON lines. All queries read one source feed.

The workloads differ in how the words of queries are drawn: H in proportion to their document frequency, M to its
square root, both without the 150 most frequent words; S to the square root, without the 2,000 most frequent ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from benchmarks.item_batches import batch_of
from benchmarks.shared_rows import ascending, distinct_rows
from benchmarks.zipf import LONGEST, SHORTEST, VOCABULARY, document_frequencies, draw, vocabulary, word_probabilities

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.encode import encode_expression
from runnel.algebra.nodes.expressions import (
    And,
    Atom,
    Between,
    Compare,
    Contains,
    ContainsPattern,
    Expression,
    Not,
    Or,
)
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.arrays import IDENTIFIER, Array, Rows, Texts, offsets_of
from runnel.model.item_batch import ItemBatch
from runnel.plan.logical_plan import EXACT, LogicalPlan, PlanQuery

Kind = Literal["H", "M", "S"]
KINDS: tuple[Kind, ...] = ("H", "M", "S")

SOURCE = 1
"""The catalog id of the one source feed, `News`."""

FIRST_QUERY = 2
"""The catalog id of the query Q1; the others follow."""

NUMBERS = ("price", "score", "day", "source")
"""The attributes that hold a number; the words are in `text`."""

_UNBOUNDED = np.inf
_SKIPPED: Mapping[Kind, int] = {"H": 150, "M": 150, "S": 2000}


def frequencies() -> dict[str, float]:
    """The part of all items that hold a word, by word: what statistics of the stream would have learned."""
    return dict(zip(vocabulary(), document_frequencies().tolist(), strict=True))


# ---- queries ----


@dataclass(frozen=True)
class QuerySet:
    """Queries as arrays: `queries` are rows of clause numbers, `clauses` rows of literals (atom * 2 + negated).

    Clauses and atoms are distinct; a row is ascending, without repetition. Query number k (from 0) is the feed
    `Q{k + 1}` with the catalog id `FIRST_QUERY + k`.
    """

    atoms: tuple[Atom, ...]
    clauses: Rows
    queries: Rows
    feed: str = "News"

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def query_ids(self) -> Array:
        """The catalog ids of the queries."""
        return np.arange(FIRST_QUERY, FIRST_QUERY + len(self), dtype=np.int64)

    def head(self, count: int) -> QuerySet:
        """Return the first queries, with the clauses and atoms that they use."""
        owners, members = self.queries.expand(np.arange(min(count, len(self))))
        kept, clauses = np.unique(members, return_inverse=True)
        clause_owners, literals = self.clauses.expand(kept)
        atoms, numbers = np.unique(literals >> 1, return_inverse=True)
        literals = (2 * numbers + (literals & 1)).astype(IDENTIFIER)
        return QuerySet(
            tuple(self.atoms[atom] for atom in atoms.tolist()),
            Rows(offsets_of(np.bincount(clause_owners, minlength=len(kept))), literals),
            Rows(offsets_of(np.bincount(owners, minlength=min(count, len(self)))), clauses.astype(IDENTIFIER)),
            self.feed,
        )

    def logical(self) -> LogicalPlan:
        """The logical plan of the queries, as the optimiser would make it (ids may be in another order)."""
        predicates, members = distinct_rows(self.queries)
        return LogicalPlan(
            atoms=Texts.of(json.dumps(encode_expression(atom), separators=(",", ":")) for atom in self.atoms),
            clauses=self.clauses,
            predicates=predicates,
            predicate_formulas=np.full(len(predicates), EXACT, dtype=IDENTIFIER),
            formula_kinds=np.empty(0, dtype=np.uint8),
            formulas=Rows.of([]),
            scopes=Rows.of([[SOURCE]], np.int64),
            target_predicates=np.arange(len(predicates), dtype=IDENTIFIER),
            target_scopes=np.zeros(len(predicates), dtype=IDENTIFIER),
            targets=Rows.grouped(members, np.arange(len(self), dtype=IDENTIFIER), len(predicates)),
            query_ids=self.query_ids,
            query_since=np.zeros(len(self), dtype=np.int64),
        )

    def plan_queries(self) -> list[PlanQuery]:
        """The queries for the optimiser and the scan matcher."""
        return [PlanQuery(query) for query in self.query_ids.tolist()]

    def expressions(self) -> Iterator[Expression]:
        """The conditions of the queries, in order."""
        clauses = [self._clause(literals) for literals in self.clauses.lists()]
        for numbers in self.queries.lists():
            parts = tuple(clauses[number] for number in numbers)
            yield parts[0] if len(parts) == 1 else And(parts)

    def _clause(self, literals: list[int]) -> Expression:
        parts = tuple(
            Not(self.atoms[literal >> 1]) if literal & 1 else self.atoms[literal >> 1] for literal in literals
        )
        return parts[0] if len(parts) == 1 else Or(parts)

    def definitions(self) -> dict[int, Node]:
        """The nodes of the queries by catalog id."""
        source = Read(SOURCE)
        return {
            FIRST_QUERY + number: Filter(source, expression) for number, expression in enumerate(self.expressions())
        }

    def statements(self) -> Iterator[str]:
        """The queries in the language, one statement each, without the last semicolon."""
        atoms = [_written(atom) for atom in self.atoms]
        clauses = []
        for literals in self.clauses.lists():
            parts = [f"not {atoms[literal >> 1]}" if literal & 1 else atoms[literal >> 1] for literal in literals]
            clauses.append(parts[0] if len(parts) == 1 else f"({' or '.join(parts)})")
        for number, row in enumerate(self.queries.lists(), start=1):
            yield f"create feed Q{number} from {self.feed} where {' and '.join(clauses[value] for value in row)}"

    @cached_property
    def shape(self) -> dict[str, float]:
        """What the queries look like, in figures."""
        count = max(1, len(self))
        return {
            "queries": len(self),
            "clauses_per_query": len(self.queries.values) / count,
            "literals_per_query": float(self.clauses.lengths[self.queries.values].sum()) / count,
            "distinct_clauses": len(self.clauses),
            "distinct_atoms": len(self.atoms),
        }


def make_queries(kind: Kind, count: int, seed: int = 7) -> QuerySet:
    """Queries of 1 to 3 clauses of 1 to 5 words; a fifth have exclusions, a fifth a range of a number.

    In H and M 1 % of the clauses contain a negated word next to others, and two queries in a thousand have no word
    at all; in S, whose queries are specific, none. No word is twice in a query, so that the conditions are already
    as simple as they can be.
    """
    generator = np.random.default_rng([seed, KINDS.index(kind)])
    positive = generator.integers(1, 4, count)
    excluded = np.where(generator.random(count) < 0.2, generator.integers(1, 3, count), 0)
    ranged = generator.random(count) < 0.2
    wordless = (generator.random(count) < 0.002) & (kind != "S")
    positive[wordless], excluded[wordless], ranged[wordless] = 0, 0, True
    sizes = positive + excluded + ranged
    query_of = np.repeat(np.arange(count), sizes)
    place = np.arange(len(query_of)) - offsets_of(sizes)[query_of]
    is_range = place >= (positive + excluded)[query_of]
    is_positive = place < positive[query_of]
    lengths = np.where(is_positive, generator.integers(1, 6, len(query_of)), 1)
    clause_of = np.repeat(np.arange(len(query_of)), lengths)
    words = ~is_range[clause_of]
    atoms = np.empty(len(clause_of), dtype=np.int64)
    atoms[words] = _different_words(generator, kind, query_of[clause_of[words]])
    ranges, atoms[~words] = _draw_ranges(generator, int(np.count_nonzero(~words)))
    mixed = is_positive & (lengths > 1) & (generator.random(len(query_of)) < 0.01)
    mixed &= kind != "S"
    first = np.zeros(len(clause_of), dtype=bool)
    first[offsets_of(lengths)[:-1]] = True
    negated = (~is_positive & ~is_range)[clause_of] | (first & mixed[clause_of])
    return _shared(ranges, 2 * atoms + negated, Rows(offsets_of(lengths), clause_of), offsets_of(sizes))


def _different_words(generator: np.random.Generator, kind: Kind, owners: Array) -> Array:
    """A word for each place; a query (by `owners`) has none twice."""
    weights = document_frequencies().copy() if kind == "H" else np.sqrt(document_frequencies())
    weights[: _SKIPPED[kind]] = 0.0
    words = draw(generator, weights, len(owners))
    places = np.arange(len(owners))
    while True:
        pairs = owners[places] * VOCABULARY + words[places]
        order = np.argsort(pairs, kind="stable")
        again = places[order[1:][pairs[order[1:]] == pairs[order[:-1]]]]
        if not len(again):
            return words
        words[again] = draw(generator, weights, len(again))
        # Only the queries that were changed can have a word twice now.
        places = np.flatnonzero(np.bincount(owners[again], minlength=owners[-1] + 1)[owners])


def _draw_ranges(generator: np.random.Generator, count: int) -> tuple[tuple[Atom, ...], Array]:
    """The distinct ranges of numbers, and for each place the number of its range, from VOCABULARY on."""
    attribute = generator.integers(0, len(NUMBERS), count)
    lows = np.choose(
        attribute,
        [
            generator.integers(0, 40, count) * 10,
            generator.integers(0, 100, count),
            generator.integers(0, 3650 // 7, count) * 7,
            _sources(generator, count),
        ],
    )
    widths = np.choose(
        attribute,
        [
            generator.choice([20, 50, 100, _UNBOUNDED], count),
            generator.choice([5, 20, _UNBOUNDED], count),
            generator.choice([7, 30, 365, _UNBOUNDED], count),
            np.zeros(count),
        ],
    )
    table, numbers = np.unique(np.stack([attribute, lows, lows + widths], axis=1), axis=0, return_inverse=True)
    return tuple(_range_atom(*row) for row in table.tolist()), VOCABULARY + numbers.reshape(-1)


def _range_atom(attribute: float, low: float, high: float) -> Atom:
    looked_at = Attribute(NUMBERS[int(attribute)])
    if low == high:
        return Compare(looked_at, "=", low)
    return Compare(looked_at, ">=", low) if high == _UNBOUNDED else Between(looked_at, low, high)


def _sources(generator: np.random.Generator, count: int) -> Array:
    return np.minimum(generator.zipf(1.3, count), 1000) - 1


def _shared(ranges: tuple[Atom, ...], literals: Array, members: Rows, query_offsets: Array) -> QuerySet:
    """What was drawn, each distinct atom once."""
    used, numbers = np.unique(literals >> 1, return_inverse=True)
    words = vocabulary()
    text = Attribute("text")
    atoms = tuple(
        Contains(text, (words[atom],)) if atom < VOCABULARY else ranges[atom - VOCABULARY] for atom in used.tolist()
    )
    renumbered = (2 * numbers + (literals & 1)).astype(IDENTIFIER)
    return query_set(atoms, Rows(members.offsets, renumbered), query_offsets)


def query_set(atoms: tuple[Atom, ...], clauses: Rows, query_offsets: Array, feed: str = "News") -> QuerySet:
    """Queries from the clauses of each in turn; equal clauses become one."""
    distinct, numbers = distinct_rows(ascending(clauses))
    return QuerySet(atoms, distinct, ascending(Rows(query_offsets, numbers.astype(IDENTIFIER))), feed)


def _written(atom: Atom) -> str:
    match atom:
        case Contains(attribute, words):
            return f"{attribute.name} contains '{' '.join(words)}'"
        case Between(attribute, low, high):
            return f"{attribute.name} between {low:g} and {high:g}"
        case Compare(attribute, operator, str(constant)):
            return f"{attribute.name} {operator} '{constant}'"
        case Compare(attribute, operator, constant):
            return f"{attribute.name} {operator} {constant:g}"
        case ContainsPattern(attribute, patterns):
            return f"{attribute.name} contains pattern '{' '.join(patterns)}'"
        case _:
            raise ValueError(f"the workloads have no {atom!r}")


def spread(logical: LogicalPlan, sources: int) -> LogicalPlan:
    """The same queries over many sources, from SOURCE on: each asks one of them, in turn."""
    predicates = np.repeat(logical.target_predicates, logical.targets.lengths).astype(np.int64)
    queries = logical.targets.values
    targets, numbers = np.unique(predicates * sources + queries % sources, return_inverse=True)
    return replace(
        logical,
        scopes=Rows.of([[SOURCE + source] for source in range(sources)], np.int64),
        target_predicates=(targets // sources).astype(IDENTIFIER),
        target_scopes=(targets % sources).astype(IDENTIFIER),
        targets=Rows.grouped(numbers, queries, len(targets)),
    )


# ---- items ----


def over_sources(items: ItemBatch, sources: int, seed: int) -> ItemBatch:
    """The same items, each from one of many sources."""
    feeds = SOURCE + np.random.default_rng([seed, 3]).integers(0, sources, len(items))
    place = items.records.schema.get_field_index("feed")
    return ItemBatch(items.records.set_column(place, items.records.schema.field(place), pa.array(feeds)))


@dataclass(frozen=True)
class Items:
    """Items of 60 to 300 words (182 on average, 144 different) and four numbers; `words` are rows of word numbers."""

    words: Rows
    numbers: Array

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def texts(self) -> pa.Array:
        """The texts of the items."""
        words = pa.array(vocabulary()).take(pa.array(self.words.values))
        return pa.compute.binary_join(pa.ListArray.from_arrays(pa.array(self.words.offsets, pa.int32()), words), " ")

    def batch(self, start: int = 0, stop: int | None = None) -> ItemBatch:
        """Return the first items (all by default) as a batch. The first item has the sequence 1."""
        stop = len(self) if stop is None else min(stop, len(self))
        numbers = {name: self.numbers[start:stop, column] for column, name in enumerate(NUMBERS)}
        texts = {"text": self.texts.slice(start, stop - start)}
        return batch_of(texts, numbers, source=SOURCE, first=start + 1)

    def batches(self, size: int) -> list[ItemBatch]:
        """The items in batches of a size."""
        return [self.batch(start, start + size) for start in range(0, len(self), size)]

    def head(self, count: int) -> Items:
        """Return the first items."""
        offsets = self.words.offsets[: count + 1]
        return Items(Rows(offsets, self.words.values[: offsets[-1]]), self.numbers[:count])

    def records(self) -> Iterator[dict[str, Any]]:
        """The items as JSON values."""
        for number, (text, row) in enumerate(zip(self.texts.to_pylist(), self.numbers.tolist(), strict=True), 1):
            yield {"id": f"item-{number}", "text": text, **dict(zip(NUMBERS, row, strict=True))}


def make_items(count: int, seed: int = 1) -> Items:
    """Items whose words follow Zipf's law, with prices, scores, days and sources."""
    generator = np.random.default_rng([seed, 1])
    lengths = generator.integers(SHORTEST, LONGEST + 1, count)
    words = draw(generator, word_probabilities(), int(lengths.sum())).astype(IDENTIFIER)
    columns = [
        np.round(generator.lognormal(4, 1, count), 2),
        generator.integers(0, 100, count),
        generator.integers(0, 3650, count),
        _sources(generator, count),
    ]
    return Items(Rows(offsets_of(lengths), words), np.stack(columns, axis=1).astype(np.float64))
