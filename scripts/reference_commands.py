"""Generate the page of the commands, from the command-line application itself."""

from __future__ import annotations

import enum
from collections import Counter
from typing import Any

import typer
from scripts.reference_markdown import block, code, page, table

from runnel.cli.main import app
from runnel.cli.output import EXIT_CODES

_EXAMPLE = "Example:"
_COMMON_FROM = 10


def commands() -> dict[str, Any]:
    """The commands by name, those of groups (`owner add`) too, as the application knows them."""
    group: Any = typer.main.get_command(app)
    values: dict[str, Any] = {}
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        values |= {f"{name} {key}": each for key, each in inner.items()} if inner else {name: command}
    return values


def commands_page() -> str:
    """Return the page: common options, every command with its arguments, options and example, and the exit codes."""
    common = common_options()
    return page(
        "# Commands",
        "`runnel COMMAND --help` prints the same information. A command uses the workspace that `--workspace` or "
        "`RUNNEL_WORKSPACE` names, or else the one in the current folder. `runnel --install-completion` lets the "
        "shell complete commands and options. A command finishes its work even if its output is not read to the "
        "end, as in `runnel show feeds | head -1`.",
        "These former names still work, with a warning: `runnel letters` (now `runnel dead-letters`), `--root` and "
        "`-r` (now `--workspace` and `-w`), `RUNNEL_ROOT` (now `RUNNEL_WORKSPACE`).",
        "## Common options",
        "Each command lists which of these it takes.",
        table(["option", "meaning"], [(_names(option), _meaning(option)) for option in common.values()]),
        *(_command(name, command, common) for name, command in commands().items()),
        "## Exit codes",
        table(["code", "meaning"], [(str(number), meaning) for number, meaning in EXIT_CODES.items()]),
    )


def common_options() -> dict[str, Any]:
    """Return the options that have the same meaning in at least ten commands, by name."""
    options = [option for command in commands().values() for option in command.params if _is_option(option)]
    counts = Counter((option.name, option.help) for option in options)
    return {option.name: option for option in options if counts[option.name, option.help] >= _COMMON_FROM}


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")


def _command(name: str, command: Any, common: dict[str, Any]) -> str:
    value, _, example = (command.help or "").partition(_EXAMPLE)
    arguments = [entry for entry in command.params if entry.param_type_name == "argument"]
    options = [element for element in command.params if _is_option(element)]
    own = [option for option in options if option.name not in common or option.help != common[option.name].help]
    shared = [option for option in options if option not in own]
    parts = [f"## runnel {name}", value.strip(), block(_usage(name, arguments, options))]
    if arguments:
        rows = [(code(argument.name), _meaning(argument)) for argument in arguments]
        parts.append(table(["argument", "meaning"], rows))
    if own:
        parts.append(table(["option", "meaning"], [(_names(element), _meaning(element)) for element in own]))
    if shared:
        parts.append(f"Common options: {', '.join(_names(element) for element in shared)}.")
    if example:
        parts.append(f"Example: {example.strip()}")
    return page(*parts)


def _usage(name: str, arguments: list[Any], options: list[Any]) -> str:
    words = [argument.name if argument.required else f"[{argument.name}]" for argument in arguments]
    return " ".join([f"runnel {name}", *(["[OPTIONS]"] if options else []), *words])


def _names(option: Any) -> str:
    return ", ".join(code(name) for name in (*option.opts, *option.secondary_opts))


def _meaning(parameter: Any) -> str:
    messages = [(parameter.help or "").strip()]
    default = parameter.default
    if parameter.required:
        messages.append("Required.")
    elif default is not None and not isinstance(default, bool) and not callable(default):
        shown = str(default.value if isinstance(default, enum.Enum) else default)
        messages.append(f"Default: {'the current folder' if shown == '.' else code(shown)}.")
    if parameter.envvar:
        current = parameter.envvar if isinstance(parameter.envvar, str) else parameter.envvar[0]
        messages.append(f"Environment: {code(current)}.")
    return " ".join(message for message in messages if message)
