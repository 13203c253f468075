"""What a root's settings give operators. Workers find it in a file of the root that only this user may read.

URLs of databases hold passwords, so they never travel through Spark, whose options and plans can be seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from runnel.matching.operators.ask.caller import CallerLimits
from runnel.matching.operators.plugins.contract import OperatorContext
from runnel.settings import Settings
from runnel.storage.file_storage import Storage

FOLDER = "operators"
"""Where files lie that the configurations of operators name."""

_PRIVATE = "private/operators.json"


@dataclass(frozen=True, slots=True)
class OperatorEnvironment:
    """What the root's settings give operators: not for others to see."""

    modules: tuple[str, ...] = ()
    databases: Mapping[str, str] = field(default_factory=dict, repr=False)
    allowed_addresses: tuple[str, ...] = ()
    user_agent: str = "Runnel"
    processes: int = 1
    megabytes: int = 4096
    order: str = ""
    cache_bytes: int = 256 << 20

    def place(self, storage: Storage) -> OperatorContext:
        """Where operators of a root are loaded."""
        return OperatorContext(
            folder=storage.local(FOLDER),
            databases=self.databases,
            allowed_addresses=self.allowed_addresses,
            user_agent=self.user_agent,
        )

    def limits(self, share: float) -> CallerLimits:
        """What a worker with this share of all budgets gives operators."""
        return CallerLimits(modules=self.modules, processes=self.processes, megabytes=self.megabytes, share=share)

    @staticmethod
    def of(settings: Settings) -> OperatorEnvironment:
        """The means that settings give."""
        return OperatorEnvironment(
            settings.operator_modules,
            dict(settings.operator_databases),
            settings.allowed_addresses,
            settings.user_agent,
            settings.operator_processes,
            settings.operator_megabytes,
            settings.operator_order,
            settings.operator_cache_bytes,
        )

    def keep(self, storage: Storage) -> None:
        """Put the means where the workers of this user find them."""
        storage.replace(_PRIVATE, json.dumps(asdict(self)).encode())

    @staticmethod
    def kept(storage: Storage) -> OperatorEnvironment:
        """The means that were put there; none where nobody did."""
        try:
            told: dict[str, Any] = json.loads(storage.local(_PRIVATE).read_text("utf-8"))
        except FileNotFoundError:
            return OperatorEnvironment()
        lists = {name: tuple(told[name]) for name in ("modules", "allowed_addresses")}
        return OperatorEnvironment(**(told | lists))
