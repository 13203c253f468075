"""`runnel dead-letters`: inspect and resend messages that could not be delivered."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runnel.cli.options import ActingOption, JsonOption, TokenOption, WorkspaceOption, open_for_command
from runnel.cli.output import print_answers, reporting_errors

dead_letters = typer.Typer(
    no_args_is_help=True,
    help="Inspect and resend messages that could not be delivered.\n\nExample: `runnel dead-letters list`",
)

KeyArgument = Annotated[str, typer.Argument(help="The message's key from `runnel dead-letters list`.")]


@dead_letters.command("list")
def list_dead_letters(
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, the newest first.

    Example: `runnel dead-letters list`
    """
    with reporting_errors(as_json), open_for_command(workspace, token, acting) as engine:
        print_answers([engine.show("dead letters")], as_json)


@dead_letters.command("explain")
def explain_dead_letter(
    key: KeyArgument,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the content of a message and its failed delivery attempts.

    Example: `runnel dead-letters explain 5f3a-12-7-9c41d20e`
    """
    from runnel.language.syntax.statements import ExplainMessage

    with reporting_errors(as_json), open_for_command(workspace, token, acting) as engine:
        print_answers([engine.apply(ExplainMessage(key))], as_json)


@dead_letters.command("replay")
def replay_dead_letter(
    key: KeyArgument,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a dead letter again, with the same key.

    Example: `runnel dead-letters replay 5f3a-12-7-9c41d20e`
    """
    from runnel.language.syntax.statements import Replay

    with reporting_errors(as_json), open_for_command(workspace, token, acting) as engine:
        print_answers([engine.apply(Replay(message=key))], as_json)


@dead_letters.command("send-now")
def send_now(
    subscription: Annotated[
        int | None, typer.Argument(help="The number of a subscription. Default: all subscriptions.")
    ] = None,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make messages that wait for another attempt due now, for example after an endpoint was repaired.

    The runner sends them at its next opportunity. With a number, the subscription is also resumed if it was disabled.

    Example: `runnel dead-letters send-now 12`
    """
    from runnel.language.syntax.statements import SendNow

    with reporting_errors(as_json), open_for_command(workspace, token, acting) as engine:
        print_answers([engine.apply(SendNow(subscription))], as_json)
