"""Other systems on the same queries and items: what each of them takes, and whether its matches are the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.event_workload import Events
from benchmarks.peers.forms import (
    monitor_frequencies,
    monitor_items,
    monitor_queries,
    ruler_events,
    ruler_rules,
    write_lines,
)
from benchmarks.peers.java import EVENT_RULER, LUCENE_MONITOR, Missing, Peer, prepare, run
from benchmarks.runs import Run
from benchmarks.workloads import Items

_MONITOR_ITEMS = 1000
_MONITOR_WARM = 300
_RULER_WARM = 20_000
_BATCH = 32

_WAYS: dict[str, dict[str, int]] = {
    "lucene monitor": {"--passes": 2, "--batch": 1},
    "lucene monitor, one pass": {"--passes": 1, "--batch": 1},
    "lucene monitor, batches": {"--passes": 2, "--batch": _BATCH},
}
"""The multipass presearcher, the plain one, and several documents at a time."""


def measure_monitor(this: Run) -> None:
    """Lucene's monitor: a Boolean query for each query, candidates by its presearcher."""
    items = this.items
    if not isinstance(items, Items):
        this.say("lucene monitor", not_run="the driver is written for words")
        return

    def written(folder: Path) -> dict[str, object]:
        files: dict[str, object] = {
            "--queries": write_lines(folder / "queries", monitor_queries(this.queries)),
            "--items": write_lines(folder / "items", monitor_items(items.head(_MONITOR_ITEMS))),
            "--warm": _MONITOR_WARM,
        }
        if this.setting.frequencies is not None:
            files["--frequencies"] = write_lines(folder / "frequencies", monitor_frequencies())
        return files

    _measure(this, LUCENE_MONITOR, _WAYS, written)


def measure_ruler(this: Run) -> None:
    """Event Ruler: a rule for each query, of attributes only."""
    events = this.items
    if not isinstance(events, Events):
        this.say("event ruler", not_run="it knows no words: use --workload events")
        return

    def written(folder: Path) -> dict[str, object]:
        return {
            "--queries": write_lines(folder / "queries", ruler_rules(this.queries)),
            "--items": write_lines(folder / "items", ruler_events(events)),
            "--warm": _RULER_WARM,
        }

    _measure(this, EVENT_RULER, {"event ruler": {}}, written)


def _measure(
    this: Run, peer: Peer, ways: dict[str, dict[str, int]], written: Callable[[Path], dict[str, object]]
) -> None:
    with tempfile.TemporaryDirectory(prefix="runnel-peers-") as name:
        folder = Path(name)
        try:
            class_path = prepare(peer, folder, this.options.jars)
            files = written(folder)
        except Missing as missing:
            this.say(next(iter(ways)), not_run=str(missing))
            return
        for figure, options in ways.items():
            try:
                _run(this, figure, peer, class_path, folder, files | options)
            except Missing as missing:
                this.say(figure, not_run=str(missing))


def _run(this: Run, figure: str, peer: Peer, class_path: str, folder: Path, options: dict[str, object]) -> None:
    ran = run(peer, class_path, folder, options)
    figures, items = ran.figures, len(ran.matches)
    counted = {}
    if "queries_run" in figures:
        counted["candidates_per_item"] = figures["queries_run"] / items
    this.say(
        figure,
        version=peer.version,
        items=items,
        compile_cpu_seconds=figures["compile_cpu_seconds"],
        cpu_seconds=figures["cpu_seconds"],
        seconds=figures["seconds"],
        items_per_cpu_second=items / figures["cpu_seconds"],
        **counted,
        heap_megabytes=figures["heap_megabytes"],
        resident_megabytes=ran.resident_megabytes,
        **this.compare(figure, ran.matches),
    )
