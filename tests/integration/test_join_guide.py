"""The guide about joins: its statements are accepted, and its JSON and XML are what Runnel writes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from lxml import etree
from tests.integration.in_process import InProcess

import runnel
from runnel.testing import FakeClock

ROOT = Path(__file__).parent.parent.parent
GUIDE = (ROOT / "docs" / "guides" / "join-feeds.md").read_text("utf-8")
SPACE = 'xmlns:runnel="https://runnel.example/ns/feed/1"'


def blocks(language: str) -> list[str]:
    """Return the blocks of the guide in a language. Statements have none."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


def shape(element: etree._Element) -> list[tuple[str, dict[str, str], str]]:
    """Return the elements below an element: their names, attributes and texts."""
    return [
        (str(each.tag), {str(name): str(value) for name, value in each.items()}, (each.text or "").strip())
        for each in element.iter()
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The output of a workspace in which the statements of the guide were executed, and items matched."""
    statements = blocks("")
    assert len(statements) == 3
    with runnel.connect(tmp_path / "workspace", clock=FakeClock()) as engine:
        sheets = engine.workspace.folder / "sheets"
        sheets.mkdir(exist_ok=True)
        shutil.copy(ROOT / "examples" / "photos" / "IncludePhotos.xsl", sheets)
        engine.execute("register feed Blog; register feed Tweets;" + "".join(statements))
        engine.execute("subscribe to Rich output jsonl 'rich.jsonl'; subscribe to Shown output rss 'shown.xml';")
        run = InProcess(engine)
        photo = {
            "id": "p1",
            "title": "Muse live in Paris",
            "link": "https://photos.example/1",
            "published": "2026-11-15T09:30:00Z",
            "enclosure": "https://photos.example/1.jpg",
            "enclosure:type": "image/jpeg",
        }
        engine.publish("Photos", [photo])
        engine.publish("News", [{"id": "n1", "title": "Muse live in Paris tonight"}])
        engine.publish("Blog", [{"id": "b1", "title": "Muse in Paris"}])
        run.run()
        run.run()
        run.close()
    return tmp_path / "workspace" / "out"


def test_guide_shows_what_is_written(folder: Path) -> None:
    [shown] = map(json.loads, blocks("json"))
    line = json.loads((folder / "shown.jsonl").read_text("utf-8"))
    [photo], [shown_photo] = line["annotations"]["photos"]["items"], shown["annotations"]["photos"]["items"]
    photo["attributes"] = {"title": photo["attributes"]["title"]}
    assert photo == shown_photo
    assert {name: line[name] for name in shown} == shown

    [xml] = blocks("xml")
    expected = etree.fromstring(xml.replace("<runnel:annotations", f"<runnel:annotations {SPACE}", 1))
    feed = etree.parse(folder / "shown.xml")
    [annotations] = feed.iter("{https://runnel.example/ns/feed/1}annotations")
    assert shape(annotations) == shape(expected)


def test_statements_of_the_guide_give_the_described_feeds(folder: Path) -> None:
    assert "https://photos.example/1.jpg" in (folder / "news.xml").read_text("utf-8")
    [line] = (folder / "rich.jsonl").read_text("utf-8").splitlines()
    rich = json.loads(line)
    assert (rich["id"], list(rich["annotations"])) == ("b1", ["photos"]), "items of Blog pass the join of News"
