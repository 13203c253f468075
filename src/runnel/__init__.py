"""Runnel: content-based publish/subscribe on Apache Spark.

    import runnel

    with runnel.connect("news") as engine:
        engine.execute("register feed Wire; create feed Rock from Wire where title contains 'rock';")
        engine.execute("subscribe to Rock output rss 'rock.xml';")
        engine.publish("Wire", [{"id": "1", "title": "Rock am Ring"}])
        engine.run(once=True)

`runnel.compile(statements).match(items)` matches items without a workspace and without Spark. `runnel.spark.match`
matches the rows of any DataFrame. All errors derive from `runnel.RunnelError`.
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
    from runnel.delivery.dead_letters import DeadLetter
    from runnel.engine import Engine, MatchedItem, connect
    from runnel.engine.answers import (
        Answer,
        Confirmed,
        Done,
        Dropped,
        FeedDone,
        ImportedFeeds,
        Listing,
        MessagesDone,
        OperatorDone,
        OwnerDone,
        PrefixDone,
        Renewed,
        Subscribed,
        SubscriptionDone,
    )
    from runnel.engine.ask.explain_feed import Explanation
    from runnel.engine.ask.query_usage import QueryUsage
    from runnel.engine.ask.shown import (
        Feed,
        FeedDetails,
        MessageDetails,
        Operator,
        OperatorDetails,
        Owner,
        OwnerDetails,
        Prefix,
        Quarantined,
        Subscription,
        Token,
    )
    from runnel.engine.ask.status import Status
    from runnel.engine.ask.why import Why
    from runnel.engine.trial.preview import PreviewResult
    from runnel.engine.trial.try_items import TrialResult
    from runnel.library import AnnotatedMatch, CompiledPlan, compile

__all__ = [
    "AnnotatedMatch",
    "Answer",
    "BacklogError",
    "BrokenDocumentError",
    "CatalogUnavailableError",
    "CompiledPlan",
    "Confirmed",
    "CorruptDataError",
    "CyclicFeedsError",
    "DeadLetter",
    "DeliveryError",
    "Done",
    "Dropped",
    "DuplicateNameError",
    "Engine",
    "Explanation",
    "Feed",
    "FeedDetails",
    "FeedDone",
    "FencedError",
    "ImportedFeeds",
    "InputError",
    "InvalidConditionError",
    "InvalidItemError",
    "JavaMissingError",
    "LineageConflictError",
    "Listing",
    "MatchedItem",
    "MessageDetails",
    "MessagesDone",
    "NewerWorkspaceError",
    "NotAWorkspaceError",
    "NotAllowedError",
    "NotFoundError",
    "Operator",
    "OperatorDetails",
    "OperatorDone",
    "OperatorRefusedError",
    "Owner",
    "OwnerDetails",
    "OwnerDone",
    "Prefix",
    "PrefixDone",
    "PreviewResult",
    "Quarantined",
    "QueryUsage",
    "QuotaExceededError",
    "ReadOnlyError",
    "RefusedAddressError",
    "Renewed",
    "RunnelError",
    "RunnerActiveError",
    "SparkLostError",
    "StatementError",
    "StatementSyntaxError",
    "Status",
    "StillNeededError",
    "StorageFullError",
    "StylesheetError",
    "Subscribed",
    "Subscription",
    "SubscriptionDone",
    "Token",
    "TooExpensiveError",
    "TrialResult",
    "UnknownNameError",
    "UnreachableError",
    "Why",
    "WorkspaceError",
    "WorkspaceExistsError",
    "compile",
    "connect",
    "spark",
]
__version__ = "0.1.0"

_MODULES = {
    "runnel.delivery.dead_letters": ("DeadLetter",),
    "runnel.engine": ("Engine", "MatchedItem", "connect"),
    "runnel.engine.answers": (
        "Answer",
        "Confirmed",
        "Done",
        "Dropped",
        "FeedDone",
        "ImportedFeeds",
        "Listing",
        "MessagesDone",
        "OperatorDone",
        "OwnerDone",
        "PrefixDone",
        "Renewed",
        "Subscribed",
        "SubscriptionDone",
    ),
    "runnel.engine.ask.explain_feed": ("Explanation",),
    "runnel.engine.ask.query_usage": ("QueryUsage",),
    "runnel.engine.ask.shown": (
        "Feed",
        "FeedDetails",
        "MessageDetails",
        "Operator",
        "OperatorDetails",
        "Owner",
        "OwnerDetails",
        "Prefix",
        "Quarantined",
        "Subscription",
        "Token",
    ),
    "runnel.engine.ask.status": ("Status",),
    "runnel.engine.ask.why": ("Why",),
    "runnel.engine.trial.preview": ("PreviewResult",),
    "runnel.engine.trial.try_items": ("TrialResult",),
    "runnel.library": ("AnnotatedMatch", "CompiledPlan", "compile"),
}
"""Names that are imported when they are first used, because Spark's workers must start quickly."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "spark":
        return import_module("runnel.spark")
    if name == "open":
        warnings.warn("runnel.open is deprecated; use runnel.connect", DeprecationWarning, stacklevel=2)
        name = "connect"
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'runnel' has no attribute {name!r}")
