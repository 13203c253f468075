"""`runnel operators`: list operators with their costs and the queries that use them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runnel.cli.options import ActingOption, JsonOption, TokenOption, WorkspaceOption, open_for_command
from runnel.cli.output import print_answers, reporting_errors


def operators(
    name: Annotated[str | None, typer.Argument(help="Show only this operator and the queries that use it.")] = None,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """List operators with parameters, source, declared cost, error handling and the number of queries that use them.

    Example: `runnel operators mobPattern`
    """
    from runnel.language.syntax.statements import Name, Show

    with reporting_errors(as_json), open_for_command(workspace, token, acting) as engine:
        print_answers([engine.apply(Show("operators") if name is None else Show("operator", Name(name)))], as_json)
