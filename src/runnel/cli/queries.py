"""`runnel queries`: which queries match much, and which nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runnel.cli.options import ActingOption, JsonOption, RootOption, TokenOption, opened
from runnel.cli.output import tell_outcomes, told
from runnel.engine.usage import ITEMS, SHOWN


def queries(
    never: Annotated[bool, typer.Option("--never", help="Only those that matched nothing.")] = False,
    busiest: Annotated[bool, typer.Option("--busiest", help="Only those that matched something.")] = False,
    items: Annotated[int, typer.Option(help="How many of the newest items to look at.", min=1)] = ITEMS,
    limit: Annotated[int, typer.Option(help="How many queries to list.", min=1)] = SHOWN,
    root: RootOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which queries match most and which never match: the misspelt and the too wide ones.

    Example: `runnel queries --never`
    """
    with told(as_json), opened(root, token, acting) as engine:
        both = never == busiest
        found = engine.usage(items)
        tell_outcomes([found.outcome(never=never or both, busiest=busiest or both, limit=limit)], as_json)
