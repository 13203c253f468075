"""Put photos into news: a join annotates news with photos, and a stylesheet includes them.

Run it with `python examples/photos_for_news.py`. Statements, stylesheet and items are in `examples/photos`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from lxml import etree

import runnel

FILES = Path(__file__).parent / "photos"


def publish_lines(engine: runnel.Engine, file: Path) -> None:
    """Publish items into the feeds that the lines name."""
    for line in file.read_text("utf-8").splitlines():
        item = json.loads(line)
        engine.publish(item.pop("feed"), [item])


def main() -> None:
    """Declare, publish, match twice, and print what the files contain."""
    with tempfile.TemporaryDirectory() as folder, runnel.connect(folder) as engine:
        (Path(folder) / "sheets").mkdir(exist_ok=True)
        shutil.copy(FILES / "IncludePhotos.xsl", Path(folder) / "sheets")
        engine.execute((FILES / "feeds.runnel").read_text("utf-8"))
        publish_lines(engine, FILES / "photos.jsonl")
        publish_lines(engine, FILES / "news.jsonl")

        engine.run(once=True)  # annotates the news and makes the items of MuseWithPhotos
        engine.run(once=True)  # matches the new items

        for line in (Path(folder) / "out" / "muse.jsonl").read_text("utf-8").splitlines():
            news = json.loads(line)
            photos = [photo["id"] for photo in news["annotations"]["join1"]["items"]]
            print(f"{news['id']}: {news['attributes']['title'][0]} has the photos {', '.join(photos)}")
        feed = etree.parse(Path(folder) / "out" / "muse.xml")
        for item in feed.iter("item"):
            print(f"\n{item.findtext('title')}\n{item.findtext('description')}")


if __name__ == "__main__":
    main()
