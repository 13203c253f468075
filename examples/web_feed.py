"""A web server with a feed, and a workspace that polls it.

Run it with `python examples/web_feed.py`.
"""

from __future__ import annotations

import functools
import http.server
import tempfile
import threading
from pathlib import Path
from typing import Any

import runnel

FEED = "<rss><channel><title>Muse</title><item><guid>1</guid><title>On tour</title></item></channel></rss>"


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serve files without printing a line per request."""

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def main() -> None:
    """Serve a feed, register its address, run once, and show the item."""
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        site.mkdir()
        (site / "rss").write_text(FEED, "utf-8")
        handler = functools.partial(QuietHandler, directory=str(site))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/rss"
        with runnel.connect(Path(folder) / "news", allowed_addresses=("127.0.0.1/32",)) as engine:
            engine.execute(f"register feed '{address}' as MuseNews every 10 minutes;")
            engine.execute("subscribe to MuseNews output log;")
            engine.run(once=True)
            for match in engine.matches("MuseNews"):
                print(f"item {match.item.id}: {match.item.first('title')}")
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main()
