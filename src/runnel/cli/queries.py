"""`runnel queries`: which queries match much, which nothing, and which cost most."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from runnel.cli.options import ActingOption, JsonOption, TokenOption, WorkspaceOption, open_for_command
from runnel.cli.output import print_answers, reporting_errors


def queries(
    never: Annotated[bool, typer.Option("--never", help="Only those that matched nothing.")] = False,
    busiest: Annotated[bool, typer.Option("--busiest", help="Only those that matched something.")] = False,
    slow: Annotated[
        bool, typer.Option("--slow", help="Those that cost most, the part of each that does, and what would help.")
    ] = False,
    tag: Annotated[str | None, typer.Option(help="Only queries with this tag, subscribed to or not.")] = None,
    items: Annotated[int, typer.Option(help="How many of the newest items to look at.", min=1)] = 100_000,
    limit: Annotated[int, typer.Option(help="How many queries to list.", min=1)] = 20,
    root: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which queries match most, which never match and which are slow: the too wide, misspelt and dear ones.

    Example: `runnel queries --never`
    """
    with reporting_errors(as_json), open_for_command(root, token, acting) as engine:
        chosen = {name for name, is_chosen in (("never", never), ("busiest", busiest), ("slow", slow)) if is_chosen}
        if not chosen:
            chosen = {"never", "busiest"} if tag is None else {"never", "busiest", "idle"}
        print_answers([replace(engine.usage(items, tag=tag), shown=frozenset(chosen), limit=limit)], as_json)
