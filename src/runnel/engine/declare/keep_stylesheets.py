"""Read, check and store the stylesheets of a script before its transaction begins, so that none blocks the catalog.

In: the file names in statements. Out: the paths in the workspace's storage under which copies are stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from runnel.catalog.declared import stylesheets
from runnel.engine.workspace import Workspace
from runnel.errors import InputError, Span, StatementError
from runnel.language.syntax.statements import MaterializeFeed, Statement, Subscribe
from runnel.sandbox.stylesheet_process import StylesheetTransformer


def keep_stylesheets(workspace: Workspace, statements: Iterable[Statement]) -> dict[str, str]:
    """Store copies of the stylesheets that statements name, and return the path of each copy by name."""
    named: dict[str, Span] = {}
    for statement in statements:
        match statement:
            case Subscribe(sheet=str(name), spans=spans):
                named.setdefault(name, spans.sheet)
            case MaterializeFeed(sheet=name, sheet_span=span):
                named.setdefault(name, span)
    if not named:
        return {}
    limits = workspace.settings
    with closing(
        StylesheetTransformer(seconds=limits.stylesheet_seconds, megabytes=limits.stylesheet_megabytes)
    ) as transformer:
        return {name: _keep(workspace, name, span, transformer) for name, span in named.items()}


def _keep(workspace: Workspace, name: str, span: Span, transformer: StylesheetTransformer) -> str:
    try:
        data = stylesheets.read_stylesheet(workspace.folder, name)
        transformer.check(data, name)
    except InputError as error:
        raise StatementError(error.message, hint=error.hint, span=span) from error
    path = stylesheets.kept_path(data)
    try:
        workspace.storage.write(path, data)
    except FileExistsError:
        # The copy exists already. Write it again, in case someone edited it by hand, and because garbage collection
        # spares young files, which protects the copy until its row is committed.
        workspace.storage.replace(path, data)
    return path
