"""Graph patterns, measured: the same subscriptions and publications by every contender.

Prints one JSON line per figure.

    python -m benchmarks.graphs [--parts figure9a,figure9b,…] [--sizes 10000,…,100000] [--publications 600]
        [--contenders shapes,union_graph,joined,alone,scan] [--rounds 3] [--seed 1]

Parts are the figures of section 5 of the paper (`figure9a` to `figure9g`; the last has the times of 9h too),
`reading` (graphs of a batch from Arrow's buffers to arrays), `parsing` (what comes from outside, by form) and `ask`
(an RDF store asked one SPARQL query for each subscription). Times are CPU times of one core. All contenders must give
the same pairs: the run fails where they differ. One too slow for all publications gets some of them, and is
compared on those.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from benchmarks import graphs_index
from benchmarks.graph_runs import Setting
from benchmarks.graph_workload import Workload, make_one_structure, make_patterns, make_publications
from benchmarks.graphs_peers import measure_ask, measure_parsing
from benchmarks.measuring import say

from runnel.algebra.graphs.graph_patterns import Graph
from runnel.model.graph import RdfGraph
from runnel.papers.graphs.registry import CONTENDERS

SIZES = (10_000, 20_000, 40_000, 60_000, 80_000, 100_000)
_SLOW = {"scan": 10_000}
"""Where the figure of a slow contender at few subscriptions says enough."""


def main() -> None:
    """Measure and print."""
    options = _options()
    _warm_up(options)
    equal = [PARTS[part](options) for part in options.parts.split(",")]
    if not all(equal):
        sys.exit("not all contenders give the same pairs")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--sizes", type=_sizes, default=SIZES, help="numbers of subscriptions")
    parser.add_argument("--publications", type=int, default=600)
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often publications are matched; the least time counts"
    )
    parser.add_argument("--sample", type=int, default=1_000, help="subscriptions that the RDF store is asked about")
    parser.add_argument("--asked", type=int, default=10, help="publications that the RDF store is asked about")
    parser.add_argument("--sampled", type=int, default=1_000, help="publications that merging goes by")
    parser.add_argument("--matched", type=int, default=20_000, help="publications that mergers are asked about")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


@cache
def varied(subscriptions: int, publications: int, seed: int) -> tuple[list[Graph], list[RdfGraph]]:
    """The workload of the paper."""
    workload = Workload(subscriptions=subscriptions, publications=publications, seed=seed)
    return make_patterns(workload), make_publications(workload)


def _warm_up(options: argparse.Namespace) -> None:
    """Let the loops be compiled before anything is measured."""
    setting = Setting(*varied(200, 5, options.seed))
    for name in options.contenders.split(","):
        setting.measure(name, 1)


def figure9a(options: argparse.Namespace) -> bool:
    """Time by the number of subscriptions; matches grow with them."""
    patterns, graphs = varied(max(options.sizes), options.publications, options.seed)
    return _compare_all("figure9a", (Setting(patterns[:size], graphs) for size in options.sizes), options)


def figure9b(options: argparse.Namespace) -> bool:
    """All subscriptions have one structure; about a hundred match, however many there are."""
    made = (make_one_structure(size, options.publications, options.seed + 1) for size in options.sizes)
    return _compare_all("figure9b", (Setting(*value) for value in made), options)


def _compare_all(figure: str, settings: Iterable[Setting], options: argparse.Namespace) -> bool:
    equal = [_compare(figure, setting, options) for setting in settings]
    return all(equal)


def _compare(figure: str, setting: Setting, options: argparse.Namespace) -> bool:
    equal = True
    for name in options.contenders.split(","):
        if len(setting.patterns) > _SLOW.get(name, len(setting.patterns)):
            continue
        measure = setting.measure(name, options.rounds)
        equal &= measure["equal"]
        about = {"subscriptions": len(setting.patterns), "shapes": len(setting.table.shape_edges)}
        say("graphs", figure, **about, **measure)
    return equal


def reading(options: argparse.Namespace) -> bool:
    """Graphs of a batch from Arrow's buffers to arrays, apart from matching."""
    patterns, graphs = varied(max(options.sizes), options.publications, options.seed)
    setting = Setting(patterns, graphs)
    setting.publications()
    times = []
    for _ in range(options.rounds):
        started = time.process_time()
        publications = setting.publications()
        times.append(time.process_time() - started)
    say(
        "graphs",
        "reading",
        subscriptions=len(patterns),
        publications=len(graphs),
        bytes_per_publication=sum(map(len, graphs)) / len(graphs),
        triples=len(publications.labels) / len(graphs),
        microseconds=1e6 * min(times) / len(graphs),
        triples_per_second=len(publications.labels) / min(times),
    )
    return True


def parsing(options: argparse.Namespace) -> bool:
    """What reading graphs from outside takes."""
    measure_parsing(varied(200, options.publications, options.seed)[1])
    return True


def ask(options: argparse.Namespace) -> bool:
    """An RDF store asked about each subscription."""
    patterns, graphs = varied(max(options.sizes), options.publications, options.seed)
    measure_ask(patterns, graphs, options.sample, options.asked, options.seed)
    return True


def _of_index(measure: Callable[[argparse.Namespace, Sequence[Graph]], bool]) -> Callable[[argparse.Namespace], bool]:
    return lambda options: measure(options, varied(max(options.sizes), options.publications, options.seed)[0])


PARTS: dict[str, Callable[[argparse.Namespace], bool]] = {
    "figure9a": figure9a,
    "figure9b": figure9b,
    "figure9c": _of_index(graphs_index.figure9c),
    "figure9d": _of_index(graphs_index.figure9d),
    "figure9e": _of_index(graphs_index.figure9e),
    "figure9f": _of_index(graphs_index.figure9f),
    "figure9g": _of_index(graphs_index.figure9g),
    "reading": reading,
    "parsing": parsing,
    "ask": ask,
}


if __name__ == "__main__":
    main()
