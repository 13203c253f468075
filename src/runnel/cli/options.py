"""Options that several commands have, and how they open a root."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.errors import InputError

if TYPE_CHECKING:
    from runnel.engine import Engine

WorkspaceOption = Annotated[
    Path, typer.Option("--root", "-r", envvar="RUNNEL_ROOT", help="The root: the folder of one installation.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, a line each, instead of text.")]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="RUNNEL_TOKEN",
        show_default=False,
        help="Act for the owner whose token this is; without one, for the operator.",
    ),
]
ActingOption = Annotated[str | None, typer.Option("--as", help="Act for this owner, as the operator may.")]


@contextmanager
def open_for_command(root: Path, token: str | None = None, acting: str | None = None) -> Iterator[Engine]:
    """The engine of a root: for the operator, for a token's owner, or for an owner whom the operator acts for."""
    from runnel.engine import open_engine

    if token and acting:
        raise InputError("--as is the operator's, and a token acts for its owner", hint="give one of the two")
    with open_engine(root, create=False, token=token or None) as engine:
        if acting is None:
            yield engine
            return
        with engine.acting_as(acting) as other:
            yield other
