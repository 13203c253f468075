"""The page of the settings, from the fields of `Settings`."""

from __future__ import annotations

import json
from typing import Any

from scripts.reference_markdown import block, code, page, table

from runnel.settings import FILE, Settings


def settings_page() -> str:
    """All settings: name, environment variable, default, meaning."""
    prefix = Settings.model_config["env_prefix"]
    rows = [
        (code(name), code(f"{prefix}{name.upper()}"), code(_shown(field.default)), field.description or "")
        for name, field in Settings.model_fields.items()
    ]
    return page(
        "# Settings",
        f"A root has its settings in `{FILE}`, in its folder. An environment variable wins over the file. In the "
        "library, keyword arguments of `runnel.open` stand in for the file's. Every setting has a default that "
        "works. An unknown name or a value of the wrong type is refused.",
        table(["setting", "environment variable", "default", "meaning"], rows),
        "A list is written as a TOML array in the file and as a JSON array in the environment:",
        block('out_folders = ["/srv/www/feeds"]\nRUNNEL_OUT_FOLDERS=\'["/srv/www/feeds"]\' runnel run'),
        "The commands also know `RUNNEL_ROOT`: the root to use where `--root` is not given. It is no setting of a "
        "root.",
    )


def _shown(default: Any) -> str:
    """A default as it would be written in the file."""
    return json.dumps(list(default) if isinstance(default, tuple) else default)
