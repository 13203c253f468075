"""Graph patterns and items with graphs, drawn from a seed, by the sizes of the paper (§5).

A *topic* is a ring of 30 nodes, every third of them a number, with 90 edges between near nodes. A publication has the
edges of one topic with numbers of its own; a tenth of the edges are another topic's. A subscription has five
neighbouring nodes of a topic and ten of the eleven edges between them. Nine of ten have two variables: the numbers
among the nodes, which nearly always have a constraint, and resources. The others have none: five resources, and the
six edges between them. So many subscriptions as the *overlap* says narrow an earlier one, or repeat it: what they
match, that one matches too. RDF has no numbers as subjects: edges lead to them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from runnel.algebra.graphs.edges import AllOf, Comparison, Edge, Node
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes.calls import Relation, Variable
from runnel.model.graph import RdfGraph

NODES, EDGES = 30, 90
"""Nodes and edges of a publication."""

LABELS, RESOURCES, NUMBERS = 100, 3_000, 1_000
"""How many labels, resources and numbers there are."""

Place = int
"""A node of a topic: a resource (0 or more), or a number of the publication (-1 is the first)."""

Link = tuple[Place, int, Place]
Constraint = tuple[Relation, int]


@dataclass(frozen=True)
class Workload:
    """The sizes of a workload, and its seed."""

    subscriptions: int = 100_000
    publications: int = 600
    topics: int = 150
    overlap: float = 0.5
    noise: float = 0.1
    with_variables: float = 0.9
    seed: int = 1


@dataclass(frozen=True)
class Structure:
    """The edges of a subscription between places of a topic, and those that are its variables."""

    links: tuple[Link, ...]
    variables: tuple[Place, ...]

    @cached_property
    def canonical(self) -> Graph:
        """The edges as a canonical pattern without a filter."""
        return Graph(
            tuple(Edge(self._node(value), label_iri(label), self._node(other)) for value, label, other in self.links)
        ).canonical()

    @cached_property
    def names(self) -> dict[Place, str]:
        """What each variable is called in the canonical pattern."""
        numbers = {name: str(number) for number, name in enumerate(self.canonical.names, 1)}
        return {place: numbers[_name(place)] for place in self.variables if _name(place) in numbers}

    def _node(self, place: Place) -> Node:
        return Variable(_name(place)) if place in self.variables else resource_iri(place)


@dataclass(frozen=True)
class Subscription:
    """A structure, and constraints on numbers among its variables."""

    structure: Structure
    constraints: tuple[tuple[Place, Constraint], ...] = ()

    def pattern(self) -> Graph:
        """The canonical pattern."""
        whole = self.structure.canonical
        parts = [
            Comparison(Variable(self.structure.names[place]), relation, number_term(bound))
            for place, (relation, bound) in self.constraints
        ]
        if not parts:
            return whole
        parts.sort(key=repr)
        return Graph(whole.edges, parts[0] if len(parts) == 1 else AllOf(tuple(parts)), whole.names)


@dataclass(frozen=True)
class Topic:
    """A ring of places, and what leads from one to another."""

    ring: tuple[Place, ...]
    links: tuple[Link, ...]

    def between(self, places: Sequence[Place]) -> list[Link]:
        """The links whose ends are both among these places."""
        return [link for link in self.links if link[0] in places and link[2] in places]


def make_patterns(workload: Workload) -> list[Graph]:
    """The canonical patterns of all subscriptions.

    >>> made = make_patterns(Workload(subscriptions=20))
    >>> made == make_patterns(Workload(subscriptions=20)), max(len(one.edges) for one in made)
    (True, 11)
    """
    return [subscription.pattern() for subscription in make_subscriptions(workload)]


def make_subscriptions(workload: Workload) -> list[Subscription]:
    """All subscriptions; any first part of them is what fewer would be."""
    topics = make_topics(workload)
    draw = random.Random(workload.seed + 1)
    made: list[Subscription] = []
    for _ in range(workload.subscriptions):
        if made and draw.random() < workload.overlap:
            made.append(_narrower(draw.choice(made), draw))
        else:
            made.append(_fresh(draw, draw.choice(topics), workload))
    return made


def make_publications(workload: Workload) -> list[RdfGraph]:
    """The graphs of the items.

    >>> made = make_publications(Workload(publications=3))
    >>> [80 < len(list(graph.triples())) <= 90 for graph in made]
    [True, True, True]
    """
    return list(publications_of(workload))


def publications_of(workload: Workload) -> Iterator[RdfGraph]:
    """The graphs of the items, one after the other."""
    topics = make_topics(workload)
    draw = random.Random(workload.seed + 2)
    for _ in range(workload.publications):
        yield RdfGraph.of(_triples(draw, topics, workload))


def make_topics(workload: Workload) -> list[Topic]:
    """The topics that both sides are about."""
    draw = random.Random(workload.seed)
    return [_topic(draw) for _ in range(workload.topics)]


def _topic(draw: random.Random) -> Topic:
    resources = iter(draw.sample(range(RESOURCES), NODES))
    ring = tuple(-1 - index // 3 if index % 3 == 2 else next(resources) for index in range(NODES))
    links: dict[Link, None] = {}
    for index in range(NODES):
        # Two edges to the next node and one to that behind it: 11 between any five neighbours, 90 in all.
        for distance, count in ((1, 2), (2, 1)):
            wanted = len(links) + count
            while len(links) < wanted:
                ends = [ring[index], ring[(index + distance) % NODES]]
                if ends[0] < 0 or (ends[1] >= 0 and draw.random() < 0.5):
                    ends.reverse()
                links.setdefault((ends[0], draw.randrange(LABELS), ends[1]))
    return Topic(ring, tuple(links))


def _triples(draw: random.Random, topics: list[Topic], workload: Workload) -> Iterator[tuple[str, str, str]]:
    topic = draw.choice(topics)
    numbers = [draw.randrange(NUMBERS) for _ in range(NODES // 3)]
    for link in topic.links:
        subject, label, results = draw.choice(draw.choice(topics).links) if draw.random() < workload.noise else link
        yield (
            resource_iri(subject),
            label_iri(label),
            resource_iri(results) if results >= 0 else number_term(numbers[-1 - results]),
        )


def _fresh(draw: random.Random, topic: Topic, workload: Workload) -> Subscription:
    start = draw.randrange(NODES)
    if draw.random() >= workload.with_variables:
        plain = [place for place in topic.ring[start:] + topic.ring[:start] if place >= 0][:5]
        return Subscription(Structure(tuple(topic.between(plain)), ()))
    places = [topic.ring[(start + step) % NODES] for step in range(5)]
    links = topic.between(places)
    links.pop(draw.randrange(len(links)))
    numbers = [place for place in places if place < 0]
    others = draw.sample([place for place in places if place >= 0], 2 - len(numbers))
    constraints = [(place, _constraint(draw)) for place in numbers if draw.random() < 0.9]
    return Subscription(Structure(tuple(links), (*numbers, *others)), tuple(constraints))


def _constraint(draw: random.Random) -> Constraint:
    relations: tuple[Relation, ...] = ("=", "<", "<", ">", ">", "!=")
    return draw.choice(relations), draw.randrange(NUMBERS)


def _narrower(wide: Subscription, draw: random.Random) -> Subscription:
    """One whose matches the other has too: a constraint is narrower, or new; the same where none can be."""
    constraints = dict(wide.constraints)
    free = [place for place in wide.structure.variables if place < 0 and place not in constraints]
    if free:
        constraints[free[0]] = _constraint(draw)
    elif constraints:
        place = draw.choice(list(constraints))
        match constraints[place]:
            case "<", bound:
                constraints[place] = "<", bound - draw.randrange(1, 200)
            case ">", bound:
                constraints[place] = ">", bound + draw.randrange(1, 200)
            case "!=", bound:
                constraints[place] = "=", (bound + draw.randrange(1, NUMBERS)) % NUMBERS
    return Subscription(wide.structure, tuple(constraints.items()))


def make_one_structure(subscriptions: int, publications: int, seed: int = 2) -> tuple[list[Graph], list[RdfGraph]]:
    """Subscriptions of five nodes and ten edges that differ by their constraints alone, and publications.

    About a hundred match a publication, however many there are (the paper's Figure 9b): the two numbers of a
    publication are the nearer to the middle of all bounds, which few constraints leave in, the more there are.
    """
    draw = random.Random(seed)
    links = [
        (0, 0, 1),
        (1, 1, 2),
        (0, 2, 2),
        (2, 3, 0),
        (1, 4, 0),
        (2, 5, -1),
        (0, 6, -2),
        (1, 7, -1),
        (1, 8, -2),
        (2, 9, -2),
    ]
    structure = Structure(tuple(links), (-1, -2))
    patterns = []
    for _ in range(subscriptions):
        below = [draw.random() < 0.5 for _ in range(2)]
        bounds: list[Constraint] = [
            ("<", draw.randrange(NUMBERS)) if value else (">", NUMBERS + draw.randrange(NUMBERS)) for value in below
        ]
        patterns.append(Subscription(structure, ((-1, bounds[0]), (-2, bounds[1]))).pattern())
    reach = min(NUMBERS - 1, int(130 * (100_000 / max(1, subscriptions)) ** 0.5))
    graphs = []
    for _ in range(publications):
        numbers = [NUMBERS + draw.randint(-reach, reach) for _ in range(2)]
        made = [(subject, label, results) for subject, label, results in links]
        made += [
            (draw.randrange(5, 25), draw.randrange(10, LABELS), draw.randrange(5, 25))
            for _ in range(EDGES - len(made))
        ]
        graphs.append(
            RdfGraph.of(
                (
                    resource_iri(subject),
                    label_iri(label),
                    resource_iri(results) if results >= 0 else number_term(numbers[-1 - results]),
                )
                for subject, label, results in made
            )
        )
    return patterns, graphs


def resource_iri(number: int) -> str:
    """A resource as N-Triples writes it."""
    return f"<https://data.museum.example/resource/{_KINDS[number % len(_KINDS)]}/{number:05}>"


def label_iri(number: int) -> str:
    """A label as N-Triples writes it."""
    return f"<https://vocabulary.museum.example/terms#{_WORDS[number % len(_WORDS)]}{number:02}>"


def number_term(number: int) -> str:
    """A whole number as N-Triples writes it."""
    return f'"{number}"^^<http://www.w3.org/2001/XMLSchema#integer>'


def _name(place: Place) -> str:
    return f"r{place}" if place >= 0 else f"n{-place}"


_KINDS = ("person", "project", "exhibition", "painting", "venue", "publisher", "document")
_WORDS = ("creator", "subject", "partOf", "supervisor", "locatedIn", "year", "relation", "price", "member", "heldBy")
