"""`runnel opml`: import and export lists of web feeds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from runnel.cli.options import ActingOption, JsonOption, TokenOption, WorkspaceOption, open_for_command
from runnel.cli.output import print_answers, reporting_errors
from runnel.errors import InputError
from runnel.private_files import open_private

opml = typer.Typer(
    no_args_is_help=True,
    help="Import and export lists of web feeds in OPML format.\n\nExample: `runnel opml import feeds.opml`",
)


@opml.command("import")
def import_opml(
    file: Annotated[str, typer.Argument(help="An OPML file; `-` reads standard input.")],
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Register the feeds of an OPML file that are not registered yet.

    Example: `runnel opml import feeds.opml`
    """
    from runnel.engine.opml import import_feeds
    from runnel.sources.drop_folder import read_file

    with reporting_errors(as_json), open_for_command(workspace, token, acting) as engine:
        limit = engine.workspace.settings.max_document_bytes
        data = sys.stdin.buffer.read(limit + 1) if file == "-" else read_file(Path(file), limit=limit)
        if len(data) > limit:
            raise InputError(
                f"the OPML file is larger than {limit:,} bytes",
                place=file,
                hint="raise the setting max_document_bytes",
            )
        print_answers([import_feeds(engine, data)], as_json)


@opml.command("export")
def export_opml(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. Default: standard output.")
    ] = None,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
) -> None:
    """Export the owner's web feeds as OPML.

    Example: `runnel opml export -o feeds.opml`
    """
    from runnel.engine.opml import export_feeds

    with reporting_errors(False), open_for_command(workspace, token, acting) as engine:
        data = export_feeds(engine)
        if output is None:
            sys.stdout.buffer.write(data)
            return
        try:
            with open(output, "wb", opener=open_private) as file:  # URLs of feeds may contain passwords
                file.write(data)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", place=str(output)) from error
