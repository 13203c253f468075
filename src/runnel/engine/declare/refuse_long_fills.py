"""Limit on the past items with which a new window is filled, because matching waits until it is filled.

In: the definition of a new query with joins. Out: a StatementError if one of its windows would have to be filled with
more than `window_fill_items` past items.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from runnel.algebra.nodes.query import Gated, Node, Read, reads
from runnel.algebra.semantics.joins import Join
from runnel.catalog.logs import item_segments, windows
from runnel.catalog.logs.windows import FilledWindow
from runnel.catalog.store.connection import now
from runnel.engine.declare.scope import DeclarationScope
from runnel.errors import StatementError
from runnel.language.syntax.statements import JoinClause

_MICROSECOND = timedelta(microseconds=1)


def refuse_long_fills(scope: DeclarationScope, node: Node, clauses: Sequence[JoinClause]) -> None:
    """Raise StatementError if a window of a new query would have to be filled with too many items."""
    filled = windows.filled_windows(scope.connection)
    limit = scope.workspace.settings.window_fill_items
    for feed, extent in _windows_of(scope, node):
        if _is_filled(filled.get(feed), extent):
            continue
        items = _count_items(scope, extent)
        if items > limit:
            span = next(clause.span for clause in clauses if clause.extent == extent)
            raise StatementError(
                f"to fill the window of this join, {items:,} past items would have to be matched, but the limit is "
                f"{limit:,}",
                span=span,
                hint="choose a shorter time (a number of items needs the whole log), or raise the setting "
                "window_fill_items: matching waits until the window is filled",
            )


def _windows_of(scope: DeclarationScope, node: Node) -> Iterator[tuple[int, timedelta | int]]:
    """Yield the windows of a query and of its hidden feeds, each with the extent that a join needs."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, Gated) and isinstance(current.rule, Join) and isinstance(current.window, Read):
            yield current.window.feed, current.rule.extent
        waiting.extend(scope.hidden_definitions(reads(current)))


def _is_filled(window: FilledWindow | None, extent: timedelta | int) -> bool:
    if window is None:
        return False
    return window.items >= extent if isinstance(extent, int) else window.microseconds >= extent // _MICROSECOND


def _count_items(scope: DeclarationScope, extent: timedelta | int) -> int:
    """Return the number of past items to match. The last N items may be anywhere, so the whole log counts."""
    after = item_segments.retained_upto(scope.connection)
    if not isinstance(extent, int):
        begin = now(scope.connection) - extent // _MICROSECOND
        after = max(after, scope.workspace.items.sequence_before(begin))
    return scope.sequence - after
