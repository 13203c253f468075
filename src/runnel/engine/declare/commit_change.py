"""Commit a change to the declarations together with its plan. Compiling never blocks other writers.

In: a function that applies the change in a transaction. Out: its result, committed with a new plan version.

1. Prepare: apply the change without committing it. A change that only adds rows is applied in a read-only transaction
   and leaves its rows pending. Any other change needs the write lock and is applied in a transaction that is rolled
   back.
2. Compile the plan and write its files. No transaction is open.
3. In a short write transaction, check that nothing was declared since step 1, apply the change, and publish the plan.

If something was declared in between, all steps are repeated. After a few attempts, the declarer takes the declaring
lock (`Catalog.declaring`) before step 1. Other declarers take it only for step 3, so they wait. Publishers and the
runner do not wait.
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
from runnel.catalog.logs.windows import redefine_windows
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.declare.activation import Activation, find_activation
from runnel.engine.declare.scope import NeedsLockError, Pending
from runnel.engine.planning.plan_change import (
    CompiledChange,
    PlanChange,
    Uncommitted,
    compile_plan,
    publish_change,
    read_change,
)
from runnel.engine.workspace import Workspace
from runnel.errors import CatalogUnavailableError, CorruptDataError
from runnel.model.feed import ADMIN

OPTIMISTIC = 3
"""The number of attempts before the declarer takes the declaring lock, which makes other declarers wait."""

_MAX_ATTEMPTS = 20
"""The total number of attempts. While the lock is held, only the runner can change the plan, a few times per hour."""

_T = TypeVar("_T")
_Result = TypeVar("_Result", covariant=True)


class Apply(Protocol[_Result]):
    """Applies a change, and returns its result and the change that is still to be written and compiled.

    If `is_read_only` is set, the connection only reads, and the function raises NeedsLockError if it must write.
    `numbers` are the first ids of new rows from an earlier application, which the rows must get again.
    """

    def __call__(
        self, connection: Connection, *, is_read_only: bool, numbers: Mapping[str, int]
    ) -> tuple[_Result, Pending]: ...


@dataclass(frozen=True, slots=True)
class _Basis:
    """The state on which a prepared change depends. While it is unchanged, so are all names, queries and quotas."""

    changes: int
    plan: int | None
    owner: Owner


@dataclass(frozen=True)
class _Prepared(Generic[_T]):
    """A change that was applied but not committed. If `is_read_only`, only its pending rows must be written."""

    basis: _Basis
    result: _T
    pending: Pending
    activation: Activation
    uncommitted: Uncommitted
    is_read_only: bool


class _OutdatedError(Exception):
    """The catalog changed after the change was prepared, so it must be prepared again."""


def commit_change(
    workspace: Workspace,
    apply: Apply[_T],
    *,
    owner: int = ADMIN,
    before_commit: Callable[[Connection], None] = lambda connection: None,
) -> _T:
    """Apply a change, commit it together with its plan, and return the result of applying it.

    `before_commit` is called in the write transaction before anything is written.
    """
    change = _Change(workspace, apply, owner, before_commit)
    for attempt in range(_MAX_ATTEMPTS):
        with workspace.catalog.declaring() if attempt >= OPTIMISTIC else nullcontext():
            try:
                return change.try_once(is_locked=attempt >= OPTIMISTIC)
            except _OutdatedError:
                continue
    raise CatalogUnavailableError(
        f"the change could not be committed: the plan was changed by others during all {_MAX_ATTEMPTS} attempts",
        hint="nothing was changed; try again",
    )


class _Change(Generic[_T]):
    """One change that is being prepared and committed."""

    def __init__(
        self, workspace: Workspace, apply: Apply[_T], owner: int, before_commit: Callable[[Connection], None]
    ) -> None:
        self._workspace = workspace
        self._apply = apply
        self._owner = owner
        self._before_commit = before_commit

    def try_once(self, *, is_locked: bool) -> _T:
        """Prepare, compile and commit. Raise _OutdatedError if something was declared in the meantime."""
        prepared = self._prepare()
        draft = self._compile(prepared)
        with nullcontext() if is_locked else self._workspace.catalog.declaring():
            return self._commit(prepared, draft)

    def _prepare(self) -> _Prepared[_T]:
        try:
            with self._workspace.catalog.read() as connection:
                return self._apply_once(connection, is_read_only=True)
        except NeedsLockError:
            pass
        with self._workspace.catalog.trial() as connection:
            return self._apply_once(connection, is_read_only=False)

    def _apply_once(self, connection: Connection, *, is_read_only: bool) -> _Prepared[_T]:
        basis = self._read_basis(connection)
        result, pending = self._apply(connection, is_read_only=is_read_only, numbers={})
        activation = _activate(connection, pending)
        new = pending.source_feeds()
        definitions: dict[int, Node | None] = {**expand_as_views(connection, pending.definitions, new)}
        changed = pending.changed - pending.dropped
        if changed:
            definitions |= {**dict.fromkeys(changed), **feeds.planned_definitions(connection, changed, new)}
        uncommitted = Uncommitted(definitions, frozenset(pending.added), frozenset(pending.dropped))
        return _Prepared(basis, result, pending, activation, uncommitted, is_read_only)

    def _compile(self, prepared: _Prepared[_T]) -> CompiledChange | None:
        try:
            change = self._read_change(prepared)
            return None if change is None else compile_plan(self._workspace, change)
        except CorruptDataError:
            # Garbage collection may have deleted the current plan's files, because a newer plan is in use.
            with self._workspace.catalog.read() as connection:
                if self._read_basis(connection) == prepared.basis:
                    raise
            raise _OutdatedError from None

    def _read_change(self, prepared: _Prepared[_T]) -> PlanChange | None:
        with self._workspace.catalog.read() as connection:
            if self._read_basis(connection) != prepared.basis:
                raise _OutdatedError
            return read_change(self._workspace, connection, prepared.activation, prepared.uncommitted)

    def _commit(self, prepared: _Prepared[_T], draft: CompiledChange | None) -> _T:
        with self._workspace.catalog.write() as connection:
            self._before_commit(connection)
            if self._read_basis(connection) != prepared.basis:
                raise _OutdatedError
            if draft is not None and draft.part is not None and not draft.part.has_all_files:
                raise _OutdatedError
            result, pending, activation = prepared.result, prepared.pending, prepared.activation
            if prepared.is_read_only:
                if not pending.fits(connection):
                    raise _OutdatedError
            else:
                result, pending = self._apply(connection, is_read_only=False, numbers=pending.numbers)
                activation = _activate(connection, pending)
                if activation != prepared.activation or pending.dropped != prepared.uncommitted.dropped:
                    raise _OutdatedError
            note_change(connection)
            redefine_windows(connection, pending.redefined | pending.reread)
            new = frozenset(pending.feeds)
            pending.write(connection, last_sequence(connection), activation.fresh)
            activation.write(connection, but=new)
            if draft is not None:
                publish_change(self._workspace, connection, draft)
            return result

    def _read_basis(self, connection: Connection) -> _Basis:
        current = plan_versions.current_plan(connection)
        owner = owner_by_id(connection, self._owner)
        return _Basis(changes(connection), None if current is None else current.version, owner)


def _activate(connection: Connection, pending: Pending) -> Activation:
    """Determine the effect of an applied change on the plan, after writing its pending rows if it changes others."""
    if pending.redefined or pending.dropped:
        pending.write(connection, last_sequence(connection))
    return find_activation(connection, pending)
