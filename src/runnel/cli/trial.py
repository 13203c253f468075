"""`runnel test`: what queries say to items, before anything is published or subscribed to."""

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
            "Without one, the items of the past are taken."
        ),
    ] = None,
    feed: Annotated[
        str | None,
        typer.Option(help="The source feed that the items come from; not needed where only one is read."),
    ] = None,
    query: Annotated[list[str] | None, typer.Option(help="Only this query; may be given several times.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only queries with this tag.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only queries of this owner.")] = None,
    days: Annotated[float, typer.Option(help="How many days of the past to take.", min=0.001)] = 7,
    limit: Annotated[int, typer.Option(help="How many items to show.", min=1)] = 20,
    root: WorkspaceOption = Path(),
    token: TokenOption = None,
    acting: ActingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try queries on items: which of them match. Nothing is published, and nothing is written.

    Example: `echo '{"id": "1", "title": "Rock am Ring"}' | runnel test - --tag music`
    """
    from runnel.sources.drop_folder import read_file

    with reporting_errors(as_json), open_for_command(root, token, acting) as engine:
        queries = tuple(query or ())
        if document is None:
            if feed is not None:
                raise InputError("--feed says where the items of a document come from", hint="give a document too")
            found = engine.test(owner=owner, tag=tag, queries=queries, since=timedelta(days=days), limit=limit)
        else:
            most = engine.root.settings.max_document_bytes
            data = sys.stdin.buffer.read(most + 1) if document == "-" else read_file(Path(document), limit=most)
            found = engine.test_document(
                data, name=document, feed=feed, owner=owner, tag=tag, queries=queries, limit=limit
            )
        print_answers([found], as_json)
