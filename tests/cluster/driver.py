"""A runner whose workers are on a cluster: `python driver.py ROOT MASTER`.

It matches and delivers what there is (and says so by making the file `caught-up`), then runs on until SIGTERM.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from runnel.engine import connect


def main() -> None:
    """Run the root once, then on, with one Spark session."""
    root, master = Path(sys.argv[1]), sys.argv[2]
    with connect(root, create=False, master=master, driver_memory="1g") as engine:
        engine.run(once=True)
        (root / "caught-up").touch()
        signal.signal(signal.SIGTERM, lambda number, frame: engine.stop())
        engine.run()


if __name__ == "__main__":
    main()
