"""The figures of filters as plots: JSON lines of `benchmarks.filters` in, a picture out.

for queries in 1000 10000 100000 1000000; do
    python -m benchmarks.filters --queries $queries --parts matchers >> filters.jsonl
done
python -m benchmarks.filters_plots filters.jsonl docs/images
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONTENDERS = {
    "streams": "o",
    "index": "v",
    "tree": "^",
    "counting": "s",
    "scan": "x",
    "lucene monitor": "D",
}


@dataclass(frozen=True)
class Point:
    """The figures of one matcher for one number of queries."""

    contender: str
    queries: int
    items_per_second: float
    asked: float


def main() -> None:
    """Read and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path, help="what benchmarks.filters printed")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.lines.read_text().splitlines() if line.startswith("{")]
    draw(options.folder / "filters-queries.svg", points(lines))


def points(lines: list[dict[str, Any]]) -> list[Point]:
    """The figures to draw: those of the contenders on workload M, by their name and number of queries."""
    results = {
        (line["figure"], line["queries"]): Point(
            line["figure"], line["queries"], line["items_per_cpu_second"], line.get("candidates_per_item", 0.0)
        )
        for line in lines
        if line["figure"] in CONTENDERS and line.get("workload") == "M" and "items_per_cpu_second" in line
    }
    return sorted(results.values(), key=lambda point: (list(CONTENDERS).index(point.contender), point.queries))


def draw(place: Path, results: list[Point]) -> None:
    """Draw speed on the left and examined entries on the right, one line per matcher."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "runnel", "font.size": 9}):
        figure = Figure(figsize=(9.6, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for number, (name, marker) in enumerate(CONTENDERS.items()):
            mine = [point for point in results if point.contender == name]
            if not mine:
                continue
            sizes = [point.queries for point in mine]
            look = {"marker": marker, "markersize": 4, "color": f"C{number}", "label": name}
            left.plot(sizes, [point.items_per_second for point in mine], **look)
            asked = [(point.queries, point.asked) for point in mine if point.asked]
            right.plot([size for size, _ in asked], [amount for _, amount in asked], **look)
        left.set(xlabel="queries", title="items matched in a second of one core")
        right.set(xlabel="queries", title="entries, filters or queries looked at for an item")
        for axes in (left, right):
            axes.set(xscale="log", yscale="log")
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        left.legend(frameon=False)
        figure.savefig(place, format="svg", metadata={"Date": None, "Creator": "Runnel"})


if __name__ == "__main__":
    main()
