"""The reference page of the Python API: it contains all public names, and its examples are correct."""

from __future__ import annotations

import doctest
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from scripts.reference_python import documented

import runnel
from runnel import testing

PAGE = (Path(__file__).parent.parent.parent / "docs" / "reference" / "python.md").read_text("utf-8")


def test_every_public_name_is_on_the_page() -> None:
    headings = set(re.findall(r"^### (.+)$", PAGE, re.MULTILINE))
    assert headings == documented().keys()
    for name in runnel.__all__:
        assert f"`{name}`" in PAGE or f"### runnel.{name}\n" in PAGE or name == "spark", name
    for name in testing.__all__:
        assert f"### runnel.testing.{name}\n" in PAGE


@pytest.mark.parametrize(("name", "value"), documented().items(), ids=documented())
def test_every_public_name_and_method_is_described(name: str, value: Any) -> None:
    assert value.__doc__, name
    members = vars(value) if inspect.isclass(value) else {}
    for member, method in members.items():
        if not member.startswith("_") and (inspect.isfunction(method) or isinstance(method, property)):
            assert inspect.getdoc(method), f"{name}.{member}"


def test_every_example_on_the_page_is_correct() -> None:
    shown = re.findall(r"^>>> (.+)$", PAGE, re.MULTILINE)
    run: list[str] = []
    for name, value in documented().items():
        module = sys.modules[value.__module__]
        for test in doctest.DocTestFinder().find(value, name, module=module, globs=dict(vars(module))):
            run += [example.source.split("\n")[0] for example in test.examples]
            result = doctest.DocTestRunner().run(test)
            assert result.failed == 0, test.name
    assert len(shown) > 10
    assert set(shown) <= set(run)
