"""Contain damaged files: remove them from the workspace, so that the runner can continue.

In: the path of a damaged file. Out: a catalog that no longer needs it. If the files from which it was merged still
exist, they replace it. A plan is compiled again, and the base of a table is computed again. An index or a file of
cached answers is dropped. Otherwise the file is quarantined: its row is deleted, the file stays for inspection, and
the application log reports the lost items or matches.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum
from typing import TypeVar

from sqlalchemy import Connection

from runnel.catalog.learned import operator_cache
from runnel.catalog.logs import item_segments, match_segments, plan_versions, table_files
from runnel.catalog.logs.item_segments import ItemSegment
from runnel.catalog.logs.match_segments import KeptPart
from runnel.catalog.logs.quarantine import FILE, Quarantined, add_quarantined
from runnel.catalog.logs.table_files import FileKind
from runnel.catalog.store import leases
from runnel.engine.planning.reoptimize import recompile
from runnel.engine.workspace import Workspace
from runnel.errors import CorruptDataError
from runnel.logs.tables.rewrite_tables import FOLDER as TABLES
from runnel.logs.tables.rewrite_tables import rebuild_base
from runnel.matching.operators.ask.cache_files import FOLDER as ANSWERS
from runnel.plan.store import forget_parts, read_part, verify
from runnel.storage.checksums import check_file
from runnel.storage.file_storage import Storage
from runnel.storage.workspace_marker import read_marker

logger = logging.getLogger("runnel")

_S = TypeVar("_S", ItemSegment, KeptPart)


class Containment(Enum):
    """How damage was contained: a log file was replaced or quarantined, or a plan was compiled again."""

    FILE = "file"
    PLAN = "plan"


def contain_damage(workspace: Workspace, epoch: int, path: str) -> Containment | None:
    """Remove a damaged file from the workspace.

    Return None if there is nothing to do: the catalog does not reference the file, the file is intact, or the whole
    storage is unavailable. Files that are only unavailable must not be quarantined.
    """
    if read_marker(workspace.storage) is None:
        return None
    if path.startswith("plans/"):
        return _contain_plan(workspace, epoch, path)
    if _is_sound(workspace.storage, path):
        return None
    if path.startswith("items/"):
        return _contain_items(workspace, epoch, path)
    if path.startswith("matches/"):
        return _contain_matches(workspace, epoch, path)
    if path.startswith(f"{TABLES}/"):
        return _contain_table_file(workspace, epoch, path)
    if path.startswith(f"{ANSWERS}/"):
        return _contain_answers(workspace, epoch, path)
    return None


def _contain_items(workspace: Workspace, epoch: int, path: str) -> Containment | None:
    with workspace.catalog.read() as connection:
        segment = item_segments.live_segment(connection, path)
        retired = [] if segment is None else item_segments.retired_within(connection, segment)
    if segment is None:
        return None
    pieces = _covering(workspace.storage, segment, retired)
    first, last = segment.first_sequence, segment.last_sequence
    with workspace.catalog.write() as connection:
        leases.check(connection, epoch)
        if item_segments.live_segment(connection, path) is None:
            return Containment.FILE
        if pieces and item_segments.revive_segments(connection, segment, pieces):
            logger.warning("%s is damaged and was replaced by the files from which it was merged", path)
            return Containment.FILE
        matched = match_segments.matched_upto(connection)
        again = item_segments.lose_segment(connection, segment, matched)
        reason = f"the file is damaged: items {first}-{last} are lost"
        if again:
            reason += (
                f"; {again} of them were not matched yet and are accepted again if they are read or published again"
            )
        _quarantine(connection, path, reason, first)
    logger.error("%s is quarantined: %s", path, reason)
    return Containment.FILE


def _contain_matches(workspace: Workspace, epoch: int, path: str) -> Containment | None:
    with workspace.catalog.read() as connection:
        part = match_segments.live_part(connection, path)
        retired = [] if part is None else match_segments.retired_within(connection, part)
    if part is None:
        return None
    if part.by_query == path:
        with workspace.catalog.write() as connection:
            leases.check(connection, epoch)
            match_segments.set_level(connection, part, part.level, None)
            _quarantine(connection, path, "the index is damaged: matches are read without it", part.first_sequence)
        logger.warning("%s is damaged: matches are read without this index", path)
        return Containment.FILE
    pieces = _covering(workspace.storage, part, retired)
    with workspace.catalog.write() as connection:
        leases.check(connection, epoch)
        if match_segments.live_part(connection, path) is None:
            return Containment.FILE
        if pieces and match_segments.revive_parts(connection, part, pieces):
            logger.warning("%s is damaged and was replaced by the files from which it was merged", path)
            return Containment.FILE
        match_segments.lose_part(connection, part)
        reason = f"the file is damaged: matches of items {part.first_sequence}-{part.last_sequence} are lost"
        _quarantine(connection, path, reason, part.first_sequence)
    logger.error("%s is quarantined: %s", path, reason)
    return Containment.FILE


def _contain_table_file(workspace: Workspace, epoch: int, path: str) -> Containment | None:
    """Compute a base again. Without a history, rows as of earlier sequences are no longer kept."""
    with workspace.catalog.read() as connection:
        file = table_files.file_of(connection, path)
    if file is None:
        return None
    if file.kind is FileKind.HISTORY:
        with workspace.catalog.write() as connection:
            leases.check(connection, epoch)
            if not table_files.retire_files(connection, [path]):
                return Containment.FILE
            reason = f"the file is damaged: rows as of sequences before {file.to_sequence} are lost"
            _quarantine(connection, path, reason, file.to_sequence)
        logger.warning("%s is quarantined: %s", path, reason)
        return Containment.FILE
    base = rebuild_base(workspace.catalog, workspace.storage, workspace.tables, file, epoch=epoch)
    if base is None:
        logger.error("%s is damaged, and the changes from which it was computed are no longer kept", path)
        return None
    logger.warning("%s is damaged and was computed again from the item log", path)
    return Containment.FILE


def _contain_answers(workspace: Workspace, epoch: int, path: str) -> Containment | None:
    with workspace.catalog.write() as connection:
        leases.check(connection, epoch)
        segments = [segment for segment in operator_cache.live_segments(connection) if segment.path == path]
        operator_cache.retire_segments(connection, segments)
    if not segments:
        return None
    logger.warning("%s is damaged: its cached answers are dropped, and the operators are called again", path)
    return Containment.FILE


def _contain_plan(workspace: Workspace, epoch: int, path: str) -> Containment | None:
    """Compile the plan again from the declarations, if the damaged folder belongs to the current version."""
    folder = "/".join(path.split("/")[:2])
    forget_parts()
    try:
        verify(workspace.storage, folder)
        read_part(workspace.storage, folder)
        return None
    except CorruptDataError:
        pass
    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
        if folder not in plan_versions.plan_folders(connection):
            return None
    if current is None or folder not in (current.base, current.delta):
        return Containment.PLAN  # only an unfinished batch needs it; the next one uses the current version
    version = recompile(workspace, epoch, current)
    if version is not None:
        logger.warning("%s is damaged: the plan was compiled again as version %d", path, version)
    return Containment.PLAN


def _quarantine(connection: Connection, path: str, reason: str, sequence: int) -> None:
    add_quarantined(connection, Quarantined(FILE, path, reason, sequence=sequence, path=path))


def _covering(storage: Storage, whole: _S, retired: Sequence[_S]) -> list[_S]:
    """Return the intact files that were merged into a damaged one, if together they contain all of it."""
    covering: list[_S] = []
    position = whole.first_sequence
    while position <= whole.last_sequence:
        begun = [file for file in retired if file.first_sequence == position]
        longest = max((file.last_sequence for file in begun), default=None)
        layers = [file for file in begun if file.last_sequence == longest and _is_sound(storage, file.path)]
        if longest is None or len(layers) < sum(file.last_sequence == longest for file in begun):
            return []
        covering += layers
        position = longest + 1
    return covering


def _is_sound(storage: Storage, path: str) -> bool:
    try:
        check_file(storage, path, again=True)
    except CorruptDataError:
        return False
    return True
