"""`runnel queries`: list the busiest, idle and most expensive queries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from runnel.cli.options import ActingOption, JsonOption, TokenOption, WorkspaceOption, open_for_command
from runnel.cli.output import print_answers, reporting_errors


def queries(
    never: Annotated[bool, typer.Option("--never", help="List only queries without a match.")] = False,
    busiest: Annotated[bool, typer.Option("--busiest", help="List only queries with at least one match.")] = False,
    slow: Annotated[
        bool,
        typer.Option(
            "--slow", help="List the most expensive queries, the most expensive condition of each, and how to fix it."
        ),
    ] = False,
    tag: Annotated[
        str | None, typer.Option(help="List only queries with this tag, including those without a subscription.")
    ] = None,
    items: Annotated[int, typer.Option(help="Number of recent items to count matches in.", min=1)] = 100_000,
    limit: Annotated[int, typer.Option(help="Maximum number of queries per list.", min=1)] = 20,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the busiest, idle and most expensive queries, to find those that are too broad, misspelled or slow.

    Example: `runnel queries --never`
    """
    with reporting_errors(as_json), open_for_command(workspace, token, acting) as engine:
        chosen = {name for name, is_chosen in (("never", never), ("busiest", busiest), ("slow", slow)) if is_chosen}
        if not chosen:
            chosen = {"never", "busiest"} if tag is None else {"never", "busiest", "idle"}
        print_answers([replace(engine.usage(items, tag=tag), shown=frozenset(chosen), limit=limit)], as_json)
