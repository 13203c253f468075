"""The admin's actions on owners, their quotas and their tokens. Each returns an Outcome to show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runnel.catalog.access import owners, tokens
from runnel.catalog.access.owners import Owner, Quotas
from runnel.catalog.declared.subscriptions import moment_of
from runnel.engine.outcome import Outcome
from runnel.engine.workspace import Workspace

_COUNTED = (("queries", "feeds"), ("subscriptions", "subscriptions"), ("bytes", "bytes"))


class Owners:
    """The admin's actions on the owners of a workspace."""

    def __init__(self, root: Workspace) -> None:
        self._root = root

    def add(self, name: str) -> Outcome:
        """Create an owner."""
        with self._root.catalog.write() as connection:
            made = owners.add_owner(connection, name)
        lines = (f"next: create a token with `runnel token new {name}`",)
        return Outcome(f"created the owner {made.name}", {"owner": made.name, "id": made.id}, lines)

    def list(self) -> Outcome:
        """List all owners with their usage and quotas."""
        with self._root.catalog.read() as connection:
            usages = [(owner, owners.usage_of(connection, owner.id)) for owner in owners.all_owners(connection)]
        rows = [self._row(owner, usage) for owner, usage in usages]
        return Outcome(f"{len(rows)} owners", {"owners": rows}, tuple(map(_line, rows)))

    def disable(self, name: str, disabled: bool = True) -> Outcome:
        """Disable or enable an owner."""
        with self._root.catalog.write() as connection:
            owners.disable_owner(connection, owners.owner_by_name(connection, name), disabled)
        verb = "disabled" if disabled else "enabled"
        return Outcome(f"{verb} the owner {name}", {"owner": name, "disabled": disabled})

    def quota(self, name: str, given: Quotas, *, reset: bool = False) -> Outcome:
        """Change the quotas of an owner. Quotas that are not given stay unchanged, or with `reset` follow the
        settings.
        """
        with self._root.catalog.write() as connection:
            owner = owners.owner_by_name(connection, name)
            before = Quotas() if reset else owner.quotas
            changes = {what: getattr(given, what) for what, _ in _COUNTED if getattr(given, what) is not None}
            owners.set_quotas(connection, owner, replace(before, **changes))
            owner = owners.owner_by_name(connection, name)
            row = self._row(owner, owners.usage_of(connection, owner.id))
        return Outcome(f"quotas of {name}", row, (_line(row),))

    def new_token(self, name: str, label: str) -> Outcome:
        """Create a token for an owner. Only the outcome contains it."""
        with self._root.catalog.write() as connection:
            owner = owners.owner_by_name(connection, name)
            made, text = tokens.new_token(connection, owner.id, label)
        lines = (f"token: {text}  (shown only now)", "pass it in RUNNEL_TOKEN, or with --token")
        return Outcome(f"token {made.id} for {name}", {"token": text, "id": made.id, "owner": name}, lines)

    def tokens(self, name: str | None = None) -> Outcome:
        """List the tokens of an owner, or of all owners, without the secrets."""
        with self._root.catalog.read() as connection:
            owner = None if name is None else owners.owner_by_name(connection, name).id
            names = owners.owner_names(connection)
            listed = tokens.tokens_of(connection, owner)
        rows = [
            {
                "id": token.id,
                "owner": names[token.owner],
                "label": token.label,
                "created": _moment(token.created),
                "used": _moment(token.used),
                "revoked": _moment(token.revoked),
            }
            for token in listed
        ]
        lines = tuple(
            f"{row['id']:>6}  {row['owner']}  {row['label']}  "
            + (f"revoked {row['revoked']}" if row["revoked"] else f"used {row['used'] or 'never'}")
            for row in rows
        )
        return Outcome(f"{len(rows)} tokens", {"tokens": rows}, lines)

    def revoke(self, token: int) -> Outcome:
        """Revoke a token immediately."""
        with self._root.catalog.write() as connection:
            revoked = tokens.revoke_token(connection, token)
        return Outcome(f"revoked token {revoked.id}", {"id": revoked.id, "label": revoked.label})

    def _row(self, owner: Owner, usage: owners.OwnerUsage) -> dict[str, Any]:
        quotas = owners.quotas_of(owner, self._root.settings)
        counts = {what: {"have": getattr(usage, what), "most": getattr(quotas, what)} for what, _ in _COUNTED}
        return {"owner": owner.name, "id": owner.id, "disabled": owner.disabled, **counts}


def _line(row: dict[str, Any]) -> str:
    counts = "  ".join(
        f"{row[what]['have']:,} {noun}"
        if row[what]["most"] is None
        else f"{row[what]['have']:,} of {row[what]['most']:,} {noun}"
        for what, noun in _COUNTED
    )
    return f"{row['owner']}  {counts}{'  disabled' if row['disabled'] else ''}"


def _moment(microseconds: int | None) -> str | None:
    return None if microseconds is None else moment_of(microseconds).isoformat(timespec="minutes")[:16]
