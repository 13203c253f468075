"""The names that users import from `runnel`."""

from __future__ import annotations

import builtins
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import runnel
from runnel import errors


def test_every_public_name_can_be_imported() -> None:
    for name in runnel.__all__:
        assert getattr(runnel, name) is not None, name


def test_every_error_can_be_imported_from_runnel() -> None:
    raised = {
        name: kind
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.RunnelError)
    }
    assert raised.keys() <= set(runnel.__all__)
    for name, kind in raised.items():
        assert getattr(runnel, name) is kind
        assert name.endswith("Error")


def test_only_compile_shadows_a_builtin() -> None:
    assert {name for name in runnel.__all__ if hasattr(builtins, name)} == {"compile"}


def test_star_import_does_not_replace_the_builtin_open() -> None:
    names: dict[str, object] = {}
    exec("from runnel import *", names)
    assert "open" not in names
    assert names["connect"] is runnel.connect


def test_open_still_works_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match=r"use runnel\.connect"):
        connect = runnel.open
    assert connect is runnel.connect
    with connect(tmp_path / "news") as engine:
        assert isinstance(engine, runnel.Engine)


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = runnel.nothing


def test_importing_runnel_loads_neither_the_catalog_nor_spark() -> None:
    program = (
        "import sys, runnel; print([name for name in ('sqlalchemy', 'pyspark', 'numpy') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
