"""`runnel operators`: list operators with their costs and the queries that use them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runnel.cli.options import ActingOption, JsonOption, TokenOption, WorkspaceOption, open_for_command
from runnel.cli.output import print_outcomes, reporting_errors


def operators(
    name: Annotated[str | None, typer.Argument(help="Show only this operator and the queries that use it.")] = None,
    root: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """List operators with parameters, source, declared cost, error handling and the number of queries that use them.

    Example: `runnel operators mobPattern`
    """
    from runnel.algebra.nodes.render import render_name

    with reporting_errors(as_json), open_for_command(root, token, acting) as engine:
        if name is None:
            print_outcomes([engine.show("operators")], as_json)
        else:
            print_outcomes(engine.execute(f"show operator {render_name(name)};"), as_json)
