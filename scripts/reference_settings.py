"""The page of the settings, from the fields of `Settings`."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from scripts.reference_markdown import block, code, page, table

from runnel.settings import FILE, FORMER_NAMES, Settings


def settings_page() -> str:
    """All settings: name, environment variable, default, what is allowed, meaning."""
    prefix = Settings.model_config["env_prefix"]
    rows = [
        (
            code(name),
            code(f"{prefix}{name.upper()}"),
            code(_shown(field.default)),
            allowed(field),
            field.description or "",
        )
        for name, field in Settings.model_fields.items()
    ]
    return page(
        "# Settings",
        f"A workspace reads its settings from `{FILE}` in its folder. Environment variables override the file, and "
        "keyword arguments of `runnel.open` override both. Every setting has a default. An unknown name, a value of "
        "the wrong type or a value that is not allowed is refused.",
        table(["setting", "environment variable", "default", "allowed", "meaning"], rows),
        "A list is written as a TOML array in the file and as a JSON array in the environment:",
        block('out_folders = ["/srv/www/feeds"]\nRUNNEL_OUT_FOLDERS=\'["/srv/www/feeds"]\' runnel run'),
        "The commands also read `RUNNEL_WORKSPACE`, the workspace to use if `--workspace` is not given. It is not a "
        "setting.",
        "These former names still work in the file and in the environment, with a warning: "
        + ", ".join(f"{code(former)} (now {code(current)})" for former, current in FORMER_NAMES.items())
        + ".",
    )


def allowed(field: FieldInfo) -> str:
    """What a setting may be, in words: one of some values, or a number between limits.

    >>> allowed(Settings.model_fields["partitions"]), allowed(Settings.model_fields["send_seconds"])
    ('0 to 1,024', 'more than 0')
    >>> allowed(Settings.model_fields["partition_strategy"])
    '`""`, `"grouped"` or `"spread"`'
    """
    if get_origin(field.annotation) is Literal:
        *others, last = (code(_shown(value)) for value in get_args(field.annotation))
        return f"{', '.join(others)} or {last}" if others else last
    if field.annotation is bool:
        return f"{code('true')} or {code('false')}"
    limits = {name: getattr(one, name) for one in field.metadata for name in _LIMITS if hasattr(one, name)}
    if "ge" in limits and "le" in limits:
        return f"{limits['ge']:,} to {limits['le']:,}"
    return " and ".join(words.format(limits[name]) for name, words in _LIMITS.items() if name in limits)


_LIMITS = {
    "gt": "more than {:,}",
    "ge": "{:,} or more",
    "lt": "less than {:,}",
    "le": "{:,} or less",
    "min_length": "{:,} or more characters",
}


def _shown(default: Any) -> str:
    """A default as it would be written in the file."""
    return json.dumps(list(default) if isinstance(default, tuple) else default)
