"""The runner of a benchmark on a cluster, in its own process: `python -m benchmarks.cluster_driver WORKSPACE`.

Its settings come from environment variables such as `RUNNEL_MASTER`. It matches all items and prints one line of
JSON: the number of bytes that went from stage to stage, as Spark reports it.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from runnel.engine import connect


def main() -> None:
    """Run the workspace once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", help="the root to run")
    root = parser.parse_args().root
    with connect(root, create=False) as engine:
        started = time.perf_counter()
        engine.run(once=True)
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        messages = shuffled(session.sparkContext) | {"run_seconds": time.perf_counter() - started}
    print(json.dumps(messages), flush=True)


def shuffled(context: Any) -> dict[str, int]:
    """Return the bytes that stages wrote for other stages, and those of them that were read from other machines.

    They are sums over all stages in Spark's status store, which its pages and REST API also show.
    """
    store = context._jsc.sc().statusStore()
    no_quantiles = context._gateway.new_array(context._jvm.double, 0)
    nothing = context._jvm.java.util.ArrayList()
    stages = store.stageList(nothing, False, False, no_quantiles, nothing)
    sums = {"stages": 0, "shuffle_bytes": 0, "remote_bytes": 0, "shuffle_records": 0}
    for place in range(stages.size()):
        stage = stages.apply(place)
        sums["stages"] += 1
        sums["shuffle_bytes"] += int(stage.shuffleWriteBytes())
        sums["shuffle_records"] += int(stage.shuffleWriteRecords())
        sums["remote_bytes"] += int(stage.shuffleRemoteBytesRead())
    return sums


if __name__ == "__main__":
    main()
