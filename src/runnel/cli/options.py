"""Options shared by several commands, and opening a workspace as its admin or as the owner of a token.

Every command accepts a token, from `--token` or RUNNEL_TOKEN. A command either acts as the owner of the token
(`open_for_command`) or refuses the token (`check_admin_token`, `refuse_token`). A command that ignored the token
would let an owner act as the admin.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.errors import InputError, NotAllowedError

if TYPE_CHECKING:
    from runnel.engine import Engine

_VARIABLE = "RUNNEL_TOKEN"

WorkspaceOption = Annotated[
    Path,
    typer.Option(
        "--workspace", "-w", envvar=["RUNNEL_WORKSPACE", "RUNNEL_ROOT"], help="The folder of the workspace."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line instead of text.")]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar=_VARIABLE,
        show_default=False,
        help="Act as the owner of this token. Without a token, act as the admin. Admin commands refuse other tokens.",
    ),
]
ActingOption = Annotated[str | None, typer.Option("--as", help="Act as this owner. Only the admin can do this.")]


@contextmanager
def open_for_command(
    workspace: Path,
    token: str | None,
    acting: str | None = None,
    *,
    admin_only: str | None = None,
    **settings: Any,
) -> Iterator[Engine]:
    """Open a workspace as the admin, as the owner of a token, or as an owner for whom the admin acts.

    `admin_only` describes an action that only the admin may perform. The token of another owner is then refused.
    """
    from runnel.engine import connect

    token = _check_token(token)
    if token is not None and acting is not None:
        raise InputError("--as and a token cannot be combined", hint="give one of the two")
    with connect(workspace, create=False, token=token, **settings) as engine:
        if admin_only is not None:
            engine.require_admin(admin_only)
        if acting is None:
            yield engine
            return
        with engine.acting_as(acting) as owner_engine:
            yield owner_engine


def check_admin_token(workspace: Path, token: str | None, action: str) -> None:
    """Refuse the token of an owner other than the admin. Without a token, do not open the workspace."""
    if _check_token(token) is not None:
        with open_for_command(workspace, token, admin_only=action):
            pass


def refuse_token(token: str | None, action: str) -> None:
    """Refuse any token for a command that runs before a catalog exists in which the token could be checked."""
    if _check_token(token) is not None:
        raise NotAllowedError(
            f"a token cannot be used to {action}",
            hint=f"leave out --token, or unset {_VARIABLE}",
        )


def _check_token(token: str | None) -> str | None:
    """Return the token of the option or the environment. An empty token is refused: it must not mean the admin."""
    if token == "" or (token is None and os.environ.get(_VARIABLE) == ""):
        raise InputError("the token is empty", hint=f"set {_VARIABLE} to a token, or unset it to act as the admin")
    return token
