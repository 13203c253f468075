"""`runnel backup` and `runnel restore`: back up a workspace, and create a workspace from a backup."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli.options import JsonOption, TokenOption, WorkspaceOption, open_for_command, refuse_token
from runnel.cli.output import console, counted, escaped, print_json, reporting_errors

if TYPE_CHECKING:
    from runnel.engine.upkeep.restore import Signer


def backup(
    target: Annotated[Path, typer.Argument(help="Folder of the backup. It is created if it does not exist.")],
    link: Annotated[
        bool, typer.Option("--link", help="Create hard links instead of copies. Requires the same file system.")
    ] = False,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Back up a workspace, even while its runner is active. A repeated backup copies only new files.

    Example: `runnel backup /mnt/backups/news`
    """
    from runnel.engine.upkeep.backup import back_up
    from runnel.storage.key_file import KEY_FILE

    with (
        reporting_errors(as_json),
        open_for_command(workspace, token, admin_only="back up the workspace") as engine,
    ):
        with _showing_progress("backing up", as_json) as report:
            result = back_up(engine.workspace, target, link=link, report=report)
        if as_json:
            print_json(
                {
                    "backup": str(result.folder),
                    "files": result.files,
                    "copied": result.copied,
                    "bytes": result.bytes,
                    "rows": result.rows,
                    "last_sequence": result.last_sequence,
                }
            )
            return
        console.print(
            f"[green]✓[/green] backed up {counted(result.files, 'file')} ({_megabytes(result.bytes)}, "
            f"{result.copied:,} of them new) and {counted(result.rows, 'row')} into {escaped(str(result.folder))}",
            soft_wrap=True,
        )
        console.print(
            f"keep a copy of {escaped(str(engine.workspace.storage.local(KEY_FILE)))} elsewhere: "
            "it is not in the backup",
            soft_wrap=True,
        )


def restore(
    source: Annotated[Path, typer.Argument(help="Folder of a backup.")],
    folder: Annotated[Path, typer.Argument(help="Folder of the new workspace. It must be empty or not exist.")],
    catalog: Annotated[
        str,
        typer.Option(envvar="RUNNEL_CATALOG", help="URL of an empty database for the catalog. Default: SQLite."),
    ] = "",
    storage: Annotated[
        str,
        typer.Option(
            envvar="RUNNEL_STORAGE", help="URL of an empty storage location for the files. Default: the new folder."
        ),
    ] = "",
    accept_settings: Annotated[
        bool,
        typer.Option(
            "--accept-settings", help="Accept the listed settings of the backup, which grant access to this machine."
        ),
    ] = False,
    key_file: Annotated[
        Path | None,
        typer.Option(
            envvar="RUNNEL_KEY_FILE",
            help="A copy of private/key.json of the original workspace, to verify the signature and restore secrets.",
        ),
    ] = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a workspace from a backup after verifying the digest of every file.

    Settings that allow code to run, or grant access to files, networks or mail, are listed and must be accepted.

    Example: `runnel restore /mnt/backups/news news`
    """
    from runnel.engine.upkeep.restore import restore as restore_workspace
    from runnel.storage.key_file import read_key_file

    with reporting_errors(as_json):
        refuse_token(token, "restore a workspace")
        with _showing_progress("restoring", as_json) as report:
            result = restore_workspace(
                source,
                folder,
                catalog=catalog,
                storage=storage,
                accept_settings=accept_settings,
                key=None if key_file is None else read_key_file(key_file),
                report=report,
            )
        if as_json:
            print_json(
                {
                    "workspace": str(result.folder),
                    "files": result.files,
                    "bytes": result.bytes,
                    "made": result.made,
                    "last_sequence": result.last_sequence,
                    "accepted_settings": [right.setting for right in result.rights],
                    "signer": result.signer.value,
                    "lost_secrets": result.lost_secrets,
                }
            )
            return
        console.print(
            f"[green]✓[/green] restored {counted(result.files, 'file')} ({_megabytes(result.bytes)}) into "
            f"{escaped(str(result.folder))}, as of {result.made[:19]}",
            soft_wrap=True,
        )
        console.print(_signature_line(result.signer), soft_wrap=True)
        if result.lost_secrets:
            console.print(
                f"{counted(result.lost_secrets, 'secret')} could not be restored without the key file: webhooks need "
                "new signing keys ([bold]rotate key of subscription …;[/bold]), and old unsubscribe links fail",
                soft_wrap=True,
            )
        for right in result.rights:
            console.print(f"accepted {escaped(str(right))}", soft_wrap=True)
        console.print(
            "next: make sure that the original workspace never runs again, then start this one with "
            "[bold]runnel run[/bold]"
        )


def _signature_line(signer: Signer) -> str:
    """Describe whether the signature of a backup was verified."""
    match signer.value:
        case "checked":
            return "the signature of the backup is valid"
        case "none":
            return "[yellow]![/yellow] the backup is not signed: a modification cannot be detected"
    return "[yellow]![/yellow] the signature of the backup was not verified; [bold]--key-file[/bold] verifies it"


@contextmanager
def _showing_progress(action: str, as_json: bool) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar that counts files, if the output is a terminal."""
    if as_json or not console.is_terminal:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(action, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _megabytes(size: int) -> str:
    """Format a number of bytes in megabytes.

    >>> _megabytes(0), _megabytes(5_300_000)
    ('0 MB', '5 MB')
    """
    return f"{size / 1e6:,.0f} MB"
