"""Draw a filter tree: the source on the left, filters to the right, with wider lines where more items flow.

Texts of queries are drawn as they are, never interpreted as formulas.
"""

from __future__ import annotations

import io
import unicodedata
import warnings

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from runnel.papers.roses.describe_tree import ClauseText, FilterLine, TreeDescription, describe_tree
from runnel.papers.roses.factoring.filter_tree import ROOT, FilterTree

_MAX_CHARACTERS = 42
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "runnel", "font.size": 8}
_INK, _FILTER, _END, _EDGE = "#1f2933", "#dbe7f3", "#d9efdc", "#8a99a8"


def draw_tree(tree: FilterTree, texts: ClauseText, *, limit: int = 40, title: str = "source") -> str:
    """Draw the most expensive branches of a tree as SVG, up to a limit.

    >>> from runnel.arrays import Rows
    >>> tree = FilterTree(
    ...     np.array([-1, 0, 1]), Rows.of([[], [0], [1]]), Rows.of([[], [], [7]]), np.array([1.0, 0.25, 0.05])
    ... )
    >>> "title = $x$" in draw_tree(tree, ["title = $x$", "b"].__getitem__)
    True
    """
    description = describe_tree(tree, texts, limit)
    positions = _choose_positions(description)
    depth = max((line.depth for line in description.filters), default=0)
    rows = max(1.0, max(height for _, height in positions.values()) + 1)
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        # Characters that this machine's fonts lack are still written to the SVG; the viewer has other fonts.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure = Figure(figsize=(3.4 * (depth + 1), 0.42 * rows + 0.7))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.set_xlim(-0.1, depth + 1.0)
        axes.set_ylim(rows - 0.4, -1.3)
        for line in description.filters:
            _draw_filter(axes, line, positions)
        _box(axes, *positions[ROOT], f"{_shorten(title)} (100 %)", _FILTER)
        axes.text(0.0, -0.9, description.lines()[0], color=_INK, fontsize=9, parse_math=False)
        if description.hidden:
            axes.text(0.0, rows - 0.55, description.lines()[-1].strip(), color=_EDGE, parse_math=False)
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": "Runnel"})
    return svg.getvalue()


def _choose_positions(description: TreeDescription) -> dict[int, tuple[float, float]]:
    """Return x and y of each node. x is the depth. Leaves get their own rows, parents the mean of their children."""
    children: dict[int, list[int]] = {}
    for line in description.filters:
        children.setdefault(line.parent, []).append(line.node)
    depths = {line.node: line.depth for line in description.filters} | {ROOT: 0}
    positions: dict[int, tuple[float, float]] = {}
    row = 0.0
    for node in [line.node for line in description.filters]:
        if node not in children:
            positions[node] = (float(depths[node]), row)
            row += 1.0
    for node in [*reversed([line.node for line in description.filters if line.node in children]), ROOT]:
        heights = [positions[child][1] for child in children.get(node, ())]
        positions[node] = (float(depths[node]), float(np.mean(heights)) if heights else 0.0)
    return positions


def _draw_filter(axes: matplotlib.axes.Axes, line: FilterLine, positions: dict[int, tuple[float, float]]) -> None:
    x, y = positions[line.node]
    parent_x, parent_y = positions[line.parent]
    width = 0.4 + 3.0 * np.sqrt(line.asked)
    bend = [parent_x + 0.02, x - 0.11, x - 0.11, x]
    axes.plot(bend, [parent_y, parent_y, y, y], color=_EDGE, linewidth=width, alpha=0.5, zorder=1)
    _box(axes, x, y, f"{_shorten(line.condition)} ({100 * line.passes:.2g} %)", _END if line.predicates else _FILTER)


def _box(axes: matplotlib.axes.Axes, x: float, y: float, text: str, color: str) -> None:
    box = {"boxstyle": "round,pad=0.3", "facecolor": color, "edgecolor": _EDGE, "linewidth": 0.6}
    axes.text(x, y, text, color=_INK, va="center", ha="left", bbox=box, zorder=2, parse_math=False)


def _shorten(text: str) -> str:
    """Truncate a text to the length that fits, and replace control characters by spaces."""
    clean = "".join(" " if unicodedata.category(character).startswith("C") else character for character in text)
    return clean if len(clean) <= _MAX_CHARACTERS else clean[: _MAX_CHARACTERS - 1] + "…"
