"""Compiling the plan again while running, once what was learned of the stream promises enough (RoSeS §8).

The new base holds the same queries, so a batch may use either; each names its version, and so does a replay of it.
The plan is compiled without holding up anybody, and published only if nothing else was published meanwhile. Where
the queries are distributed over workers it is also compiled when much was added, and the new base is distributed
before anybody has to map it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from runnel.catalog.learned.stream_statistics import word_frequencies
from runnel.catalog.logs import plan_versions
from runnel.catalog.logs.plan_versions import PlanRow
from runnel.catalog.store import leases
from runnel.engine.planning.plan_change import compile_plan, has_grown, publish_base, read_everything
from runnel.engine.planning.ports import Proceed, wanted_port
from runnel.engine.workspace import Workspace
from runnel.errors import CorruptDataError
from runnel.plan import store as plan_store
from runnel.plan.manifest import PlanManifest
from runnel.plan.store import is_written, new_folder

logger = logging.getLogger("runnel")

ENOUGH = 0.2
"""The part of the walk that must be saved for a plan to be compiled again."""

_WORTH_IT = 20.0
"""Entries for one item below which there is nothing to save."""


@dataclass(frozen=True, slots=True)
class ReoptimizationReport:
    """What came of it: the entries expected for one item before and after, and the version, if one was published."""

    now: float
    then: float
    version: int | None = None


def reoptimize(
    workspace: Workspace,
    epoch: int,
    *,
    enough: float = ENOUGH,
    worth_it: float = _WORTH_IT,
    proceed: Proceed = lambda: None,
) -> ReoptimizationReport | None:
    """Compile the current plan again if that gains enough; None where there is no plan or nothing was learned.

    `proceed` is called between the steps of distributing it, and may raise to end it.
    """
    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
        known = word_frequencies(connection)
    if current is None or not (known or current.distribution):
        return None
    from runnel.matching.compile.compile_plan import compile_merged
    from runnel.matching.compile.gain import gain_of_compiling

    plan = plan_store.load(workspace.storage, plan_store.PlanVersion.of(current))
    gain = gain_of_compiling(plan, known)
    pays = bool(known) and gain.share >= enough and gain.now - gain.then >= worth_it
    is_due = current.distribution is not None and has_grown(plan)
    if not (pays or is_due):
        return ReoptimizationReport(gain.now, gain.then)
    made = compile_merged(
        workspace.storage, new_folder(), plan, frequencies=known, matcher=workspace.settings.matcher
    )
    return ReoptimizationReport(gain.now, gain.then, _publish(workspace, epoch, current, made, proceed))


def recompile_unusable(workspace: Workspace, epoch: int, *, proceed: Proceed = lambda: None) -> int | None:
    """Compile all queries again if the plan is damaged, has an older format, or is for another matcher.

    Gives the version that was published.
    """
    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
    if current is None or _is_usable(workspace, current):
        return None
    return recompile(workspace, epoch, current, proceed=proceed)


def _is_usable(workspace: Workspace, current: PlanRow) -> bool:
    from runnel.matching.compile.build_matcher import matcher_name

    try:
        plan = plan_store.load(workspace.storage, plan_store.PlanVersion.of(current))
        return matcher_name(plan) == workspace.settings.matcher
    except CorruptDataError as error:
        logger.warning("the plan cannot be read, and all queries are compiled again: %s", error)
        return False


def recompile(workspace: Workspace, epoch: int, current: PlanRow, *, proceed: Proceed = lambda: None) -> int | None:
    """Compile all queries from their definitions, in place of the current version; gives the version, or None where
    another one was published in the meantime."""
    with workspace.catalog.read() as connection:
        change = read_everything(connection)
    compiled = compile_plan(workspace, change)
    return _publish(workspace, epoch, current, compiled.finish(), proceed)


def _publish(workspace: Workspace, epoch: int, current: PlanRow, base: PlanManifest, proceed: Proceed) -> int | None:
    """Make a base with the same queries current; None where another version was published in the meantime, or the
    folders were collected as orphans because compiling took so long. The next turn tries again."""
    made = wanted_port(workspace.settings, base).distribute(workspace, base.folder, proceed=proceed)
    with workspace.catalog.write() as connection:
        leases.check(connection, epoch)
        newest = plan_versions.current_plan(connection)
        if newest is None or newest.version != current.version:
            return None
        if not is_written(workspace.storage, base.folder) or not (
            made is None or made.is_complete(workspace.storage)
        ):
            return None
        return publish_base(connection, base.folder, current.queries, made)
