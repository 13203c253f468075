"""Generated queries and items for testing routers.

Queries are found by rare words, have common words in addition, and for each there is an item with exactly the words
that the query requires. A router whose condition is slightly too strict loses such an item. There are few rare words,
so that conditions are merged. They are long, so that they count as rare with and without FREQUENCIES, and routes are
checked.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from tests.unit.optimizer.generated_worlds import NAMES, SOURCES, GeneratedWorld

from runnel.algebra.graphs.edges import Comparison, Edge
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.rdf_terms import XSD
from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.expressions import And, Between, Compare, Contains, Expression, Not, Or
from runnel.algebra.nodes.query import Filter, Node, Read, Union
from runnel.model.graph import GRAPH, RdfGraph
from runnel.model.item import Item, Value

TITLE, PRICE = Attribute("title"), Attribute("price")
RARE = ("incomprehensibly", "extraordinarily", "characteristically")
COMMON = ("red", "big", "old", "new", "hot")
FREQUENCIES = dict.fromkeys(RARE, 0.001) | dict.fromkeys(COMMON, 0.05)
_PLACES = ("<urn:oslo>", "<urn:paris>")
_FIRST = 10
_X = "<urn:x>"


def _number(value: int) -> str:
    return f'"{value}"^^<{XSD}integer>'


@dataclass(frozen=True)
class GeneratedQuery:
    """The condition of a query. `least` and `most` bound a price; `place` and `year` belong to a graph pattern."""

    sources: tuple[int, ...]
    anchors: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    excluded: str | None = None
    least: float | None = None
    most: float | None = None
    place: str | None = None
    year: int | None = None

    def node(self) -> Node:
        """Return the query."""
        reads = tuple(Read(source) for source in self.sources)
        parts = [*self._anchor(), *(Contains(TITLE, (word,)) for word in self.words), *self._price()]
        if self.excluded is not None:
            parts.append(Not(Contains(TITLE, (self.excluded,))))
        return Filter(reads[0] if len(reads) == 1 else Union(reads), And(tuple(parts)))

    def item(self, source: int, more: tuple[str, ...] = ()) -> Item:
        """Return an item that matches the query and has some additional words."""
        words = (*self.anchors[-1:], *self.words, *more)
        values: dict[str, tuple[Value, ...]] = {"title": (" ".join(words),)} if words else {}
        if self.least is not None or self.most is not None:
            values["price"] = (self.least if self.least is not None else self.most or 0.0,)
        if self.place is not None:
            values[GRAPH] = (
                RdfGraph.of([(_X, "<urn:at>", self.place), (_X, "<urn:year>", _number(self.year or 7))]),
            )
        return Item(NAMES[source], "item", values)

    def _anchor(self) -> list[Expression]:
        expressions: list[Expression] = []
        if self.anchors:
            expressions.append(Or(tuple(Contains(TITLE, (anchor,)) for anchor in self.anchors)))
        if self.place is not None:
            edges = (Edge(Variable("p"), "<urn:at>", self.place), Edge(Variable("p"), "<urn:year>", Variable("y")))
            asked = None if self.year is None else Comparison(Variable("y"), "=", _number(self.year))
            expressions.append(Graph(edges, asked).canonical())
        return expressions

    def _price(self) -> list[Expression]:
        if self.least is not None and self.most is not None:
            return [Between(PRICE, self.least, self.most)]
        if self.least is not None:
            return [Compare(PRICE, ">=", self.least)]
        return [] if self.most is None else [Compare(PRICE, "<=", self.most)]


def world_of(asked: list[GeneratedQuery], more: list[tuple[str, ...]] | None = None) -> GeneratedWorld:
    """Return the queries, an item for each query and source, and items with more words."""
    items = [entry.item(source) for entry in asked for source in entry.sources]
    items += [entry.item(entry.sources[0], words) for entry, words in zip(asked, more or [], strict=False)]
    return GeneratedWorld({number: entry.node() for number, entry in enumerate(asked, _FIRST)}, tuple(items))


_words = st.lists(st.sampled_from(COMMON), max_size=3, unique=True).map(tuple)
_sources = st.sampled_from([(source,) for source in SOURCES] * 2 + [SOURCES[:2], SOURCES])
_years = st.sampled_from([None, 1, 2])


@st.composite
def _generated_query(draw: st.DrawFn) -> GeneratedQuery:
    words = draw(_words)
    least = float(draw(st.integers(0, 3))) if draw(st.integers(0, 2)) == 0 else None
    most = (least or 0.0) + 1.0 if draw(st.integers(0, 2)) == 0 else None
    left = [value for value in COMMON if value not in words]
    excluded = draw(st.sampled_from(left)) if draw(st.integers(0, 3)) == 0 else None
    plain = draw(st.integers(0, 4)) > 0
    count = 2 if draw(st.integers(0, 4)) == 0 else 1 if plain else draw(st.integers(0, 1))
    anchors = tuple(draw(st.lists(st.sampled_from(RARE), min_size=count, max_size=count, unique=True)))
    place, year = (None, None) if plain else (draw(st.sampled_from(_PLACES)), draw(_years))
    return GeneratedQuery(draw(_sources), anchors, words, excluded, least, most, place, year)


anchored_worlds: st.SearchStrategy[GeneratedWorld] = st.builds(
    world_of, st.lists(_generated_query(), min_size=4, max_size=16), st.lists(_words, max_size=6)
)
