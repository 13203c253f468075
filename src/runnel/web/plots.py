"""Plots of a run, as SVG with the colors of the surrounding page.

In: numbers. Out: `<svg>` elements for an HTML page. Only our own words and numbers are drawn, never untrusted names
(matplotlib would interpret `$…$` as mathematics).
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import matplotlib
import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

_INK, _MUTED, _GRID, _FIRST, _SECOND = "#010101", "#020202", "#030303", "#040404", "#050505"
_VARIABLES = {_INK: "ink", _MUTED: "muted", _GRID: "grid", _FIRST: "first", _SECOND: "second"}
"""Placeholder colors. Each is replaced by a variable of the page, which has a light and a dark value."""

_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "runnel",
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _MUTED,
    "axes.edgecolor": _GRID,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titlecolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": _GRID,
    "ytick.color": _GRID,
    "xtick.labelcolor": _MUTED,
    "ytick.labelcolor": _MUTED,
    "ytick.major.size": 0,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
}
_MOMENT_FORMATS = (
    ["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S.%f"],
    ["", "%Y", "%Y", "%d %b %Y", "%d %b %Y", "%d %b %Y"],
    ["%Y", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M:%S"],
)
"""Labels for years, months, days, hours, minutes and seconds; next to the axis; and at the start of a larger unit."""

_WIDE, _NARROW = 9.6, 4.5

Point = tuple[datetime, int, int]
Draw = Callable[[Figure, bool], None]


def plot_timeline(points: Sequence[Point]) -> str:
    """Plot items and matches over time, one above the other. At least one point is required."""

    def draw(figure: Figure, narrow: bool) -> None:
        centres, items, matches, width = _binned(points, 30 if narrow else 72)
        upper, lower = figure.subplots(2, 1, sharex=True)
        for axes, heights, colour, title in (
            (upper, items, _FIRST, "Items accepted"),
            (lower, matches, _SECOND, "Matches found"),
        ):
            axes.bar(centres, heights, width=width * 0.84, color=colour, linewidth=0)
            axes.set_title(title)
            axes.grid(axis="y")
            axes.set_ylim(bottom=0, top=max(1.0, float(heights.max()) * 1.08))
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.yaxis.set_major_formatter(FuncFormatter(_short))
        upper.tick_params(axis="x", length=0)
        locator = AutoDateLocator(tz=UTC, minticks=2, maxticks=5 if narrow else 9)
        lower.set_xlim(centres[0] - width, centres[-1] + width)
        lower.xaxis.set_major_locator(locator)
        lower.xaxis.set_major_formatter(ConciseDateFormatter(locator, UTC, *_MOMENT_FORMATS))

    return _both(draw, "timeline", "Items accepted and matches found over time", 3.6, 3.8)


def _binned(points: Sequence[Point], max_bins: int) -> tuple[Any, Any, Any, float]:
    """Sum the points in at most `most` equal intervals. Return their centers, items, matches, and the width."""
    times = np.asarray(date2num([moment for moment, _, _ in points]), dtype=np.float64)
    start, span = float(times.min()), float(times.max() - times.min())
    count = min(max_bins, len(points))
    if span == 0 or count == 1:
        count, span = 1, 0.0
    step = span / (count - 1) if count > 1 else 1 / 24
    bins = np.rint((times - start) / step).astype(np.int64)
    items, matches = np.zeros(count), np.zeros(count)
    np.add.at(items, bins, [items for _, items, _ in points])
    np.add.at(matches, bins, [matches for _, _, matches in points])
    return start + np.arange(count) * step, items, matches, step


def plot_ranks(counts: Sequence[int]) -> str:
    """Plot the matches of each query in descending order on logarithmic axes. At least one count must be positive."""
    ordered = np.sort(np.array([count for count in counts if count > 0], dtype=np.float64))[::-1]
    # Draw only a few hundred of a hundred thousand ranks; on a logarithmic axis this looks the same.
    ranks = np.unique(np.geomspace(1, len(ordered), 240).astype(np.int64))

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        heights = ordered[ranks - 1]
        axes.fill_between(ranks, heights, 0.5, step="mid", color=_SECOND, alpha=0.16, linewidth=0)
        axes.step(ranks, heights, where="mid", color=_SECOND, linewidth=1.8)
        axes.plot(ranks[:1], heights[:1], "o", color=_SECOND, markersize=5)
        axes.set(xscale="log", yscale="log")
        axes.set_xlim(0.85, max(10.0, float(ranks[-1])) * 1.15)
        axes.set_ylim(0.8, max(10.0, float(ordered[0])) * 1.6)
        axes.grid(axis="both")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(10, numticks=5 if narrow else 8))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(_short))
        axes.set_title("Matches of a query")
        axes.set_xlabel("Rank of the query, by the number of matches")

    return _both(draw, "ranks", "Matches per query by rank, on logarithmic axes", 3.1, 3.2)


def plot_bars(bars: Sequence[tuple[str, int]], label: str) -> str:
    """Plot horizontal bars with their numbers on a logarithmic axis. The first is gray: the work that was avoided."""

    def draw(figure: Figure, narrow: bool) -> None:
        axes = figure.subplots()
        positions = np.arange(len(bars))[::-1]
        lengths = [max(number, 0) for _, number in bars]
        longest = max(10, *lengths)
        colours = [_MUTED] + [_FIRST] * (len(bars) - 1)
        axes.barh(positions, [max(length, 0.5) for length in lengths], height=0.36, color=colours, linewidth=0)
        axes.set_xscale("log")
        # Leave space for the number at the end of the longest bar.
        axes.set_xlim(0.5, 2 * float(longest) ** (1.34 if narrow else 1.12))
        for position, (text, number) in zip(positions, bars, strict=True):
            axes.annotate(
                text, (0, position), xycoords=("axes fraction", "data"), xytext=(0, 12), textcoords="offset points"
            )
            axes.annotate(
                f"{number:,}", (max(number, 0.5), position), xytext=(6, -0.5), textcoords="offset points", va="center"
            )
        axes.set_ylim(-0.5, len(bars) - 0.3)
        axes.yaxis.set_visible(False)
        axes.xaxis.set_major_locator(LogLocator(10, numticks=5 if narrow else 9))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(_short))
        axes.grid(axis="x")

    height = 0.55 + 0.6 * len(bars)
    return _both(draw, "bars", label, height, height)


def _short(number: float, _: object = None) -> str:
    """Format a number for an axis.

    >>> [_short(number) for number in (0, 5, 1500, 20000, 3e6)]
    ['0', '5', '1.5k', '20k', '3M']
    """
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def _both(draw: Draw, name: str, label: str, height: float, narrow_height: float) -> str:
    """Return the plot for wide and for narrow windows. The page shows one of them."""
    wide = _svg(draw, f"{name}-wide", label, (_WIDE, height), narrow=False)
    narrow = _svg(draw, f"{name}-narrow", label, (_NARROW, narrow_height), narrow=True)
    return f'<div class="plot wide">{wide}</div><div class="plot narrow">{narrow}</div>'


def _svg(draw: Draw, name: str, label: str, size: tuple[float, float], *, narrow: bool) -> str:
    buffer = io.StringIO()
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure, narrow)
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=metadata)
    return _themed(buffer.getvalue(), name, label)


def _themed(text: str, name: str, label: str) -> str:
    """Convert an SVG document to an element of a page: unique ids, the page's fonts and colors, no style sheet."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<style[^>]*>.*?</style>|<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r"font-family:[^;\"]*;?|font: (\d[\d.]*px)[^;\"]*", lambda match: _font(match[1]), text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var(--{variable})")
    view = re.search(r'viewBox="[^"]*"', text)
    attributes = f'role="img" aria-label="{label}" {view[0] if view else ""}'
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    text = re.sub(r"<svg[^>]*>", f"<svg {names} {attributes}>", text, count=1)
    return re.sub(r">\s+<", "><", text).strip()


def _font(size: str | None) -> str:
    return f"font-size: {size}" if size else ""
