"""Generated plans with related predicates, for testing subsumption, and their conditions as expressions."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from hypothesis import strategies as st
from tests.unit.matching.graphs.generated_graphs import graphs, patterns
from tests.unit.optimizer.generated_worlds import NAMES, SOURCES, GeneratedWorld, worlds
from tests.unit.scaleout.anchored_worlds import anchored_worlds

from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.encode import decode_expression
from runnel.algebra.nodes.expressions import (
    FALSE,
    TRUE,
    And,
    Atom,
    Between,
    Compare,
    Contains,
    Expression,
    In,
    Not,
    Or,
)
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.algebra.semantics.evaluate import holds
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_logical
from runnel.matching.filters.atoms.anchors import Anchors, choose_anchors
from runnel.matching.filters.atoms.atom_layout import AtomLayout, compute_atom_layout
from runnel.model.graph import GRAPH
from runnel.model.item import Item, Value
from runnel.optimizer.optimize import optimize
from runnel.optimizer.optimizer_settings import OptimizerSettings
from runnel.plan.logical_plan import LogicalPlan, PlanQuery
from runnel.plan.store import PlanVersion, load
from runnel.storage.file_storage import FileStorage

TITLE, PRICE = Attribute("title"), Attribute("price")
TINY = OptimizerSettings(max_clauses=2, max_literals=3, max_constants=1)

_folders = itertools.count()
_root = tempfile.TemporaryDirectory(prefix="runnel-routers-")
STORAGE = FileStorage(Path(_root.name).as_uri())


@dataclass(frozen=True)
class LaidOutPlan:
    """A logical plan with the layout of its atoms and anchors."""

    logical: LogicalPlan
    atoms: AtomLayout
    anchors: Anchors


def laid_out(definitions: Mapping[int, Node], limits: OptimizerSettings | None = None) -> LaidOutPlan:
    """Compile definitions, all of which are queries, to a logical plan."""
    logical = optimize([PlanQuery(definition) for definition in definitions], definitions, settings=limits)
    atoms = compute_atom_layout(logical)
    return LaidOutPlan(logical, atoms, choose_anchors(logical, atoms))


def asking(*conditions: Expression, source: int = 1) -> dict[int, Node]:
    """Return queries over one source, numbered from 10 on."""
    return {number: Filter(Read(source), condition) for number, condition in enumerate(conditions, 10)}


def word(*words: str) -> Expression:
    """Return the condition that the title contains a phrase."""
    return Contains(TITLE, words)


def clause_expression(logical: LogicalPlan, clause: int) -> Expression:
    """Return a clause of the plan as an expression."""
    literals = logical.clauses.row(clause).tolist()
    expressions = [decode_expression(json.loads(logical.atoms.text(value >> 1))) for value in literals]
    parts = [Not(atom) if literal & 1 else atom for literal, atom in zip(literals, expressions, strict=True)]
    return parts[0] if len(parts) == 1 else Or(tuple(parts)) if parts else FALSE


def conjunction(parts: Sequence[Expression]) -> Expression:
    """Return the conjunction of expressions."""
    return parts[0] if len(parts) == 1 else And(tuple(parts)) if parts else TRUE


def condition_of(logical: LogicalPlan, predicate: int) -> Expression:
    """Return the clauses of a predicate as an expression."""
    return conjunction([clause_expression(logical, value) for value in logical.predicates.row(predicate).tolist()])


def atom_of(text: str) -> Atom:
    """Decode an atom from its stored text."""
    return cast(Atom, decode_expression(json.loads(text)))


def satisfied(condition: Expression, items: Sequence[Item]) -> set[int]:
    """Return which items satisfy a condition, according to the reference evaluator."""
    return {index for index, item in enumerate(items) if holds(condition, item.attributes, item.time)}


def routed_to(router: LogicalPlan, world: GeneratedWorld) -> list[set[int]]:
    """Write, load and match a router's plan, and return the partitions that each item goes to."""
    folder = f"router-{next(_folders)}"
    compile_logical(STORAGE, folder, router)
    matches = build_matcher(load(STORAGE, PlanVersion(1, folder))).match(world.batch)
    assert not matches.failures
    return [{value - 1 for value in matches.row(row).tolist()} for row in range(len(matches))]


_words = st.sampled_from([("rock",), ("rock", "concert"), ("concert",), ("a", "b"), ("b",), ("zebra",)])
_bounds = st.sampled_from([-1.0, 0.0, 1.0, 2.5, 7.0])
_atoms: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Contains, st.just(TITLE), _words),
    st.builds(Contains, st.just(TITLE), _words),
    st.builds(Compare, st.just(PRICE), st.sampled_from(["<", "<=", ">", ">=", "="]), _bounds),
    st.builds(Between, st.just(PRICE), _bounds, _bounds),
    st.builds(In, st.just(PRICE), st.lists(_bounds, min_size=1, max_size=3).map(tuple)),
    patterns().map(Graph.canonical),
)
_literals = st.one_of(_atoms, _atoms, _atoms, _atoms.map(Not))
_clauses = st.lists(_literals, min_size=1, max_size=3).map(lambda parts: Or(tuple(parts)))
_predicates = st.lists(_clauses, min_size=1, max_size=3).map(lambda parts: And(tuple(parts)))


@st.composite
def _items(draw: st.DrawFn) -> Item:
    titles = st.sampled_from(["rock", "Rock concert", "concert rock", "a b a b", "zebra", ""])
    attributes: dict[str, tuple[Value, ...]] = {
        "title": tuple(draw(st.lists(titles, max_size=2))),
        "price": tuple(draw(st.lists(st.sampled_from([-1.0, 0.5, 1.0, 2.5, 3.0, 7.0, 9.0]), max_size=2))),
        GRAPH: tuple(draw(st.lists(graphs, max_size=1))),
    }
    held = {name: values for name, values in attributes.items() if values}
    return Item(draw(st.sampled_from(sorted(NAMES.values()))), "item", held)


@st.composite
def related_worlds(draw: st.DrawFn) -> GeneratedWorld:
    """Generate similar queries: words, phrases, ranges and graph patterns over few values."""
    conditions = draw(st.lists(_predicates, min_size=1, max_size=8))
    definitions: dict[int, Node] = {
        number: Filter(Read(draw(st.sampled_from(SOURCES[:2]))), condition)
        for number, condition in enumerate(conditions, 10)
    }
    return GeneratedWorld(definitions, tuple(draw(st.lists(_items(), max_size=8))))


all_worlds: st.SearchStrategy[GeneratedWorld] = st.one_of(worlds(), related_worlds(), anchored_worlds)


def divisions(queries: int, count: int) -> st.SearchStrategy[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Generate random partitions of queries."""
    return st.lists(st.integers(0, count - 1), min_size=queries, max_size=queries).map(
        lambda results: np.array(results, dtype=np.int64)
    )
