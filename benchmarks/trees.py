"""Tree patterns, measured against one compiled XPath of lxml per pattern. A JSON line for every figure.

    python -m benchmarks.trees [--patterns 1000,10000] [--documents 100] [--nodes 650] [--rounds 3] [--seed 1]
        [--asked 500]

Times are CPU times of one core per document. lxml is asked about some patterns on all documents; its time for all is
their mean times the number of patterns. `trees` reads documents from their texts; lxml's documents are parsed before.
The run fails if lxml has other answers.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import Any

import numpy as np
from benchmarks.measuring import say
from benchmarks.tree_workload import TreeWorkload, xpath_of
from lxml import etree

from runnel.algebra.trees.tree_patterns import TreePattern
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.trees.tree_layout import TreeLayout
from runnel.matching.trees.tree_part import TreePart
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.trees.document_tree import DocumentTree
from runnel.model.trees.tree_nodes import nodes_of

Pairs = set[tuple[int, int]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patterns", default="1000,10000")
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=650)
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often documents are matched; the least time counts"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--asked", type=int, default=500, help="patterns that lxml is asked about")
    options = parser.parse_args()
    equal = [measure(int(count), options) for count in options.patterns.split(",")]
    if not all(equal):
        sys.exit("lxml has other answers")


def measure(count: int, options: argparse.Namespace) -> bool:
    """Measure a number of patterns. Return whether lxml has the same answers."""
    workload = TreeWorkload(count, options.documents, options.nodes, seed=options.seed)
    patterns, documents = workload.make_patterns(), workload.make_documents()
    figures, pairs = match_all(patterns, documents, options.rounds)
    say("trees", "trees", patterns=count, nodes=options.nodes, **figures)
    asked = sorted(random.Random(options.seed).sample(range(count), min(options.asked, count)))
    seconds, found = ask_lxml([patterns[number] for number in asked], documents)
    expected = {(row, asked.index(key)) for row, key in pairs if key in set(asked)}
    microseconds = 1e6 * seconds / len(documents) / len(asked) * count
    ratio = microseconds / figures["microseconds"]
    say("trees", "lxml", patterns=count, microseconds=microseconds, ratio=ratio, equal=found == expected)
    return found == expected


def match_all(
    patterns: list[TreePattern], documents: list[DocumentTree], rounds: int
) -> tuple[dict[str, Any], Pairs]:
    """Return figures about matching all documents with all patterns, and the pairs of documents and patterns."""
    started = time.process_time()
    layout = TreeLayout.of(patterns)
    compiled = time.process_time() - started
    part = TreePart(layout, layout.keys)
    items = [Item("News", str(number), {"tree": (tree,)}) for number, tree in enumerate(documents)]
    columns = ItemColumns(ItemBatch.of(items, {"News": 1}))
    found = part.keys(columns)  # also compiles the kernel
    best = float("inf")
    for _ in range(rounds):
        nodes_of.cache_clear()
        started = time.process_time()
        found = part.keys(columns)
        best = min(best, time.process_time() - started)
    assert not len(found.doubted_rows)
    pairs = set(zip(found.rows.tolist(), found.keys.tolist(), strict=True))
    size = sum(array.nbytes for array in layout.arrays().values())
    figures = {
        "microseconds": 1e6 * best / len(documents),
        "matches": len(pairs) / len(documents),
        "compile_seconds": compiled,
        "bytes_per_pattern": size / len(patterns),
    }
    return figures, pairs


def ask_lxml(patterns: list[TreePattern], documents: list[DocumentTree]) -> tuple[float, Pairs]:
    """Return the CPU time of one XPath per pattern on every document, and the pairs for which it is true."""
    roots = [etree.fromstring(tree).getroottree() for tree in documents]
    # The context node is the document, so that the first step of a path may be the root.
    paths = [etree.XPath(f"boolean({xpath_of(pattern.condition).removeprefix('.')})") for pattern in patterns]
    started = time.process_time()
    truths = np.array([[bool(path(root)) for path in paths] for root in roots])
    seconds = time.process_time() - started
    return seconds, set(zip(*(numbers.tolist() for numbers in np.nonzero(truths)), strict=True))


if __name__ == "__main__":
    main()
