"""Runnel: content-based publish/subscribe on Apache Spark.

    import runnel

    with runnel.connect("news") as engine:
        engine.execute("register feed Wire; create feed Rock from Wire where title contains 'rock';")
        engine.execute("subscribe to Rock output rss 'rock.xml';")
        engine.publish("Wire", [{"id": "1", "title": "Rock am Ring"}])
        engine.run(once=True)

`runnel.compile(statements).match(items)` matches without a workspace and without Spark; `runnel.spark.match` matches
the rows of any DataFrame. All errors derive from `runnel.RunnelError`.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from runnel.errors import (
    BacklogError,
    BrokenDocumentError,
    CatalogUnavailableError,
    CorruptDataError,
    CyclicFeedsError,
    DeliveryError,
    DuplicateNameError,
    FencedError,
    InputError,
    InvalidConditionError,
    InvalidItemError,
    JavaMissingError,
    LineageConflictError,
    NewerWorkspaceError,
    NotAllowedError,
    NotAWorkspaceError,
    NotFoundError,
    OperatorRefusedError,
    QuotaExceededError,
    ReadOnlyError,
    RefusedAddressError,
    RunnelError,
    RunnerActiveError,
    SparkLostError,
    StatementError,
    StatementSyntaxError,
    StillNeededError,
    StorageFullError,
    StylesheetError,
    TooExpensiveError,
    UnknownNameError,
    UnreachableError,
    WorkspaceError,
    WorkspaceExistsError,
)

if TYPE_CHECKING:
    from runnel import spark
    from runnel.engine import Engine, MatchedItem, connect
    from runnel.library import CompiledPlan, compile

__all__ = [
    "BacklogError",
    "BrokenDocumentError",
    "CatalogUnavailableError",
    "CompiledPlan",
    "CorruptDataError",
    "CyclicFeedsError",
    "DeliveryError",
    "DuplicateNameError",
    "Engine",
    "FencedError",
    "InputError",
    "InvalidConditionError",
    "InvalidItemError",
    "JavaMissingError",
    "LineageConflictError",
    "MatchedItem",
    "NewerWorkspaceError",
    "NotAWorkspaceError",
    "NotAllowedError",
    "NotFoundError",
    "OperatorRefusedError",
    "QuotaExceededError",
    "ReadOnlyError",
    "RefusedAddressError",
    "RunnelError",
    "RunnerActiveError",
    "SparkLostError",
    "StatementError",
    "StatementSyntaxError",
    "StillNeededError",
    "StorageFullError",
    "StylesheetError",
    "TooExpensiveError",
    "UnknownNameError",
    "UnreachableError",
    "WorkspaceError",
    "WorkspaceExistsError",
    "compile",
    "connect",
    "spark",
]
__version__ = "0.1.0"

_MODULES = {
    "CompiledPlan": "runnel.library",
    "Engine": "runnel.engine",
    "MatchedItem": "runnel.engine",
    "compile": "runnel.library",
    "connect": "runnel.engine",
}
"""Names that are imported when they are first used, because Spark's workers must start quickly."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "spark":
        return import_module("runnel.spark")
    if name == "open":
        warnings.warn("runnel.open is deprecated; use runnel.connect", DeprecationWarning, stacklevel=2)
        name = "connect"
    if name not in _MODULES:
        raise AttributeError(f"module 'runnel' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
