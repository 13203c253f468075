"""The figures of operators as plots: JSON lines of `benchmarks.operators` in, pictures out.

python -m benchmarks.operators > operators.jsonl
python -m benchmarks.operators_plots operators.jsonl docs/images
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

ORDERS = {
    "naive": "x",
    "sequential": "s",
    "kruskal": "D",
    "sub_order": "^",
    "static_greedy": "v",
    "adaptive": "o",
    "adaptive_weighted": "P",
    "bound": "_",
}
FIGURES = {
    "figure4": ("ways", "ways (40,000 calls, uniform popularity)"),
    "figure5": ("ways", "ways (40,000 calls, Zipf 1)"),
    "figure6": ("calls_in_all", "different calls (20,000 ways, Zipf 1)"),
    "figure7": ("longest", "tests of the longest way (20,000 ways, 5,000 calls, Zipf 1)"),
    "figure8": ("popularity", "popularity of calls (20,000 ways, 5,000 calls)"),
}
PAPER: dict[str, dict[str, list[tuple[float, float]]]] = {
    "figure4": {"sequential": [(80_000, 7_761)], "sub_order": [(80_000, 7_037)]},
    "figure6": {"naive": [(30_000, 16_251)], "sequential": [(30_000, 3_267)], "sub_order": [(30_000, 1_977)]},
    "figure7": {"sequential": [(5, 1_593), (11, 1_784)]},
}
"""Points that the paper's text gives."""


def main() -> None:
    """Read and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path, help="what benchmarks.operators printed")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.lines.read_text().splitlines() if line.startswith("{")]
    for figure, (axis, title) in FIGURES.items():
        results = lines_of(lines, figure, axis)
        if results:
            draw(options.folder / f"operator-{figure}.svg", figure, title, results)


def lines_of(lines: list[dict[str, Any]], figure: str, axis: str) -> dict[str, tuple[list[Any], list[float]]]:
    """For every order the places on an axis and the calls per event there.

    The bound is known for some of the events alone. What it is for all is told by the calls of an order for all, and
    by how far that order is from the bound where it is known.
    """
    results: dict[str, dict[Any, float]] = {}
    for line in lines:
        if line.get("figure") == figure and "calls" in line:
            results.setdefault(line["order"], {})[line[axis]] = line["calls"]
            if line["order"] == "adaptive_weighted" and "to_bound" in line:
                results.setdefault("bound", {})[line[axis]] = line["calls"] / line["to_bound"]
    ordered = {name: sorted(places.items(), key=lambda place: place[0]) for name, places in results.items()}
    return {name: ([place for place, _ in pairs], [value for _, value in pairs]) for name, pairs in ordered.items()}


def draw(place: Path, figure: str, title: str, valueseses: dict[str, tuple[list[Any], list[float]]]) -> None:
    """A line for each order; the paper's own points are hollow."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "runnel", "font.size": 9}):
        picture = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = picture.subplots()
        places = list(dict.fromkeys(place for name in valueseses for place in valueseses[name][0]))
        numbers = {place: place if isinstance(place, int) else number for number, place in enumerate(sorted(places))}
        for number, (name, marker) in enumerate(ORDERS.items()):
            look: dict[str, Any] = {"marker": marker, "color": "black" if name == "bound" else f"C{number}"}
            if name in valueseses:
                where, values = valueseses[name]
                axes.plot(
                    [numbers[element] for element in where],
                    values,
                    markersize=4,
                    label=name.replace("_", " "),
                    **look,
                )
            for where_paper, value in PAPER.get(figure, {}).get(name, []):
                axes.plot([where_paper], [value], markersize=7, markerfacecolor="none", linestyle="none", **look)
        if any(isinstance(place, str) for place in places):
            axes.set_xticks(list(numbers.values()), list(numbers))
        axes.set(xlabel=title, title="calls per event", ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        picture.savefig(place, format="svg", metadata={"Date": None, "Creator": "Runnel"})


if __name__ == "__main__":
    main()
