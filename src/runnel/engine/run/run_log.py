"""Write the events of a run to the application log: its start and end, batches, plan versions and deliveries.

Each line summarizes the events since the previous line of its kind, so that a busy run does not fill the log. The
runner calls `note_progress` once per second, and each call writes at most one line per kind.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from runnel import __version__
from runnel.catalog.logs import match_segments, plan_versions
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.catalog.store.leases import Lease
from runnel.engine.planning.ports import plan_port
from runnel.engine.run.run_state import RunState
from runnel.engine.workspace import Workspace
from runnel.errors import RunnelError
from runnel.streaming.streaming_query import checkpoint_path

logger = logging.getLogger("runnel")


class RunLog:
    """Writes the log lines of one run."""

    def __init__(self, workspace: Workspace, run_state: RunState) -> None:
        self._workspace = workspace
        self._run_state = run_state
        self._matched = 0
        self._plan: int | None = None
        self._delivered = 0

    def note_start(self, lease: Lease, matched: int) -> None:
        """Log the version, workspace, Spark master and start position of the run."""
        master = self._workspace.settings.master
        logger.info(
            "Runnel %s starts on workspace %s with Spark master %s, after item %d",
            __version__,
            self._workspace.folder,
            master,
            matched,
            extra={
                "version": __version__,
                "master": master,
                "workspace": str(self._workspace.folder),
                "epoch": lease.epoch,
            },
        )
        self._matched = matched

    def note_progress(self) -> None:
        """Log new plan versions, batches and deliveries since the last call."""
        with self._workspace.catalog.read() as connection:
            segments = match_segments.match_segments(connection, self._matched)
            plan = plan_versions.current_plan(connection)
        if plan is not None and plan.version != self._plan:
            self._plan = plan.version
            logger.info(
                "plan version %d has %d queries%s",
                plan.version,
                plan.queries,
                plan_port(plan.distribution).describe(plan),
                extra={"plan": plan.version},
            )
        if segments:
            self._note_batches(segments)
        self.note_deliveries()

    def _note_batches(self, segments: Sequence[MatchSegment]) -> None:
        first, last = self._matched + 1, segments[-1].last_sequence
        self._matched = last
        items, matches = last - first + 1, sum(segment.matches for segment in segments)
        seconds = sum(map(self._seconds, segments))
        batches = "a batch" if len(segments) == 1 else f"{len(segments)} batches"
        logger.info(
            "matched items %d-%d: %d items, %d matches, %s in %.2f seconds, plan version %d",
            first,
            last,
            items,
            matches,
            batches,
            seconds,
            segments[-1].plan,
            extra={
                "batch": segments[-1].batch,
                "items": items,
                "matches": matches,
                "seconds": round(seconds, 3),
                "plan": segments[-1].plan,
            },
        )

    def _seconds(self, segment: MatchSegment) -> float:
        """Return the seconds from Spark's planning of a batch to its commit, or 0 if that is not known."""
        planned = self._workspace.storage.local(f"{checkpoint_path(segment.lineage)}/offsets/{segment.batch}")
        try:
            return max(0.0, segment.committed / 1e6 - planned.stat().st_mtime)
        except OSError:
            return 0.0

    def note_deliveries(self) -> None:
        """Log the number of messages delivered since the last call, unless it is 0."""
        delivered = self._run_state.total("messages delivered")
        if delivered > self._delivered:
            count, self._delivered = delivered - self._delivered, delivered
            logger.info("delivered %d message%s", count, "" if count == 1 else "s", extra={"messages": count})

    def note_end(self, reason: BaseException | str, lag: int | None) -> None:
        """Log why the run ends, and how many items are left."""
        waiting = "an unknown number of items waits" if lag is None else f"{lag} items wait for the next run"
        if isinstance(reason, str):
            logger.info("the run ends: %s; %s", reason, waiting, extra={"items": lag})
        elif isinstance(reason, RunnelError):
            logger.error("the run ends: %s; %s", reason, waiting, extra={"items": lag})
        else:
            logger.error("the run ends: internal error; %s", waiting, exc_info=reason, extra={"items": lag})
