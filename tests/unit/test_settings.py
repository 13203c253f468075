"""Settings: invalid values are refused with the setting's name, its file and a link to the reference."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.reference_settings import allowed

from runnel.errors import WorkspaceError
from runnel.settings import FILE, FORMER_NAMES, REFERENCE, Settings

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    "text", ["partitions = true", "partitions = false", "send_seconds = true", "lag_limit = true"]
)
def test_boolean_is_refused_for_a_numeric_setting(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(f"{text}\n")
    name = text.split()[0]
    with pytest.raises(WorkspaceError, match=f"setting {name} of .*should be a number, not true or false") as refused:
        Settings.load(tmp_path)
    assert str(tmp_path) in refused.value.message
    assert refused.value.hint == "docs/reference/settings.md lists every setting"


@pytest.mark.parametrize("text", ["partitions = 1025", "partitions = -1", "partition_strategy = 'both'"])
def test_value_beyond_the_limits_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(f"{text}\n")
    with pytest.raises(WorkspaceError, match=f"setting {text.split()[0]} of "):
        Settings.load(tmp_path)


def test_numbers_and_booleans_are_read_and_the_environment_overrides_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FILE).write_text("partitions = 8\nshared_output = true\nsend_seconds = 3\n")
    loaded = Settings.load(tmp_path)
    assert (loaded.partitions, loaded.shared_output, loaded.send_seconds) == (8, True, 3.0)
    monkeypatch.setenv("RUNNEL_PARTITIONS", "2")
    assert Settings.load(tmp_path).partitions == 2


@pytest.mark.parametrize(("former", "current"), FORMER_NAMES.items())
def test_former_names_are_accepted_with_a_warning(
    former: str, current: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text(f"{former} = 101\n")
    assert getattr(Settings.load(tmp_path), current) == 101
    assert f"setting {former} in {tmp_path / FILE} is now named {current}" in caplog.text
    monkeypatch.setenv(f"RUNNEL_{former.upper()}", "102")
    assert getattr(Settings.load(tmp_path), current) == 102, "the environment overrides the file"
    assert f"setting {former} in the environment is now named {current}" in caplog.text
    monkeypatch.setenv(f"RUNNEL_{current.upper()}", "103")
    assert getattr(Settings.load(tmp_path), current) == 103, "the current name overrides the former one"
    assert getattr(Settings.load(tmp_path, **{former: 104}), current) == 104
    with pytest.raises(WorkspaceError, match=f"setting {current} of .*should be a number"):
        Settings.load(tmp_path, **{former: True})


def test_current_names_are_accepted_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE).write_text("stylesheet_seconds = 3\n")
    assert Settings.load(tmp_path).stylesheet_seconds == 3
    assert caplog.text == ""


def test_reference_lists_the_allowed_values() -> None:
    fields = Settings.model_fields
    assert allowed(fields["partitions"]) == "0 to 1,024"
    assert allowed(fields["partition_strategy"]) == '`""`, `"grouped"` or `"spread"`'
    assert allowed(fields["rebalance_seconds"]) == "1 or more"
    assert allowed(fields["send_seconds"]) == "more than 0"
    assert allowed(fields["shared_output"]) == "`true` or `false`"
    assert allowed(fields["user_agent"]) == "1 or more characters"
    assert allowed(fields["master"]) == ""
    page = (ROOT / REFERENCE).read_text("utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| `partitions` |"))
    assert "| 0 to 1,024 |" in row
