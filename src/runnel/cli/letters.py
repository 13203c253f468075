"""`runnel letters`: messages that no endpoint took."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runnel.cli.options import ActingOption, JsonOption, TokenOption, WorkspaceOption, open_for_command
from runnel.cli.output import print_answers, reporting_errors

letters = typer.Typer(
    no_args_is_help=True,
    help="Look at messages that no endpoint took, and send them again.\n\nExample: `runnel letters list`",
)

KeyArgument = Annotated[str, typer.Argument(help="The message's key, as `runnel letters list` shows it.")]


@letters.command("list")
def list_letters(
    root: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show dead letters, the newest first.

    Example: `runnel letters list`
    """
    with reporting_errors(as_json), open_for_command(root, token, acting) as engine:
        print_answers([engine.show("dead letters")], as_json)


@letters.command("explain")
def explain_letter(
    key: KeyArgument,
    root: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is in a message, and every attempt to deliver it that failed.

    Example: `runnel letters explain 5f3a-12-7-9c41d20e`
    """
    from runnel.language.syntax.statements import ExplainMessage

    with reporting_errors(as_json), open_for_command(root, token, acting) as engine:
        print_answers([engine.apply(ExplainMessage(key))], as_json)


@letters.command("replay")
def replay_letter(
    key: KeyArgument,
    root: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a dead letter again, under the same key.

    Example: `runnel letters replay 5f3a-12-7-9c41d20e`
    """
    from runnel.language.syntax.statements import Replay

    with reporting_errors(as_json), open_for_command(root, token, acting) as engine:
        print_answers([engine.apply(Replay(message=key))], as_json)


@letters.command("send-now")
def send_now(
    subscription: Annotated[
        int | None, typer.Argument(help="The number of a subscription. Default: all subscriptions.")
    ] = None,
    root: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send messages that wait for another attempt right away, for example after an endpoint was repaired.

    With a number, the subscription is also resumed if it was disabled. The messages become due, and the runner sends
    them.

    Example: `runnel letters send-now 12`
    """
    from runnel.language.syntax.statements import SendNow

    with reporting_errors(as_json), open_for_command(root, token, acting) as engine:
        print_answers([engine.apply(SendNow(subscription))], as_json)
