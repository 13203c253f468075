"""Operators are found by entry point or in allowed modules, and no other module is imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.matching.operators.ask.asked_plugins import plugins

from runnel.errors import OperatorRefusedError
from runnel.matching.operators.plugins.contract import Answer, FailedCall, OperatorCall, OperatorContext
from runnel.matching.operators.plugins.operator_process import describe_operator
from runnel.matching.operators.plugins.registry import (
    Signature,
    check_operator,
    check_source,
    find_operator,
    is_builtin,
    open_operator,
    operator_names,
    signature_of,
)
from runnel.model.operator import HOLDS, Parameter

__all__ = ["plugins"]

MODULES = ("city.vision", "city.described", "city.failing")


def test_an_allowed_function_is_found(plugins: Path) -> None:
    results = find_operator("city.vision:has_title", MODULES)
    operator = open_operator(results, OperatorContext())
    assert operator.answer([OperatorCall({"title": ("a",)}), OperatorCall({})]) == [HOLDS, ()]


def test_an_allowed_package_includes_its_submodules(plugins: Path) -> None:
    assert callable(find_operator("city.vision:echo", ["city"]))
    with pytest.raises(OperatorRefusedError, match="not allowed"):
        find_operator("cityscape.vision:echo", ["city"])


@pytest.mark.parametrize(
    "source", ["mine:run", "os:system", "city:vision", "city.visionary:run", "builtins:eval", "subprocess:run"]
)
def test_a_module_that_is_not_allowed_is_not_imported(source: str, plugins: Path) -> None:
    before = set(sys.modules)
    with pytest.raises(OperatorRefusedError, match="not allowed") as refused:
        find_operator(source, MODULES)
    assert "city.vision" in (refused.value.hint or "")
    assert not (plugins / "touched").exists()
    assert {name for name in set(sys.modules) - before if name.startswith(("mine", "city"))} == set()
    with pytest.raises(OperatorRefusedError):
        check_source(source, MODULES)


@pytest.mark.parametrize(
    "source",
    [
        *(
            "",
            ":",
            "a:",
            ":a",
            "city.vision:",
            "city.vision:a.b",
            "city.vision:_private",
            "../x:y",
            "a b:c",
            "regoin",
        ),
        *("city..vision:echo", ".city:echo", "city.vision:echo\n", "x" * 10_000, "x" * 600 + ":run"),
    ],
)
def test_an_invalid_source_is_refused_with_a_hint(source: str) -> None:
    with pytest.raises(OperatorRefusedError, match="there is no operator") as refused:
        find_operator(source, ["city", "x", "a"])
    assert refused.value.hint


def test_a_similar_name_is_suggested() -> None:
    with pytest.raises(OperatorRefusedError, match="did you mean region"):
        find_operator("regoin", [])


def test_a_function_that_a_module_only_imports_is_refused(plugins: Path) -> None:
    with pytest.raises(OperatorRefusedError, match="is not defined in the package of"):
        find_operator("city.described:system", MODULES)


def test_missing_functions_and_failing_modules_are_reported(plugins: Path) -> None:
    with pytest.raises(OperatorRefusedError, match="does not define echoes"):
        find_operator("city.vision:echoes", MODULES)
    with pytest.raises(OperatorRefusedError, match="not today"):
        find_operator("city.failing:run", MODULES)
    with pytest.raises(OperatorRefusedError, match="install its package on all workers"):
        find_operator("nowhere.at.all:run", ["nowhere"])
    with pytest.raises(OperatorRefusedError, match="not a function"):
        find_operator("city.vision:VALUE", MODULES) if _with_value() else None


def _with_value() -> bool:
    import city.vision  # type: ignore[import-not-found]

    class Value:
        __module__ = "city.vision"

    city.vision.VALUE = Value()
    return True


def test_entry_points_are_found_by_name() -> None:
    assert {"region", "distance", "http"} <= set(operator_names())
    assert is_builtin("region")
    assert not is_builtin("runnel.matching.operators.builtin.geo.region:Region"), (
        "a module must be allowed by somebody"
    )
    assert isinstance(find_operator("region", []), type)


def test_signatures_are_read_and_checked(plugins: Path) -> None:
    wanted = Signature(
        (Parameter("place", "input"), Parameter("people", "result", "int")),
        timedelta(milliseconds=40),
        False,
        5,
        ("picture",),
    )
    assert signature_of(find_operator("city.described:Mob", MODULES)) == wanted
    assert signature_of(find_operator("city.vision:echo", MODULES)) == Signature()
    with pytest.raises(OperatorRefusedError, match="wrong type"):
        signature_of(find_operator("city.described:Wrong", MODULES))


def test_a_plug_in_is_described_without_importing_it_in_this_process(plugins: Path) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "city"]:
        del sys.modules[name]
    described = describe_operator("city.described:Mob", OperatorContext(), MODULES)
    assert described.cost == timedelta(milliseconds=40)
    assert described.parameters == (Parameter("place", "input"), Parameter("people", "result", "int"))
    assert "city.described" not in sys.modules
    with pytest.raises(OperatorRefusedError, match="wrong type"):
        describe_operator("city.described:Wrong", OperatorContext(), MODULES)
    with pytest.raises(OperatorRefusedError, match="not allowed"):
        describe_operator("mine:run", OperatorContext(), MODULES)
    assert not (plugins / "touched").exists()


def test_a_plug_in_is_created_in_a_process_of_its_own(plugins: Path) -> None:
    with pytest.raises(OperatorRefusedError, match="no such model"):
        describe_operator("city.vision:Unmade", OperatorContext(), MODULES)
    assert describe_operator("city.vision:Place", OperatorContext({"a": "b"}), MODULES) == Signature()


def test_a_checked_operator_is_closed_even_if_its_check_fails() -> None:
    closed: list[str] = []

    class Waiting:
        def __init__(self, place: OperatorContext) -> None:
            self.name = place.name

        def answer(self, calls: Sequence[OperatorCall]) -> list[Answer]:
            raise AssertionError("nothing is asked")

        def check(self) -> None:
            if self.name == "away":
                raise OperatorRefusedError("the table is away")

        def close(self) -> None:
            closed.append(self.name)
            raise OSError("already closed")

    check_operator(Waiting, OperatorContext(name="there"))
    with pytest.raises(OperatorRefusedError, match="away"):
        check_operator(Waiting, OperatorContext(name="away"))
    assert closed == ["there", "away"]


def test_a_function_that_raises_fails_only_that_call(plugins: Path) -> None:
    operator = open_operator(find_operator("city.vision:moody", MODULES), OperatorContext())
    good, bad, text = operator.answer(
        [OperatorCall({}), OperatorCall({"mood": ("raise",)}), OperatorCall({"mood": ("text",)})]
    )
    assert good == ((1.0,),)
    assert bad == FailedCall("ValueError: a bad day")
    assert text == (("text",),)


def test_a_class_that_cannot_be_created_is_refused(plugins: Path) -> None:
    with pytest.raises(OperatorRefusedError, match="no such model"):
        open_operator(find_operator("city.vision:Unmade", MODULES), OperatorContext())
    with pytest.raises(OperatorRefusedError, match="no method answer"):
        open_operator(type("Mute", (), {"__init__": lambda self, place: None}), OperatorContext())
