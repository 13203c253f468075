"""`runnel`: the command and its subcommands."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from runnel import __version__
from runnel.cli.backup import backup, restore
from runnel.cli.closed_pipes import tolerating_closed_pipes
from runnel.cli.dead_letters import dead_letters
from runnel.cli.demo import demo
from runnel.cli.former_names import CommandGroup
from runnel.cli.operators import operators
from runnel.cli.opml import opml
from runnel.cli.options import (
    ActingOption,
    JsonOption,
    TokenOption,
    WorkspaceOption,
    check_admin_token,
    open_for_command,
    refuse_token,
)
from runnel.cli.output import (
    console,
    escaped,
    print_answers,
    print_json,
    print_note,
    reporting_errors,
    write_pictures,
)
from runnel.cli.owners import owner, token
from runnel.cli.queries import queries
from runnel.cli.report import report
from runnel.cli.run import run
from runnel.cli.trial import trial
from runnel.errors import InputError

app = typer.Typer(
    name="runnel",
    cls=CommandGroup,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help=(
        "Match streams of items against hundreds of thousands of standing queries on Apache Spark.\n\n"
        "A first session:\n\n"
        "    runnel init news && cd news\n\n"
        "    runnel exec \"register feed Wire; create feed Rock from Wire where title contains 'rock';"
        " subscribe to Rock output rss 'rock.xml';\"\n\n"
        '    echo \'{"id": "1", "title": "Rock am Ring"}\' | runnel publish Wire -\n\n'
        "    runnel run --once && cat out/rock.xml\n\n"
        "`runnel demo` runs all of this on generated news."
    ),
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        console.print(f"runnel {__version__}")
        raise typer.Exit


@app.callback()
def runnel(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def init(
    folder: Annotated[
        Path, typer.Argument(help="Folder of the new workspace. It is created if it does not exist.")
    ] = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a workspace: a folder with settings, a catalog and logs.

    Example: `runnel init news`
    """
    from runnel.engine.workspace import create_workspace

    with reporting_errors(as_json):
        refuse_token(token, "create a workspace")
        workspace = create_workspace(folder)
        workspace.close()
        if as_json:
            print_json({"workspace": str(workspace.folder)})
        else:
            console.print(f"[green]✓[/green] created a workspace in {workspace.folder}")
            console.print("next: declare feeds and subscriptions with [bold]runnel exec[/bold]")


@app.command("adopt")
def adopt_command(
    force: Annotated[
        bool, typer.Option("--force", help="Accept the catalog even if most of its files are missing.")
    ] = False,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Create a new key because the old one is lost. Stop the runner first.")
    ] = False,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Declare that the catalog and the files of a workspace belong together.

    All other commands refuse a catalog whose identity differs from that of the files. Use this command only if you
    know that the catalog is the right one, for example because you restored it from your own copy.

    With `--new-key`, the secrets that were encrypted with the lost key are deleted. Webhooks then need new signing
    keys: `rotate key of subscription 12;`.

    Example: `runnel adopt --workspace news`
    """
    from runnel.engine.workspace import adopt_workspace

    with reporting_errors(as_json):
        refuse_token(token, "accept a catalog")
        belonging = adopt_workspace(workspace, force=force, new_key=new_key)
        if as_json:
            print_json(
                {"workspace": str(workspace.absolute()), "named": belonging.named, "present": belonging.present}
            )
        else:
            console.print(
                f"[green]✓[/green] accepted the catalog and the files of {workspace.absolute()}: "
                f"{belonging.present} of {belonging.named} checked files exist"
            )
            if new_key:
                console.print(
                    "the secrets that were encrypted with the lost key were deleted; webhooks need new signing keys "
                    "(`rotate key of subscription 12;`)"
                )


@app.command("exec", context_settings={"ignore_unknown_options": True})  # a script may begin with a `--` comment
def execute(
    script: Annotated[
        str | None, typer.Argument(help="Statements, each followed by `;`. `-` reads standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the statements from a file.")] = None,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Execute statements. All declarations of a script are one transaction.

    Example: `runnel exec "create feed Rock from Wire where title contains 'rock';"`
    """
    from runnel.sources.drop_folder import read_file

    with reporting_errors(as_json), open_for_command(workspace, token, acting) as engine:
        if (script is None) == (file is None):
            raise InputError(
                "expected either statements or --file",
                hint="runnel exec 'show feeds;', or runnel exec --file feeds.runnel",
            )
        if file is not None:
            text = read_file(file).decode("utf-8", "replace")
        else:
            text = sys.stdin.buffer.read().decode("utf-8", "replace") if script == "-" else script or ""
        print_answers(engine.execute(text), as_json)


@app.command()
def publish(
    feed: Annotated[str, typer.Argument(help="The name of a source feed or table.")],
    document: Annotated[
        str,
        typer.Argument(
            help="A file (RSS, Atom, JSON Feed, JSON lines, RDF; for tables JSON or CSV); `-` reads standard input."
        ),
    ],
    whole: Annotated[
        bool, typer.Option("--whole", help="Delete the rows of the table that the document does not contain.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --whole: even delete more than half of the rows.")
    ] = False,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish the items of a document into a source feed, or changes of rows into a table.

    Example: `echo '{"id": "1", "title": "Rock am Ring"}' | runnel publish Wire -`
    """
    from runnel.sources.drop_folder import read_file

    with reporting_errors(as_json), open_for_command(workspace, token, acting) as engine:
        limit = engine.workspace.settings.max_document_bytes
        data = sys.stdin.buffer.read(limit + 1) if document == "-" else read_file(Path(document), limit=limit)
        accepted, refused = engine.publish_document(feed, data, name=document, whole=whole, force=force)
        if as_json:
            print_json(
                {
                    "feed": feed,
                    "accepted": accepted.accepted,
                    "unchanged": accepted.unchanged,
                    "late": accepted.late,
                    "refused": [str(problem) for problem in refused],
                    "last_sequence": accepted.last_sequence,
                }
            )
        else:
            late = f"{accepted.late} late, " if accepted.late else ""
            console.print(
                f"[green]✓[/green] {feed}: {accepted.accepted} accepted, {accepted.unchanged} unchanged, {late}"
                f"{len(refused)} refused"
            )
            for problem in refused[:10]:
                console.print(f"  {escaped(str(problem))}", soft_wrap=True)
        if refused and not accepted.accepted and not accepted.unchanged:
            raise typer.Exit(3)


@app.command()
def show(
    kind: Annotated[
        str,
        typer.Argument(
            help="`feeds`, `tables`, `rows`, `subscriptions`, `quarantine`, `dead letters`, `operators`, `prefixes`, "
            "or a feed's name."
        ),
    ] = "feeds",
    table: Annotated[str | None, typer.Argument(help="The name of a table, after `rows`.")] = None,
    where: Annotated[str | None, typer.Option(help="Show only the rows that satisfy this condition.")] = None,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """List feeds, tables, subscriptions, quarantine entries, dead letters, operators or prefixes, show the rows of a
    table, or show one feed.

    Example: `runnel show rows Stocks --where "per > 50"`
    """
    with reporting_errors(as_json), open_for_command(workspace, token, acting) as engine:
        if (kind == "rows") is not (table is not None) or (where is not None and table is None):
            raise InputError(
                "only `rows` needs the name of a table, and can have --where",
                hint="runnel show rows Stocks --where 'per > 50'",
            )
        if table is None:
            print_answers([engine.show(kind)], as_json)
        else:
            print_answers([engine.show_rows(table, where=where)], as_json)


@app.command()
def explain(
    feed: Annotated[str, typer.Argument(help="The name of a feed.")],
    picture: Annotated[
        Path | None,
        typer.Option(
            help="Draw the filter tree into this file, as SVG. Further trees go to numbered files next to it. "
            "Only the matcher `tree` has filter trees."
        ),
    ] = None,
    steps: Annotated[
        bool, typer.Option("--steps", help="Also show the feed's plan after each pass of the optimizer.")
    ] = False,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain how a feed is matched: its conditions, its index, its cost, and what it shares with other queries.

    Example: `runnel explain Rock --steps`
    """
    with reporting_errors(as_json), open_for_command(workspace, token, acting) as engine:
        outcome = engine.explain(feed, steps=steps)
        if picture is not None:
            outcome = replace(outcome, pictures=write_pictures(picture, engine.pictures(feed)))
        print_answers([outcome], as_json)


@app.command()
def why(
    item: Annotated[str, typer.Argument(help="The id of the item in its source.")],
    feed: Annotated[str, typer.Argument(help="The name of a feed.")],
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain why an item is in a feed or not.

    Example: `runnel why 1 Rock`
    """
    with reporting_errors(as_json), open_for_command(workspace, token, acting) as engine:
        print_answers([engine.why(item, feed)], as_json)


@app.command()
def preview(
    query: Annotated[str, typer.Argument(help="A `create feed` statement, or the name of a feed.")],
    days: Annotated[float, typer.Option(help="Match the items of this many past days.", min=0.001)] = 7,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the past items that a query would have matched. Nothing is declared or written.

    Example: `runnel preview "create feed Jazz from Wire where title contains 'jazz';" --days 2`
    """
    from datetime import timedelta

    with reporting_errors(as_json), open_for_command(workspace, token, acting) as engine:
        print_answers([engine.preview(query, since=timedelta(days=days), tell=print_note)], as_json)


@app.command()
def status(workspace: WorkspaceOption = Path(), token: TokenOption = None, as_json: JsonOption = False) -> None:
    """Show the state of the workspace: lag, plan, runner, messages, failing sources.

    Example: `runnel status --json`
    """
    with reporting_errors(as_json), open_for_command(workspace, token) as engine:
        current = engine.status()
        if as_json:
            print_json(current.to_json())
        else:
            for line in current.lines():
                console.print(escaped(line), soft_wrap=True)


def doctor(
    workspace: WorkspaceOption = Path(),
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Read every file and compare it with its checksum. Slow if there are many."),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Repair file permissions according to `shared_output`, and damaged windows."),
    ] = False,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine and, if there is one, the workspace: Python, Java, Spark, disk, catalog, files, operators.

    Data files must exist and have the right size. With `--deep` they are also read and compared with their checksums.
    Files that other users can read are reported. `--repair` makes them private, except for `out` if `shared_output`
    is set. It also drops the items of windows if one of their files is damaged, so that joins fill them again.

    Example: `runnel doctor --deep`
    """
    from runnel.cli.doctor import examine

    with reporting_errors(as_json):
        check_admin_token(workspace, token, "check the whole workspace")
    findings = list(examine(workspace, deep=deep, repair=repair))
    for finding in findings:
        if as_json:
            print_json(
                {
                    "check": finding.check,
                    "well": finding.is_well,
                    "detail": finding.detail,
                    "hint": finding.hint,
                }
            )
            continue
        console.print(f"{finding.mark} {finding.check:<9} {escaped(finding.detail)}", soft_wrap=True)
        if finding.hint:
            console.print(f"  hint: {escaped(finding.hint)}", soft_wrap=True)
    if not all(finding.is_well for finding in findings):
        raise typer.Exit(5)


app.add_typer(owner, name="owner")
app.add_typer(token, name="token")
app.add_typer(dead_letters, name="dead-letters")
app.add_typer(opml, name="opml")
app.command("test")(trial)
app.command()(run)
app.command()(report)
app.command()(queries)
app.command()(operators)
app.command()(backup)
app.command()(restore)
app.command()(doctor)
app.command()(demo)


def main() -> None:
    """Run the command `runnel`."""
    with tolerating_closed_pipes():
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
        app()
