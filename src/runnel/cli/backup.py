"""`runnel backup` and `runnel restore`: a copy of a root, and a root from a copy."""

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
    target: Annotated[Path, typer.Argument(help="The folder of the backup; made if it is not there.")],
    link: Annotated[
        bool, typer.Option("--link", help="Give files a second name instead of copying them, on the same disk.")
    ] = False,
    root: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a root into a folder, also while it runs; a second time only what is new is copied.

    Example: `runnel backup /mnt/backups/news`
    """
    from runnel.engine.upkeep.backup import back_up
    from runnel.storage.key_file import KEY_FILE

    with (
        reporting_errors(as_json),
        open_for_command(root, token, admin_only="back up the workspace") as engine,
    ):
        with _shown_files("backing up", as_json) as report:
            made = back_up(engine.root, target, link=link, report=report)
        if as_json:
            print_json(
                {
                    "backup": str(made.folder),
                    "files": made.files,
                    "copied": made.copied,
                    "bytes": made.bytes,
                    "rows": made.rows,
                    "last_sequence": made.last_sequence,
                }
            )
            return
        console.print(
            f"[green]✓[/green] backed up {counted(made.files, 'file')} ({_size(made.bytes)}, {made.copied:,} of them "
            f"new) and {counted(made.rows, 'row')} into {escaped(str(made.folder))}",
            soft_wrap=True,
        )
        console.print(
            f"keep a copy of {escaped(str(engine.root.storage.local(KEY_FILE)))} elsewhere: it is not in the backup",
            soft_wrap=True,
        )


def restore(
    source: Annotated[Path, typer.Argument(help="The folder of a backup.")],
    folder: Annotated[Path, typer.Argument(help="Where the root shall be; an empty folder, or none.")],
    catalog: Annotated[
        str,
        typer.Option(envvar="RUNNEL_CATALOG", help="URL of an empty database for the catalog; SQLite otherwise."),
    ] = "",
    storage: Annotated[
        str, typer.Option(envvar="RUNNEL_STORAGE", help="URL of an empty place for the files; the folder otherwise.")
    ] = "",
    accept_settings: Annotated[
        bool,
        typer.Option("--accept-settings", help="Accept settings of the backup that give rights; they are listed."),
    ] = False,
    key_file: Annotated[
        Path | None,
        typer.Option(
            envvar="RUNNEL_KEY_FILE",
            help="A copy of private/key.json of the backed-up workspace: checks the signature, restores secrets.",
        ),
    ] = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a root from a backup, after comparing every file with its digest.

    Settings that let code run, or let files, networks or mail be reached, are listed, and must be accepted.

    Example: `runnel restore /mnt/backups/news news`
    """
    from runnel.engine.upkeep.restore import restore as restore_root
    from runnel.storage.key_file import read_key_file

    with reporting_errors(as_json):
        refuse_token(token, "restore a workspace")
        with _shown_files("restoring", as_json) as report:
            made = restore_root(
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
                    "root": str(made.folder),
                    "files": made.files,
                    "bytes": made.bytes,
                    "made": made.made,
                    "last_sequence": made.last_sequence,
                    "accepted_settings": [right.setting for right in made.rights],
                    "signer": made.signer.value,
                    "lost_secrets": made.lost_secrets,
                }
            )
            return
        console.print(
            f"[green]✓[/green] restored {counted(made.files, 'file')} ({_size(made.bytes)}) into "
            f"{escaped(str(made.folder))}, as of {made.made[:19]}",
            soft_wrap=True,
        )
        console.print(_signer_line(made.signer), soft_wrap=True)
        if made.lost_secrets:
            console.print(
                f"{counted(made.lost_secrets, 'secret')} could not be restored without the key file: webhooks need "
                "new signing keys ([bold]rotate key of subscription …;[/bold]), and old unsubscribe links fail",
                soft_wrap=True,
            )
        for right in made.rights:
            console.print(f"accepted {escaped(str(right))}", soft_wrap=True)
        console.print("next: stop the old workspace for good before [bold]runnel run[/bold] starts this one")


def _signer_line(signer: Signer) -> str:
    """Whether the signature of a backup was checked, for people."""
    match signer.value:
        case "checked":
            return "the signature of the backup is right"
        case "none":
            return "[yellow]![/yellow] the backup is not signed: nobody can tell whether it was changed"
    return "[yellow]![/yellow] the signature of the backup was not checked; [bold]--key-file[/bold] checks it"


@contextmanager
def _shown_files(what: str, as_json: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar that shows how many files are done; nothing where output is no terminal."""
    if as_json or not console.is_terminal:
        yield lambda done, every: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, every: progress.update(task, completed=done, total=every)


def _size(number: int) -> str:
    """A number of bytes for people.

    >>> _size(0), _size(5_300_000)
    ('0 MB', '5 MB')
    """
    return f"{number / 1e6:,.0f} MB"
