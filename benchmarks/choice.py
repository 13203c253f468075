"""What an entry, a filter and a scanned query cost: the constants of `optimizer/choose_matcher.py`, measured.

JSON lines:

    python -m benchmarks.choice [--workload M] [--few 2000] [--many 40000] [--items 2000] [--seed 7]

Each matcher runs over the same items with few and with many queries. What both runs share (cutting texts, taking
batches apart) falls out of the difference, which is divided by the difference of what was expected to be done. The
scan, which shares nothing, is simply divided by its queries. Times are seconds of CPU, the least of three runs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import cast

from benchmarks.contenders import Setting, scan, streams, tree
from benchmarks.measuring import say
from benchmarks.workloads import KINDS, SOURCE, frequencies, make_items, make_queries

from runnel.log.storage import FileStorage
from runnel.matching.contract import Matcher
from runnel.matching.expected import expected_entries, part_anchors
from runnel.matching.filters.tree import TreeMatcher
from runnel.model.batch import ItemBatch
from runnel.optimizer.choose_matcher import ALWAYS, EACH

NAME = "choice"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=KINDS, default="M")
    parser.add_argument("--few", type=int, default=2_000)
    parser.add_argument("--many", type=int, default=40_000)
    parser.add_argument("--items", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    batch = make_items(options.items).batch(0, options.items)
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        few, many = (
            Setting(
                make_queries(options.workload, count, options.seed),
                FileStorage(Path(folder, str(count)).as_uri()),
                frequencies(),
            )
            for count in (options.few, options.many)
        )
        _compare("streams", _streams(few, batch), _streams(many, batch))
        _compare("tree", _tree(few, batch), _tree(many, batch))
        one = ItemBatch(batch.records.slice(0, 1))
        _compare("scan", (0.0, 0.0), (float(len(few.queries)), _microseconds(scan(few).matcher, one)))


def _compare(name: str, few: tuple[float, float], many: tuple[float, float]) -> None:
    """Say what one more unit of work costs, and what an item costs without any."""
    each = (many[1] - few[1]) / (many[0] - few[0])
    say(
        NAME,
        name,
        expected_of_few=few[0],
        expected_of_many=many[0],
        microseconds_of_few=few[1],
        microseconds_of_many=many[1],
        each=each,
        always=few[1] - each * few[0],
        assumed_each=EACH[name],
        assumed_always=ALWAYS[name],
    )


def _streams(setting: Setting, batch: ItemBatch) -> tuple[float, float]:
    part = setting.plan().base
    return expected_entries(part, part_anchors(part)), _microseconds(streams(setting).matcher, batch)


def _tree(setting: Setting, batch: ItemBatch) -> tuple[float, float]:
    matcher = tree(setting).matcher
    return cast(TreeMatcher, matcher).trees(SOURCE)[0].cost, _microseconds(matcher, batch)


def _microseconds(matcher: Matcher, batch: ItemBatch) -> float:
    """CPU time for one item; kernels are compiled and files mapped before."""
    matcher.match(batch)
    times = []
    for _ in range(3):
        started = time.process_time()
        matcher.match(batch)
        times.append(time.process_time() - started)
    return 1e6 * min(times) / len(batch)


if __name__ == "__main__":
    main()
