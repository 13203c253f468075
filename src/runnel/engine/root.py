"""A root: the place of one installation, opened."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runnel.catalog.connection import Catalog, Clock
from runnel.errors import NotARoot, RootError, RootExists
from runnel.log.item_log import ItemLog
from runnel.log.match_log import MatchLog
from runnel.log.storage import Storage, open_storage
from runnel.settings import FILE, Settings

_TEMPLATE = """\
# Settings of this Runnel root. Every setting has a default; the settings reference lists them all.
# The environment wins: RUNNEL_LAG_LIMIT=1000 overrides lag_limit.

# master = "local[*]"
# lag_limit = 1000000
"""


@dataclass(frozen=True)
class Root:
    """An open root: its folder, settings, catalog, files and logs."""

    folder: Path
    settings: Settings
    catalog: Catalog
    storage: Storage
    items: ItemLog
    matches: MatchLog

    @property
    def out(self) -> Path:
        """Where relative targets of subscriptions are."""
        return self.folder / "out"

    def close(self) -> None:
        """Let go of the catalog."""
        self.catalog.close()


def create_root(folder: Path, *, clock: Clock = time.time, **overrides: Any) -> Root:
    """Make a new root in a folder that is empty or does not exist."""
    folder = folder.absolute()
    if (folder / FILE).exists():
        raise RootExists(f"{folder} is a Runnel root already", hint="use it, or choose another folder")
    try:
        (folder / "out").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RootError(f"{folder} cannot be made: {error.strerror}", hint="choose another folder") from error
    settings = Settings.load(folder, **overrides)
    root = _open(folder, settings, clock)
    root.catalog.migrate()
    # The settings file makes the folder a root, so it comes last.
    (folder / FILE).write_text(_TEMPLATE, "utf-8")
    return root


def open_root(folder: Path, *, clock: Clock = time.time, **overrides: Any) -> Root:
    """Open a root, bringing its catalog up to date."""
    folder = folder.absolute()
    if not (folder / FILE).exists():
        raise NotARoot(f"{folder} is not a Runnel root", hint=f"`runnel init {folder}` makes one")
    root = _open(folder, Settings.load(folder, **overrides), clock)
    root.catalog.migrate()
    return root


def _refuse_odd_name(folder: Path) -> None:
    if "?" in str(folder) or "#" in str(folder):
        raise RootError(f"{folder}: a root's path must not have ? or # in it", hint="choose another folder")


def _open(folder: Path, settings: Settings, clock: Clock) -> Root:
    _refuse_odd_name(folder)
    catalog = Catalog(
        settings.catalog or f"sqlite:///{folder / 'catalog.sqlite'}",
        max_bytes=settings.catalog_max_bytes,
        clock=clock,
    )
    storage = open_storage(settings.storage or folder.as_uri())
    return Root(folder, settings, catalog, storage, ItemLog(catalog, storage), MatchLog(catalog, storage))
