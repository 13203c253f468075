"""A filter tree as a picture: the source on the left, filters to the right, as high as the items that reach them.

Nothing but matplotlib is needed; texts from outside are drawn as they are, never as mathematics.
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

_LONGEST = 42
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "runnel", "font.size": 8}
_INK, _FILTER, _END, _EDGE = "#1f2933", "#dbe7f3", "#d9efdc", "#8a99a8"


def draw_tree(tree: FilterTree, texts: ClauseText, *, limit: int = 40, title: str = "source") -> str:
    """A tree as an SVG picture; the branches that cost most, up to a limit.

    >>> from runnel.arrays import Rows
    >>> tree = FilterTree(
    ...     np.array([-1, 0, 1]), Rows.of([[], [0], [1]]), Rows.of([[], [], [7]]), np.array([1.0, 0.25, 0.05])
    ... )
    >>> "title = $x$" in draw_tree(tree, ["title = $x$", "b"].__getitem__)
    True
    """
    description = describe_tree(tree, texts, limit)
    places = _placed(description)
    depth = max((one.depth for one in description.filters), default=0)
    rows = max(1.0, max(height for _, height in places.values()) + 1)
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        # A letter that this machine's fonts lack is written all the same, and shown by the reader's.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure = Figure(figsize=(3.4 * (depth + 1), 0.42 * rows + 0.7))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.set_xlim(-0.1, depth + 1.0)
        axes.set_ylim(rows - 0.4, -1.3)
        for one in description.filters:
            _draw_filter(axes, one, places)
        _box(axes, *places[ROOT], f"{_shown(title)} (100 %)", _FILTER)
        axes.text(0.0, -0.9, description.lines()[0], color=_INK, fontsize=9, parse_math=False)
        if description.hidden:
            axes.text(0.0, rows - 0.55, description.lines()[-1].strip(), color=_EDGE, parse_math=False)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": "Runnel"})
    return written.getvalue()


def _placed(description: TreeDescription) -> dict[int, tuple[float, float]]:
    """Where nodes stand: the depth across; filters without children one below the other, others beside the middle."""
    children: dict[int, list[int]] = {}
    for one in description.filters:
        children.setdefault(one.parent, []).append(one.node)
    depths = {one.node: one.depth for one in description.filters} | {ROOT: 0}
    places: dict[int, tuple[float, float]] = {}
    row = 0.0
    for node in [one.node for one in description.filters]:
        if node not in children:
            places[node] = (float(depths[node]), row)
            row += 1.0
    for node in [*reversed([one.node for one in description.filters if one.node in children]), ROOT]:
        heights = [places[child][1] for child in children.get(node, ())]
        places[node] = (float(depths[node]), float(np.mean(heights)) if heights else 0.0)
    return places


def _draw_filter(axes: matplotlib.axes.Axes, one: FilterLine, places: dict[int, tuple[float, float]]) -> None:
    across, down = places[one.node]
    from_across, from_down = places[one.parent]
    width = 0.4 + 3.0 * np.sqrt(one.asked)
    bend = [from_across + 0.02, across - 0.11, across - 0.11, across]
    axes.plot(bend, [from_down, from_down, down, down], color=_EDGE, linewidth=width, alpha=0.5, zorder=1)
    _box(
        axes, across, down, f"{_shown(one.condition)} ({100 * one.passes:.2g} %)", _END if one.predicates else _FILTER
    )


def _box(axes: matplotlib.axes.Axes, across: float, down: float, text: str, colour: str) -> None:
    box = {"boxstyle": "round,pad=0.3", "facecolor": colour, "edgecolor": _EDGE, "linewidth": 0.6}
    axes.text(across, down, text, color=_INK, va="center", ha="left", bbox=box, zorder=2, parse_math=False)


def _shown(text: str) -> str:
    """A text as far as it fits, without characters that a picture cannot hold."""
    clean = "".join(" " if unicodedata.category(letter).startswith("C") else letter for letter in text)
    return clean if len(clean) <= _LONGEST else clean[: _LONGEST - 1] + "…"
