"""Generate the page of the settings, from the fields of `Settings`."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from scripts.reference_markdown import block, code, page, table

from runnel.settings import FILE, FORMER_NAMES, Settings

SUBJECTS = {
    "Where things are": ("catalog", "storage", "out_folders", "shared_output", "out_url"),
    "Spark": ("master", "driver_memory", "executor"),
    "Matching": (
        "max_batch",
        "slice",
        "matcher",
        "partition",
        "plan_megabytes",
        "rebalance",
        "reoptimize",
        "slow_query",
        "window_fill",
    ),
    "Sources": (
        "scan",
        "first_fetch",
        "max_document",
        "lag",
        "publish",
        "poll",
        "http",
        "user_agent",
        "allowed_addresses",
    ),
    "Delivery": ("feed_entries", "smtp", "mail_from", "send", "retry", "refusals", "subscription_days", "stylesheet"),
    "Operators": ("operator", "preview"),
    "Owners and recipients": ("owner", "confirm", "open", "trusted_proxies"),
    "Running": ("listen", "public_url", "log_format", "lease", "stall", "archive", "orphan", "keep", "table"),
}
"""The subjects of the page, each with the beginnings of the names of its settings."""


def subject_of(name: str) -> str:
    """Return the subject of a setting: the one with the longest beginning of its name.

    >>> subject_of("catalog_max_bytes"), subject_of("open_body_bytes")
    ('Where things are', 'Owners and recipients')
    """
    beginnings = {
        start: subject for subject, starts in SUBJECTS.items() for start in starts if name.startswith(start)
    }
    if not beginnings:
        raise ValueError(f"the setting {name} has no subject: add it to SUBJECTS")
    return beginnings[max(beginnings, key=len)]


def settings_page() -> str:
    """Return the page: all settings by subject, with default, allowed values and meaning."""
    prefix = Settings.model_config["env_prefix"]
    rows: dict[str, list[tuple[str, ...]]] = {subject: [] for subject in SUBJECTS}
    for name, field in Settings.model_fields.items():
        rows[subject_of(name)].append(
            (code(name), code(_shown(field.default)), allowed(field), field.description or "")
        )
    tables = (
        part
        for subject, settings in rows.items()
        for part in (f"## {subject}", table(["setting", "default", "allowed", "meaning"], settings))
    )
    return page(
        "# Settings",
        f"The settings of a workspace are in `{FILE}` in its directory. An environment variable overrides the "
        f"file. Its name is `{prefix}` and the name of the setting in capitals: `{prefix}LAG_LIMIT`. In the library, "
        "keyword arguments of "
        "`runnel.connect` replace the file's values. Every setting has a default that works. An unknown name, a "
        "value of the wrong type and a value that is not allowed are refused.",
        "A list is a TOML array in the file and a JSON array in the environment:",
        block('out_folders = ["/srv/www/feeds"]\nRUNNEL_OUT_FOLDERS=\'["/srv/www/feeds"]\' runnel run'),
        "`RUNNEL_WORKSPACE` names the workspace for commands without `--workspace`. It is not a setting.",
        "Change these first: `master` and `driver_memory` for the machine, `listen` and `public_url` for a service, "
        "`smtp_host` and `mail_from` for mail, `keep_items_days` for the disk, `allowed_addresses` for your "
        "own network.",
        *tables,
        "## Former names",
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
    limits = {
        name: getattr(element, name) for element in field.metadata for name in _LIMITS if hasattr(element, name)
    }
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
