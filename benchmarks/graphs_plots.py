"""The figures of graph patterns as plots: JSON lines of `benchmarks.graphs` in, pictures out.

python -m benchmarks.graphs > graphs.jsonl
python -m benchmarks.graphs_plots graphs.jsonl docs/images
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONTENDERS = {"shapes": "o", "union_graph": "s", "joined": "^", "alone": "v", "scan": "x"}


@dataclass(frozen=True)
class Picture:
    """What is drawn: the lines' figure, axes, and one curve for each value of `by`, or one for each value's name."""

    figure: str
    across: str
    up: dict[str, str]
    title: str
    label: str
    by: str | None = None
    logarithmic: bool = False


FIGURES = {
    "figure9a": Picture(
        "figure9a",
        "subscriptions",
        {"milliseconds": ""},
        "milliseconds of CPU for a publication",
        "subscriptions",
        "contender",
        True,
    ),
    "figure9b": Picture(
        "figure9b",
        "subscriptions",
        {"milliseconds": ""},
        "the same, all subscriptions of one structure",
        "subscriptions",
        "contender",
        True,
    ),
    "figure9c": Picture("figure9c", "subscriptions", {"roots": ""}, "size of the index", "subscriptions", "index"),
    "figure9d": Picture(
        "figure9d", "overlap", {"roots": "measured", "paper": "N (1 − overlap)"}, "size of the index", "overlap"
    ),
    "figure9e": Picture(
        "figure9e",
        "merge_percentage",
        {
            "forwarded_in_vain_percent": "publications passed on for nothing",
            "false_positive_percent_of_pairs": "mergers asked that hold for nothing",
        },
        "false positives, per cent",
        "merge percentage",
    ),
    "figure9f": Picture(
        "figure9f",
        "subscriptions",
        {"microseconds": "with containment", "microseconds_without_containment": "laid out in arrays only"},
        "microseconds of CPU for an insertion",
        "subscriptions",
    ),
    "figure9g": Picture(
        "figure9g",
        "merge_percentage",
        {"roots": "measured", "paper": "asked for"},
        "size of the index",
        "merge percentage",
    ),
    "figure9h": Picture(
        "figure9g", "merge_percentage", {"merge_seconds": "merging"}, "seconds of CPU for merging", "merge percentage"
    ),
}
PAPER: dict[str, list[tuple[float, float]]] = {"figure9e": [(90, 0.13)], "figure9g": [(99, 629)]}
"""Points that the paper's text gives; its times are of another machine."""

GROUPS = {
    "graph-figure9-matching.svg": ("figure9a", "figure9b"),
    "graph-figure9-index.svg": tuple("figure9" + character for character in "cdefgh"),
}


def main() -> None:
    """Read and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path, help="what benchmarks.graphs printed")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.lines.read_text().splitlines() if line.startswith("{")]
    for name, figures in GROUPS.items():
        draw(options.folder / name, figures, lines)


def curves(lines: list[dict[str, Any]], picture: Picture) -> dict[str, list[tuple[float, float]]]:
    """The points of every curve, in order."""
    results: dict[str, dict[float, float]] = {}
    for line in lines:
        if line.get("figure") != picture.figure:
            continue
        for field, name in picture.up.items():
            curve = str(line[picture.by]) if picture.by else name
            results.setdefault(curve, {})[line[picture.across]] = line[field]
    return {name: sorted(points.items()) for name, points in results.items()}


def draw(place: Path, figures: tuple[str, ...], lines: list[dict[str, Any]]) -> None:
    """Several pictures side by side, two in a row; the paper's own points are hollow."""
    import matplotlib
    from matplotlib.figure import Figure

    rows = (len(figures) + 1) // 2
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "runnel", "font.size": 9}):
        whole = Figure(figsize=(9.6, 3.4 * rows), layout="constrained")
        for axes, name in zip(whole.subplots(rows, 2).flat, figures, strict=False):
            _draw_one(axes, name, curves(lines, FIGURES[name]))
        whole.savefig(place, format="svg", metadata={"Date": None, "Creator": "Runnel"})


def _draw_one(axes: Any, name: str, results: dict[str, list[tuple[float, float]]]) -> None:
    picture = FIGURES[name]
    for number, (curve, points) in enumerate(results.items()):
        marker = CONTENDERS.get(curve, "osv^"[number % 4])
        across, up = zip(*points, strict=True)
        dashed = {"linestyle": "--", "color": "grey"} if curve in ("N (1 − overlap)", "asked for") else {}
        axes.plot(across, up, marker=marker, markersize=4, label=curve.replace("_", " "), **dashed)
    for point in PAPER.get(name, []):
        axes.plot(*([element] for element in point), "kD", markersize=6, markerfacecolor="none", label="the paper")
    axes.set(title=f"{name[6:]}: {picture.title}", xlabel=picture.label)
    if picture.logarithmic:
        axes.set(yscale="log")
    else:
        axes.set_ylim(0, None)
    for axis, field in ((axes.xaxis, picture.across), (axes.yaxis, next(iter(picture.up)))):
        if field in ("subscriptions", "roots"):
            axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if len(results) > 1 or name in PAPER:
        axes.legend(frameon=False)


if __name__ == "__main__":
    main()
