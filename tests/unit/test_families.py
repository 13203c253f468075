"""Condition families of plug-in packages: loaded by entry points, and refused if they conflict or are broken."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from runnel import entry_points, families
from runnel.errors import InputError, InvalidItemError
from runnel.families import Family, ValueKind, load_part, registry
from runnel.language.grammar.parser import current_grammar
from runnel.language.syntax.reader import ConditionSyntax
from runnel.matching.costs.observe_stream import _Counts
from runnel.model.item import attributes_of
from runnel.model.structured_value import StructuredValue, kind_of_code


class Shape(StructuredValue):
    """A value whose text is not read at all."""

    __slots__ = ()
    kind = "shape"

    @classmethod
    def read(cls, text: str, *, place: str = "item") -> Shape:
        raise ZeroDivisionError(text)


class Other(Shape):
    """A value of another kind."""

    __slots__ = ()
    kind = "other"


Install = Callable[..., None]
SHAPES = Family(
    "shape",
    ValueKind("shape", 90, "shape", f"{__name__}:Shape"),
    pattern="no_such_module:Pattern",
    index="no_such_module:INDEX",
)
SAME_CODE = replace(SHAPES, name="too_late", kind=ValueKind("other", 90, "other", f"{__name__}:Other"))
NO_TYPE = replace(SHAPES, name="no_type", kind=ValueKind("none", 91, "none", "no_such_module:Type"))
OTHER_TYPE = replace(SHAPES, name="other_type", kind=ValueKind("other", 92, "other", f"{__name__}:Shape"))
ODD = Family("odd", ValueKind("odd", "93", 5, f"{__name__}:Shape"), "x:x", "x:x")  # type: ignore[arg-type]
FIRST_WORD = ConditionSyntax(("not",), lambda tokens: tokens.unexpected())  # type: ignore[arg-type, return-value]
TAKEN = ConditionSyntax(("WORD",), FIRST_WORD.parse)
OWN = ConditionSyntax(("shape",), FIRST_WORD.parse)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Makes packages look installed: entry points by name, each with the object of this module that it names."""
    installed: list[EntryPoint] = []

    def add(**objects: str) -> None:
        installed.extend(EntryPoint(name, f"{__name__}:{value}", families.GROUP) for name, value in objects.items())
        registry.cache_clear()

    monkeypatch.setattr(entry_points, "entry_points", lambda group: installed if group == families.GROUP else [])
    monkeypatch.setattr(families, "plugin_names", entry_points.plugin_names.__wrapped__)
    yield add
    registry.cache_clear()


def test_family_of_an_installed_package_is_registered(install: Install) -> None:
    install(shape="SHAPES")
    assert list(registry().families) == [*(family.name for family in families.BUILT_IN), "shape"]
    assert kind_of_code(90) is Shape
    assert entry_points.plugin_packages(families.GROUP) == (__name__.partition(".")[0],)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("broken", "no_such_object", "cannot be loaded"),
        ("text", "__name__", "is not a Family"),
        ("other", "SHAPES", "with the name 'shape'"),
        ("too_late", "SAME_CODE", "the kind of value shape already uses the code 90 and the attribute shape"),
        ("no_type", "NO_TYPE", "no_such_module:Type cannot be loaded"),
        ("other_type", "OTHER_TYPE", "must be 'other'"),
        ("odd", "ODD", "the attribute kind of"),
    ],
)
def test_unusable_family_is_logged_and_others_stay_available(
    install: Install, caplog: pytest.LogCaptureFixture, name: str, value: str, rule: str
) -> None:
    install(**{name: value, "shape": "SHAPES"})
    assert list(registry().families) == [*(family.name for family in families.BUILT_IN), "shape"]
    assert f"the condition family {name!r} is not available" in caplog.text
    assert rule in caplog.text


def test_package_cannot_replace_a_built_in_family(
    install: Install, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SHAPES", replace(SHAPES, name="graph"))
    install(graph="SHAPES")
    assert registry().families["graph"] == families.BUILT_IN[0]
    assert "a condition family named graph already exists" in caplog.text


@pytest.mark.parametrize(
    ("syntax", "rule"),
    [
        ("FIRST_WORD", "its conditions begin with the keyword 'not'"),
        ("TAKEN", "two families of conditions begin with WORD"),
        ("SHAPES", "is not a ConditionSyntax"),
        ("no_such_object", "cannot be loaded"),
    ],
)
def test_syntax_that_conflicts_with_the_grammar_is_ignored(
    install: Install, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, syntax: str, rule: str
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SHAPES", replace(SHAPES, syntax=f"{__name__}:{syntax}"))
    install(shape="SHAPES")
    assert set(current_grammar().conditions).isdisjoint({"shape", "not"})
    assert "graph" in current_grammar().conditions
    assert rule in caplog.text


def test_syntax_that_begins_with_the_name_of_its_family_is_added_to_the_grammar(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SHAPES", replace(SHAPES, syntax=f"{__name__}:OWN"))
    install(shape="SHAPES")
    assert "shape" in current_grammar().conditions


def test_parts_of_a_package_that_fail_are_refused_when_they_are_used(install: Install) -> None:
    install(shape="SHAPES")
    with pytest.raises(InputError, match="no_such_module:INDEX cannot be loaded"):
        load_part(SHAPES.index)
    with pytest.raises(InvalidItemError, match="shape cannot be read as a shape: ZeroDivisionError: round"):
        attributes_of({"shape": "round"})
    counts = _Counts()
    counts.add({"shape": (Shape("round"),), "title": ("rock",)})
    assert counts.sample().words == {"rock": 1}


def test_values_of_an_uninstalled_package_are_reported() -> None:
    with pytest.raises(InputError, match="no kind of value has the code 90") as refused:
        kind_of_code(90)
    assert refused.value.hint == "install the package of the condition family that reads such values"


def test_importing_runnel_loads_no_family() -> None:
    """A package imports modules of Runnel, so none of these may look for packages while it is imported."""
    program = """
import runnel.engine, runnel.streaming.worker.match_job, runnel.sources.document_child
import runnel.language.grammar.parser, runnel.scaleout.cover.graph_cover
from runnel.families import registry
print(registry.cache_info().currsize)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
