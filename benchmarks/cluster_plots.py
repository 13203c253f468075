"""Figures 9i and 10 as plots: JSON lines of `benchmarks.cluster_figures` in, a picture out.

python -m benchmarks.cluster_figures > figures.jsonl
python -m benchmarks.cluster_plots figures.jsonl docs/images
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

PICTURE = "scaling-figure9i-10.svg"
_NODES = {
    "whole plan on every node": ("k--", "whole plan on every node"),
    "containment, grouped": ("C0o-", "containment, grouped"),
    "containment, spread": ("C0s:", "containment, spread"),
    "merging, grouped": ("C1o-", "merging 70 %, grouped"),
    "merging, spread": ("C1s:", "merging 70 %, spread"),
    "merging, grouped, no server": ("C2D:", "merging 70 %, grouped, all nodes route"),
    "merging 94 %, grouped": ("C4o-", "merging 94 %, grouped"),
    "merging 94 %, grouped, no server": ("C2D-", "merging 94 %, grouped, all nodes route"),
    "the paper's stages, containment": ("C7^-", "the paper's stages, containment"),
    "the paper's stages, merging": ("C7v-", "the paper's stages, merging 70 %"),
}
_PERCENTAGES = {
    ("merging, grouped", 3): ("C1o-", "grouped, 2 back ends"),
    ("merging, grouped", 5): ("C3o-", "grouped, 4 back ends"),
    ("merging, spread", 3): ("C1s:", "spread, 2 back ends"),
    ("merging, spread", 5): ("C3s:", "spread, 4 back ends"),
    ("the paper's stages", 3): ("C7v-", "the paper's stages, 2 back ends"),
    ("the paper's stages", 5): ("C7^-", "the paper's stages, 4 back ends"),
}
PAPER_9I = {"containment": (7, 2.0), "merging": (7, 4.0)}
"""Points that the paper's text gives: seven nodes against one. Its own figures are pictures."""

PAPER_10 = (90, 4.0)

Curve = list[tuple[float, float]]


def main() -> None:
    """Read and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path, help="what benchmarks.cluster_figures printed")
    parser.add_argument("folder", type=Path, help="where the picture goes")
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.lines.read_text().splitlines() if line.startswith("{")]
    draw(options.folder / PICTURE, lines)


def by_nodes(lines: list[dict[str, Any]]) -> dict[str, Curve]:
    """Throughput against one node with the whole plan, by nodes, for each curve of Figure 9i."""
    results: dict[str, dict[float, float]] = {}
    for line in lines:
        if line["figure"] == "figure9i" and line["curve"] in _NODES:
            results.setdefault(line["curve"], {})[line["nodes"]] = line["times_one_node"]
    return {curve: sorted(points.items()) for curve, points in results.items()}


def by_percentage(lines: list[dict[str, Any]]) -> dict[tuple[str, int], Curve]:
    """The same by merge percentage, for each curve and number of nodes of Figure 10."""
    results: dict[tuple[str, int], dict[float, float]] = {}
    for line in lines:
        key = line["curve"], line["nodes"]
        if line["figure"] == "figure10" and key in _PERCENTAGES:
            results.setdefault(key, {})[line["merge_percentage"]] = line["times_one_node"]
    return {key: sorted(points.items()) for key, points in results.items()}


def draw(place: Path, lines: list[dict[str, Any]]) -> None:
    """Both figures side by side; what the paper's text says is hollow."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "runnel", "font.size": 9}):
        whole = Figure(figsize=(10.4, 4.6), layout="constrained")
        left, right = whole.subplots(1, 2)
        for curve, points in by_nodes(lines).items():
            style, label = _NODES[curve]
            left.plot(*zip(*points, strict=True), style, markersize=4, label=label)
        for name, point in PAPER_9I.items():
            label = f"the paper says: {name}"
            left.plot(*([value] for value in point), "kD", markersize=6, markerfacecolor="none", label=label)
        for key, points in by_percentage(lines).items():
            style, label = _PERCENTAGES[key]
            right.plot(*zip(*points, strict=True), style, markersize=4, label=label)
        right.plot([PAPER_10[0]], [PAPER_10[1]], "kD", markersize=6, markerfacecolor="none", label="the paper says")
        _finish(left, "9i: publications in the same time, against one node", "nodes")
        _finish(right, "10: the same by merge percentage", "merge percentage")
        whole.savefig(place, format="svg", metadata={"Date": None, "Creator": "Runnel"})


def _finish(axes: Any, title: str, label: str) -> None:
    axes.set(title=title, xlabel=label)
    axes.set_ylim(0, None)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=7)


if __name__ == "__main__":
    main()
