"""Commit a change to what is declared, together with its plan. Compiling never holds up other writers.

In: a function that applies the change in a transaction. Out: what it returned, committed with a new plan version.

1. Apply the change without keeping it. A change that only adds things is applied in a transaction that only reads.
   Any other change needs the write lock, so it is applied in a transaction that is rolled back.
2. Compile the plan and write its files. No transaction is open.
3. In a short write transaction, check that nothing was declared meanwhile, apply the change, and publish the plan.

If something was declared meanwhile, all of it is done again. A declarer that was overtaken a few times takes its turn
(`Catalog.declaring`) before step 1. All others need a turn for step 3, so they wait for it; publishers and the runner
do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from sqlalchemy import Connection

from runnel.algebra.nodes.query import Node
from runnel.catalog.access.owners import Owner, owner_by_id
from runnel.catalog.declared import feeds
from runnel.catalog.declared.changes import changes, note_change
from runnel.catalog.declared.feed_groups import expand_as_views
from runnel.catalog.logs import plan_versions
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.declare.activation import Activation, find_activation
from runnel.engine.declare.scope import NeedsLockError, Pending
from runnel.engine.planning.plan_change import (
    CompiledChange,
    PlanChange,
    Uncommitted,
    compile_plan,
    publish_draft,
    read_change,
)
from runnel.engine.workspace import Workspace
from runnel.errors import CatalogUnavailableError, CorruptDataError
from runnel.model.feed import ADMIN

OPTIMISTIC = 3
"""How often a change is prepared before its declarer takes a turn that keeps other declarers waiting."""

_TRIES = 20
"""How often in all. With its turn taken, only the runner can overtake a declarer, a few times an hour."""

_T = TypeVar("_T")
_Result = TypeVar("_Result", covariant=True)


class Apply(Protocol[_Result]):
    """Applies a change; gives its result, and what is still to be written and compiled.

    With `ahead` the connection only reads: what needs more raises NeedsLockError. `numbers` are the ids that new rows
    had when the change was applied before, which they must have again.
    """

    def __call__(
        self, connection: Connection, *, ahead: bool, numbers: Mapping[str, int]
    ) -> tuple[_Result, Pending]: ...


@dataclass(frozen=True, slots=True)
class _Seen:
    """The state that a prepared change depends on: while it is the same, so are all names, queries and quotas."""

    changes: int
    plan: int | None
    owner: Owner


@dataclass(frozen=True)
class _Prepared(Generic[_T]):
    """A change that was applied and not kept. `is_ahead` says whether only its pending rows have to be written."""

    seen: _Seen
    result: _T
    pending: Pending
    activation: Activation
    uncommitted: Uncommitted
    is_ahead: bool


class _OutdatedError(Exception):
    """The prepared change does not fit the catalog any more."""


def commit_change(
    workspace: Workspace,
    apply: Apply[_T],
    *,
    owner: int = ADMIN,
    before_commit: Callable[[Connection], None] = lambda connection: None,
) -> _T:
    """Apply a change and make it current with its plan; gives the result of applying it.

    `before_commit` is called with the transaction that writes, before anything is written.
    """
    change = _Change(workspace, apply, owner, before_commit)
    for attempt in range(_TRIES):
        with workspace.catalog.declaring() if attempt >= OPTIMISTIC else nullcontext():
            try:
                return change.try_once(has_turn=attempt >= OPTIMISTIC)
            except _OutdatedError:
                continue
    raise CatalogUnavailableError(
        "the change could not be committed, because others changed the plan at the same time",
        hint="nothing was changed; try again",
    )


class _Change(Generic[_T]):
    """One change on its way into the catalog."""

    def __init__(
        self, workspace: Workspace, apply: Apply[_T], owner: int, before_commit: Callable[[Connection], None]
    ) -> None:
        self._workspace = workspace
        self._apply = apply
        self._owner = owner
        self._before_commit = before_commit

    def try_once(self, *, has_turn: bool) -> _T:
        """Prepare, compile and commit; raises _OutdatedError if something was declared meanwhile."""
        prepared = self._prepare()
        draft = self._compile(prepared)
        with nullcontext() if has_turn else self._workspace.catalog.declaring():
            return self._commit(prepared, draft)

    def _prepare(self) -> _Prepared[_T]:
        try:
            with self._workspace.catalog.read() as connection:
                return self._apply_once(connection, is_ahead=True)
        except NeedsLockError:
            pass
        with self._workspace.catalog.trial() as connection:
            return self._apply_once(connection, is_ahead=False)

    def _apply_once(self, connection: Connection, *, is_ahead: bool) -> _Prepared[_T]:
        seen = self._seen(connection)
        result, pending = self._apply(connection, ahead=is_ahead, numbers={})
        activation = _activate(connection, pending)
        new = pending.source_feeds()
        definitions: dict[int, Node | None] = {**expand_as_views(connection, pending.definitions, new)}
        changed = pending.changed - pending.dropped
        if changed:
            definitions |= {**dict.fromkeys(changed), **feeds.planned_definitions(connection, changed, new)}
        uncommitted = Uncommitted(definitions, frozenset(pending.added), frozenset(pending.dropped))
        return _Prepared(seen, result, pending, activation, uncommitted, is_ahead)

    def _compile(self, prepared: _Prepared[_T]) -> CompiledChange | None:
        try:
            change = self._read_change(prepared)
            return None if change is None else compile_plan(self._workspace, change)
        except CorruptDataError:
            # A plan is collected when a newer one is in use; nothing holds on to it here.
            with self._workspace.catalog.read() as connection:
                if self._seen(connection) == prepared.seen:
                    raise
            raise _OutdatedError from None

    def _read_change(self, prepared: _Prepared[_T]) -> PlanChange | None:
        with self._workspace.catalog.read() as connection:
            if self._seen(connection) != prepared.seen:
                raise _OutdatedError
            return read_change(self._workspace, connection, prepared.activation, prepared.uncommitted)

    def _commit(self, prepared: _Prepared[_T], draft: CompiledChange | None) -> _T:
        with self._workspace.catalog.write() as connection:
            self._before_commit(connection)
            if self._seen(connection) != prepared.seen:
                raise _OutdatedError
            if draft is not None and draft.part is not None and not draft.part.has_all_files:
                raise _OutdatedError
            result, pending, activation = prepared.result, prepared.pending, prepared.activation
            if prepared.is_ahead:
                if not pending.fits(connection):
                    raise _OutdatedError
            else:
                result, pending = self._apply(connection, ahead=False, numbers=pending.numbers)
                activation = _activate(connection, pending)
                if activation != prepared.activation or pending.dropped != prepared.uncommitted.dropped:
                    raise _OutdatedError
            note_change(connection)
            new = frozenset(pending.feeds)
            pending.write(connection, last_sequence(connection), activation.fresh)
            activation.write(connection, but=new)
            if draft is not None:
                publish_draft(self._workspace, connection, draft)
            return result

    def _seen(self, connection: Connection) -> _Seen:
        current = plan_versions.current_plan(connection)
        owner = owner_by_id(connection, self._owner)
        return _Seen(changes(connection), None if current is None else current.version, owner)


def _activate(connection: Connection, pending: Pending) -> Activation:
    """The effects of an applied change on the plan."""
    if pending.redefined or pending.dropped:
        pending.write(connection, last_sequence(connection))
    return find_activation(connection, pending)
