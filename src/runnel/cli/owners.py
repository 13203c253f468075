"""`runnel owner` and `runnel token`: the admin's commands about owners."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runnel.cli.options import JsonOption, TokenOption, WorkspaceOption, open_for_command
from runnel.cli.output import print_answers, reporting_errors

owner = typer.Typer(
    no_args_is_help=True, help="Look after owners: people who share this root.\n\nExample: `runnel owner add ann`"
)
token = typer.Typer(
    no_args_is_help=True, help="Make and revoke the tokens of owners.\n\nExample: `runnel token new ann`"
)

NameArgument = Annotated[str, typer.Argument(help="The owner's name.")]


@owner.command("add")
def add_owner(
    name: NameArgument, root: WorkspaceOption = Path(), token: TokenOption = None, as_json: JsonOption = False
) -> None:
    """Make an owner.

    Example: `runnel owner add ann`
    """
    with reporting_errors(as_json), open_for_command(root, token) as engine:
        print_answers([engine.owners.add(name)], as_json)


@owner.command("list")
def list_owners(root: WorkspaceOption = Path(), token: TokenOption = None, as_json: JsonOption = False) -> None:
    """Show all owners, with what they have and may have.

    Example: `runnel owner list`
    """
    with reporting_errors(as_json), open_for_command(root, token) as engine:
        print_answers([engine.owners.list()], as_json)


@owner.command("disable")
def disable_owner(
    name: NameArgument,
    undo: Annotated[bool, typer.Option("--undo", help="Enable the owner again.")] = False,
    root: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Refuse an owner's tokens, and serve nothing of theirs until that is undone.

    Example: `runnel owner disable ann`
    """
    with reporting_errors(as_json), open_for_command(root, token) as engine:
        print_answers([engine.owners.disable(name, not undo)], as_json)


@owner.command("quota")
def set_quota(
    name: NameArgument,
    feeds: Annotated[int | None, typer.Option(help="Most feeds.", min=0)] = None,
    subscriptions: Annotated[int | None, typer.Option(help="Most subscriptions.", min=0)] = None,
    size: Annotated[int | None, typer.Option("--bytes", help="Most bytes brought in, ever.", min=0)] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Begin with the values of the settings.")] = False,
    root: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set what an owner may have, and show it; what is not given stays as it is.

    Example: `runnel owner quota ann --feeds 100`
    """
    from runnel.catalog.access.owners import Quotas

    with reporting_errors(as_json), open_for_command(root, token) as engine:
        given = Quotas(feeds, subscriptions, size)
        print_answers([engine.owners.quota(name, given, reset=reset)], as_json)


@token.command("new")
def new_token(
    name: NameArgument,
    label: Annotated[str, typer.Option(help="What the token is for.")] = "command line",
    root: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token for an owner, and show it this once.

    Example: `runnel token new ann --label laptop`
    """
    with reporting_errors(as_json), open_for_command(root, token) as engine:
        print_answers([engine.owners.new_token(name, label)], as_json)


@token.command("list")
def list_tokens(
    name: Annotated[str | None, typer.Argument(help="Only this owner's.")] = None,
    root: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show tokens: whose, what for, and when they were used. Never the secrets.

    Example: `runnel token list ann`
    """
    with reporting_errors(as_json), open_for_command(root, token) as engine:
        print_answers([engine.owners.tokens(name)], as_json)


@token.command("revoke")
def revoke_token(
    number: Annotated[int, typer.Argument(help="The token's number, as `runnel token list` shows it.")],
    root: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a token be of no use any more, from this moment on.

    Example: `runnel token revoke 3`
    """
    with reporting_errors(as_json), open_for_command(root, token) as engine:
        print_answers([engine.owners.revoke(number)], as_json)
