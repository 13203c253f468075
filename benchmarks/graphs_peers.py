"""An RDF store as a matcher of graph patterns: one SPARQL ASK for each subscription, and what parsing takes."""

from __future__ import annotations

import random
import time

import pyoxigraph
from benchmarks.measuring import say

from runnel.algebra.graphs.edges import AllOf, AnyOf, Certain, Comparison, Complement, GraphFilter, Node
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import matches_graph
from runnel.algebra.nodes.calls import Variable
from runnel.model.graph import RdfGraph, read_ntriples

FORMS = {
    "n-triples": pyoxigraph.RdfFormat.N_TRIPLES,
    "turtle": pyoxigraph.RdfFormat.TURTLE,
    "rdf/xml": pyoxigraph.RdfFormat.RDF_XML,
}


def ask(graph: Graph) -> str:
    """A pattern as a SPARQL query.

    >>> from runnel.algebra.graphs.graph_patterns import Edge
    >>> ask(Graph((Edge(Variable("1"), "<urn:year>", Variable("2")),), Comparison(Variable("2"), ">", '"3"')))
    'ASK { ?v1 <urn:year> ?v2 . FILTER(?v2 > "3") }'
    """
    lines = [" ".join(_node(node) for node in edge.nodes) + " ." for edge in graph.edges]
    if graph.filter is not None:
        lines.append(f"FILTER({_condition(graph.filter)})")
    return f"ASK {{ {' '.join(lines)} }}"


def _node(node: Node) -> str:
    return f"?v{node.name}" if isinstance(node, Variable) else node


def _condition(graph_filter: GraphFilter) -> str:
    match graph_filter:
        case Comparison(left, relation, right):
            return f"{_node(left)} {relation} {_node(right)}"
        case AllOf(parts):
            return " && ".join(f"({_condition(part)})" for part in parts)
        case AnyOf(parts):
            return " || ".join(f"({_condition(part)})" for part in parts)
        case Complement(part):
            return f"!({_condition(part)})"
        case Certain(part):
            return f"COALESCE({_condition(part)}, false)"


def measure_ask(patterns: list[Graph], graphs: list[RdfGraph], sample: int, number: int, seed: int) -> None:
    """A sample of subscriptions asked of some publications, each loaded into a store; scaled to all subscriptions.

    Whether a subscription matches is compared with the definition for every pair.
    """
    asked = random.Random(seed).sample(patterns, min(sample, len(patterns)))
    queries = [ask(graph) for graph in asked]
    loading = answering = 0.0
    matches, equal = 0, True
    for graph in graphs[:number]:
        started = time.process_time()
        store = pyoxigraph.Store()
        store.extend(
            pyoxigraph.Quad(entry.subject, entry.predicate, entry.object)
            for entry in pyoxigraph.parse(str(graph), pyoxigraph.RdfFormat.N_TRIPLES)
        )
        loaded = time.process_time()
        answers = [bool(store.query(query)) for query in queries]
        answering += time.process_time() - loaded
        loading += loaded - started
        matches += sum(answers)
        triples = list(graph.triples())
        equal &= answers == [matches_graph(pattern, triples) for pattern in asked]
    pairs = number * len(queries)
    say(
        "graphs",
        "ask",
        contender="one SPARQL ASK for each subscription (pyoxigraph), a sample scaled to all",
        subscriptions=len(patterns),
        sampled_subscriptions=len(queries),
        publications=number,
        microseconds_per_ask=1e6 * answering / pairs,
        milliseconds=1e3 * answering / pairs * len(patterns),
        load_milliseconds=1e3 * loading / number,
        sampled_matches=matches / number,
        equal=equal,
    )


def measure_parsing(graphs: list[RdfGraph]) -> None:
    """What reading a publication takes in pyoxigraph, by form, and in Runnel's own reader of published items."""
    triples = sum(graph.count("\n") for graph in graphs)
    for name, form in FORMS.items():
        texts = [
            pyoxigraph.serialize(pyoxigraph.parse(str(graph), pyoxigraph.RdfFormat.N_TRIPLES), format=form) or b""
            for graph in graphs
        ]
        started = time.process_time()
        count = sum(1 for text in texts for _ in pyoxigraph.parse(text, form))
        _say_parsed(
            f"pyoxigraph, {name}", time.process_time() - started, graphs, sum(map(len, texts)), count == triples
        )
    started = time.process_time()
    read = [read_ntriples(str(graph)) for graph in graphs]
    seconds = time.process_time() - started
    _say_parsed("read_ntriples, n-triples", seconds, graphs, sum(map(len, graphs)), read == graphs)


def _say_parsed(reader: str, seconds: float, graphs: list[RdfGraph], size: int, equal: bool) -> None:
    triples = sum(graph.count("\n") for graph in graphs)
    say(
        "graphs",
        "parsing",
        reader=reader,
        publications=len(graphs),
        bytes_per_publication=size / len(graphs),
        microseconds=1e6 * seconds / len(graphs),
        triples_per_second=triples / seconds,
        equal=equal,
    )
