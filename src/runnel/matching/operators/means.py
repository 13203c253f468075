"""What a root's settings give operators. Workers find it in a file of the root that only this user may read.

URLs of databases hold passwords, so they never travel through Spark, whose options and plans can be seen.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from runnel.log.storage import Storage
from runnel.matching.operators.caller import Limits
from runnel.matching.operators.contract import OperatorPlace
from runnel.settings import Settings

FOLDER = "operators"
"""Where files lie that the configurations of operators name."""

_PRIVATE = "private/operators.json"


@dataclass(frozen=True, slots=True)
class OperatorMeans:
    """What the root's settings give operators: not for others to see."""

    modules: tuple[str, ...] = ()
    databases: Mapping[str, str] = field(default_factory=dict, repr=False)
    allowed_addresses: tuple[str, ...] = ()
    user_agent: str = "Runnel"
    processes: int = 1
    cache_bytes: int = 256 << 20

    def place(self, storage: Storage) -> OperatorPlace:
        """Where operators of a root are loaded."""
        return OperatorPlace(
            folder=storage.local(FOLDER),
            databases=self.databases,
            allowed_addresses=self.allowed_addresses,
            user_agent=self.user_agent,
        )

    def limits(self, share: float) -> Limits:
        """What a worker with this share of all budgets gives operators."""
        return Limits(modules=self.modules, processes=self.processes, share=share)

    @staticmethod
    def of(settings: Settings) -> OperatorMeans:
        """The means that settings give."""
        return OperatorMeans(
            settings.operator_modules,
            dict(settings.operator_databases),
            settings.allowed_addresses,
            settings.user_agent,
            settings.operator_processes,
            settings.operator_cache_bytes,
        )

    def keep(self, storage: Storage) -> None:
        """Put the means where the workers of this user find them."""
        path = storage.local(_PRIVATE)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{uuid.uuid4().hex}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(self), file)
        draft.replace(path)

    @staticmethod
    def kept(storage: Storage) -> OperatorMeans:
        """The means that were put there; none where nobody did."""
        try:
            told: dict[str, Any] = json.loads(storage.local(_PRIVATE).read_text("utf-8"))
        except FileNotFoundError:
            return OperatorMeans()
        lists = {name: tuple(told[name]) for name in ("modules", "allowed_addresses")}
        return OperatorMeans(**(told | lists))
