"""A runner that tests kill: `python victim.py WORKSPACE [--once] [--storage URL] [--die-after-output]`.

`GROUP` in the storage URL stands for the process group of the victim.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

from runnel.engine import connect
from runnel.sinks.contract import Delivery
from runnel.sinks.files.lines_file import JsonLinesFile


def main() -> None:
    """Run the workspace until the run ends or this process is killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--storage", default="")
    parser.add_argument("--die-after-output", action="store_true")
    options = parser.parse_args()
    if options.die_after_output:
        _die_after_output()
    settings = {"storage": options.storage.replace("GROUP", str(os.getpgrp()))} if options.storage else {}
    with connect(options.root, create=False, master="local[2]", **settings) as engine:
        signal.signal(signal.SIGTERM, lambda number, frame: engine.stop())
        engine.run(once=options.once)


def _die_after_output() -> None:
    deliver = JsonLinesFile.deliver

    def fatal(sink: JsonLinesFile, delivery: Delivery) -> str:
        deliver(sink, delivery)
        os.killpg(os.getpgrp(), signal.SIGKILL)
        return "never"

    JsonLinesFile.deliver = fatal  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    main()
