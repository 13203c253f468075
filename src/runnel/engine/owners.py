"""The admin's actions on owners, their quotas and their tokens. Each returns an answer."""

from __future__ import annotations

from dataclasses import asdict, replace

from runnel.catalog.access import owners, tokens
from runnel.catalog.access.owners import Owner, Quotas
from runnel.catalog.declared.subscriptions import moment_of
from runnel.engine.answers import Listing, OwnerDone
from runnel.engine.ask import shown
from runnel.engine.workspace import Workspace


class Owners:
    """The admin's actions on the owners of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def add(self, name: str) -> OwnerDone:
        """Create an owner."""
        with self._workspace.catalog.write() as connection:
            owner = owners.add_owner(connection, name)
        lines = (f"next: create a token with `runnel token new {name}`",)
        return OwnerDone(f"created the owner {owner.name}", id=owner.id, owner=owner.name, details=lines)

    def list(self) -> Listing[shown.Owner]:
        """List all owners with their usage and quotas."""
        with self._workspace.catalog.read() as connection:
            usages = [(owner, owners.usage_of(connection, owner.id)) for owner in owners.all_owners(connection)]
        rows = tuple(self._row(owner, usage) for owner, usage in usages)
        return Listing(f"{len(rows)} owners", "owners", rows)

    def disable(self, name: str, disabled: bool = True) -> OwnerDone:
        """Disable or enable an owner."""
        with self._workspace.catalog.write() as connection:
            owners.disable_owner(connection, owners.owner_by_name(connection, name), disabled)
        verb = "disabled" if disabled else "enabled"
        return OwnerDone(f"{verb} the owner {name}", owner=name, disabled=disabled)

    def quota(self, name: str, quotas: Quotas, *, reset: bool = False) -> shown.OwnerDetails:
        """Change the quotas of an owner. A quota of None stays as it is or, with `reset`, follows the settings."""
        with self._workspace.catalog.write() as connection:
            owner = owners.owner_by_name(connection, name)
            before = Quotas() if reset else owner.quotas
            changes = {name: limit for name, limit in asdict(quotas).items() if limit is not None}
            owners.set_quotas(connection, owner, replace(before, **changes))
            owner = owners.owner_by_name(connection, name)
            return shown.OwnerDetails(self._row(owner, owners.usage_of(connection, owner.id)))

    def new_token(self, name: str, label: str) -> OwnerDone:
        """Create a token for an owner. Only the answer contains it."""
        with self._workspace.catalog.write() as connection:
            owner = owners.owner_by_name(connection, name)
            token, text = tokens.new_token(connection, owner.id, label)
        lines = (f"token: {text}  (shown only now)", "pass it in RUNNEL_TOKEN, or with --token")
        return OwnerDone(f"token {token.id} for {name}", token=text, id=token.id, owner=name, details=lines)

    def tokens(self, name: str | None = None) -> Listing[shown.Token]:
        """List the tokens of an owner, or of all owners, without the secrets."""
        with self._workspace.catalog.read() as connection:
            owner = None if name is None else owners.owner_by_name(connection, name).id
            names = owners.owner_names(connection)
            listed = tokens.tokens_of(connection, owner)
        rows = tuple(
            shown.Token(
                token.id,
                names[token.owner],
                token.label,
                moment_of(token.created),
                None if token.used is None else moment_of(token.used),
                None if token.revoked is None else moment_of(token.revoked),
            )
            for token in listed
        )
        return Listing(f"{len(rows)} tokens", "tokens", rows)

    def revoke(self, token: int) -> OwnerDone:
        """Revoke a token immediately."""
        with self._workspace.catalog.write() as connection:
            revoked = tokens.revoke_token(connection, token)
        return OwnerDone(f"revoked token {revoked.id}", id=revoked.id, label=revoked.label)

    def _row(self, owner: Owner, usage: owners.OwnerUsage) -> shown.Owner:
        quotas = owners.quotas_of(owner, self._workspace.settings)
        return shown.Owner(
            owner.name,
            owner.id,
            owner.disabled,
            shown.Quota(usage.queries, quotas.queries),
            shown.Quota(usage.subscriptions, quotas.subscriptions),
            shown.Quota(usage.bytes, quotas.bytes),
        )
