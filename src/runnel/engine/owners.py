"""What the admin does about owners, their quotas and their tokens. Each method returns an answer to show."""

from __future__ import annotations

from dataclasses import asdict, replace

from runnel.catalog.access import owners, tokens
from runnel.catalog.access.owners import Owner, Quotas
from runnel.catalog.declared.subscriptions import moment_of
from runnel.engine.answers import Listing, OwnerDone
from runnel.engine.ask import shown
from runnel.engine.workspace import Workspace


class Owners:
    """What the admin does about the owners of a workspace."""

    def __init__(self, root: Workspace) -> None:
        self._root = root

    def add(self, name: str) -> OwnerDone:
        """Make an owner."""
        with self._root.catalog.write() as connection:
            made = owners.add_owner(connection, name)
        lines = (f"next: create a token with `runnel token new {name}`",)
        return OwnerDone(f"created the owner {made.name}", id=made.id, owner=made.name, details=lines)

    def list(self) -> Listing[shown.Owner]:
        """All owners, with their quotas."""
        with self._root.catalog.read() as connection:
            found = [(one, owners.usage_of(connection, one.id)) for one in owners.all_owners(connection)]
        rows = tuple(self._row(owner, usage) for owner, usage in found)
        return Listing(f"{len(rows)} owners", "owners", rows)

    def disable(self, name: str, disabled: bool = True) -> OwnerDone:
        """Refuse an owner and serve nothing of theirs, or take that back."""
        with self._root.catalog.write() as connection:
            owners.disable_owner(connection, owners.owner_by_name(connection, name), disabled)
        verb = "disabled" if disabled else "enabled"
        return OwnerDone(f"{verb} the owner {name}", owner=name, disabled=disabled)

    def quota(self, name: str, given: Quotas, *, reset: bool = False) -> shown.OwnerDetails:
        """Set what an owner may have; what is not given stays as it is, or with `reset` is as the settings say."""
        with self._root.catalog.write() as connection:
            owner = owners.owner_by_name(connection, name)
            before = Quotas() if reset else owner.quotas
            changes = {name: limit for name, limit in asdict(given).items() if limit is not None}
            owners.set_quotas(connection, owner, replace(before, **changes))
            owner = owners.owner_by_name(connection, name)
            return shown.OwnerDetails(self._row(owner, owners.usage_of(connection, owner.id)))

    def new_token(self, name: str, label: str) -> OwnerDone:
        """Make a token for an owner. The answer alone holds it."""
        with self._root.catalog.write() as connection:
            owner = owners.owner_by_name(connection, name)
            made, text = tokens.new_token(connection, owner.id, label)
        lines = (f"token: {text}  (shown only now)", "pass it in RUNNEL_TOKEN, or with --token")
        return OwnerDone(f"token {made.id} for {name}", token=text, id=made.id, owner=name, details=lines)

    def tokens(self, name: str | None = None) -> Listing[shown.Token]:
        """The tokens of an owner, or of all; never the secrets."""
        with self._root.catalog.read() as connection:
            owner = None if name is None else owners.owner_by_name(connection, name).id
            names = owners.owner_names(connection)
            found = tokens.tokens_of(connection, owner)
        rows = tuple(
            shown.Token(
                token.id,
                names[token.owner],
                token.label,
                moment_of(token.created),
                None if token.used is None else moment_of(token.used),
                None if token.revoked is None else moment_of(token.revoked),
            )
            for token in found
        )
        return Listing(f"{len(rows)} tokens", "tokens", rows)

    def revoke(self, token: int) -> OwnerDone:
        """Let a token be of no use any more, at once."""
        with self._root.catalog.write() as connection:
            found = tokens.revoke_token(connection, token)
        return OwnerDone(f"revoked token {found.id}", id=found.id, label=found.label)

    def _row(self, owner: Owner, usage: owners.OwnerUsage) -> shown.Owner:
        quotas = owners.quotas_of(owner, self._root.settings)
        return shown.Owner(
            owner.name,
            owner.id,
            owner.disabled,
            shown.Quota(usage.queries, quotas.queries),
            shown.Quota(usage.subscriptions, quotas.subscriptions),
            shown.Quota(usage.bytes, quotas.bytes),
        )
