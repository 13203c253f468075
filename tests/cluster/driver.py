"""A runner whose workers are on a cluster: `python driver.py WORKSPACE MASTER`.

It matches and delivers all current items, creates the file `caught-up`, and then continues to run until SIGTERM.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from runnel.engine import connect


def main() -> None:
    """Run the workspace once, and then until SIGTERM, with the same Spark session."""
    root, master = Path(sys.argv[1]), sys.argv[2]
    with connect(root, create=False, master=master, driver_memory="1g") as engine:
        engine.run(once=True)
        (root / "caught-up").touch()
        signal.signal(signal.SIGTERM, lambda number, frame: engine.stop())
        engine.run()


if __name__ == "__main__":
    main()
