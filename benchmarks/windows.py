"""Windows and annotation joins, measured: the same titles by every contender. A JSON line for every figure.

    python -m benchmarks.windows [--parts look_up,values,sharing,filters,peers] [--windows 100000,1000000]
        [--items 5000] [--queries 100000] [--shared-windows 1000] [--peers duckdb,spark] [--full] [--seed 7]

Parts: `look_up` (the pairs of an item in a window, by similarity; bytes of a window item), `values` (the same for
equal values and shared links), `sharing` (very many join queries next to one), `filters` (a batch without joins in a
workspace that has join queries) and `peers` (DuckDB, and Spark's own stream-stream join). Times are CPU times.
`--full` has windows of 100,000 and of 1,000,000 items. All contenders must give the same answers: the run fails where
they differ. A contender too slow for all items gets some of them, and is compared on those.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.windows_contenders import LookUps, NestedLoop, PrefixPostings
from benchmarks.windows_filters import measure_filters
from benchmarks.windows_goals import Figures
from benchmarks.windows_ours import fill_window, look_up, map_window, memory_of_window, store_window
from benchmarks.windows_peers import measure_peers
from benchmarks.windows_sharing import measure_sharing
from benchmarks.windows_workload import SAME_CODE, SAME_LINK, SIMILAR, Numbers, Workload, make_workload

from runnel.storage.file_storage import FileStorage

_NESTED_PAIRS = 20_000_000
"""The number of pairs that the nested loop compares."""

_MICROSECONDS = {100_000: 15.0, 1_000_000: 100.0}
"""The goals of the mean look-up, by the size of the window."""


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    options = _options(arguments)
    figures = Figures()
    for part in options.parts.split(","):
        PARTS[part](figures, options)
    if figures.missed:
        figures.say("goals not met", figures=figures.missed)
    if figures.differing:
        sys.exit(f"not all contenders give the same answers: {', '.join(figures.differing)}")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--windows", type=_sizes, default=(100_000,), help="numbers of items in the window")
    parser.add_argument("--items", type=int, default=5_000, help="items that are joined")
    parser.add_argument("--queries", type=int, default=100_000, help="join queries")
    parser.add_argument("--shared-windows", type=int, default=1_000, help="windows of these queries")
    parser.add_argument("--peers", default="duckdb,spark")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of a figure; the least counts")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--full", action="store_true", help="windows of 100,000 and 1,000,000 items")
    options = parser.parse_args(arguments)
    if options.full:
        options.windows = tuple(_MICROSECONDS)
    return options


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(","))


def measure_look_up(figures: Figures, options: argparse.Namespace) -> None:
    """Find the similar titles of each item: ours, plain prefix postings, and the nested loop."""
    _compare_titles(Figures(is_silent=True), make_workload(100, 10, 1, options.seed), options)  # compiles the kernels
    for size in options.windows:
        _compare_titles(figures, make_workload(size, options.items, 1, options.seed), options)


def _compare_titles(figures: Figures, workload: Workload, options: argparse.Namespace) -> None:
    items = len(workload.news)
    size = len(workload.photos)
    nested_items = min(items, max(1, _NESTED_PAIRS // size))
    prefixes = PrefixPostings(workload.photos)
    postings = _least(options.rounds, partial(prefixes.look_up, workload.news, range(items)))
    nested = NestedLoop(workload.photos).look_up(workload.news, range(nested_items))
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        storage = FileStorage(Path(folder).as_uri())
        path, stored = store_window(storage, fill_window(SIMILAR, workload))
        window = map_window(storage, path)
        look_up(window, SIMILAR, workload.news_batch(0, min(items, 20)))  # mapped files are warm after it
        ours = _least(options.rounds, partial(look_up, window, SIMILAR, workload.news_batch(0, items)))
        memory = {} if figures.is_silent else _memory(storage, Path(folder), path, workload)
    expected = nested.pairs
    for name, found in (("ours", ours), ("prefix postings", postings), ("nested loop", nested)):
        compared = figures.compare(f"{name}, window {size}", found.head(nested_items), expected)
        _say_look_up(figures, "look_up", name, size, found, compared)
    if not np.array_equal(ours.pairs, postings.pairs):
        figures.differing.append(f"all pairs, window {size}")
    _say_goals(figures, size, ours, postings, nested)
    figures.at_most("stored bytes per window item", stored / size, 130, window=size, **memory)


def _memory(storage: FileStorage, folder: Path, path: str, workload: Workload) -> dict[str, float]:
    """Return the memory that a new process needs for the file of a window, per item."""
    small = make_workload(100, 10, 1, 0)
    warm_path, _ = store_window(storage, fill_window(SIMILAR, small))
    batches = small.news_batch(0, 10), workload.news_batch(0, len(workload.news))
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        shared, private = pool.submit(memory_of_window, folder, (warm_path, path), batches).result()
    return {
        "shared_bytes_per_item": shared / len(workload.photos),
        "private_bytes_per_item": private / len(workload.photos),
    }


def _least(rounds: int, measure: Callable[[], LookUps]) -> LookUps:
    """Measure several times. The least time counts, because other work on the machine only adds to it."""
    return min((measure() for _ in range(rounds)), key=lambda found: found.mean_microseconds)


def _say_look_up(
    figures: Figures, figure: str, name: str, size: int, found: LookUps, compared: dict[str, Any]
) -> None:
    figures.say(figure, contender=name, window=size, **found.figures(), **compared)


def _say_goals(figures: Figures, size: int, ours: LookUps, postings: LookUps, nested: LookUps) -> None:
    mean = ours.mean_microseconds
    if size in _MICROSECONDS:
        figures.at_most("mean microseconds per look-up", mean, _MICROSECONDS[size], window=size)
    for name, other, least in (("nested loop", nested, 500), ("prefix postings", postings, 10)):
        ratio = other.mean_microseconds / mean
        if size == 100_000:
            figures.at_least(f"times faster than {name}", ratio, least, window=size)
        else:
            figures.say(f"times faster than {name}", window=size, value=ratio)


def measure_values(figures: Figures, options: argparse.Namespace) -> None:
    """Find the items with an equal value, and with a common link."""
    size = min(options.windows)
    workload = make_workload(size, options.items, 1, options.seed)
    expected = _pairs_of_codes(workload)
    for name, condition in (("equal values", SAME_CODE), ("common links", SAME_LINK)):
        window = fill_window(condition, workload)
        look_up(window, condition, workload.news_batch(0, min(options.items, 20)))  # compiles the kernels
        search = partial(look_up, window, condition, workload.news_batch(0, options.items))
        found = _least(options.rounds, search)
        compared = figures.compare(f"{name}, window {size}", found.pairs, expected)
        _say_look_up(figures, name, "ours", size, found, compared)


def _pairs_of_codes(workload: Workload) -> Numbers:
    """Return the pairs of an item and a photo with the same code, by comparing each item with all photos."""
    rows = [np.flatnonzero(workload.photo_codes == code) for code in workload.news_codes.tolist()]
    items = np.repeat(np.arange(len(rows)), list(map(len, rows)))
    return np.stack([items, np.concatenate(rows)], axis=1)


PARTS: dict[str, Callable[[Figures, argparse.Namespace], None]] = {
    "look_up": measure_look_up,
    "values": measure_values,
    "sharing": measure_sharing,
    "filters": measure_filters,
    "peers": measure_peers,
}


if __name__ == "__main__":
    main()
