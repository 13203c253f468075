"""`runnel operators`: which operators there are, what they cost, and which queries use them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runnel.algebra.nodes.render import render_name
from runnel.cli.options import ActingOption, JsonOption, RootOption, TokenOption, opened
from runnel.cli.output import tell_outcomes, told


def operators(
    name: Annotated[str | None, typer.Argument(help="Only this operator, with the queries that use it.")] = None,
    root: RootOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show operators: parameters, source, declared cost, what is done on errors, and how many queries use each.

    Example: `runnel operators mobPattern`
    """
    with told(as_json), opened(root, token, acting) as engine:
        if name is None:
            tell_outcomes([engine.show("operators")], as_json)
        else:
            tell_outcomes(engine.execute(f"show operator {render_name(name)};"), as_json)
