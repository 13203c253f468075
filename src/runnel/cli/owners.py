"""`runnel owner` and `runnel token`: the admin's commands for owners and their tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runnel.cli.options import JsonOption, TokenOption, WorkspaceOption, open_for_command
from runnel.cli.output import print_answers, reporting_errors

owner = typer.Typer(
    no_args_is_help=True,
    help="Manage owners, the tenants of this workspace.\n\nExample: `runnel owner add ann`",
)
token = typer.Typer(
    no_args_is_help=True, help="Create, list and revoke tokens of owners.\n\nExample: `runnel token new ann`"
)

NameArgument = Annotated[str, typer.Argument(help="The owner's name.")]


@owner.command("add")
def add_owner(
    name: NameArgument, workspace: WorkspaceOption = Path(), token: TokenOption = None, as_json: JsonOption = False
) -> None:
    """Create an owner.

    Example: `runnel owner add ann`
    """
    with reporting_errors(as_json), open_for_command(workspace, token) as engine:
        print_answers([engine.owners.add(name)], as_json)


@owner.command("list")
def list_owners(workspace: WorkspaceOption = Path(), token: TokenOption = None, as_json: JsonOption = False) -> None:
    """List all owners with their usage and quotas.

    Example: `runnel owner list`
    """
    with reporting_errors(as_json), open_for_command(workspace, token) as engine:
        print_answers([engine.owners.list()], as_json)


@owner.command("disable")
def disable_owner(
    name: NameArgument,
    undo: Annotated[bool, typer.Option("--undo", help="Enable the owner again.")] = False,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Disable an owner: refuse the owner's tokens and stop the owner's queries and subscriptions.

    Example: `runnel owner disable ann`
    """
    with reporting_errors(as_json), open_for_command(workspace, token) as engine:
        print_answers([engine.owners.disable(name, not undo)], as_json)


@owner.command("quota")
def set_quota(
    name: NameArgument,
    feeds: Annotated[int | None, typer.Option(help="Maximum number of feeds.", min=0)] = None,
    subscriptions: Annotated[int | None, typer.Option(help="Maximum number of subscriptions.", min=0)] = None,
    size: Annotated[
        int | None, typer.Option("--bytes", help="Total number of bytes that the owner may publish.", min=0)
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Reset all quotas to the settings before applying the other options.")
    ] = False,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change and show the quotas of an owner. Quotas that are not given stay unchanged.

    Example: `runnel owner quota ann --feeds 100`
    """
    from runnel.catalog.access.owners import Quotas

    with reporting_errors(as_json), open_for_command(workspace, token) as engine:
        quotas = Quotas(feeds, subscriptions, size)
        print_answers([engine.owners.quota(name, quotas, reset=reset)], as_json)


@token.command("new")
def new_token(
    name: NameArgument,
    label: Annotated[str, typer.Option(help="A note about the use of the token.")] = "command line",
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token for an owner and print it. It cannot be printed again.

    Example: `runnel token new ann --label laptop`
    """
    with reporting_errors(as_json), open_for_command(workspace, token) as engine:
        print_answers([engine.owners.new_token(name, label)], as_json)


@token.command("list")
def list_tokens(
    name: Annotated[str | None, typer.Argument(help="List only this owner's tokens.")] = None,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """List tokens with their owners, labels and last use, without the secrets.

    Example: `runnel token list ann`
    """
    with reporting_errors(as_json), open_for_command(workspace, token) as engine:
        print_answers([engine.owners.tokens(name)], as_json)


@token.command("revoke")
def revoke_token(
    number: Annotated[int, typer.Argument(help="The token's number from `runnel token list`.")],
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke a token. It takes effect immediately.

    Example: `runnel token revoke 3`
    """
    with reporting_errors(as_json), open_for_command(workspace, token) as engine:
        print_answers([engine.owners.revoke(number)], as_json)
