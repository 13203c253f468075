"""Former names of commands, options and variables. They still work, and a warning gives the current name."""

from __future__ import annotations

import os
from typing import Any, Final

from typer.core import TyperGroup

from runnel.cli.output import print_warning

_COMMANDS: Final = {"letters": "dead-letters"}
_OPTIONS: Final = {"--root": "--workspace", "-r": "-w"}
_VARIABLES: Final = {"RUNNEL_ROOT": "RUNNEL_WORKSPACE"}


class CommandGroup(TyperGroup):
    """The commands of `runnel`, by their current and former names."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name."""
        current = _COMMANDS.get(cmd_name, cmd_name)
        if current != cmd_name:
            _warn(f"runnel {cmd_name}", f"runnel {current}")
        return super().get_command(ctx, current)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line after replacing the former names of options."""
        for former, current in _VARIABLES.items():
            if former in os.environ and current not in os.environ:
                _warn(former, current)
        return super().parse_args(ctx, [_with_current_name(argument) for argument in args])


def _with_current_name(argument: str) -> str:
    """Replace the former name of an option: `--root`, `--root=news`, `-r` or `-rnews`.

    >>> _with_current_name("--rootless"), _with_current_name("Root")
    ('--rootless', 'Root')
    """
    for former, current in _OPTIONS.items():
        is_short = not former.startswith("--")
        if argument == former or argument.startswith(former if is_short else f"{former}="):
            _warn(former, current)
            return current + argument.removeprefix(former)
    return argument


def _warn(former: str, current: str) -> None:
    print_warning(f"{former} is now {current}; the old name still works")
