"""Where sinks may write; and how they are found."""

from __future__ import annotations

import importlib
import os
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from runnel import entry_points as plugins
from runnel.errors import DeliveryError, InputError
from runnel.sinks import registry
from runnel.sinks.contract import LocalSink, Sink
from runnel.sinks.files.feed_file import AtomFile, JsonFeedFile, RssFile
from runnel.sinks.files.lines_file import JsonLinesFile
from runnel.sinks.files.targets import draft_name
from runnel.sinks.match_log_only import MatchLogOnly

Make = Callable[..., Any]
SINKS: list[LocalSink] = [RssFile(), AtomFile(), JsonFeedFile(), JsonLinesFile()]
file_sinks = pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.kind)


@file_sinks
def test_file_targets_become_canonical(sink: LocalSink, tmp_path: Path) -> None:
    allowed = tmp_path / "www"
    allowed.mkdir()
    assert sink.validate_target("a//./b.xml", tmp_path) == "a/b.xml"
    assert sink.validate_target(str(allowed / "x" / "a.xml"), tmp_path, [allowed]) == str(allowed / "x" / "a.xml")
    assert not (tmp_path / "out").exists()


@file_sinks
@pytest.mark.parametrize(
    "target",
    [None, "", "  ", ".", "/", "..", "../a.xml", "a/../../b", "a/..", "a/", "a\0b", "a\nb", "a\ud800b", "/etc/passwd",
     "~/a", "file:///tmp/a", "x" * 300, "folder", "link.xml", "linked/a.xml", "pipe"],
)  # fmt: skip
def test_invalid_file_targets_are_refused(sink: LocalSink, target: str | None, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "folder").mkdir(parents=True)
    (out / "link.xml").symlink_to(tmp_path / "victim")
    (out / "linked").symlink_to(tmp_path)
    os.mkfifo(out / "pipe")
    with pytest.raises(InputError) as caught:
        sink.validate_target(target, tmp_path, [tmp_path / "www"])
    assert caught.value.hint


@file_sinks
@pytest.mark.parametrize(
    "name", [".rock.xml.draft", ".ROCK.XML.DRAFT", "a/.rock.xml.draft", ".x.draft/a.xml", "..draft"]
)
def test_the_name_of_a_draft_of_another_output_is_refused(
    sink: LocalSink, name: str, tmp_path: Path, make_item: Make, make_delivery: Make
) -> None:
    with pytest.raises(InputError, match="draft"):
        sink.validate_target(name, tmp_path)
    delivery = make_delivery(name, make_item("a", 1))
    with pytest.raises(DeliveryError, match="draft"):
        sink.deliver(delivery)


def test_names_similar_to_drafts_are_allowed(tmp_path: Path) -> None:
    for name in ("rock.draft", ".rock.xml", ".draft.xml", "draft/rock.xml", ".draft"):
        assert RssFile().validate_target(name, tmp_path) == name


@pytest.mark.parametrize("name", ["rock.xml", "x" * 200, "röck"])
def test_output_cannot_have_the_name_of_a_draft(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        RssFile().validate_target(draft_name(name), tmp_path)


@file_sinks
def test_allowed_folder_itself_and_its_siblings_are_refused(sink: LocalSink, tmp_path: Path) -> None:
    for target in (tmp_path / "www", tmp_path / "www2" / "a", tmp_path / "www" / ".." / "a"):
        with pytest.raises(InputError):
            sink.validate_target(str(target), tmp_path, [tmp_path / "www"])


@file_sinks
@pytest.mark.parametrize("target", ["late.xml", "folder/late.xml"])
def test_symbolic_link_created_later_is_not_followed(
    sink: LocalSink, target: str, make_item: Make, make_delivery: Make, tmp_path: Path
) -> None:
    assert sink.validate_target(target, tmp_path) == target
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    victim = elsewhere / "late.xml"
    victim.write_text("precious")
    out = tmp_path / "out"
    out.mkdir()
    if "/" in target:
        (out / "folder").symlink_to(elsewhere)
    else:
        (out / "late.xml").symlink_to(victim)
    with pytest.raises(DeliveryError) as caught:
        sink.deliver(make_delivery(target, make_item("a", 1)))
    assert caught.value.hint
    assert victim.read_text() == "precious"
    assert [path.name for path in elsewhere.iterdir()] == ["late.xml"]


@file_sinks
def test_symbolic_link_created_between_check_and_use_is_not_followed(
    sink: LocalSink, make_item: Make, make_delivery: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runnel.sinks.files.targets._refuse_links", lambda *_: None)
    (tmp_path / "out").mkdir()
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "a.xml").write_text("precious")
    (tmp_path / "out" / "a.xml").symlink_to(tmp_path / "victim" / "a.xml")
    (tmp_path / "out" / "b").symlink_to(tmp_path / "victim")
    for target in ("a.xml", "b/a.xml"):
        with pytest.raises(DeliveryError):
            sink.deliver(make_delivery(target, make_item("a", 1)))
    assert (tmp_path / "victim" / "a.xml").read_text() == "precious"


@pytest.mark.parametrize("sink", SINKS[:3], ids=lambda sink: sink.kind)
def test_planted_draft_file_is_not_written_through(
    sink: LocalSink, make_item: Make, make_delivery: Make, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".a.xml.draft").symlink_to(victim)
    sink.deliver(make_delivery("a.xml", make_item("a", 1)))
    assert victim.read_text() == "precious"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.xml"]


@file_sinks
def test_named_pipe_as_target_does_not_block(
    sink: LocalSink, make_item: Make, make_delivery: Make, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("runnel.sinks.files.targets._refuse_links", lambda *_: None)
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "a.xml")
    with pytest.raises(DeliveryError, match="regular"):
        sink.deliver(make_delivery("a.xml", make_item("a", 1)))


@file_sinks
def test_absolute_targets_in_allowed_folders_are_written(
    sink: LocalSink, make_item: Make, make_delivery: Make, tmp_path: Path
) -> None:
    target = tmp_path / "allowed" / "deep" / "a.xml"
    sink.deliver(make_delivery(str(target), make_item("a", 1)))
    assert target.is_file()


def test_output_log_refuses_a_target(tmp_path: Path) -> None:
    assert MatchLogOnly().validate_target(None, tmp_path) is None
    with pytest.raises(InputError):
        MatchLogOnly().validate_target("a", tmp_path)


def test_the_declared_entry_points_are_sinks_of_that_kind() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())
    declared = project["project"]["entry-points"][registry.GROUP]
    for kind, value in declared.items():
        module, _, name = value.partition(":")
        if module.startswith("runnel.sinks."):
            sink = getattr(importlib.import_module(module), name)()
            assert isinstance(sink, Sink)
            assert sink.kind == kind


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    entries = [
        EntryPoint("rss", "runnel.sinks.files.feed_file:RssFile", registry.GROUP),
        EntryPoint("atom", "runnel.sinks.files.feed_file:AtomFile", registry.GROUP),
        EntryPoint("gone", "no.such.module:Sink", registry.GROUP),
        EntryPoint("odd", "builtins:object", registry.GROUP),
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda group: EntryPoints(entries))
    monkeypatch.setattr(registry, "OPENED", {})
    plugins.plugin_names.cache_clear()
    yield
    plugins.plugin_names.cache_clear()


@pytest.mark.usefixtures("installed")
def test_sinks_are_found_by_name() -> None:
    assert isinstance(registry.open_sink("rss"), RssFile)
    assert [sink.kind for sink in registry.installed_sinks()] == ["atom", "rss"]
    for kind, word in (("rsss", "did you mean rss"), ("ATOM", "did you mean atom"), ("telegram", "known: atom")):
        with pytest.raises(InputError, match=word):
            registry.open_sink(kind)
    for kind in ("gone", "odd"):
        with pytest.raises(InputError, match=kind):
            registry.open_sink(kind)
