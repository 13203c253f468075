"""`runnel report`: write an HTML report about a workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runnel.cli.options import JsonOption, TokenOption, WorkspaceOption, open_for_command
from runnel.cli.output import console, print_json, reporting_errors
from runnel.errors import InputError
from runnel.private_files import open_private


def report(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write. Default: report.html in the folder of the workspace."),
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Runnel report",
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write an HTML report: items and matches over time and per query, and the work saved by sharing.

    Example: `runnel report -o report.html`
    """
    from runnel.web.collect_report import collect_report
    from runnel.web.report import render_report

    with (
        reporting_errors(as_json),
        open_for_command(workspace, token, admin_only="report on the whole workspace") as engine,
    ):
        path = output or engine.workspace.folder / "report.html"
        page = render_report(collect_report(engine, title))
        try:
            write_page(path, page)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", place=str(path)) from error
        if as_json:
            print_json({"report": str(path)})
        else:
            console.print(f"[green]✓[/green] wrote {path}")


def write_page(path: Path, page: str) -> None:
    """Write a report. Only this user can read the file, because it describes the feeds and queries of all owners."""
    with open(path, "w", encoding="utf-8", opener=open_private) as file:
        file.write(page)
