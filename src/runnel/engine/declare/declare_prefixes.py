"""Register, drop and show prefixes. They apply to all owners, so only the local admin may change them.

In: statements, and an open transaction. Out: the prefixes of graph patterns in later statements.
"""

from __future__ import annotations

from runnel.catalog.declared.prefixes import all_prefixes, drop_prefix, register_prefix
from runnel.engine.answers import Listing, PrefixDone
from runnel.engine.ask.shown import Prefix
from runnel.engine.declare.scope import DeclarationScope
from runnel.engine.workspace import Workspace
from runnel.errors import StatementError, UnknownNameError
from runnel.language.graphs.iri_prefixes import PREDEFINED_PREFIXES
from runnel.language.nearest import did_you_mean
from runnel.language.printing import print_statement
from runnel.language.syntax.statements import DropPrefix, Name, RegisterPrefix


def change_prefixes(scope: DeclarationScope, statement: RegisterPrefix | DropPrefix) -> PrefixDone:
    """Register or drop a prefix. Existing queries keep their IRIs."""
    name = statement.name.text
    if not scope.actor.is_local_admin:
        raise StatementError(
            "prefixes apply to all owners, so only the admin can register or drop them, and not with an API token",
            span=statement.name.span,
            hint="define yours in the pattern: graph { prefix ex: <http://…> … }; `show prefixes` lists the others",
        )
    match statement:
        case RegisterPrefix(_, iri):
            before = register_prefix(scope.connection, name, iri)
            replaced = f", which replaces {before}" if before not in (None, iri) else ""
            return PrefixDone(f"registered prefix {name} for {iri}{replaced}", name, iri)
        case DropPrefix():
            if drop_prefix(scope.connection, name) is None:
                raise _not_registered_error(scope, statement.name)
            return PrefixDone(f"dropped prefix {name}", name)


def _not_registered_error(scope: DeclarationScope, name: Name) -> StatementError:
    if name.text in PREDEFINED_PREFIXES:
        return StatementError(f"the prefix {name.text} is built in and cannot be dropped", span=name.span)
    near = did_you_mean(name.text, all_prefixes(scope.connection))
    hint = near or "`show prefixes` lists all prefixes"
    return UnknownNameError(f"there is no prefix {name.text}", span=name.span, hint=hint)


def show_prefixes(workspace: Workspace) -> Listing[Prefix]:
    """List all prefixes, registered ones before built-in ones."""
    with workspace.catalog.read() as connection:
        registered = all_prefixes(connection)
    rows = tuple(
        Prefix(name, iri, prefixes is registered, print_statement(RegisterPrefix(Name(name), iri)))
        for prefixes in (registered, PREDEFINED_PREFIXES)
        for name, iri in prefixes.items()
    )
    return Listing(f"{len(rows)} prefixes", "prefixes", rows)
