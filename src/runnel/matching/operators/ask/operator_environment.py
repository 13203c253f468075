"""What a workspace gives its operators. Workers read it from a file that only the user of the runner can read.

URLs of databases hold passwords, so they never travel through Spark, whose options and plans can be seen.
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
"""Where files lie that the configurations of operators name."""

_PRIVATE = "private/operators.json"


@dataclass(frozen=True, slots=True)
class OperatorEnvironment:
    """What the settings of a workspace, and the process that asks, give operators.

    `modules` are those whose functions may be operators, with all below them. A plug-in has at most `processes`
    processes, each with at most `megabytes` of memory. `order` names the order of calls; without a name it is
    chosen. Answers take at most `cache_bytes` in files and `memory_bytes` in memory. `folder` has the files that
    configurations name. `share` is this process's part of budgets, one divided by the number of workers.
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
        """What an operator is made with."""
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
        """The environment that settings give; operators that name files need the storage that has them."""
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
        """Write the environment to where workers read it."""
        told = asdict(self)
        del told["folder"], told["share"]
        storage.replace(_PRIVATE, json.dumps(told).encode())

    @staticmethod
    def kept(storage: Storage, share: float) -> OperatorEnvironment:
        """The environment of a worker, with its share of budgets; nothing is allowed where none was written."""
        try:
            told: dict[str, Any] = json.loads(storage.local(_PRIVATE).read_text("utf-8"))
        except FileNotFoundError:
            return OperatorEnvironment(folder=storage.local(FOLDER), share=share)
        lists = {name: tuple(told[name]) for name in ("modules", "allowed_addresses")}
        return OperatorEnvironment(**(told | lists), folder=storage.local(FOLDER), share=share)
