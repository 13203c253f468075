"""Compile the plan again during a run if learned word frequencies promise a large enough gain (RoSeS §8).

The new base contains the same queries, so a batch can use either version. Each batch records its plan version and is
replayed with it. Compiling blocks no other writer, and the result is published only if no other version was published
in the meantime. A distributed plan is also compiled again when many queries were added; the new base is distributed
before workers map it.
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
"""The fraction of index entries per item that compiling again must save."""

_MIN_SAVED_ENTRIES = 20.0
"""The number of index entries per item that compiling again must save."""


@dataclass(frozen=True, slots=True)
class ReoptimizationReport:
    """The index entries expected per item before (`now`) and after (`then`), and the version if one was published."""

    now: float
    then: float
    version: int | None = None


def reoptimize(
    workspace: Workspace,
    epoch: int,
    *,
    enough: float = ENOUGH,
    worth_it: float = _MIN_SAVED_ENTRIES,
    proceed: Proceed = lambda: None,
) -> ReoptimizationReport | None:
    """Compile the current plan again if that saves the fraction `enough` and at least `worth_it` entries per item.

    Return None if there is no plan, or if no frequencies were learned and the plan is not distributed. `proceed` is
    called between the steps of distributing the plan, and may raise an exception to abort.
    """
    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
        frequencies = word_frequencies(connection)
    if current is None or not (frequencies or current.distribution):
        return None
    from runnel.matching.compile.compile_plan import compile_merged
    from runnel.matching.compile.gain import gain_of_compiling

    plan = plan_store.load(workspace.storage, plan_store.PlanVersion.of(current))
    gain = gain_of_compiling(plan, frequencies)
    is_worthwhile = bool(frequencies) and gain.share >= enough and gain.now - gain.then >= worth_it
    is_due = current.distribution is not None and has_grown(plan)
    if not (is_worthwhile or is_due):
        return ReoptimizationReport(gain.now, gain.then)
    base = compile_merged(
        workspace.storage, new_folder(), plan, frequencies=frequencies, matcher=workspace.settings.matcher
    )
    return ReoptimizationReport(gain.now, gain.then, _publish(workspace, epoch, current, base, proceed))


def recompile_unusable(workspace: Workspace, epoch: int, *, proceed: Proceed = lambda: None) -> int | None:
    """Compile all queries again if the plan is damaged, has an older format, or is for another matcher.

    Return the version that was published, or None.
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
        logger.warning("the plan cannot be read, so all queries are compiled again: %s", error)
        return False


def recompile(workspace: Workspace, epoch: int, current: PlanRow, *, proceed: Proceed = lambda: None) -> int | None:
    """Compile all queries from their definitions, and publish them in place of the current version.

    Return the new version, or None if another version was published in the meantime.
    """
    with workspace.catalog.read() as connection:
        change = read_everything(connection)
    compiled = compile_plan(workspace, change)
    return _publish(workspace, epoch, current, compiled.finish(), proceed)


def _publish(workspace: Workspace, epoch: int, current: PlanRow, base: PlanManifest, proceed: Proceed) -> int | None:
    """Publish a base with the same queries as the current version, and return the new version.

    Return None if another version was published in the meantime, or if garbage collection deleted the new folders
    because compiling took too long. The next run of the loop tries again.
    """
    distribution = wanted_port(workspace.settings, base).distribute(workspace, base.folder, proceed=proceed)
    with workspace.catalog.write() as connection:
        leases.check(connection, epoch)
        newest = plan_versions.current_plan(connection)
        if newest is None or newest.version != current.version:
            return None
        if not is_written(workspace.storage, base.folder) or not (
            distribution is None or distribution.is_complete(workspace.storage)
        ):
            return None
        return publish_base(connection, base.folder, current.queries, distribution)
