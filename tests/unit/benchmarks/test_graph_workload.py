"""The workload of graph patterns is what it says it is, and its benchmark runs: small, with all contenders."""

from __future__ import annotations

import argparse
import json

import pytest
from benchmarks import graphs, graphs_index, graphs_plots
from benchmarks.graph_runs import Setting
from benchmarks.graph_workload import (
    Workload,
    make_one_structure,
    make_patterns,
    make_publications,
    make_subscriptions,
)
from benchmarks.graphs_peers import ask, measure_ask

from runnel.algebra.graphs.edges import AnyOf, Comparison, Complement, Edge
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import matches_graph
from runnel.algebra.nodes.calls import Variable
from runnel.model.graph import read_ntriples
from runnel.papers.graphs.registry import CONTENDERS

SMALL = Workload(subscriptions=400, publications=30, topics=4)
OPTIONS = argparse.Namespace(
    sizes=(60, 120),
    publications=6,
    contenders=",".join(CONTENDERS),
    rounds=1,
    sample=20,
    asked=2,
    sampled=40,
    matched=20,
    seed=3,
)


def test_the_same_seed_gives_the_same_workload() -> None:
    assert make_patterns(SMALL) == make_patterns(SMALL)
    assert make_publications(SMALL) == make_publications(SMALL)
    assert make_patterns(SMALL) != make_patterns(Workload(subscriptions=400, topics=4, seed=9))
    fewer = Workload(subscriptions=100, topics=4)
    assert make_patterns(fewer) == make_patterns(SMALL)[:100]


def test_subscriptions_have_the_sizes_of_the_paper() -> None:
    made = make_patterns(SMALL)
    assert all(entry == Graph(entry.edges, entry.filter).canonical() for entry in made)
    with_variables = [entry for entry in made if entry.variables()]
    assert 0.85 < len(with_variables) / len(made) < 0.95
    assert {len(with_variable.variables()) for with_variable in with_variables} == {2}
    assert {len(with_variable.edges) for with_variable in with_variables} == {10}
    nodes = [{node for edge in entry.edges for node in (edge.subject, edge.object)} for entry in made]
    assert {len(value) for value in nodes} == {5}


def test_publications_have_the_sizes_of_the_paper() -> None:
    for graph in make_publications(SMALL):
        triples = list(graph.triples())
        assert 80 <= len(triples) <= 90
        assert read_ntriples(str(graph)) == graph
        assert not any(subject.startswith('"') for subject, _, _ in triples)


def test_some_subscriptions_match_and_narrower_ones_match_where_wider_ones_do() -> None:
    made, results = make_patterns(SMALL), [list(graph.triples()) for graph in make_publications(SMALL)[:10]]
    matched = [sum(matches_graph(value, triples) for value in made) for triples in results]
    assert 0 < sum(matched) < len(results) * len(made) / 4
    structures = {subscription.structure for subscription in make_subscriptions(SMALL)}
    assert 0.3 * len(made) < len(structures) < 0.65 * len(made)


def test_one_structure_differs_by_constraints_alone() -> None:
    patterns, published = make_one_structure(2_000, 20)
    assert len({pattern.edges for pattern in patterns}) == 1
    assert len(patterns[0].edges) == 10
    assert len(set(patterns)) > 1_900
    setting = Setting(patterns, published)
    matches = setting.measure("union_graph", 1)["matches"]
    assert 40 < matches < 250, "about a hundred, however many there are"


def test_a_pattern_asks_the_store_what_it_means(capsys: pytest.CaptureFixture[str]) -> None:
    either = AnyOf((Comparison(Variable("2"), "<", '"b"'), Complement(Comparison(Variable("2"), "=", "<urn:x>"))))
    text = ask(Graph((Edge(Variable("1"), "<urn:p>", Variable("2")),), either))
    assert text == 'ASK { ?v1 <urn:p> ?v2 . FILTER((?v2 < "b") || (!(?v2 = <urn:x>))) }'
    measure_ask(make_patterns(SMALL), make_publications(SMALL), 400, 5, 1)
    (line,) = [json.loads(value) for value in capsys.readouterr().out.splitlines()]
    assert line["equal"]
    assert line["sampled_matches"] > 0


@pytest.mark.parametrize("part", graphs.PARTS)
def test_every_part_of_the_benchmark_prints_its_figures(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert graphs.PARTS[part](OPTIONS)
    lines = [json.loads(value) for value in capsys.readouterr().out.splitlines()]
    assert part in {line["figure"] for line in lines}
    assert all(line.get("equal", True) for line in lines)
    if part in ("figure9a", "figure9b"):
        assert {line["contender"] for line in lines} == set(CONTENDERS)
        assert {line["subscriptions"] for line in lines} == {60, 120}
    if part in graphs_plots.FIGURES:
        assert graphs_plots.curves(lines, graphs_plots.FIGURES[part])


def test_a_contender_that_differs_is_told() -> None:
    setting = Setting(make_patterns(SMALL), make_publications(SMALL)[:5])
    setting.measure("shapes", 1)
    assert setting.answer is not None
    setting.answer = setting.answer[0][1:], setting.answer[1][1:]
    assert not setting.measure("union_graph", 1)["equal"]


def test_containment_leaves_fewer_roots_where_subscriptions_overlap(capsys: pytest.CaptureFixture[str]) -> None:
    graphs_index.figure9d(OPTIONS, ())
    roots = [json.loads(line)["roots"] for line in capsys.readouterr().out.splitlines()]
    assert roots == sorted(roots, reverse=True)
    assert roots[-1] < roots[0] / 3
