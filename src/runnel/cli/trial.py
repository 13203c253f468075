"""`runnel test`: match items against queries without publishing the items."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from runnel.cli.options import ActingOption, JsonOption, TokenOption, WorkspaceOption, open_for_command
from runnel.cli.output import print_answers, reporting_errors
from runnel.errors import InputError


def trial(
    document: Annotated[
        str | None,
        typer.Argument(
            help="A file of items (RSS, Atom, JSON Feed, JSON lines, RDF); `-` reads standard input. "
            "Default: the items of the past days."
        ),
    ] = None,
    feed: Annotated[
        str | None,
        typer.Option(
            help="The source feed that the document's items belong to. Required if the queries read several."
        ),
    ] = None,
    query: Annotated[list[str] | None, typer.Option(help="Test only this query. May be repeated.")] = None,
    tag: Annotated[str | None, typer.Option(help="Test only queries with this tag.")] = None,
    owner: Annotated[str | None, typer.Option(help="Test only queries of this owner.")] = None,
    days: Annotated[float, typer.Option(help="Match the items of this many past days.", min=0.001)] = 7,
    limit: Annotated[int, typer.Option(help="Maximum number of items to show.", min=1)] = 20,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Match items against queries without publishing or writing anything.

    Example: `echo '{"id": "1", "title": "Rock am Ring"}' | runnel test - --tag music`
    """
    from runnel.sources.drop_folder import read_file

    with reporting_errors(as_json), open_for_command(workspace, token, acting) as engine:
        queries = tuple(query or ())
        if document is None:
            if feed is not None:
                raise InputError("--feed requires a document", hint="give a file of items, or leave out --feed")
            result = engine.test(owner=owner, tag=tag, queries=queries, since=timedelta(days=days), limit=limit)
        else:
            max_bytes = engine.workspace.settings.max_document_bytes
            data = (
                sys.stdin.buffer.read(max_bytes + 1)
                if document == "-"
                else read_file(Path(document), limit=max_bytes)
            )
            result = engine.test_document(
                data, name=document, feed=feed, owner=owner, tag=tag, queries=queries, limit=limit
            )
        print_answers([result], as_json)
