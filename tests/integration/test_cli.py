"""The commands: text and JSON output, exit codes, and errors with position and hint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.in_process import InProcess
from tests.unit.engine.upkeep.long_life import LongLife
from typer.testing import CliRunner

from runnel.cli.main import app
from runnel.cli.output import EXIT_CODES
from runnel.engine import connect
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.plan import store

SCRIPT = (
    "register feed Wire; create feed Rock from Wire where title contains 'rock';"
    "subscribe to Rock output rss 'rock.xml';"
)
LINES = '{"id": "1", "title": "Rock am Ring"}\n{"id": "2", "title": "Jazz"}\n'


class Command:
    """Runs `runnel …` on one workspace."""

    def __init__(self, root: Path) -> None:
        self.workspace = root

    def __call__(self, *words: str, code: int = 0, given: str | bytes | None = None) -> Any:
        arguments = list(words)
        if words[0] not in ("init", "demo") and "--help" not in words and "-w" not in words:
            arguments += ["-w", str(self.workspace)]
        result = CliRunner().invoke(app, arguments, input=given)
        assert code in EXIT_CODES
        assert result.exit_code == code, (result.output, result.exception)
        return result

    def json(self, *words: str, given: str | None = None) -> list[Any]:
        """Return the parsed lines of `--json` output."""
        return [json.loads(line) for line in self(*words, "--json", given=given).stdout.splitlines()]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """A command with a workspace that does not exist yet."""
    monkeypatch.delenv("RUNNEL_WORKSPACE", raising=False)
    return Command(tmp_path / "root")


@pytest.fixture
def declared(command: Command) -> Command:
    """A workspace with a feed, a query and a subscription."""
    with connect(command.workspace) as engine:
        engine.execute(SCRIPT)
    return command


# --- each command --------------------------------------------------------------------------------------------------


def test_first_session_from_init_to_delivery(command: Command) -> None:
    assert "created a workspace in" in command("init", str(command.workspace)).stdout
    executed = command("exec", SCRIPT)
    assert [line.strip() for line in executed.stdout.splitlines()] == [
        "✓ registered feed Wire",
        "✓ created feed Rock",
        "✓ subscription 1 to Rock: rss into rock.xml",
    ]
    assert "2 accepted, 0 unchanged, 0 refused" in command("publish", "Wire", "-", given=LINES).stdout
    assert "0 accepted, 2 unchanged, 0 refused" in command("publish", "Wire", "-", given=LINES).stdout
    assert "create feed Rock" in command("show").stdout
    assert "rock.xml" in command("show", "subscriptions").stdout
    assert "0 quarantined" in command("show", "quarantine").stdout
    assert "read by: Rock" in command("show", "Wire").stdout
    assert "title contains 'rock'" in command("explain", "Rock").stdout
    assert "is in Rock" in command("why", "1", "Rock").stdout
    assert "is not in Rock" in command("why", "2", "Rock").stdout
    assert "would have matched 1 of the 2 items" in command("preview", "Rock").stdout
    stdout = command("preview", "create feed Jazz from Wire where title contains 'jazz';", "--days", "2").stdout
    assert "Jazz would have matched 1 of the 2 items" in stdout
    assert "2 accepted, 0 matched, 2 waiting" in command("status").stdout
    assert "wrote" in command("report", "-o", str(command.workspace / "page.html")).stdout
    assert (command.workspace / "page.html").read_text("utf-8").startswith("<!")
    assert "✓ catalog" in command("doctor").stdout


def test_json_output_is_one_value_per_line(declared: Command, tmp_path: Path) -> None:
    (made,) = declared.json("init", str(tmp_path / "second"))
    assert made == {"workspace": str(tmp_path / "second")}
    first, second = declared.json("exec", "show feeds; show subscriptions;")
    assert [feed["name"] for feed in first["feeds"]] == ["Wire", "Rock"]
    assert second["subscriptions"][0]["target"] == "rock.xml"
    (published,) = declared.json("publish", "Wire", "-", given=LINES + "broken\n")
    assert (published["accepted"], published["unchanged"], published["last_sequence"]) == (2, 0, 2)
    assert len(published["refused"]) == 1
    (shown,) = declared.json("show", "Rock")
    assert (shown["reads"], shown["matched"]) == (["Wire"], True)
    (explained,) = declared.json("explain", "Rock")
    assert explained["feed"] == "Rock"
    (why,) = declared.json("why", "1", "Rock")
    assert (why["holds"], why["recorded"]) == (True, None)
    (preview,) = declared.json("preview", "Rock")
    assert (preview["matched"], preview["looked_at"]) == (1, 2)
    assert preview["newest"][0]["title"] == "Rock am Ring"
    (status,) = declared.json("status")
    assert (status["lag"], status["subscriptions"], status["put_aside"]) == (2, 1, 1)
    (report,) = declared.json("report")
    assert Path(report["report"]).exists()
    findings = declared.json("doctor")
    assert {finding["check"] for finding in findings} >= {
        "Python",
        "Java",
        "Spark",
        "disk",
        "catalog",
        "files",
        "plan",
    }
    assert all(finding["well"] for finding in findings)


def test_statements_come_from_an_argument_a_file_or_standard_input(command: Command, tmp_path: Path) -> None:
    command("init", str(command.workspace))
    script = tmp_path / "news.runnel"
    script.write_text("register feed Wire;\n-- a comment\ncreate feed Rock from Wire;\n", "utf-8")
    assert "created feed Rock" in command("exec", "-f", str(script)).stdout
    assert "registered feed Other" in command("exec", "-", given="register feed Other;").stdout
    assert command("exec", "show feeds").stdout.startswith("✓ 3 feeds"), "the last `;` may be missing"
    assert command("exec", "").stdout == ""
    refused = command("exec", code=3)
    assert "expected either statements or --file" in refused.stderr
    assert "expected either statements" in command("exec", "show feeds;", "-f", str(script), code=3).stderr
    assert "cannot read the file" in command("exec", "-f", str(tmp_path / "none"), code=3).stderr


def test_documents_come_from_a_file_or_standard_input(declared: Command, tmp_path: Path) -> None:
    document = tmp_path / "wire.xml"
    document.write_text("<rss version='2.0'><channel><item><guid>1</guid><title>x</title></item></channel></rss>")
    assert "1 accepted" in declared("publish", "Wire", str(document)).stdout
    broken = declared("publish", "Wire", "-", given="<rss", code=3)
    assert "not well-formed XML" in broken.stderr
    assert "hint: " in broken.stderr
    assert "cannot read the file" in declared("publish", "Wire", str(tmp_path / "none.xml"), code=3).stderr
    only_bad = declared("publish", "Wire", "-", given='{"id": "9", "n": 1e999}\n', code=3)
    assert "1 refused" in only_bad.stdout
    assert "virtual feed" in declared("publish", "Rock", "-", given=LINES, code=6).stderr
    assert "no feed Wrie" in declared("publish", "Wrie", "-", given=LINES, code=6).stderr


def test_workspace_is_read_from_the_environment(declared: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNEL_WORKSPACE", str(declared.workspace))
    result = CliRunner().invoke(app, ["status", "--json"])
    assert json.loads(result.stdout)["workspace"] == str(declared.workspace)


# --- exit codes and errors -----------------------------------------------------------------------------------------


def test_usage_errors_have_exit_code_2(command: Command) -> None:
    command("nonsense", code=2)
    command("why", "1", code=2)
    command("status", "--nonsense", code=2)
    command("preview", "Rock", "--days", "0", code=2)


def test_refused_statement_has_exit_code_3_and_shows_its_position(declared: Command) -> None:
    refused = declared("exec", "register feed X;\ncreate feed Y from Wrie;", code=3)
    assert refused.stdout == ""
    assert refused.stderr.splitlines() == [
        "error line 2, column 20: there is no feed Wrie",
        "  create feed Y from Wrie;",
        "                     ^^^^",
        "hint: did you mean Wire?",
    ]
    as_json = json.loads(declared("exec", "create feed Y from Wrie;", "--json", code=3).stderr)["error"]
    assert as_json == {
        "kind": "UnknownNameError",
        "message": "there is no feed Wrie",
        "hint": "did you mean Wire?",
        "place": {"line": 1, "column": 20},
    }
    syntax = declared("exec", "creat feed X from Wire;", code=3)
    assert "^^^^^" in syntax.stderr


def test_refused_preview_shows_its_position(declared: Command) -> None:
    refused = declared("preview", "create feed Y from Wrie;", code=3)
    assert "line 1, column 20" in refused.stderr
    assert "^^^^" in refused.stderr


def test_rich_markup_in_texts_is_printed_literally(declared: Command) -> None:
    refused = declared("exec", "create feed Y from Wire as $w where $v[title contains '[red]x[/red]'];", code=3)
    assert "[red]x[/red]" in refused.stderr
    declared("publish", "Wire", "-", given='{"id": "[bold]1", "title": "[/red] rock \\u001b[31m"}\n')
    stdout = declared("why", "[bold]1", "Rock").stdout
    assert "[bold]1" in stdout
    shown = declared("preview", "Rock").stdout
    assert "[/red] rock" in shown


def test_control_characters_are_not_printed(declared: Command) -> None:
    declared("publish", "Wire", "-", given='{"id": "1", "title": "rock \\u001b[31m\\u0007"}\n')
    assert "\x1b[31m" not in declared("preview", "Rock").stdout
    assert "\x1b[31m" not in declared("why", "1", "Rock").stdout


def test_unusable_workspace_has_exit_code_4(declared: Command, tmp_path: Path) -> None:
    missing = declared("status", "-w", str(tmp_path / "nowhere"), code=4)
    assert "is not a workspace" in missing.stderr
    assert "runnel init" in missing.stderr
    again = declared("init", str(declared.workspace), code=4)
    assert "is already a workspace" in again.stderr
    with connect(declared.workspace) as engine:
        InProcess(engine)
        active = declared("run", "--once", code=4)
        assert "a runner is active" in active.stderr
    (declared.workspace / "runnel.toml").write_text("lag_limit = 'many'\n")
    assert "lag_limit" in declared("status", code=4).stderr
    (declared.workspace / "runnel.toml").write_text("lag_limit = = 3\n")
    assert "not valid TOML" in declared("status", code=4).stderr


def test_missing_java_has_exit_code_5_and_a_hint(
    declared: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    demo = declared("demo", str(tmp_path / "demo"), code=5)
    assert "Spark needs Java" in demo.stderr
    assert "JAVA_HOME" in demo.stderr
    assert not (tmp_path / "demo").exists(), "nothing is begun that cannot be ended"
    doctor = declared("doctor", code=5)
    assert "✗ Java" in doctor.stdout
    assert "apt install" in doctor.stdout
    assert "✓ catalog" in doctor.stdout, "the other checks are made all the same"


def test_unknown_names_have_exit_code_6(declared: Command) -> None:
    assert "no feed Nope" in declared("preview", "Nope", code=6).stderr
    for words in (("show", "Nope"), ("explain", "Nope"), ("why", "1", "Nope"), ("why", "1", "Rock")):
        assert "error" in declared(*words, code=6).stderr


def test_backlog_has_its_own_exit_code(declared: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNEL_LAG_LIMIT", "2")
    monkeypatch.setenv("RUNNEL_PUBLISH_WAIT_SECONDS", "0")
    declared("publish", "Wire", "-", given=LINES)
    result = declared("publish", "Wire", "-", given='{"id": "3"}\n', code=4)
    assert "2 items wait for matching" in result.stderr


@pytest.mark.parametrize("words", [("report", "-o", "/nowhere/page.html"), ("init", "/dev/null/root")])
def test_unwritable_path_gives_an_error_without_traceback(declared: Command, words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*words, *(["-w", str(declared.workspace)] if words[0] == "report" else [])])
    assert isinstance(result.exception, SystemExit), result.exception
    assert "error" in result.stderr


def test_invalid_utf8_is_refused_or_replaced(declared: Command) -> None:
    result = CliRunner().invoke(app, ["exec", "-", "-w", str(declared.workspace)], input=b"register feed \xff;")
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 3


def test_demo_does_not_overwrite_other_folders(declared: Command, tmp_path: Path) -> None:
    refused = declared("demo", str(declared.workspace), code=4)
    assert "contains a workspace that the demo did not create" in refused.stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("keep me")
    assert "contains files that the demo did not create" in declared("demo", str(tmp_path / "mine"), code=4).stderr
    assert (tmp_path / "mine" / "letter.txt").read_text() == "keep me"


# --- doctor --------------------------------------------------------------------------------------------------------


def test_doctor_finds_missing_files_and_a_broken_plan(declared: Command) -> None:
    declared("publish", "Wire", "-", given=LINES)
    assert "1 files exist and have the right size" in declared("doctor").stdout
    next(declared.workspace.glob("items/log/*")).unlink()
    result = declared("doctor", code=5)
    assert "1 of 1 files are" in result.stdout
    for manifest in declared.workspace.glob("plans/*/manifest.json"):
        manifest.write_text("{")
    store._parts.clear()  # another process would not have the plan in memory
    findings = map(json.loads, declared("doctor", "--json", code=5).stdout.splitlines())
    assert {finding["check"] for finding in findings if not finding["well"]} == {"files", "plan"}


def test_doctor_reports_a_missing_match_index(tmp_path: Path) -> None:
    life = LongLife.make(tmp_path / "root", archive_segments=2)
    for _ in range(4):
        life.accept(2)
        life.match(2)
    life.advance(days=2)
    run_maintenance(life.workspace, life.epoch, asked=[5])
    life.workspace.close()
    command = Command(tmp_path / "root")
    assert "3 files exist" in command("doctor").stdout, "items, matches, and the index of those by query"
    [index] = (tmp_path / "root" / "matches").rglob("*.queries.arrow")
    index.unlink()
    stdout = command("doctor", code=5).stdout
    assert "1 of 3 files are" in stdout
    assert f"matches/day/{index.parent.name}/{index.name}" in stdout


def test_doctor_without_a_workspace_suggests_init(command: Command) -> None:
    assert "runnel init" in command("doctor").stdout


def test_doctor_reports_a_file_that_is_not_a_catalog(declared: Command) -> None:
    for file in declared.workspace.glob("catalog.sqlite*"):
        file.write_bytes(b"this is not a database, but it is long enough to be looked at" * 100)
    result = declared("doctor", code=5)
    assert "✗ catalog" in result.stdout
    messages = declared("status", code=1)
    assert "catalog" in messages.stderr


# --- help ----------------------------------------------------------------------------------------------------------


def test_every_command_has_help_with_an_example(command: Command) -> None:
    names = [
        registered_command.name or (registered_command.callback.__name__ if registered_command.callback else "")
        for registered_command in app.registered_commands
    ]
    groups = [str(group.name) for group in app.registered_groups]
    declaring = ["init", "adopt", "exec", "publish", "show", "explain", "why", "preview", "test", "status"]
    assert sorted(names) == sorted(
        [*declaring, "run", "report", "queries", "operators", "doctor", "demo", "backup", "restore"]
    )
    assert sorted(groups) == ["dead-letters", "opml", "owner", "token"]
    overview = command("--help").stdout
    assert "A first session" in overview
    for name in names:
        assert name in overview
        stdout = command(name, "--help").stdout
        assert "Example" in stdout
        assert f"runnel {name}" in " ".join(stdout.split())


# --- former names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--root", "."], ["--root=."], ["-r", "."], ["-r."]])
def test_former_name_of_the_workspace_option_works_with_a_warning(
    declared: Command, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(declared.workspace)
    result = CliRunner().invoke(app, ["show", "feeds", "--json", *words])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["message"]
    option = words[0].partition("=")[0].removesuffix(".")
    assert f"{option} is now {'--workspace' if option == '--root' else '-w'}" in result.stderr


def test_former_workspace_variable_works_with_a_warning(declared: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNEL_ROOT", str(declared.workspace))
    result = CliRunner().invoke(app, ["show", "feeds"])
    assert result.exit_code == 0, result.output
    assert "RUNNEL_ROOT is now RUNNEL_WORKSPACE" in result.stderr
    monkeypatch.setenv("RUNNEL_WORKSPACE", str(declared.workspace))
    monkeypatch.setenv("RUNNEL_ROOT", "/nowhere")
    result = CliRunner().invoke(app, ["show", "feeds"])
    assert (result.exit_code, result.stderr) == (0, "")


def test_former_command_works_with_a_warning(declared: Command) -> None:
    result = declared("letters", "list")
    assert "0 dead letters" in result.stdout
    assert "runnel letters is now runnel dead-letters" in result.stderr
    assert declared("dead-letters", "list").stderr == ""
