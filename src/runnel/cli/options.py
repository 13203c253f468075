"""Options that several commands have, and how commands open a workspace: for its admin, or for the owner of a token.

Every command takes a token, from `--token` or RUNNEL_TOKEN. A command either acts for the owner of the token
(`open_for_command`) or refuses it (`check_admin_token`, `refuse_token`). None may ignore it, which would let an owner
act as the admin.
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
    Path, typer.Option("--root", "-r", envvar="RUNNEL_ROOT", help="The root: the folder of one installation.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, a line each, instead of text.")]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar=_VARIABLE,
        show_default=False,
        help="Act for the owner of this token; without one, act as the admin. Commands for the admin refuse it.",
    ),
]
ActingOption = Annotated[str | None, typer.Option("--as", help="Act for this owner, as the admin may.")]


@contextmanager
def open_for_command(
    root: Path,
    token: str | None,
    acting: str | None = None,
    *,
    admin_only: str | None = None,
    **settings: Any,
) -> Iterator[Engine]:
    """The engine of a workspace: for the admin, for a token's owner, or for an owner whom the admin acts for.

    `admin_only` names what only the admin can do; the token of another owner is then refused.
    """
    from runnel.engine import connect

    token = _given(token)
    if token is not None and acting is not None:
        raise InputError("--as and a token cannot be combined", hint="give one of the two")
    with connect(root, create=False, token=token, **settings) as engine:
        if admin_only is not None:
            engine.require_admin(admin_only)
        if acting is None:
            yield engine
            return
        with engine.acting_as(acting) as other:
            yield other


def check_admin_token(root: Path, token: str | None, action: str) -> None:
    """Refuse the token of an owner other than the admin. Without a token nothing is opened."""
    if _given(token) is not None:
        with open_for_command(root, token, admin_only=action):
            pass


def refuse_token(token: str | None, action: str) -> None:
    """Refuse a token for a command that runs before there is an accepted catalog in which it could be checked."""
    if _given(token) is not None:
        raise NotAllowedError(
            f"no token can be used to {action}",
            hint=f"leave out --token, or unset {_VARIABLE}",
        )


def _given(token: str | None) -> str | None:
    """The token of the option or of the environment. An empty one must not make an owner the admin."""
    if token == "" or (token is None and os.environ.get(_VARIABLE) == ""):
        raise InputError("the token is empty", hint=f"set {_VARIABLE} to a token, or unset it to act as the admin")
    return token
