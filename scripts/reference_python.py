"""Generate the page of the Python API, from the docstrings and signatures of public names."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from scripts.reference_markdown import code, page, table

import runnel
from runnel import spark, testing
from runnel.engine.answers import Answer

_ENTRANCE = ("connect", "Engine", "MatchedItem")
_LIBRARY = ("compile", "CompiledPlan", "AnnotatedMatch")
_SAME_FOR_ALL = frozenset({"render", "lines", "to_json"})
"""Methods of all answers and rows; `Answer` describes them."""


def documented() -> dict[str, Any]:
    """All functions and classes of the page, by the names under which users reach them."""
    named = {f"runnel.{name}": getattr(runnel, name) for name in runnel.__all__}
    values = {
        name: value for name, value in named.items() if not isinstance(value, ModuleType) and not _is_error(value)
    }
    values["runnel.spark.match"] = spark.match
    return values | {f"runnel.testing.{name}": getattr(testing, name) for name in testing.__all__}


def python_page() -> str:
    """The API by subject: workspaces, answers, matching without a workspace, Spark, testing and errors."""
    members = documented()
    answers = sorted(
        name for name in runnel.__all__ if name not in (*_ENTRANCE, *_LIBRARY) and f"runnel.{name}" in members
    )
    return page(
        "# Python API",
        "Import these names from `runnel` or from `runnel.testing`. The package has type annotations. Three "
        "decisions explain the design: [parameters](../decisions/0113-parameters-become-tokens.md), "
        "[scripts](../decisions/0114-questions-come-before-or-after-declarations.md) and "
        "[answers](../decisions/0115-answers-render-themselves.md).",
        "## Workspaces",
        *(part for name in _ENTRANCE for part in _entry(f"runnel.{name}", members[f"runnel.{name}"])),
        "## Matching without a workspace",
        *(part for name in _LIBRARY for part in _entry(f"runnel.{name}", members[f"runnel.{name}"])),
        "## Matching in a Spark job",
        *_entry("runnel.spark.match", members["runnel.spark.match"]),
        "## Answers",
        "`Engine.execute` returns one `Answer` per statement, and most other methods return answers or their rows. "
        "All are frozen dataclasses. `str(answer)` is the text that the command line prints, and `answer.to_json()` "
        "the value that it prints with `--json`.",
        *(part for name in answers for part in _entry(f"runnel.{name}", members[f"runnel.{name}"])),
        "## Testing",
        inspect.cleandoc(testing.__doc__ or "").split("\n\n")[0],
        *(
            part
            for name in testing.__all__
            for part in _entry(f"runnel.testing.{name}", members[f"runnel.testing.{name}"])
        ),
        "## Errors",
        "All errors derive from `runnel.RunnelError`, and all can be imported from `runnel`. "
        "[Errors](errors.md) describes them: "
        f"{', '.join(code(name) for name in runnel.__all__ if _is_error(getattr(runnel, name)))}.",
    )


def _entry(name: str, value: Any) -> Iterator[str]:
    """A heading, the signature or fields, the docstring and its examples, and the public methods of a class."""
    yield f"### {name}"
    if not inspect.isclass(value):
        yield f"```\n{name}{_signature(value)}\n```"
        yield from _documentation(value)
        return
    yield from _documentation(value)
    if dataclasses.is_dataclass(value):
        fields = [
            (code(field.name), code(str(field.type)))
            for field in dataclasses.fields(value)
            if field.name not in ("notes", "details")
        ]
        if fields:
            yield table(["field", "type"], fields)
    methods = list(_methods(value))
    if methods:
        yield table(["member", "description"], [(code(shown), _summary(member)) for shown, member in methods])
    for _, member in methods:
        yield from _examples(member)


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines itself, with their signatures."""
    for name, member in vars(kind).items():
        if name.startswith("_") or (kind is not Answer and name in _SAME_FOR_ALL):
            continue
        if isinstance(member, property) or type(member).__name__ == "cached_property":
            yield name, member
        elif inspect.isfunction(member):
            yield f"{name}{_signature(member)}", member
        elif isinstance(member, classmethod | staticmethod):
            yield f"{name}{_signature(member.__func__)}", member


def _signature(function: Any) -> str:
    parameters = [
        value for value in inspect.signature(function).parameters.values() if value.name not in ("self", "cls")
    ]
    shown: list[str] = []
    for parameter, before in zip(parameters, [None, *parameters], strict=False):
        is_keyword = parameter.kind is parameter.KEYWORD_ONLY
        if before is not None and before.kind is before.POSITIONAL_ONLY and parameter.kind is not before.kind:
            shown.append("/")
        if is_keyword and (before is None or before.kind is not parameter.KEYWORD_ONLY):
            shown.append("*")
        shown.append(_parameter(parameter))
    if parameters and parameters[-1].kind is inspect.Parameter.POSITIONAL_ONLY:
        shown.append("/")
    result = inspect.signature(function).return_annotation
    return f"({', '.join(shown)})" + ("" if result in ("None", inspect.Signature.empty) else f" -> {result}")


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
    shown = f"{stars}{parameter.name}: {parameter.annotation}"
    if parameter.default is parameter.empty:
        return shown
    is_plain = parameter.default is None or isinstance(parameter.default, str | int | float | tuple)
    return f"{shown} = {parameter.default!r}" if is_plain else f"{shown} = …"


def _documentation(value: Any) -> Iterator[str]:
    """The paragraphs of a docstring, each on one line, then its examples."""
    yield from (" ".join(part.split("\n")) for part in _paragraphs(value) if not part.startswith(">>>"))
    yield from _examples(value)


def _examples(value: Any) -> Iterator[str]:
    examples = "\n".join(part for part in _paragraphs(value) if part.startswith(">>>"))
    if examples:
        yield f"```pycon\n{examples}\n```"


def _paragraphs(value: Any) -> list[str]:
    return (inspect.getdoc(value) or "").split("\n\n")


def _summary(member: Any) -> str:
    return " ".join(" ".join(part.split("\n")) for part in _paragraphs(member) if not part.startswith(">>>"))


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, runnel.RunnelError)
