"""`runnel report`: a page about a root."""

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
        Path | None, typer.Option("--output", "-o", help="Where to write; report.html in the root by default.")
    ] = None,
    title: Annotated[str, typer.Option(help="The page's title.")] = "Runnel report",
    root: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a page about what was matched: items and matches over time, per query, and what sharing saved.

    Example: `runnel report -o report.html`
    """
    from runnel.web.collect_report import collect_report
    from runnel.web.report import render_report

    with (
        reporting_errors(as_json),
        open_for_command(root, token, admin_only="report on the whole workspace") as engine,
    ):
        place = output or engine.root.folder / "report.html"
        page = render_report(collect_report(engine, title))
        try:
            write_page(place, page)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", place=str(place)) from error
        if as_json:
            print_json({"report": str(place)})
        else:
            console.print(f"[green]✓[/green] wrote {place}")


def write_page(place: Path, page: str) -> None:
    """Write a page about the feeds and queries of all owners, so that only this user can read it."""
    with open(place, "w", encoding="utf-8", opener=open_private) as file:
        file.write(page)
