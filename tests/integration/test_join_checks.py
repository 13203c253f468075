"""Joins from the command line: a workspace is declared, filled and run by commands, and its files are compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

NAMESPACES = {"runnel": "https://runnel.example/ns/feed/1"}
SHOWN = """
register feed News; register feed Photos;
create feed Shown from News as $n
  join last 3 months on Photos as $photos with $n[title similar window.title];
subscribe to Shown output jsonl 's.jsonl';
"""
PHOTOS = ('{"id":"p1","title":"Muse live in Paris"}', '{"id":"p2","title":"Cooking pasta"}')
NEWS = ('{"id":"n1","title":"Muse live in Paris tonight"}', '{"id":"n2","title":"Weather"}')
LINKS = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"
    xmlns:runnel="https://runnel.example/ns/feed/1" exclude-result-prefixes="runnel">
  <xsl:template match="/rss">
    <rss version="2.0"><channel><title>With links</title><link>https://links.example/</link><description/>
      <xsl:for-each select="channel/item">
        <item>
          <xsl:copy-of select="title | guid"/>
          <description>
            <xsl:for-each select="runnel:annotations[@name = 'photos']/runnel:item">
              <xsl:value-of select="concat(runnel:link, ' ')"/>
            </xsl:for-each>
          </description>
        </item>
      </xsl:for-each>
    </channel></rss>
  </xsl:template>
</xsl:stylesheet>
"""


class Shell:
    """Runs `runnel` in the folder of a workspace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str, given: str | None = None) -> str:
        command = [str(Path(sys.executable).parent / "runnel"), *words]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNNEL_")}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, input=given, capture_output=True, text=True, timeout=500
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def execute(self, script: str) -> None:
        """Execute a script from a file."""
        (self.folder / "script.runnel").write_text(script)
        self("exec", "-f", "script.runnel")

    def publish(self, feed: str, *lines: str) -> str:
        """Publish items, one per line, from standard input."""
        return self("publish", feed, "-", given="".join(f"{line}\n" for line in lines))

    def run(self) -> None:
        """Match and deliver what waits."""
        self("run", "--once")

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return the records of a file of JSON lines."""
        return [json.loads(line) for line in (self.folder / "out" / name).read_text("utf-8").splitlines()]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A shell in a new workspace."""
    Shell(tmp_path)("init", "r")
    return Shell(tmp_path / "r")


def joined_ids(line: dict[str, Any], name: str) -> list[str]:
    return [item["id"] for item in line["annotations"][name]["items"]]


@pytest.mark.spark
def test_news_is_annotated_with_earlier_photos(shell: Shell) -> None:
    shell.execute(SHOWN)
    shell.publish("Photos", *PHOTOS)
    shell.publish("News", *NEWS)
    shell.run()
    (line,) = shell.lines("s.jsonl")
    assert line["id"] == "n1"
    assert line["annotations"] == {
        "photos": {
            "items": [
                {"feed": "Photos", "id": "p1", "version": 1, "attributes": {"title": ["Muse live in Paris"]}},
            ],
            "count": 1,
        }
    }
    shell.publish("Photos", '{"id":"p3","title":"Weather"}')
    shell.run()
    assert shell.lines("s.jsonl") == [line]


@pytest.mark.spark
def test_count_window_is_filled_with_earlier_items_that_satisfy_its_condition(shell: Shell) -> None:
    shell.execute("register feed News; register feed Photos;")
    shell.publish(
        "Photos",
        *(
            json.dumps({"id": str(number), "band": "Muse", "category": "rock" if number in (1, 4, 7) else "pop"})
            for number in range(1, 11)
        ),
    )
    shell.execute(
        "create feed F from News as $n join last 2 items on Photos as $p with $n[band = window.band]"
        " where $p[category = 'rock']; subscribe to F output jsonl 'f.jsonl';"
    )
    shell.publish("News", '{"id":"n1","band":"Muse"}')
    shell.run()
    (line,) = shell.lines("f.jsonl")
    assert joined_ids(line, "p") == ["7", "4"]
    assert line["annotations"]["p"]["count"] == 2


@pytest.mark.spark
def test_annotations_pass_through_views_and_into_materialized_feeds(shell: Shell) -> None:
    (shell.folder / "sheets").mkdir(exist_ok=True)
    (shell.folder / "sheets" / "links.xsl").write_text(LINKS)
    shell.execute(
        SHOWN + "create feed Paris from Shown where title contains 'paris'; subscribe to Paris output rss 'p.xml';"
        "register feed Shown apply 'links.xsl' as WithLinks; subscribe to WithLinks output jsonl 'links.jsonl';"
    )
    shell.publish("Photos", '{"id":"p1","title":"Muse live in Paris","link":"https://photos.example/1"}', PHOTOS[1])
    shell.publish("News", *NEWS)
    shell.run()
    feed = etree.parse(shell.folder / "out" / "p.xml")
    assert feed.xpath("/rss/channel/item/runnel:entry/@item", namespaces=NAMESPACES) == ["n1"]
    path = "/rss/channel/item/runnel:annotations[@name = 'photos'][@count = '1']/runnel:item/runnel:title/text()"
    assert feed.xpath(path, namespaces=NAMESPACES) == ["Muse live in Paris"]
    shell.run()  # the items of the materialized feed
    (line,) = shell.lines("links.jsonl")
    assert line["feed"] == "WithLinks"
    assert line["attributes"]["title"] == ["Muse live in Paris tonight"]
    assert line["attributes"]["description"] == ["https://photos.example/1"]
