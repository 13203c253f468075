"""Read, check and store the stylesheets of a script before its transaction begins, so that none blocks the catalog.

In: the names in statements. Out: the paths in the workspace's storage where their content is kept permanently.
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
    """The stylesheets that statements name, each with the path under which it is kept from now on."""
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
        # Kept before. Whoever wrote into it since did so by hand: what was declared is what counts. And a young file
        # is not taken for one that nobody needs any more.
        workspace.storage.replace(path, data)
    return path
