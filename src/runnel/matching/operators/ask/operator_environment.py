"""The environment of operators: the settings of a workspace that concern them, and the process's share of budgets.

Workers read the settings from a file that only the runner's user account can read. Database URLs contain passwords,
so they are never passed through Spark, whose options and plans are visible to others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runnel.matching.operators.plugins.contract import OperatorContext
from runnel.matching.operators.plugins.operator_process import MEGABYTES
from runnel.model.operator import OperatorDeclaration
from runnel.settings import Settings
from runnel.storage.file_storage import Storage

FOLDER = "operators"
"""The folder of the files that operator configurations refer to."""

_SETTINGS_FILE = "private/operators.json"


@dataclass(frozen=True, slots=True)
class OperatorEnvironment:
    """The settings that concern operators, and this process's share of budgets.

    `modules` are the modules whose functions may be operators, including their submodules. A plug-in runs in at most
    `processes` processes, each with at most `megabytes` of memory. `order` names the strategy that orders calls; if
    it is empty, Runnel chooses one. Cached answers take at most `cache_bytes` in files and `memory_bytes` in memory.
    `folder` contains the files that configurations refer to. `share` is one divided by the number of workers.
    """

    modules: tuple[str, ...] = ()
    databases: Mapping[str, str] = field(default_factory=dict, repr=False)
    allowed_addresses: tuple[str, ...] = ()
    user_agent: str = "Runnel"
    processes: int = 1
    megabytes: int = MEGABYTES
    order: str = ""
    cache_bytes: int = 256 << 20
    memory_bytes: int = 64 << 20
    folder: Path | None = None
    share: float = 1.0

    def context(self, declaration: OperatorDeclaration) -> OperatorContext:
        """Return the context that an operator is created with."""
        return OperatorContext(
            configuration=dict(declaration.configuration),
            folder=self.folder,
            databases=self.databases,
            allowed_addresses=self.allowed_addresses,
            user_agent=self.user_agent,
            name=declaration.name,
            time_limit=declaration.time_limit.total_seconds(),
            concurrency=declaration.concurrency,
        )

    @staticmethod
    def of(settings: Settings, storage: Storage | None = None) -> OperatorEnvironment:
        """Return the environment of a workspace. Operators that read files require `storage`."""
        return OperatorEnvironment(
            settings.operator_modules,
            dict(settings.operator_databases),
            settings.allowed_addresses,
            settings.user_agent,
            settings.operator_processes,
            settings.operator_megabytes,
            settings.operator_order,
            settings.operator_cache_bytes,
            folder=None if storage is None else storage.local(FOLDER),
        )

    def keep(self, storage: Storage) -> None:
        """Write the settings to the file that workers read."""
        settings = asdict(self)
        del settings["folder"], settings["share"]
        storage.replace(_SETTINGS_FILE, json.dumps(settings).encode())

    @staticmethod
    def kept(storage: Storage, share: float) -> OperatorEnvironment:
        """Read a worker's environment. If the file is missing, no modules, databases or addresses are allowed."""
        try:
            settings: dict[str, Any] = json.loads(storage.local(_SETTINGS_FILE).read_text("utf-8"))
        except FileNotFoundError:
            return OperatorEnvironment(folder=storage.local(FOLDER), share=share)
        lists = {name: tuple(settings[name]) for name in ("modules", "allowed_addresses")}
        return OperatorEnvironment(**(settings | lists), folder=storage.local(FOLDER), share=share)
