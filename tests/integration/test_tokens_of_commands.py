"""No command ignores a token: each command acts for the token's owner, or refuses the token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from runnel.cli.main import app
from runnel.engine import connect

VARIABLE = "RUNNEL_TOKEN"
FOR_OWNERS = {
    *("exec", "publish", "show", "explain", "why", "preview", "test", "queries", "operators"),
    *("dead-letters list", "dead-letters explain", "dead-letters replay", "dead-letters send-now"),
    *("opml import", "opml export"),
}
"""Commands that act for the owner of a token. All others are the admin's: an owner's token is refused."""
BEFORE_A_WORKSPACE = {"init", "restore", "demo", "adopt"}
"""Commands that cannot check a token, and refuse any."""


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Return all subcommands of a command, at any depth, by the words that call them."""
    if not hasattr(command, "commands"):
        yield " ".join(path), command
        return
    for name, inner in command.commands.items():
        yield from _commands(inner, (*path, name))


COMMANDS = dict(_commands(typer.main.get_command(app)))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens") / "root"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for commands that would create a workspace in the current directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def tokens(root: Path) -> dict[str, str]:
    """A token of an owner, a token of the admin, and an invalid token."""
    with connect(root) as engine:
        engine.owners.add("ann")
        made = {name: str(engine.owners.new_token(name, "test").to_json()["token"]) for name in ("ann", "operator")}
    return {**made, "nobody": "runnel_99_" + "x" * 43, "empty": ""}


def _invoke(name: str, root: Path, token: str) -> Any:
    """Call a command with a token in the environment and placeholders for all required arguments."""
    command = COMMANDS[name]
    given = [
        "1" if parameter.name in ("number", "subscription") else str(root.parent / "argument")
        for parameter in command.params
        if parameter.param_type_name == "argument" and parameter.required
    ]
    place = ["--workspace", str(root)] if any(entry.name == "workspace" for entry in command.params) else []
    place += ["--once"] if name == "run" else []
    return CliRunner().invoke(app, [*name.split(), *given, *place], env={VARIABLE: token})


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_accepts_the_token_option(name: str) -> None:
    options = [entry for entry in COMMANDS[name].params if entry.envvar == VARIABLE]
    assert [option.opts for option in options] == [["--token"]]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_runs_with_a_wrong_or_empty_token(name: str, root: Path, tokens: dict[str, str]) -> None:
    before = sorted(root.parent.iterdir())
    wrong, empty = (_invoke(name, root, tokens[text]) for text in ("nobody", "empty"))
    assert (wrong.exit_code, empty.exit_code) == (3, 3), (wrong.output, empty.output)
    assert ("a token cannot be used to" if name in BEFORE_A_WORKSPACE else "this token is not valid") in wrong.output
    assert "the token is empty" in empty.output
    assert sorted(root.parent.iterdir()) == before, "nothing was made"


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - FOR_OWNERS))
def test_the_commands_of_the_admin_refuse_the_token_of_an_owner(
    name: str, root: Path, tokens: dict[str, str]
) -> None:
    before = sorted(root.parent.iterdir())
    refused = _invoke(name, root, tokens["ann"])
    assert refused.exit_code == 3, refused.output
    assert ("a token cannot be used to" if name in BEFORE_A_WORKSPACE else "only the admin can") in refused.output
    assert sorted(root.parent.iterdir()) == before, "nothing was made"


def test_all_commands_for_owners_exist() -> None:
    assert COMMANDS.keys() > FOR_OWNERS | BEFORE_A_WORKSPACE


def test_the_token_of_the_admin_is_accepted(root: Path, tokens: dict[str, str]) -> None:
    for name in ("owner list", "token list", "doctor", "backup", "report", "status"):
        done = _invoke(name, root, tokens["operator"])
        assert done.exit_code == 0, (name, done.output)
    assert (root.parent / "argument" / "backup.json").exists()
