"""A runner whose scheduler is stopped: `python refused_tasks.py WORKSPACE` prints `/healthz` before and after that.

After the scheduler is stopped, Spark rejects all tasks and retries them forever. The query stays active.
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from runnel.engine import Engine, connect
from runnel.web.server import Server
from tests.crash.harness import wait_until


def main() -> None:
    """Run until killed."""
    with connect(Path(sys.argv[1]), create=False, master="local[2]", stall_seconds=3) as engine:
        server = Server(engine.workspace, engine.hubs(), "127.0.0.1:0")
        threading.Thread(target=_report_health, args=(engine, server), daemon=True).start()
        engine.run(companions=[server])


def _report_health(engine: Engine, server: Server) -> None:
    try:
        _stop_scheduler(engine, server)
    finally:
        engine.stop()


def _stop_scheduler(engine: Engine, server: Server) -> None:
    wait_until(lambda: engine.workspace.matches.matched_upto() == 1, 400)
    wait_until(lambda: _health(server)[0] == 200, 400)
    print(json.dumps(_health(server)), flush=True)
    context: Any = SparkContext._active_spark_context
    context._jsc.sc().schedulerBackend().stop()  # sends StopExecutor to its endpoint
    engine.publish("Wire", [{"id": "second", "title": "rock"}])
    wait_until(lambda: _health(server)[0] == 503, 400)
    print(json.dumps(_health(server)), flush=True)


def _health(server: Server) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"{server.address}/healthz", timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


if __name__ == "__main__":
    main()
